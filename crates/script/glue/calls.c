/*
** Calls from Lua to Rust. An error is a longjmp, which must not skip a Rust
** frame: a Rust function returns a code, and the error is raised here.
*/

#include <limits.h>

#include "lua.h"
#include "lauxlib.h"
#include "ldebug.h"
#include "steps.h"

/* in Rust: the number of results, or one of the codes below */
extern int dunlin_enter (lua_State *L);

#define RAISE_VALUE	(-1)  /* the error is on top of the stack */
#define RAISE_MESSAGE	(-2)  /* so is its text, without the place */
#define RAISE_STOP	(-3)  /* the host has stopped the script */
#define RAISE_ARGUMENT	(-4)  /* a text, less the argument's number */

/* in Rust: ends the script, whose errors are not caught from here on */
extern void dunlin_end (lua_State *L);

static int stop (lua_State *L) {
  dunlin_end(L);
  lua_checkstack(L, 1);
  lua_pushliteral(L, "the script was stopped");
  return lua_error(L);
}

int dunlin_call (lua_State *L) {
  int n = dunlin_enter(L);
  if (n >= 0) return n;
  if (n == RAISE_VALUE) return lua_error(L);
  if (n == RAISE_STOP) return stop(L);
  if (n == RAISE_MESSAGE) {
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
    return lua_error(L);
  }
  return luaL_argerror(L, RAISE_ARGUMENT - n, lua_tostring(L, -1));
}

/* in Rust: whether the script goes on */
extern int dunlin_tick (lua_State *L);

void dunlin_hook (lua_State *L, lua_Debug *ar) {
  (void)ar;
  if (!dunlin_tick(L)) stop(L);
}

/* counts steps of a Rust function; whether the script goes on */
int dunlin_count (lua_State *L, int steps) {
  if ((L->hookcount -= steps) > 0) return 1;
  if (!(L->hookmask & LUA_MASKCOUNT)) {
    L->hookcount = INT_MAX;
    return 1;
  }
  resethookcount(L);
  return dunlin_tick(L);
}

void dunlin_ask (lua_State *L) {
  if (!dunlin_count(L, 0)) stop(L);
}

/* counts the bytes that a Rust function works through at once */
void dunlin_count_bytes (lua_State *L, size_t bytes) {
  dunlin_charge(L, dunlin_bytes(bytes));
}
