"""What an application does through redis-py's sentinel client while the role of primary changes.

Starts two servers (SERVER) and three sentinels (SENTINEL) of its own.
"""

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time

import redis
from redis.sentinel import MasterNotFoundError, Sentinel

SERVER, SENTINEL = shlex.split(os.environ["SERVER"]), shlex.split(os.environ["SENTINEL"])
NAME, PATIENCE = "mine", 60
GONE = (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError, MasterNotFoundError)


def check(name, given, expected):
    assert given == expected, f"{name}: {given!r} is not {expected!r}"
    print(f"ok {name}")


def eventually(name, is_so):
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if is_so():
                print(f"ok {name}")
                return
        except GONE:
            pass
        assert time.monotonic() < deadline, f"never: {name}"
        time.sleep(0.05)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(folder, command, name, lines, *arguments):
    port = free_port()
    path = os.path.join(folder, f"{name}.conf")
    with open(path, "w") as file:
        file.write("\n".join([f"port {port}", "bind 127.0.0.1", f"dir {folder}", *lines]) + "\n")
    process = subprocess.Popen([*command, path, *arguments], stdout=subprocess.DEVNULL)
    eventually(f"{name} listens", lambda: redis.Redis(port=port).ping())
    return port, process


def main(folder, processes):
    common = ["save ''", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1"]
    ports = []
    for name in ("first", "second"):
        lines = [*common, f"dbfilename {name}.rdb"]
        if ports:
            lines.append(f"replicaof 127.0.0.1 {ports[0]}")
        port, process = start(folder, SERVER, name, lines)
        ports.append(port)
        processes[port] = process
    watched = [
        f"sentinel monitor {NAME} 127.0.0.1 {ports[0]} 2",
        f"sentinel down-after-milliseconds {NAME} 1000",
        f"sentinel failover-timeout {NAME} 10000",
    ]
    hosts = []
    for number in range(3):
        port, process = start(folder, SENTINEL, f"sentinel{number}", watched, "--sentinel")
        hosts.append(("127.0.0.1", port))
        processes[port] = process
    sentinel = Sentinel(hosts, socket_timeout=2)
    eventually(
        "all know each other",
        lambda: all(
            one.sentinel_master(NAME)["num-other-sentinels"] == 2
            and one.sentinel_master(NAME)["num-slaves"] == 1
            for one in sentinel.sentinels
        ),
    )
    check("the primary is found", sentinel.discover_master(NAME), ("127.0.0.1", ports[0]))
    eventually("the replica is found", lambda: sentinel.discover_slaves(NAME) == [("127.0.0.1", ports[1])])
    primary = sentinel.master_for(NAME, socket_timeout=2, decode_responses=True)
    replica = sentinel.slave_for(NAME, socket_timeout=2, decode_responses=True)
    primary.set("k", "first")
    check("a write is confirmed", primary.wait(1, 9000), 1)
    check("the replica has it", replica.get("k"), "first")

    sentinel.sentinels[0].sentinel_failover(NAME)
    eventually("the role changes", lambda: sentinel.discover_master(NAME)[1] == ports[1])
    # Until it is told, the old primary takes writes, which are lost then.
    second = redis.Redis(port=ports[1])
    eventually(
        "the same client writes to the new primary",
        lambda: primary.set("k", "second") and second.get("k") == b"second",
    )
    # Not by the client for replicas, which asks the primary while it knows of none.
    first = redis.Redis(port=ports[0])
    eventually("the old primary follows", lambda: first.get("k") == b"second")
    check("a replica has it, too", replica.get("k"), "second")

    os.kill(processes[ports[1]].pid, signal.SIGKILL)
    eventually("another one takes over", lambda: sentinel.discover_master(NAME)[1] == ports[0])
    eventually("the same client goes on", lambda: primary.incr("counter") >= 1)
    check("nothing is lost", primary.get("k"), "second")


with tempfile.TemporaryDirectory() as folder:
    processes = {}
    try:
        main(folder, processes)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
