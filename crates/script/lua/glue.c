/*
** Calls from Lua to Rust. An error is a longjmp, which must not skip a Rust
** frame: a Rust function returns a code, and the error is raised here.
*/

#include "lua.h"
#include "lauxlib.h"

/* in Rust: the number of results, or one of the codes below */
extern int dunlin_enter (lua_State *L);

#define RAISE_VALUE	(-1)  /* the error is on top of the stack */
#define RAISE_MESSAGE	(-2)  /* so is its text, without the place */
#define RAISE_ARGUMENT	(-3)  /* less the argument's number */

int dunlin_call (lua_State *L) {
  int n = dunlin_enter(L);
  if (n >= 0) return n;
  if (n == RAISE_VALUE) return lua_error(L);
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
  if (!dunlin_tick(L)) {
    lua_setending(L, 1);
    lua_pushliteral(L, "the script was stopped");
    lua_error(L);
  }
}
