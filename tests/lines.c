/* Measures what a cache line costs that moves between two processors, given by number:
 *
 *   lines CPU CPU
 *
 * and prints nanoseconds, the least of many rounds: "handover", one processor sees what the other has stored;
 * "atomic", an atomic addition to a line that no other has.
 */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Many short rounds: in some of them no other program has one of the processors. */
enum { ROUNDS = 300, TURNS = 4000 };

static _Alignas(128) atomic_long turn;
static _Alignas(128) atomic_long counter;
static _Alignas(128) atomic_int ready;
static int cpus[2];
/* When the first thread began its work, after both had met. */
static double began_ns;

static double now_ns(void)
{
   struct timespec time;
   clock_gettime(CLOCK_MONOTONIC, &time);
   return time.tv_sec * 1e9 + time.tv_nsec;
}

static void run_on(int cpu)
{
   cpu_set_t set;
   CPU_ZERO(&set);
   CPU_SET(cpu, &set);
   if (sched_setaffinity(0, sizeof set, &set) != 0) {
      perror("lines: sched_setaffinity");
      exit(1);
   }
}

static void meet(long own)
{
   atomic_fetch_add(&ready, 1);
   while (atomic_load(&ready) < 2)
      ;
   if (own == 0)
      began_ns = now_ns();
}

static void* hand_over(void* number)
{
   long own = (long)number;
   run_on(cpus[own]);
   meet(own);
   for (long at = own; at < 2 * TURNS; at += 2) {
      while (atomic_load_explicit(&turn, memory_order_acquire) != at)
         ;
      atomic_store_explicit(&turn, at + 1, memory_order_release);
   }
   return NULL;
}

/* Returns how long it takes. */
static double hand_over_in_turn(void)
{
   pthread_t other;
   atomic_store(&ready, 0);
   atomic_store(&turn, 0);
   if (pthread_create(&other, NULL, hand_over, (void*)1) != 0) {
      perror("lines: pthread_create");
      exit(1);
   }
   hand_over((void*)0);
   double ended_ns = now_ns();
   pthread_join(other, NULL);
   return ended_ns - began_ns;
}

int main(int count, char** words)
{
   if (count != 3) {
      fprintf(stderr, "lines CPU CPU\n");
      return 2;
   }
   cpus[0] = atoi(words[1]);
   cpus[1] = atoi(words[2]);
   double handover = 1e9, alone = 1e9;
   for (int round = 0; round < ROUNDS; round++) {
      double time = hand_over_in_turn() / (2.0 * TURNS);
      handover = time < handover ? time : handover;
      double began = now_ns();
      for (int at = 0; at < TURNS; at++)
         atomic_fetch_add(&counter, 1);
      time = (now_ns() - began) / TURNS;
      alone = time < alone ? time : alone;
   }
   printf("handover %.2f\natomic %.2f\n", handover, alone);
   return 0;
}
