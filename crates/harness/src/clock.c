/* Loaded before the C library. The wall clock is ahead by the seconds in the file CLOCK_AHEAD, eight bytes. */
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static long ahead(void) {
    static const long *seconds;
    static const long none = 0;
    if (!seconds) {
        const char *file = getenv("CLOCK_AHEAD");
        int in = file ? (int)syscall(SYS_openat, AT_FDCWD, file, O_RDONLY) : -1;
        void *there = in < 0 ? MAP_FAILED : mmap(0, sizeof none, PROT_READ, MAP_SHARED, in, 0);
        if (in >= 0) syscall(SYS_close, in);
        seconds = there == MAP_FAILED ? &none : there;
    }
    return *(const volatile long *)seconds;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int done = (int)syscall(SYS_clock_gettime, clock, at);
    if (!done && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += ahead();
    return done;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    int done = (int)syscall(SYS_gettimeofday, at, zone);
    if (!done) at->tv_sec += ahead();
    return done;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
