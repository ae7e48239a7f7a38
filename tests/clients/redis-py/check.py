"""What an application does through redis-py: RESP2 and RESP3, over TCP, a Unix socket and TLS."""

import asyncio
import os
import threading
import time

import redis
import redis.asyncio
from redis.backoff import ConstantBackoff
from redis.cache import CacheConfig
from redis.retry import Retry

PORT, TLS_PORT, SOCKET = int(os.environ["PORT"]), int(os.environ["TLS_PORT"]), os.environ["SOCKET"]
TRUST = {"ssl": True, "ssl_ca_certs": os.environ["CA"]}
TLS = TRUST | {"ssl_certfile": os.environ["CERT"], "ssl_keyfile": os.environ["KEY"]}


def check(name, given, expected):
    assert given == expected, f"{name}: {given!r} is not {expected!r}"
    print(f"ok {name}")


def refused(name, kind, text, action):
    try:
        action()
    except kind as error:
        check(name, text in str(error), True)
    else:
        raise AssertionError(f"{name}: no error")


def session(protocol, transport, **options):
    label = f"redis-py RESP{protocol} {transport}"
    client = redis.Redis(protocol=protocol, decode_responses=True, **options)
    check(f"{label} connect", client.ping(), True)
    me = client.client_info()
    check(f"{label} library name", (me["lib-name"], me["resp"]), ("redis-py", str(protocol)))
    client.flushdb()

    with client.pipeline(transaction=False) as pipe:
        for n in range(1000):
            pipe.set(f"key:{n}", n)
        pipe.get("key:999")
        check(f"{label} pipeline", pipe.execute()[-1], "999")

    with client.pipeline() as pipe:
        pipe.watch("key:1")
        value = int(pipe.get("key:1"))
        pipe.multi()
        pipe.set("key:1", value + 41)
        pipe.incr("key:1")
        check(f"{label} transaction", pipe.execute(), [True, 43])

    with client.pipeline() as pipe:
        pipe.watch("key:1")
        client.set("key:1", "other")
        pipe.multi()
        pipe.set("key:1", "mine")
        refused(f"{label} watch", redis.WatchError, "Watched variable changed", pipe.execute)

    client.hset("user", mapping={"name": "Ada", "year": "1815"})
    check(f"{label} hash", client.hgetall("user"), {"name": "Ada", "year": "1815"})
    client.zadd("board", {"a": 1, "b": 2.5})
    pairs = [tuple(pair) for pair in client.zrange("board", 0, -1, withscores=True)]
    check(f"{label} sorted set", pairs, [("a", 1.0), ("b", 2.5)])
    client.sadd("tags", "x", "y")
    check(f"{label} set", set(client.smembers("tags")), {"x", "y"})
    check(f"{label} scan", len(set(client.scan_iter("key:*", count=100))), 1000)
    client.hset("many", mapping={f"field:{n}": n for n in range(1000)})
    check(f"{label} hscan", len(dict(client.hscan_iter("many", count=50))), 1000)
    client.sadd("crowd", *range(1000))
    check(f"{label} sscan", len(set(client.sscan_iter("crowd", count=50))), 1000)
    client.zadd("ranks", {f"member:{n}": n for n in range(1000)})
    check(f"{label} zscan", dict(client.zscan_iter("ranks", count=50))["member:7"], 7.0)

    subscriber = client.pubsub()
    subscriber.subscribe("news")
    subscriber.psubscribe("n*")
    kinds = []
    end = time.monotonic() + 10
    published = False
    while len(kinds) < 4 and time.monotonic() < end:
        message = subscriber.get_message(timeout=1)
        if message:
            kinds.append((message["type"], message["data"]))
        if len(kinds) == 2 and not published:
            published = True
            client.publish("news", "hello")
    check(f"{label} publish", sorted(map(str, kinds[2:])), ["('message', 'hello')", "('pmessage', 'hello')"])
    subscriber.close()

    threading.Timer(0.1, lambda: client.rpush("queue", "job")).start()
    check(f"{label} blocking pop", list(client.blpop("queue", timeout=5)), ["queue", "job"])
    check(f"{label} blocking pop times out", client.blpop("queue", timeout=0.1), None)

    refused(f"{label} error", redis.ResponseError, "WRONGTYPE", lambda: client.lpush("user", "x"))
    refused(
        f"{label} unknown command",
        redis.ResponseError,
        "unknown command 'NOSUCH'",
        lambda: client.execute_command("NOSUCH", "x"),
    )
    with client.pipeline(transaction=False) as pipe:
        pipe.set("word", "x").incr("word").get("word")
        replies = pipe.execute(raise_on_error=False)
        check(f"{label} error in a pipeline", (type(replies[1]), replies[2]), (redis.ResponseError, "x"))

    big = "x" * 5_000_000
    client.set("big", big)
    check(f"{label} big value", client.get("big") == big, True)
    check(f"{label} info", client.info("clients")["blocked_clients"], 0)
    client.close()


def caching():
    """A client that keeps what it has read is told when another changes it."""
    reader = redis.Redis(port=PORT, protocol=3, decode_responses=True, cache_config=CacheConfig())
    writer = redis.Redis(port=PORT)
    writer.set("cached", "old")
    check("redis-py caching reads", reader.get("cached"), "old")
    check("redis-py caching keeps", (reader.get("cached"), reader.get_cache().size), ("old", 1))
    writer.set("cached", "new")
    end = time.monotonic() + 10
    while (value := reader.get("cached")) == "old" and time.monotonic() < end:
        time.sleep(0.01)
    check("redis-py caching is invalidated", value, "new")


async def asynchronous():
    """The same server through asyncio: many clients of one pool at once."""
    client = redis.asyncio.Redis(port=PORT, protocol=3, decode_responses=True)
    await client.delete("count")
    await asyncio.gather(*(client.incr("count") for _ in range(50)))
    check("redis-py asyncio", await client.get("count"), "50")
    waiting = asyncio.create_task(client.blpop(["empty"], timeout=5))
    await client.rpush("empty", "job")
    check("redis-py asyncio blocking pop", list(await waiting), ["empty", "job"])
    await client.aclose()


def restart():
    """A pool whose connections are dead makes new ones, a subscription is renewed."""
    patient = {"retry": Retry(ConstantBackoff(0.1), 300)}
    client = redis.Redis(port=PORT, protocol=3, decode_responses=True, **patient)
    subscriber = client.pubsub(ignore_subscribe_messages=True)
    subscriber.subscribe("news")
    before = client.info("server")["run_id"]
    client.shutdown(nosave=True)
    check("redis-py reconnects", client.set("after", "restart"), True)
    check("redis-py server is another", client.info("server")["run_id"] != before, True)
    end = time.monotonic() + 30
    message = None
    while message is None and time.monotonic() < end:
        message = subscriber.get_message(timeout=0.1)
        client.publish("news", "again")
    check("redis-py subscribes again", message and message["data"], "again")


for protocol in (2, 3):
    session(protocol, "TCP", port=PORT)
    session(protocol, "Unix", unix_socket_path=SOCKET)
    session(protocol, "TLS", port=TLS_PORT, **TLS)
refused(
    "redis-py TLS wants a certificate",
    (redis.ConnectionError, redis.TimeoutError),
    "",
    lambda: redis.Redis(port=TLS_PORT, retry=Retry(ConstantBackoff(0), 0), **TRUST).ping(),
)
caching()
asyncio.run(asynchronous())
if "PROXIED" not in os.environ:
    restart()
