// Writes and reads keys through a client of Node.js while the cluster changes: `work.js ioredis|iovalkey|node-redis`.
const name = process.argv[2];
const seeds = process.env.SEEDS.split(',').map((seed) => {
  const at = seed.lastIndexOf(':');
  return { host: seed.slice(0, at), port: Number(seed.slice(at + 1)) };
});
const isSingle = process.env.ENDPOINT === 'single';
const until = Date.now() + Number(process.env.SECONDS) * 1000;
let operations = 0;
let errors = 0;
let wrong = 0;
let apart = 0;
const told = [];

async function connect() {
  if (name !== 'node-redis') {
    const Redis = require(name);
    const client = isSingle ? new Redis(seeds[0]) : new Redis.Cluster(seeds);
    client.on('error', () => {});
    return client;
  }
  const redis = require('redis');
  const urls = seeds.map(({ host, port }) => ({ url: `redis://${host}:${port}` }));
  const client = isSingle
    ? redis.createClient({ ...urls[0], RESP: 3 })
    : redis.createCluster({ rootNodes: urls, RESP: 3 });
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function work(client, worker) {
  let done = 0;
  while (Date.now() < until) {
    const key = `${name}:${worker}:${done % 500}`;
    try {
      await client.set(key, String(done));
      const found = await client.get(key);
      if (found !== String(done)) {
        wrong += 1;
        told.push(`${key} is ${found}, not ${done}`);
      }
      done += 1;
    } catch (error) {
      if (name === 'node-redis' && error.constructor.name === 'DisconnectsClientError') {
        // It throws what waits in a connection's queue away, instead of sending it elsewhere, when it has learned of a
        // change twice, by MOVED and by a notice, and has ended the connection by one of them.
        apart += 1;
      } else {
        errors += 1;
        told.push(String(error));
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
  operations += done;
}

connect()
  .then((client) => Promise.all([work(client, 0), work(client, 1)]))
  .then(() => {
    if (apart > 0) told.unshift(`apart: ${apart} requests that it threw away when it ended a connection`);
    console.log('result', operations, errors, wrong, told.slice(0, 3).join('; '));
    process.exit(0);
  });
