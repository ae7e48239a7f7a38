"""Programs of Python's web servers: queues (Huey, Dramatiq, arq, rq-scheduler), limits (Flask-Limiter), locks
(python-redis-lock), caches and sessions (Django), channels (channels-redis), structures (Walrus), valkey-py."""

import asyncio
import datetime
import logging
import os
import threading
import time

import redis

PORT = int(os.environ["PORT"])
URL = f"redis://127.0.0.1:{PORT}"
# Tasks that fail on purpose are logged with their stack.
logging.disable(logging.CRITICAL)


def check(name, given, expected):
    assert given == expected, f"{name}: {given!r} is not {expected!r}"
    print(f"ok {name}", flush=True)


def huey():
    from huey import PriorityRedisHuey, RedisExpireHuey, RedisHuey
    from huey.consumer import Consumer

    for kind in (RedisHuey, PriorityRedisHuey, RedisExpireHuey):
        name = kind.__name__
        queue = kind(f"huey{name}", host="127.0.0.1", port=PORT)
        tries = []

        @queue.task()
        def add(a, b):
            return a + b

        @queue.task(retries=3)
        def flaky():
            tries.append(1)
            if len(tries) < 3:
                raise ValueError("again")
            return "done"

        consumer = Consumer(
            queue, workers=3, periodic=False, initial_delay=0.01, backoff=1.0, max_delay=0.1, scheduler_interval=1
        )
        consumer.start()
        results = [add(n, 1) for n in range(100)]
        got = [result.get(blocking=True, timeout=20) for result in results]
        check(f"{name} results", got, [n + 1 for n in range(100)])
        check(f"{name} tries again", flaky().get(blocking=True, timeout=20), "done")
        check(f"{name} schedule", add.schedule((1, 2), delay=1).get(blocking=True, timeout=20), 3)
        chained = queue.enqueue(add.s(1, 2).then(add, 3).then(add, 4))
        check(f"{name} pipeline", [one.get(blocking=True, timeout=20) for one in chained], [3, 6, 10])
        consumer.stop(graceful=True)


def dramatiq():
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker
    from dramatiq.rate_limits import Barrier, ConcurrentRateLimiter, WindowRateLimiter
    from dramatiq.rate_limits.backends import RedisBackend as Limits
    from dramatiq.results import Results
    from dramatiq.results.backends import RedisBackend

    broker = RedisBroker(url=URL)
    broker.add_middleware(Results(backend=RedisBackend(url=URL)))
    dramatiq.set_broker(broker)
    tries = []

    @dramatiq.actor(store_results=True)
    def add(a, b):
        return a + b

    @dramatiq.actor(store_results=True, max_retries=5, min_backoff=10, max_backoff=20)
    def flaky():
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("again")
        return "done"

    worker = dramatiq.Worker(broker, worker_threads=4, worker_timeout=100)
    worker.start()
    sent = [add.send(n, 1) for n in range(200)]
    got = [message.get_result(block=True, timeout=20_000) for message in sent]
    check("Dramatiq results", got, [n + 1 for n in range(200)])
    check("Dramatiq tries again", flaky.send().get_result(block=True, timeout=20_000), "done")
    late = add.send_with_options(args=(1, 2), delay=300)
    check("Dramatiq delays", late.get_result(block=True, timeout=20_000), 3)
    group = dramatiq.group([add.message(n, n) for n in range(10)]).run()
    check("Dramatiq group", list(group.get_results(block=True, timeout=20_000)), [2 * n for n in range(10)])
    worker.stop()
    limits = Limits(url=URL)
    mutex = ConcurrentRateLimiter(limits, "concurrent", limit=2)

    def takes(limiter):
        with limiter.acquire(raise_on_failure=False) as is_taken:
            return is_taken

    with mutex.acquire(), mutex.acquire():
        check("Dramatiq limits what runs", takes(mutex), False)
    window = WindowRateLimiter(limits, "window", limit=3, window=60)
    check("Dramatiq limits a window", [takes(window) for _ in range(5)], [True] * 3 + [False] * 2)
    barrier = Barrier(limits, "barrier", ttl=30_000)
    barrier.create(parties=3)
    check("Dramatiq barrier", [barrier.wait(block=False) for _ in range(3)], [False, False, True])


async def arq():
    from arq import Retry, create_pool
    from arq.connections import RedisSettings
    from arq.worker import Worker, func

    async def add(_, a, b):
        return a + b

    async def flaky(context):
        if context["job_try"] < 3:
            raise Retry(defer=0.05)
        return "done"

    settings = RedisSettings(host="127.0.0.1", port=PORT)
    pool = await create_pool(settings)
    functions = [func(add, name="add"), func(flaky, name="flaky")]
    worker = Worker(functions, redis_settings=settings, handle_signals=False, poll_delay=0.05)
    running = asyncio.create_task(worker.async_run())

    async def result(job):
        return await job.result(timeout=20, poll_delay=0.02)

    jobs = [await pool.enqueue_job("add", n, 1) for n in range(100)]
    check("arq results", [await result(job) for job in jobs], [n + 1 for n in range(100)])
    check("arq tries again", await result(await pool.enqueue_job("flaky")), "done")
    check("arq delays", await result(await pool.enqueue_job("add", 1, 2, _defer_by=0.3)), 3)
    twice = [await pool.enqueue_job("add", 1, 2, _job_id="same", _defer_by=60) for _ in range(2)]
    check("arq knows a job", [job is None for job in twice], [False, True])
    await worker.close()
    running.cancel()
    await pool.aclose()


def rq_scheduler():
    from rq import Queue, SimpleWorker
    from rq_scheduler import Scheduler

    connection = redis.Redis(port=PORT)
    scheduler = Scheduler(connection=connection)
    scheduler.enqueue_in(datetime.timedelta(0), len, "abc")
    scheduler.enqueue_in(datetime.timedelta(hours=1), len, "abc")
    check("rq-scheduler jobs", len(list(scheduler.get_jobs())), 2)
    check("rq-scheduler lock", scheduler.acquire_lock(), True)
    scheduler.enqueue_jobs()
    scheduler.remove_lock()
    queue = Queue(connection=connection)
    SimpleWorker([queue], connection=connection).work(burst=True)
    check("rq-scheduler runs what is due", queue.finished_job_registry.count, 1)


def flask_limiter():
    from flask import Flask
    from flask_limiter import Limiter

    for scheme in ("redis", "valkey"):
        for strategy in ("fixed-window", "moving-window", "sliding-window-counter"):
            app = Flask(__name__)
            storage = f"{scheme}://127.0.0.1:{PORT}"
            limiter = Limiter(lambda: f"{scheme}{strategy}", app=app, storage_uri=storage, strategy=strategy)
            app.route("/")(limiter.limit("5/minute")(lambda: "hi"))
            client = app.test_client()
            codes = [client.get("/").status_code for _ in range(8)]
            check(f"Flask-Limiter {scheme} {strategy}", codes, [200] * 5 + [429] * 3)


def locks():
    import redis_lock

    counter = [0]

    def work():
        connection = redis.Redis(port=PORT)
        for _ in range(20):
            with redis_lock.Lock(connection, "lock", expire=5, auto_renewal=True):
                seen = counter[0]
                time.sleep(0.0005)
                counter[0] = seen + 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("python-redis-lock", counter[0], 100)


def django():
    import django
    from django.conf import settings

    settings.configure(
        CACHES={
            "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"{URL}/1"},
            "own": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": f"{URL}/2"},
        },
        SECRET_KEY="secret",
    )
    django.setup()
    from django.contrib.sessions.backends.cache import SessionStore
    from django.core.cache import caches

    for name in ("default", "own"):
        cache = caches[name]
        cache.set("one", {"x": 1}, 30)
        check(f"Django {name} get", cache.get("one"), {"x": 1})
        cache.set_many({f"k{n}": n for n in range(100)})
        check(f"Django {name} get_many", len(cache.get_many([f"k{n}" for n in range(100)])), 100)
        check(f"Django {name} add", [cache.add("n", 1), cache.add("n", 2)], [True, False])
        check(f"Django {name} incr", cache.incr("n", 4), 5)
    cache = caches["default"]
    check("Django keys", [len(cache.keys("k*")), len(list(cache.iter_keys("k*")))], [100, 100])
    check("Django delete_pattern", cache.delete_pattern("k*"), 100)
    session = SessionStore()
    session["visits"] = 1
    session.save()
    check("Django session", SessionStore(session_key=session.session_key)["visits"], 1)


async def channels():
    from channels.exceptions import ChannelFull
    from channels_redis.core import RedisChannelLayer
    from channels_redis.pubsub import RedisPubSubChannelLayer

    for kind in (RedisChannelLayer, RedisPubSubChannelLayer):
        name = kind.__name__
        layer = kind(hosts=[("127.0.0.1", PORT)])
        members = [await layer.new_channel() for _ in range(2)]
        for member in members:
            await layer.group_add("group", member)

        async def hears(channel):
            return (await asyncio.wait_for(layer.receive(channel), 10))["n"]

        await layer.group_send("group", {"type": "test", "n": 1})
        check(f"{name} group", [await hears(member) for member in members], [1, 1])
        await layer.send(members[0], {"type": "test", "n": 2})
        check(f"{name} send", await hears(members[0]), 2)
        await layer.group_discard("group", members[0])
        await layer.group_send("group", {"type": "test", "n": 3})
        check(f"{name} discard", await hears(members[1]), 3)
        if kind is RedisChannelLayer:
            layer.capacity = 5
            sent = 0
            try:
                for sent in range(20):
                    await layer.send("full", {"type": "test"})
            except ChannelFull:
                pass
            check(f"{name} capacity", sent, 5)
        await layer.flush()


def walrus():
    from walrus import Database, IntegerField, Model, TextField

    database = Database(port=PORT)

    class User(Model):
        __database__ = database
        name = TextField(primary_key=True)
        age = IntegerField(index=True)
        bio = TextField(fts=True, default="")

    for n in range(20):
        User.create(name=f"u{n}", age=n, bio=f"about {n % 3} words")
    found = User.query((User.age >= 5) & (User.age < 8))
    check("Walrus query", sorted(user.name for user in found), ["u5", "u6", "u7"])
    check("Walrus search", len(list(User.query(User.bio.match("words")))), 20)
    group = database.consumer_group("group", ["first", "second"])
    group.create()
    group.first.add({"x": "1"})
    group.second.add({"y": "2"})
    check("Walrus streams", [len(group.read()), len(group.first.pending())], [2, 1])
    limit = database.rate_limit("limit", limit=3, per=60)
    check("Walrus limit", [limit.limit("visitor") for _ in range(5)], [False] * 3 + [True] * 2)


def valkey_py():
    import valkey

    for protocol in (2, 3):
        client = valkey.Valkey(port=PORT, protocol=protocol, decode_responses=True)
        client.flushdb()
        client.hset("h", mapping={"a": 1, "b": 2})
        check("valkey-py HEXPIRE", client.execute_command("HEXPIRE", "h", 100, "FIELDS", 1, "a"), [1])
        client.xadd("x", {"a": 1})
        client.xgroup_create("x", "g", "0")
        check("valkey-py streams", len(client.xreadgroup("g", "c", {"x": ">"})), 1)
        with client.lock("lock", timeout=5) as lock:
            check("valkey-py lock", lock.owned(), True)
        client.geoadd("geo", (13.361389, 38.115556, "Palermo"))
        near = client.geosearch("geo", longitude=15, latitude=37, radius=200, unit="km")
        check("valkey-py geo", near, ["Palermo"])
        body = "#!lua name=lib\nserver.register_function('echo', function(keys, args) return args[1] end)"
        check("valkey-py functions", client.function_load(body, replace=True), "lib")
        check("valkey-py FCALL", client.fcall("echo", 0, "x"), "x")
        client.acl_setuser("user", enabled=True, passwords=["+p"], keys=["a*"], categories=["+@all"])
        check("valkey-py users", "user" in client.acl_users(), True)
        check("valkey-py INFO", client.info("replication")["role"], "master")


for part in (huey, dramatiq, arq, rq_scheduler, flask_limiter, locks, django, channels, walrus, valkey_py):
    redis.Redis(port=PORT).flushall()
    outcome = part()
    if asyncio.iscoroutine(outcome):
        asyncio.run(outcome)
redis.Redis(port=PORT).flushall()
# Workers of libraries have threads that end with the process only.
os._exit(0)
