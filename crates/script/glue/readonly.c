/*
** Tables that cannot be changed. The flag, and the error at each store, are in
** patches/readonly.patch.
*/

#include "lua.h"
#include "lobject.h"
#include "lstate.h"

/* the value at `index' is a table */
void dunlin_set_readonly (lua_State *L, int index, int readonly) {
  ((Table *)lua_topointer(L, index))->readonly = (lu_byte)(readonly != 0);
}

/* the same for the table of global variables, at each run of a script */
void dunlin_set_globals_readonly (lua_State *L, int readonly) {
  hvalue(gt(L))->readonly = (lu_byte)(readonly != 0);
}

int dunlin_is_readonly (lua_State *L, int index) {
  return lua_istable(L, index) &&
         ((const Table *)lua_topointer(L, index))->readonly;
}
