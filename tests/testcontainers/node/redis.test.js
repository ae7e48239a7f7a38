import { test } from "node:test";
import assert from "node:assert";
import { RedisContainer } from "@testcontainers/redis";
import { ValkeyContainer } from "@testcontainers/valkey";
import { createClient } from "redis";

async function use(container) {
  const client = createClient({ url: container.getConnectionUrl() });
  await client.connect();
  await client.set("a", "b");
  assert.equal(await client.get("a"), "b");
  await client.close();
}

for (const [name, Container] of [["redis", RedisContainer], ["valkey", ValkeyContainer]]) {
  test(`the module ${name}`, async () => {
    const container = await new Container("dunlin:latest").start();
    try {
      await use(container);
      assert.match(await container.executeCliCmd("get", ["a"]), /b/);
    } finally {
      await container.stop();
    }
  });

  test(`the module ${name}, with a password`, async () => {
    const container = await new Container("dunlin:latest").withPassword("secret").start();
    try {
      await use(container);
    } finally {
      await container.stop();
    }
  });
}
