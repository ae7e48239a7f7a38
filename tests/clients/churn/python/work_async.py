"""Writes and reads keys through an asynchronous client while the cluster changes: `work_async.py glide|coredis`."""

import asyncio
import contextlib
import os
import sys
import time

name = sys.argv[1]
is_single = os.environ["ENDPOINT"] == "single"
seeds = [(host, int(port)) for host, port in (seed.rsplit(":", 1) for seed in os.environ["SEEDS"].split(","))]
until = time.monotonic() + float(os.environ["SECONDS"])
counts = {"operations": 0, "errors": 0, "wrong": 0}
errors = []


@contextlib.asynccontextmanager
async def glide_client():
    import glide

    addresses = [glide.NodeAddress(host, port) for host, port in seeds]
    # 250 ms by default, for all tries of a request. This machine has more programs than cores.
    # It waits longer and longer before it connects again, and fails what it is sent there for meanwhile: nodes end and
    # come back within a second here.
    often = glide.BackoffStrategy(num_of_retries=2, factor=50, exponent_base=2)
    options = {"request_timeout": 5000, "reconnect_strategy": often}
    if is_single:
        client = await glide.GlideClient.create(glide.GlideClientConfiguration(addresses[:1], **options))
    else:
        client = await glide.GlideClusterClient.create(glide.GlideClusterClientConfiguration(addresses, **options))
    try:
        yield client
    finally:
        await client.close()


def coredis_client():
    import coredis

    if is_single:
        host, port = seeds[0]
        return coredis.Redis(host=host, port=port)
    return coredis.RedisCluster(startup_nodes=[{"host": host, "port": port} for host, port in seeds])


async def work(client, worker):
    done = 0
    while time.monotonic() < until:
        key = f"{name}:{worker}:{done % 500}"
        try:
            await client.set(key, str(done))
            found = await client.get(key)
            if found != str(done).encode():
                counts["wrong"] += 1
                errors.append(f"{key} is {found}, not {done}")
            done += 1
        except Exception as error:  # whatever the client gives its user counts
            counts["errors"] += 1
            errors.append(f"{time.strftime('%T')} {type(error).__name__}: {error}")
            await asyncio.sleep(0.001)
    counts["operations"] += done


async def main():
    async with glide_client() if name == "glide" else coredis_client() as client:
        await asyncio.gather(work(client, 0), work(client, 1))
    print("result", counts["operations"], counts["errors"], counts["wrong"], *errors[:3])


asyncio.run(main())
