// What an application does through ioredis (RESP2) and node-redis (RESP3), over TCP, a Unix socket
// and TLS.
const assert = require("node:assert");
const fs = require("node:fs");
const { Redis } = require("ioredis");
const { createClient } = require("redis");

const { PORT, TLS_PORT, SOCKET, CA, CERT, KEY } = process.env;
const ca = fs.readFileSync(CA);
const tls = { ca, cert: fs.readFileSync(CERT), key: fs.readFileSync(KEY) };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function check(name, given, expected) {
  assert.deepStrictEqual(given, expected, name);
  console.log(`ok ${name}`);
}

async function ioredis(label, options) {
  const client = new Redis(options);
  check(`${label} connect`, await client.ping(), "PONG");
  check(`${label} library name`, /lib-name=ioredis/.test(await client.client("INFO")), true);
  await client.flushdb();

  const pipeline = client.pipeline();
  for (let n = 0; n < 1000; n++) pipeline.set(`key:${n}`, n);
  pipeline.get("key:999");
  check(`${label} pipeline`, (await pipeline.exec()).at(-1), [null, "999"]);
  const keys = new Set();
  for await (const batch of client.scanStream({ match: "key:*", count: 50 })) {
    for (const key of batch) keys.add(key);
  }
  check(`${label} scan`, keys.size, 1000);

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
  const [[, set], [failed], [, got]] = await client.pipeline().set("w", "x").incr("w").get("w").exec();
  check(`${label} error in a pipeline`, [set, failed.message, got], ["OK", "ERR value is not an integer or out of range", "x"]);
  console.log(`ok ${label} error`);
  for (const connection of [client, other, subscriber]) await connection.quit();
}

async function nodeRedis(label, options) {
  const client = createClient({ RESP: 3, ...options });
  await client.connect();
  check(`${label} connect`, await client.ping(), "PONG");
  check(`${label} library name`, /^node-redis/.test((await client.clientInfo()).libName), true);
  await client.flushDb();
  await Promise.all(Array.from({ length: 1000 }, (_, n) => client.set(`key:${n}`, `${n}`)));
  const keys = new Set();
  for await (const batch of client.scanIterator({ MATCH: "key:*", COUNT: 50 })) {
    for (const key of batch) keys.add(key);
  }
  check(`${label} scan`, keys.size, 1000);
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
  await assert.rejects(client.lPush("user", "x"), /WRONGTYPE/);
  console.log(`ok ${label} error`);
  for (const connection of [client, subscriber, blocked]) await connection.close();
}

// A client that keeps what it has read is told when another changes it.
async function caching() {
  const socket = { port: +PORT };
  const reader = createClient({ RESP: 3, socket, clientSideCache: { maxEntries: 100 } });
  const writer = createClient({ socket });
  await reader.connect();
  await writer.connect();
  await writer.set("cached", "old");
  check("node-redis caching reads", [await reader.get("cached"), await reader.get("cached")], ["old", "old"]);
  await writer.set("cached", "new");
  let value;
  for (let tries = 0; tries < 1000 && (value = await reader.get("cached")) === "old"; tries++) await pause(10);
  check("node-redis caching is invalidated", value, "new");
  await reader.close();
  await writer.close();
}

// Connections and subscriptions come back by themselves.
async function restart() {
  const options = { port: +PORT, retryStrategy: () => 50, maxRetriesPerRequest: null };
  const [client, subscriber] = [new Redis(options), new Redis(options)];
  // One that reconnects would send its SHUTDOWN again.
  const admin = new Redis({ ...options, retryStrategy: null });
  for (const connection of [client, subscriber, admin]) connection.on("error", () => {});
  const other = createClient({ RESP: 3, socket: { port: +PORT, reconnectStrategy: 50 } });
  other.on("error", () => {});
  await other.connect();
  let heard;
  const message = new Promise((resolve) => (heard = resolve));
  subscriber.on("message", (_, text) => heard(text));
  await subscriber.subscribe("news");
  const runId = async () => /run_id:(\w+)/.exec(await client.info("server"))[1];
  const before = await runId();
  const closed = new Promise((resolve) => client.once("close", resolve));
  await admin.call("SHUTDOWN", "NOSAVE").catch(() => {});
  admin.disconnect();
  await closed;
  check("ioredis reconnects", await client.set("after", "restart"), "OK");
  check("ioredis server is another", (await runId()) !== before, true);
  while ((await client.publish("news", "again")) === 0) await pause(20);
  check("ioredis subscribes again", await message, "again");
  check("node-redis reconnects", await other.get("after"), "restart");
  for (const connection of [client, subscriber]) connection.disconnect();
  await other.close();
}

(async () => {
  await ioredis("ioredis TCP", { port: +PORT });
  await ioredis("ioredis Unix", { path: SOCKET });
  await ioredis("ioredis TLS", { port: +TLS_PORT, tls });
  await nodeRedis("node-redis RESP3 TCP", { socket: { port: +PORT } });
  await nodeRedis("node-redis RESP3 Unix", { socket: { path: SOCKET } });
  await nodeRedis("node-redis RESP3 TLS", { socket: { port: +TLS_PORT, tls: true, ...tls } });
  const stranger = createClient({ socket: { port: +TLS_PORT, tls: true, ca, reconnectStrategy: false } });
  stranger.on("error", () => {});
  await assert.rejects(stranger.connect().then(() => stranger.ping()));
  console.log("ok node-redis TLS wants a certificate");
  await caching();
  if (!process.env.PROXIED) await restart();
})().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
