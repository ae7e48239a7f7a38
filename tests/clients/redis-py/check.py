"""What an application does through redis-py, under RESP2, RESP3 and TLS."""

import os
import threading
import time

import redis

PORT, TLS_PORT, CA = int(os.environ["PORT"]), int(os.environ["TLS_PORT"]), os.environ["CA"]


def check(name, given, expected):
    assert given == expected, f"{name}: {given!r} is not {expected!r}"
    print(f"ok {name}")


def session(protocol, **options):
    label = f"redis-py RESP{protocol}{' TLS' if options.get('ssl') else ''}"
    client = redis.Redis(protocol=protocol, decode_responses=True, **options)
    check(f"{label} connect", client.ping(), True)
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
        try:
            pipe.execute()
            raise AssertionError("a watched key had changed")
        except redis.WatchError:
            print(f"ok {label} watch")

    client.hset("user", mapping={"name": "Ada", "year": "1815"})
    check(f"{label} hash", client.hgetall("user"), {"name": "Ada", "year": "1815"})
    client.zadd("board", {"a": 1, "b": 2.5})
    pairs = [tuple(pair) for pair in client.zrange("board", 0, -1, withscores=True)]
    check(f"{label} sorted set", pairs, [("a", 1.0), ("b", 2.5)])
    client.sadd("tags", "x", "y")
    check(f"{label} set", set(client.smembers("tags")), {"x", "y"})
    check(f"{label} scan", len(list(client.scan_iter("key:*", count=100))), 1000)

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

    try:
        client.lpush("user", "x")
        raise AssertionError("LPUSH on a hash")
    except redis.ResponseError as error:
        check(f"{label} error", str(error).startswith("WRONGTYPE"), True)

    big = "x" * 5_000_000
    client.set("big", big)
    check(f"{label} big value", client.get("big") == big, True)
    check(f"{label} info", client.info("clients")["blocked_clients"], 0)
    client.close()


for protocol in (2, 3):
    session(protocol, port=PORT)
    session(protocol, port=TLS_PORT, ssl=True, ssl_ca_certs=CA)
