"""The application that check.py starts workers for."""

import os
import time

from celery import Celery

URL = f"redis://127.0.0.1:{os.environ['PORT']}"
app = Celery("tasks", broker=f"{URL}/1", backend=f"{URL}/2")
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 60,
        "priority_steps": list(range(10)),
        "sep": ":",
        "queue_order_strategy": "priority",
    },
    result_expires=120,
    result_extended=True,
)


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def flaky(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task
def broken():
    raise ValueError("no way")


@app.task(bind=True)
def progress(self):
    self.update_state(state="HALF", meta={"done": 50})
    time.sleep(0.5)
    return "done"


@app.task(ignore_result=True)
def count(key):
    app.backend.client.incr(key)
