"""RQ: two workers with a scheduler, retries, dependencies, timeouts and cancelled jobs."""

import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

import redis
from rq import Queue, Repeat, Retry, Worker
from rq.job import Dependency, Job
from rq.registry import FailedJobRegistry, ScheduledJobRegistry

import tasks

PORT = os.environ["PORT"]
HERE = os.path.dirname(os.path.abspath(__file__))


def check(name, given, expected):
    assert given == expected, f"{name}: {given!r} is not {expected!r}"
    print(f"ok rq {name}", flush=True)


def until(name, condition, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{name}: not within {seconds} s"
        time.sleep(0.02)


def result(job):
    until(job.id, lambda: job.get_status(refresh=True) == "finished")
    return job.return_value(refresh=True)


def worker():
    program = (
        "import redis, os; from rq import Queue, SimpleWorker as W;"
        "c = redis.Redis(port=int(os.environ['PORT']));"
        "W(['high', 'low'], connection=c, maintenance_interval=1).work(with_scheduler=True, logging_level='ERROR')"
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd=HERE)


def work(connection, folder):
    high, low = (Queue(name, connection=connection) for name in ("high", "low"))
    jobs = high.enqueue_many([Queue.prepare_data(tasks.double, (n,)) for n in range(100)])
    check("results", [result(job) for job in jobs], [2 * n for n in range(100)])
    check("results expire", 0 < connection.ttl(jobs[0].key) <= 500, True)

    path = os.path.join(folder, "flaky")
    check("retry", result(low.enqueue(tasks.flaky, path, retry=Retry(max=5))), "done")
    failed = low.enqueue(tasks.broken)
    until("failure", lambda: failed.get_status(refresh=True) == "failed")
    check("failure", "no way" in failed.latest_result().exc_string, True)
    registry = FailedJobRegistry(queue=low)
    until("failed registry", lambda: registry.get_job_ids() == [failed.id])
    check("failed registry", registry.count, 1)

    order = os.path.join(folder, "order")
    first = low.enqueue(tasks.add, order, "first")
    second = low.enqueue(tasks.add, order, "second", depends_on=first)
    third = high.enqueue(tasks.add, order, "third", depends_on=Dependency(jobs=[first, second]))
    result(third)
    check("dependencies", open(order).read().split(), ["first", "second", "third"])

    # RQ counts whole seconds.
    begin = time.monotonic()
    late = high.enqueue_in(timedelta(seconds=2), tasks.double, 21)
    check("scheduled", len(ScheduledJobRegistry(queue=high)), 1)
    check("late", (result(late), time.monotonic() - begin >= 1), (42, True))
    repeated = os.path.join(folder, "repeated")
    low.enqueue(tasks.add, repeated, "again", repeat=Repeat(times=2, interval=1))
    until("repeat", lambda: os.path.exists(repeated) and len(open(repeated).read().split()) == 3)
    check("repeat", len(open(repeated).read().split()), 3)

    unique = [low.enqueue(tasks.double, 1, job_id="same") for _ in range(3)]
    check("same id", (result(unique[0]), connection.exists("rq:job:same")), (2, 1))
    check("fetch", Job.fetch("same", connection=connection).args, (1,))
    until("no job is left", lambda: high.is_empty() and low.is_empty())
    until("both workers wait", lambda: [w.get_state() for w in Worker.all(connection)] == ["idle"] * 2)
    check("workers", Worker.count(connection), 2)


def main():
    connection = redis.Redis(port=int(PORT))
    connection.flushall()
    workers = [worker(), worker()]
    try:
        until("workers", lambda: Worker.count(connection) == 2)
        with tempfile.TemporaryDirectory() as folder:
            work(connection, folder)
    finally:
        for each in workers:
            each.terminate()
        for each in workers:
            each.wait(timeout=20)
    check("workers sign off", Worker.count(connection), 0)
    connection.flushall()


main()
