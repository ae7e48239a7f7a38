// Programs of web servers: sessions of Express (connect-redis), limits (rate-limiter-flexible, Bottleneck), queues
// (Bull, Bee-Queue, node-resque), and Socket.IO's two ways to join several servers.
const assert = require("node:assert");
const http = require("node:http");
const BeeQueue = require("bee-queue");
const Bottleneck = require("bottleneck");
const Bull = require("bull");
const session = require("express-session");
const { RedisStore } = require("connect-redis");
const { Redis } = require("ioredis");
const resque = require("node-resque");
const limits = require("rate-limiter-flexible");
const { createClient } = require("redis");
const { Server } = require("socket.io");
const { io } = require("socket.io-client");
const { createAdapter } = require("@socket.io/redis-adapter");
const { createAdapter: createStreamsAdapter } = require("@socket.io/redis-streams-adapter");

const port = Number(process.env.PORT);
const host = "127.0.0.1";
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function check(name, given, expected) {
  assert.deepStrictEqual(given, expected, name);
  console.log(`ok ${name}`);
}

async function until(name, condition, seconds = 10) {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    assert(Date.now() < end, `${name}: not within ${seconds} s`);
    await pause(20);
  }
}

async function nodeRedis(options = {}) {
  const client = createClient({ socket: { host, port }, ...options });
  client.on("error", (error) => console.error(error));
  await client.connect();
  return client;
}

// Two servers share the sessions of one visitor.
async function sessions() {
  const client = await nodeRedis();
  const store = new RedisStore({ client, prefix: "session:", ttl: 60 });
  const open = session({ store, secret: "secret", resave: false, saveUninitialized: false });
  const serve = (request, response) =>
    open(request, response, (error) => {
      if (error) return response.writeHead(500).end(String(error));
      if (request.url === "/leave") return request.session.destroy(() => response.end("bye"));
      request.session.visits = (request.session.visits ?? 0) + 1;
      return response.end(String(request.session.visits));
    });
  const servers = [http.createServer(serve), http.createServer(serve)];
  for (const server of servers) await new Promise((resolve) => server.listen(0, host, resolve));
  let cookie;
  const visit = async (n, path = "/") => {
    const response = await fetch(`http://${host}:${servers[n % 2].address().port}${path}`, { headers: cookie ? { cookie } : {} });
    cookie ??= response.headers.get("set-cookie").split(";")[0];
    return response.text();
  };
  const seen = [];
  for (let n = 0; n < 10; n++) seen.push(await visit(n));
  check("connect-redis counts visits", seen, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
  check("connect-redis length", [await store.length(), (await store.ids()).length, (await store.all())[0].visits], [1, 1, 10]);
  const ttl = await client.ttl(`session:${(await store.ids())[0]}`);
  check("connect-redis expiry", ttl > 50 && ttl <= 60, true);
  await visit(1, "/leave");
  check("connect-redis destroy", await store.length(), 0);
  for (let n = 0; n < 250; n++) await store.set(`s${n}`, { cookie: {}, n });
  check("connect-redis clear", [await store.length(), (await store.clear()) ?? null, await store.length()], [250, null, 0]);
  for (const server of servers) server.close();
  await client.close();
}

async function limiters() {
  const client = new Redis({ host, port });
  const limiter = new limits.RateLimiterRedis({ storeClient: client, points: 10, duration: 1, keyPrefix: "limit" });
  const tried = await Promise.allSettled(Array.from({ length: 50 }, () => limiter.consume("visitor")));
  check("rate-limiter-flexible", tried.filter(({ status }) => status === "fulfilled").length, 10);
  const { msBeforeNext, consumedPoints } = tried.at(-1).reason;
  check("rate-limiter-flexible says when", [msBeforeNext > 0 && msBeforeNext <= 1000, consumedPoints], [true, 50]);
  await pause(msBeforeNext + 50);
  check("rate-limiter-flexible starts again", (await limiter.consume("visitor")).remainingPoints, 9);
  const blocking = new limits.RateLimiterRedis({ storeClient: client, points: 1, duration: 60, blockDuration: 120, keyPrefix: "block" });
  await blocking.consume("x");
  await assert.rejects(blocking.consume("x"), ({ msBeforeNext: ms }) => ms > 60_000);
  check("rate-limiter-flexible blocks", [(await blocking.get("x")).consumedPoints, await blocking.delete("x"), await blocking.get("x")], [2, true, null]);
  await client.quit();
}

// Two limiters share one limit.
async function bottleneck() {
  const options = { id: "limiter", datastore: "ioredis", Redis, clientOptions: { host, port }, maxConcurrent: 3, minTime: 2, reservoir: 1000 };
  const limiters = [];
  for (let n = 0; n < 2; n++) {
    limiters.push(new Bottleneck({ ...options, clearDatastore: n === 0 }));
    await limiters[n].ready();
  }
  let [running, most] = [0, 0];
  const run = async (n) => {
    most = Math.max(most, ++running);
    await pause(5);
    running--;
    return n;
  };
  const jobs = Array.from({ length: 60 }, (_, n) => limiters[n % 2].schedule({ priority: n % 9 }, run, n));
  check("Bottleneck runs all", await Promise.all(jobs), Array.from({ length: 60 }, (_, n) => n));
  check("Bottleneck limits", [most <= 3, await limiters[0].currentReservoir()], [true, 940]);
  for (const each of limiters) await each.disconnect();
}

async function bull() {
  const queue = new Bull("bull", { redis: { host, port } });
  const ran = [];
  queue.process(5, async (job) => {
    ran.push(job.data.n);
    if (job.data.n === -1 && job.attemptsMade < 2) throw new Error("again");
    return job.data.n * 2;
  });
  const jobs = await queue.addBulk(Array.from({ length: 200 }, (_, n) => ({ data: { n } })));
  check("Bull results", await Promise.all(jobs.map((job) => job.finished())), Array.from({ length: 200 }, (_, n) => 2 * n));
  check("Bull runs each job once", new Set(ran).size, ran.length);
  const flaky = await queue.add({ n: -1 }, { attempts: 3, backoff: 50 });
  check("Bull tries again", [await flaky.finished(), (await queue.getJob(flaky.id)).attemptsMade], [-2, 2]);
  const begin = Date.now();
  const late = await queue.add({ n: 7 }, { delay: 300 });
  check("Bull delays", [await late.finished(), Date.now() - begin >= 300], [14, true]);
  await queue.close();
}

async function bee() {
  const redis = { host, port };
  const queue = new BeeQueue("bee", { redis, activateDelayedJobs: true });
  const workers = [1, 2].map(() => new BeeQueue("bee", { redis, isWorker: true, activateDelayedJobs: true }));
  const ran = [];
  for (const each of workers) each.process(10, async (job) => ran.push(job.data.n) && job.data.n + 1);
  const done = new Promise((resolve) => {
    let left = 200;
    queue.on("job succeeded", () => --left === 0 && resolve());
  });
  const jobs = Array.from({ length: 199 }, (_, n) => queue.createJob({ n }));
  check("Bee-Queue saves all", (await queue.saveAll(jobs)).size, 0);
  await queue.createJob({ n: 199 }).delayUntil(Date.now() + 200).save();
  await done;
  check("Bee-Queue runs each job once", [ran.length, new Set(ran).size], [200, 200]);
  check("Bee-Queue health", (({ waiting, active, failed, delayed }) => [waiting, active, failed, delayed])(await queue.checkHealth()), [0, 0, 0, 0]);
  await Promise.all([queue, ...workers].map((each) => each.close()));
}

async function nodeResque() {
  const connection = { pkg: "ioredis", host, port, database: 5 };
  const ran = [];
  const tasks = { add: { perform: async (a, b) => ran.push(a + b) && a + b } };
  const queue = new resque.Queue({ connection }, tasks);
  const worker = new resque.MultiWorker(
    { connection, queues: ["math"], minTaskProcessors: 2, maxTaskProcessors: 4, checkTimeout: 50 },
    tasks,
  );
  const scheduler = new resque.Scheduler({ connection, timeout: 100 });
  for (const each of [queue, worker, scheduler]) each.on("error", (error) => console.error(error) ?? process.exit(1));
  await Promise.all([queue.connect(), scheduler.connect()]);
  for (let n = 0; n < 50; n++) await queue.enqueue("math", "add", [n, 1000]);
  check("node-resque length", await queue.length("math"), 50);
  await queue.enqueueIn(300, "math", "add", [5, 5]);
  check("node-resque schedule", (await queue.scheduledAt("math", "add", [5, 5])).length, 1);
  await Promise.all([worker.start(), scheduler.start()]);
  await until("node-resque runs", () => ran.length === 51);
  check("node-resque runs each job once", [ran.length, new Set(ran).size], [51, 51]);
  await Promise.all([worker.end(), scheduler.end()]);
  check("node-resque statistics", Number((await queue.stats()).processed), 51);
  await queue.end();
}

// Two servers of Socket.IO: a room has members at both.
async function sockets(label, adapters) {
  const servers = adapters.map((adapter) => {
    const server = http.createServer();
    const io = new Server(server, { adapter });
    io.on("connection", (socket) => {
      socket.on("join", (room, done) => done(socket.join(room)));
      socket.on("say", (room, text) => socket.to(room).emit("said", text));
    });
    return { server, io };
  });
  for (const { server } of servers) await new Promise((resolve) => server.listen(0, host, resolve));
  const clients = servers.map(({ server }) => io(`http://${host}:${server.address().port}`, { transports: ["websocket"] }));
  const heard = clients.map(() => []);
  clients.forEach((client, n) => client.on("said", (text) => heard[n].push(text)));
  await Promise.all(clients.map((client) => client.emitWithAck("join", "room")));
  await until(`${label} meet`, async () => (await servers[0].io.in("room").fetchSockets()).length === 2);
  check(`${label} knows the sockets of both servers`, (await servers[1].io.fetchSockets()).length, 2);
  for (let n = 0; n < 50; n++) clients[0].emit("say", "room", n);
  await until(`${label} hears`, () => heard[1].length === 50);
  check(`${label} keeps the order`, heard, [[], Array.from({ length: 50 }, (_, n) => n)]);
  const counted = await new Promise((resolve) => {
    servers[0].io.on("question", (answer) => answer(1));
    servers[1].io.on("question", (answer) => answer(2));
    servers[0].io.serverSideEmit("question", (error, answers) => resolve(error ?? answers));
  });
  check(`${label} asks the other server`, counted, [2]);
  clients.forEach((client) => client.close());
  for (const { io } of servers) await new Promise((resolve) => io.close(resolve));
}

async function main() {
  const client = new Redis({ host, port });
  await client.flushall();
  for (const part of [sessions, limiters, bottleneck, bull, bee, nodeResque]) await part();
  const publishers = [new Redis({ host, port }), new Redis({ host, port })];
  await sockets("Socket.IO messages", publishers.map((each) => createAdapter(each, each.duplicate())));
  const writers = [await nodeRedis(), await nodeRedis()];
  await sockets("Socket.IO streams", writers.map((each) => createStreamsAdapter(each, { heartbeatInterval: 500 })));
  await client.flushall();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
