/*
** Functions of Lua's basic library that scripts get in a form of ours.
*/

#include "lua.h"
#include "lauxlib.h"
#include "lualib.h"

/* in Rust: whether the host has ended the script */
extern int dunlin_is_ending (lua_State *L);

/* Calls the function of Lua's own that a closure is about. It answers with
** false and an error in place of raising it; the end of a script is raised. */
static int protected_call (lua_State *L) {
  lua_CFunction own = (lua_CFunction)lua_touserdata(L, lua_upvalueindex(1));
  int results = own(L);
  if (!lua_toboolean(L, -results) && dunlin_is_ending(L)) return lua_error(L);
  return results;
}

/* pcall: an error that is a table with a text is that text */
static int call_for_text (lua_State *L) {
  int results = protected_call(L);
  if (!lua_toboolean(L, -results) && lua_istable(L, -1)) {
    lua_pushliteral(L, "err");
    lua_rawget(L, -2);
    if (lua_isstring(L, -1)) lua_replace(L, -2);
    else lua_pop(L, 1);
  }
  return results;
}

/* puts `around' in the place of a function of the table on top */
static void wrap (lua_State *L, const char *name, lua_CFunction around) {
  lua_getfield(L, -1, name);
  lua_pushlightuserdata(L, (void *)lua_tocfunction(L, -1));
  lua_pushcclosure(L, around, 1);
  lua_setfield(L, -3, name);
  lua_pop(L, 1);
}

/* no interval overflows (CVE-2025-46817) */
static int unpack (lua_State *L) {
  long long first, last, n;
  luaL_checktype(L, 1, LUA_TTABLE);
  first = luaL_optint(L, 2, 1);
  last = lua_isnoneornil(L, 3) ? (int)lua_objlen(L, 1) : luaL_checkint(L, 3);
  if (first > last) return 0;
  n = last - first + 1;
  if (n > LUAI_MAXCSTACK || !lua_checkstack(L, (int)n))
    return luaL_error(L, "too many results to unpack");
  for (; first <= last; first++) lua_rawgeti(L, 1, (int)first);
  return (int)n;
}

/* opens the basic library and that of coroutines */
int dunlin_open_base (lua_State *L) {
  luaopen_base(L);
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  wrap(L, "pcall", call_for_text);
  wrap(L, "xpcall", protected_call);
  lua_pushcfunction(L, unpack);
  lua_setfield(L, -2, "unpack");
  lua_getfield(L, -1, "coroutine");
  wrap(L, "resume", protected_call);
  return 0;
}
