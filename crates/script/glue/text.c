/*
** In place of Lua's reader of precompiled chunks, which can make an
** interpreter do anything: such a chunk is read as source, which it is not.
*/

#include <string.h>

#define LUA_CORE

#include "lua.h"

#include "lparser.h"
#include "lundump.h"

Proto *luaU_undump (lua_State *L, ZIO *Z, Mbuffer *buff, const char *name) {
  return luaY_parser(L, Z, buff, name);
}

/* the head of what string.dump makes */
void luaU_header (char *h) {
  const int one = 1;
  const char head[LUAC_HEADERSIZE] = {
    LUA_SIGNATURE[0], LUA_SIGNATURE[1], LUA_SIGNATURE[2], LUA_SIGNATURE[3],
    LUAC_VERSION, LUAC_FORMAT, *(const char *)&one,
    sizeof(int), sizeof(size_t), sizeof(Instruction), sizeof(lua_Number), 0
  };
  memcpy(h, head, sizeof(head));
}
