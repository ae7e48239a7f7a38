"""Writes and reads keys through a Python client while the cluster changes: `work.py redis|valkey`."""

import importlib
import os
import sys
import threading
import time

name = sys.argv[1]
module = importlib.import_module(name)
cluster = importlib.import_module(name + ".cluster")
# With RESP3 valkey-py 6.2 does not read MOVED.
protocol = 3 if name == "redis" else 2
is_single = os.environ["ENDPOINT"] == "single"
seeds = [seed.rsplit(":", 1) for seed in os.environ["SEEDS"].split(",")]
until = time.monotonic() + float(os.environ["SECONDS"])
counts = {"operations": 0, "errors": 0, "wrong": 0}
errors = []
lock = threading.Lock()


def connect():
    if is_single:
        host, port = seeds[0]
        kind = getattr(module, "Redis" if name == "redis" else "Valkey")
        return kind(host=host, port=int(port), protocol=protocol, decode_responses=True)
    kind = getattr(cluster, "RedisCluster" if name == "redis" else "ValkeyCluster")
    nodes = [cluster.ClusterNode(host, int(port)) for host, port in seeds]
    return kind(startup_nodes=nodes, protocol=protocol, decode_responses=True)


def work(worker):
    client = connect()
    done = wrong = 0
    while time.monotonic() < until:
        key = f"{name}:{worker}:{done % 500}"
        try:
            client.set(key, str(done))
            found = client.get(key)
            if found != str(done):
                wrong += 1
                with lock:
                    errors.append(f"{key} is {found}, not {done}")
            done += 1
        except Exception as error:  # whatever the client gives its user counts
            with lock:
                counts["errors"] += 1
                errors.append(f"{time.strftime('%T')} {type(error).__name__}: {error}")
    with lock:
        counts["operations"] += done
        counts["wrong"] += wrong


workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print("result", counts["operations"], counts["errors"], counts["wrong"], *errors[:3])
