// Queues of BullMQ: its scripts build most key names themselves, so they touch keys that they do not
// declare. Several workers on several connections compete for the jobs.
const assert = require("node:assert");
const { Queue, Worker, QueueEvents, FlowProducer, UnrecoverableError } = require("bullmq");
const { Redis } = require("ioredis");

const connection = { host: "127.0.0.1", port: Number(process.env.PORT), maxRetriesPerRequest: null };
const prefix = "bullmq";
const open = [];
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function check(name, given, expected) {
  assert.deepStrictEqual(given, expected, name);
  console.log(`ok bullmq ${name}`);
}

function keep(item) {
  item.on("error", (error) => {
    console.error(error);
    process.exit(1);
  });
  open.push(item);
  return item;
}

const queue = (name, options = {}) => keep(new Queue(name, { connection, prefix, ...options }));
const worker = (name, run, options = {}) => keep(new Worker(name, run, { connection, prefix, ...options }));

async function events(name) {
  const source = keep(new QueueEvents(name, { connection, prefix }));
  await source.waitUntilReady();
  return source;
}

async function until(name, condition, seconds = 10) {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    assert(Date.now() < end, `${name}: not within ${seconds} s`);
    await pause(20);
  }
}

// Every job runs once, on whichever of four workers, and its result is kept.
async function jobs() {
  const q = queue("jobs");
  const seen = new Map();
  for (let w = 0; w < 4; w++) {
    worker(
      "jobs",
      async (job) => {
        seen.set(job.data.n, (seen.get(job.data.n) ?? 0) + 1);
        await job.updateProgress(50);
        return job.data.n * 2;
      },
      { concurrency: 8 },
    );
  }
  const heard = new Set();
  const source = await events("jobs");
  source.on("completed", ({ jobId }) => heard.add(jobId));
  const added = await q.addBulk(Array.from({ length: 500 }, (_, n) => ({ name: "double", data: { n } })));
  await until("jobs complete", async () => (await q.getCompletedCount()) === 500);
  check("every job ran once", [seen.size, Math.max(...seen.values())], [500, 1]);
  await until("all events are heard", async () => heard.size === 500);
  check("an event for each job", heard.size, 500);
  const job = await q.getJob(added[123].id);
  check("result", [job.returnvalue, job.progress, await job.getState()], [246, 50, "completed"]);
  check("counts", await q.getJobCounts("waiting", "active", "completed", "failed", "delayed"), {
    waiting: 0,
    active: 0,
    completed: 500,
    failed: 0,
    delayed: 0,
  });
  const again = await q.add("double", { n: 1000 }, { removeOnComplete: true });
  check("wait for one job", await again.waitUntilFinished(source, 5000), 2000);
}

async function retries() {
  const q = queue("retries");
  const source = await events("retries");
  worker("retries", async (job) => {
    if (job.name === "broken") throw new UnrecoverableError("beyond repair");
    if (job.attemptsMade < 2) throw new Error(`attempt ${job.attemptsMade}`);
    return job.attemptsMade;
  });
  const job = await q.add("flaky", {}, { attempts: 5, backoff: { type: "fixed", delay: 50 } });
  check("a job is tried again after its back-off", await job.waitUntilFinished(source, 5000), 2);
  const broken = await q.add("broken", {}, { attempts: 5 });
  await assert.rejects(broken.waitUntilFinished(source, 5000), /beyond repair/);
  const failed = await q.getFailed();
  check("failed jobs", failed.map((each) => [each.id, each.failedReason]), [[broken.id, "beyond repair"]]);
  await q.clean(0, 10, "failed");
  check("clean", await q.getFailedCount(), 0);
}

async function order() {
  const q = queue("order");
  for (const [name, options] of [
    ["third", { priority: 9 }],
    ["second", { priority: 2 }],
    ["last", { priority: 9 }],
    ["first", {}],
  ]) {
    await q.add(name, {}, options);
  }
  const ran = [];
  worker("order", async (job) => ran.push(job.name), { concurrency: 1 });
  await until("all priorities ran", () => ran.length === 4);
  check("priorities", ran, ["first", "second", "third", "last"]);
  const begin = Date.now();
  await q.add("late", {}, { delay: 300 });
  check("a delayed job waits", (await q.getDelayed()).length, 1);
  await until("the delayed job ran", () => ran.length === 5);
  check("a delayed job does not run early", Date.now() - begin >= 300, true);
  await q.pause();
  await q.add("paused", {});
  await pause(100);
  check("a paused queue runs nothing", [ran.length, await q.isPaused()], [5, true]);
  await q.resume();
  await until("the resumed queue runs", () => ran.length === 6);
  await q.add("unique", {}, { jobId: "same" });
  await q.add("unique", {}, { jobId: "same" });
  await until("the unique job ran", () => ran.length >= 7);
  await pause(100);
  check("the same id runs once", ran.length, 7);
  await q.add("bounced", {}, { deduplication: { id: "d", ttl: 60000 } });
  await q.add("bounced", {}, { deduplication: { id: "d", ttl: 60000 } });
  await until("the deduplicated job ran", () => ran.length >= 8);
  await pause(100);
  check("deduplication", ran.length, 8);
}

async function rate() {
  const q = queue("rate");
  const times = [];
  worker("rate", async () => times.push(Date.now()), { concurrency: 10, limiter: { max: 5, duration: 400 } });
  await q.addBulk(Array.from({ length: 15 }, (_, n) => ({ name: "hit", data: { n } })));
  await until("limited jobs ran", () => times.length === 15);
  check("15 jobs at 5 per 400 ms take two further windows", times[14] - times[0] >= 600, true);
  for (let n = 0; n + 10 < times.length; n++) assert(times[n + 10] - times[n] >= 350, `rate: ${times}`);
}

async function flows() {
  const flow = keep(new FlowProducer({ connection, prefix }));
  const source = await events("parents");
  queue("parents");
  queue("children");
  worker("children", async (job) => job.data.n * job.data.n, { concurrency: 4 });
  worker("parents", async (job) => {
    const values = Object.values(await job.getChildrenValues());
    return values.reduce((sum, value) => sum + value, 0);
  });
  const tree = await flow.add({
    name: "sum",
    queueName: "parents",
    children: Array.from({ length: 20 }, (_, n) => ({ name: "square", queueName: "children", data: { n } })),
  });
  check("a parent gets its children's results", await tree.job.waitUntilFinished(source, 10000), 2470);
  const dependencies = await tree.job.getDependencies();
  check("dependencies", Object.keys(dependencies.processed).length, 20);
  const deep = await flow.add({
    name: "top",
    queueName: "parents",
    children: [
      { name: "middle", queueName: "parents", children: [{ name: "leaf", queueName: "children", data: { n: 3 } }] },
      { name: "leaf", queueName: "children", data: { n: 4 } },
    ],
  });
  check("a flow of three levels", await deep.job.waitUntilFinished(source, 10000), 25);
}

async function schedule() {
  const q = queue("schedule");
  let ran = 0;
  worker("schedule", async () => ran++);
  await q.upsertJobScheduler("tick", { every: 100 }, { name: "tick", data: {} });
  await until("the scheduler ran three times", () => ran >= 3);
  check("schedulers", (await q.getJobSchedulers()).map(({ key, every }) => [key, Number(every)]), [["tick", 100]]);
  check("remove a scheduler", await q.removeJobScheduler("tick"), true);
  const before = ran;
  await pause(300);
  check("a removed scheduler stops", ran - before <= 1, true);
}

// A worker that vanishes in the middle of a job: another one finds the job stalled and runs it.
async function stalled() {
  const q = queue("stalled");
  const job = await q.add("fragile", {});
  const first = new Worker("stalled", null, { connection, prefix, lockDuration: 300 });
  const taken = await first.getNextJob("lost");
  check("a job is taken by hand", taken.id, job.id);
  await first.close(true);
  let ran = 0;
  worker("stalled", async () => ++ran, { lockDuration: 300, stalledInterval: 200 });
  await until("the stalled job ran", () => ran === 1);
  check("a stalled job runs again", (await q.getJob(job.id)).stalledCounter >= 1, true);
}

async function main() {
  const client = new Redis(connection);
  await client.flushall();
  for (const part of [jobs, retries, order, rate, flows, schedule, stalled]) await part();
  const names = ["jobs", "retries", "order", "rate", "parents", "children", "schedule", "stalled"];
  await Promise.all(open.filter((item) => item instanceof Worker).map((item) => item.close()));
  for (const name of names) await queue(name).obliterate({ force: true });
  await Promise.all(open.filter((item) => !(item instanceof Worker)).map((item) => item.close()));
  check("nothing is left of obliterated queues", await client.keys("*"), []);
  await client.quit();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
