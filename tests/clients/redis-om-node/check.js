// RedisOM for Node.js: hashes and JSON documents, without what needs a search index.
const assert = require("node:assert");
const { EntityId, EntityKeyName, Repository, Schema } = require("redis-om");
const { createClient } = require("redis");

function check(name, given, expected) {
  assert.deepStrictEqual(given, expected, name);
  console.log(`ok redis-om-node ${name}`);
}

const parts = {
  name: { type: "string" },
  age: { type: "number" },
  isAdmin: { type: "boolean" },
  born: { type: "date" },
  place: { type: "point" },
  tags: { type: "string[]" },
};

async function run(redis, structure) {
  const schema = new Schema(`om-${structure.toLowerCase()}`, parts, { dataStructure: structure });
  const repository = new Repository(schema, redis);
  const ann = {
    name: "Ann é",
    age: 31.5,
    isAdmin: true,
    born: new Date("1990-05-01T10:00:00.000Z"),
    place: { longitude: 10.75, latitude: 59.91 },
    tags: ["a", "b"],
  };
  const saved = await repository.save(ann);
  const id = saved[EntityId];
  const type = structure === "JSON" ? "ReJSON-RL" : "hash";
  check(`${structure}: its type`, await redis.type(saved[EntityKeyName]), type);
  const fetched = await repository.fetch(id);
  check(`${structure}: comes back`, Object.fromEntries(Object.entries(fetched)), ann);
  saved.age = 32;
  saved.name = null;
  await repository.save(saved);
  const changed = await repository.fetch(id);
  check(`${structure}: a change`, [changed.age, changed.name ?? null], [32, null]);
  await repository.save("given", { name: "Bob", tags: [] });
  check(`${structure}: an id of one's own`, (await repository.fetch("given")).name, "Bob");
  const both = await repository.fetch(id, "given");
  check(`${structure}: two at once`, both.map((one) => one.name ?? null), [null, "Bob"]);
  await repository.expire("given", 100);
  const left = await redis.ttl(`om-${structure.toLowerCase()}:given`);
  check(`${structure}: expiry`, left > 90 && left <= 100, true);
  await repository.remove(id, "given");
  check(`${structure}: gone`, await redis.exists(saved[EntityKeyName]), 0);
  check(`${structure}: one that is not there`, (await repository.fetch("none")).name, undefined);
}

async function main() {
  const redis = createClient({ url: `redis://127.0.0.1:${process.env.PORT}` });
  redis.on("error", (error) => {
    console.error(error);
    process.exit(1);
  });
  await redis.connect();
  await run(redis, "HASH");
  await run(redis, "JSON");
  await redis.quit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
