/*
** Steps of library functions, which count as instructions do: when TICK of
** them are over, the host is asked whether the script goes on.
*/

#ifndef steps_h
#define steps_h

#include "lstate.h"

/* asks the host; raises an error if the script is stopped */
LUAI_FUNC void dunlin_ask (lua_State *L);

/* counts steps where an error may be raised */
#define dunlin_step(L,n) \
  { if (((L)->hookcount -= (int)(n)) <= 0) dunlin_ask(L); }

/* counts steps where none may be: the next instruction asks the host */
#define dunlin_charge(L,n) \
  { if ((size_t)(L)->hookcount > (size_t)(n)) (L)->hookcount -= (int)(n); \
    else (L)->hookcount = 1; }

/* bytes that are copied or compared in the time of a step */
#define dunlin_bytes(n)		((n) >> 4)

/* the same with a limit, for dunlin_step */
#define dunlin_limited(n)	((n) < (1 << 20) ? (n) : (1 << 20))

/* strings from which on their bytes count */
#define DUNLIN_LONG_STRING	256

/* counts the bytes of a value that is a long string */
#define dunlin_charge_text(L,o) \
  { if (ttisstring(o) && tsvalue(o)->len >= DUNLIN_LONG_STRING) \
      dunlin_charge(L, dunlin_bytes(tsvalue(o)->len)); }

#endif
