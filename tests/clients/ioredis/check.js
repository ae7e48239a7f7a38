// What an application does through ioredis (RESP2) and node-redis (RESP3), plain and over TLS.
const assert = require("node:assert");
const fs = require("node:fs");
const { Redis } = require("ioredis");
const { createClient } = require("redis");

const { PORT, TLS_PORT, CA } = process.env;
const ca = fs.readFileSync(CA);

function check(name, given, expected) {
  assert.deepStrictEqual(given, expected, name);
  console.log(`ok ${name}`);
}

async function ioredis(label, options) {
  const client = new Redis(options);
  check(`${label} connect`, await client.ping(), "PONG");
  await client.flushdb();

  const pipeline = client.pipeline();
  for (let n = 0; n < 1000; n++) pipeline.set(`key:${n}`, n);
  pipeline.get("key:999");
  check(`${label} pipeline`, (await pipeline.exec()).at(-1), [null, "999"]);

  await client.watch("key:1");
  check(`${label} transaction`, await client.multi().set("key:1", 42).incr("key:1").exec(), [
    [null, "OK"],
    [null, 43],
  ]);
  const other = client.duplicate();
  await client.watch("key:1");
  await other.set("key:1", "other");
  check(`${label} watch`, await client.multi().set("key:1", "mine").exec(), null);

  await client.hset("user", { name: "Ada", year: 1815 });
  check(`${label} hash`, await client.hgetall("user"), { name: "Ada", year: "1815" });
  await client.zadd("board", 1, "a", 2.5, "b");
  check(`${label} sorted set`, await client.zrange("board", 0, -1, "WITHSCORES"), ["a", "1", "b", "2.5"]);

  const subscriber = client.duplicate();
  const message = new Promise((resolve) => subscriber.on("message", (...words) => resolve(words)));
  await subscriber.subscribe("news");
  await client.publish("news", "hello");
  check(`${label} publish`, await message, ["news", "hello"]);

  setTimeout(() => client.rpush("queue", "job"), 100);
  check(`${label} blocking pop`, await other.blpop("queue", 5), ["queue", "job"]);
  check(`${label} blocking pop times out`, await other.blpop("queue", 0.1), null);
  await assert.rejects(client.lpush("user", "x"), /WRONGTYPE/);
  console.log(`ok ${label} error`);
  for (const connection of [client, other, subscriber]) await connection.quit();
}

async function nodeRedis(label, options) {
  const client = createClient({ RESP: 3, ...options });
  await client.connect();
  check(`${label} connect`, await client.ping(), "PONG");
  await client.flushDb();
  check(`${label} transaction`, await client.multi().set("n", 42).incr("n").exec(), ["OK", 43]);
  await client.hSet("user", { name: "Ada" });
  check(`${label} hash`, { ...(await client.hGetAll("user")) }, { name: "Ada" });
  await client.zAdd("board", { score: 2.5, value: "b" });
  check(`${label} score`, await client.zScore("board", "b"), 2.5);

  const subscriber = client.duplicate();
  await subscriber.connect();
  let heard;
  const message = new Promise((resolve) => (heard = resolve));
  await subscriber.subscribe("news", (text) => heard(text));
  await client.publish("news", "hello");
  check(`${label} publish`, await message, "hello");

  const blocked = client.duplicate();
  await blocked.connect();
  setTimeout(() => client.rPush("queue", "job"), 100);
  check(`${label} blocking pop`, { ...(await blocked.blPop("queue", 5)) }, { key: "queue", element: "job" });
  for (const connection of [client, subscriber, blocked]) await connection.close();
}

(async () => {
  await ioredis("ioredis", { port: +PORT });
  await ioredis("ioredis TLS", { port: +TLS_PORT, tls: { ca } });
  await nodeRedis("node-redis RESP3", { socket: { port: +PORT } });
  await nodeRedis("node-redis RESP3 TLS", { socket: { port: +TLS_PORT, tls: true, ca } });
})().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
