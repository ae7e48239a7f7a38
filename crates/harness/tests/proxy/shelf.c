/* A module for servers behind the proxy: commands that only they know.
 *
 * It declares the little of the API that it needs under the names that Redis and Valkey share. */
#include <stddef.h>

typedef struct Context Context;
typedef struct Word Word;
typedef struct Reply Reply;
typedef struct Blocked Blocked;
typedef struct Command Command;
typedef int (*Run)(Context *, Word **, int);

static int (*create_command)(Context *, const char *, Run, const char *, int, int, int);
static Command *(*get_command)(Context *, const char *);
static int (*create_subcommand)(Command *, const char *, Run, const char *, int, int, int);
static Reply *(*call)(Context *, const char *, const char *, ...);
static int (*reply_with_reply)(Context *, Reply *);
static int (*reply_with_simple)(Context *, const char *);
static int (*wrong_arity)(Context *);
static Blocked *(*block_client)(Context *, Run, Run, void (*)(Context *, void *), long long);

/* SHELF.PUT key value */
static int put(Context *context, Word **words, int count) {
  if (count != 3) return wrong_arity(context);
  return reply_with_reply(context, call(context, "SET", "!ss", words[1], words[2]));
}

/* SHELF.TAKE key */
static int take(Context *context, Word **words, int count) {
  if (count != 2) return wrong_arity(context);
  return reply_with_reply(context, call(context, "GET", "s", words[1]));
}

/* SHELF.AT LEN key */
static int len(Context *context, Word **words, int count) {
  if (count != 3) return wrong_arity(context);
  return reply_with_reply(context, call(context, "STRLEN", "s", words[2]));
}

static int waited(Context *context, Word **words, int count) {
  (void)words, (void)count;
  return reply_with_simple(context, "waited");
}

/* SHELF.WAIT key: for four seconds */
static int wait_for(Context *context, Word **words, int count) {
  (void)words;
  if (count != 2) return wrong_arity(context);
  block_client(context, waited, waited, NULL, 4000);
  return 0;
}

int RedisModule_OnLoad(Context *context, Word **words, int count) {
  int (*find)(const char *, void *) = ((void **)context)[0];
  void (*set_attributes)(Context *, const char *, int, int);
  (void)words, (void)count;
  if (find("RedisModule_SetModuleAttribs", &set_attributes) ||
      find("RedisModule_CreateCommand", &create_command) ||
      find("RedisModule_GetCommand", &get_command) ||
      find("RedisModule_CreateSubcommand", &create_subcommand) ||
      find("RedisModule_Call", &call) ||
      find("RedisModule_ReplyWithCallReply", &reply_with_reply) ||
      find("RedisModule_ReplyWithSimpleString", &reply_with_simple) ||
      find("RedisModule_WrongArity", &wrong_arity) ||
      find("RedisModule_BlockClient", &block_client))
    return 1;
  set_attributes(context, "shelf", 1, 1);
  return create_command(context, "shelf.put", put, "write", 1, 1, 1) ||
         create_command(context, "shelf.take", take, "readonly", 1, 1, 1) ||
         create_command(context, "shelf.wait", wait_for, "readonly blocking", 1, 1, 1) ||
         create_command(context, "shelf.at", NULL, "", 0, 0, 0) ||
         create_subcommand(get_command(context, "shelf.at"), "len", len, "readonly", 2, 2, 1);
}
