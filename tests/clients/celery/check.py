"""Celery with its broker and its results in Dunlin: a worker of four threads and a second worker."""

import os
import signal
import subprocess
import sys
import time

import redis
from celery import chain, chord, group

from tasks import URL, add, app, broken, count, flaky, progress, total

HERE = os.path.dirname(os.path.abspath(__file__))


def check(name, given, expected):
    assert given == expected, f"{name}: {given!r} is not {expected!r}"
    print(f"ok celery {name}", flush=True)


def until(name, condition, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{name}: not within {seconds} s"
        time.sleep(0.05)


def worker(name):
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "threads", "-c", "4"]
    return subprocess.Popen([*command, "-n", f"{name}@check", "-l", "WARNING"], cwd=HERE)


def work(server):
    check("result", add.delay(2, 3).get(timeout=10), 5)
    results = group(add.s(n, n) for n in range(200)).apply_async()
    check("group", results.get(timeout=20), [2 * n for n in range(200)])
    check("chain", chain(add.s(1, 2), add.s(10), add.s(100)).apply_async().get(timeout=10), 113)
    joined = chord((add.s(n, 1) for n in range(50)), total.s()).apply_async()
    check("chord", joined.get(timeout=20), sum(range(51)))
    check("retry", flaky.delay().get(timeout=10), 2)

    failed = broken.delay()
    try:
        failed.get(timeout=10)
    except ValueError as error:
        check("error", (str(error), failed.state), ("no way", "FAILURE"))
    else:
        raise AssertionError("broken did not fail")

    slow = progress.delay()
    until("progress", lambda: slow.state == "HALF")
    check("progress", (slow.info, slow.get(timeout=10)), ({"done": 50}, "done"))
    check("expiry of results", 0 < server.ttl(f"celery-task-meta-{slow.id}") <= 120, True)
    slow.forget()
    check("forget", server.exists(f"celery-task-meta-{slow.id}"), 0)

    begin = time.monotonic()
    late = add.apply_async((1, 1), countdown=1)
    check("countdown", (late.get(timeout=10), time.monotonic() - begin >= 0.9), (2, True))
    for n in range(100):
        count.apply_async(("runs",), priority=n % 10)
    until("count", lambda: server.get("runs") == b"100")
    check("every task ran once", server.get("runs"), b"100")

    revoked = add.apply_async((1, 1), countdown=2)
    revoked.revoke()
    until("revoke", lambda: revoked.state == "REVOKED")
    check("revoke", revoked.state, "REVOKED")
    stats = app.control.inspect(timeout=3).stats()
    check("inspect reaches both workers", sorted(stats), ["one@check", "two@check"])


def main():
    server = redis.Redis.from_url(f"{URL}/2")
    server.flushall()
    workers = [worker("one"), worker("two")]
    try:
        until("workers", lambda: len(app.control.ping(timeout=0.5)) == 2, 25)
        work(server)
    finally:
        for each in workers:
            each.send_signal(signal.SIGTERM)
        for each in workers:
            each.wait(timeout=20)
    check("no task is left unacknowledged", redis.Redis.from_url(f"{URL}/1").hlen("unacked"), 0)
    server.flushall()


main()
