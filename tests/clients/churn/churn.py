"""Starts an etcd and a cluster of three shards with a replica each, and changes it while clients work.

Standard input has a line for each client: its name, then its command. See `run` for the rest.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SECONDS = float(os.environ["SECONDS_OF_WORK"])
SEED = int(os.environ.get("SEED", time.time_ns() % 100_000))
ENDPOINT = os.environ["ENDPOINT"]
SERVER = os.environ["SERVER"].split()
# The root of Valkey's programs, if that is what is tried.
VALKEY = os.environ.get("VALKEY_ROOT")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def eventually(what, holds, seconds=60):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"waited in vain: {what}")
        time.sleep(0.02)


class Refused(Exception):
    """A reply that is an error."""


def reply_of(reader):
    line = reader.readline().decode()
    if not line:
        raise OSError("it closed the connection")
    if line[0] == "-":
        raise Refused(line[1:].strip())
    if line[0] == "$":
        text = reader.read(int(line[1:])).decode()
        reader.readline()
        return text
    if line[0] == "*":
        return [reply_of(reader) for _ in range(int(line[1:]))]
    return line[1:].strip()


class Node:
    """A server of the cluster."""

    def __init__(self, folder, coordinator, number):
        self.port = free_port()
        self.folder = os.path.join(folder, f"node{number}")
        os.mkdir(self.folder)
        inner = "/" + os.path.relpath(self.folder, VALKEY or "/")
        self.words = [
            "--port", str(self.port), "--bind", "127.0.0.1", "--dir", inner, "--io-threads", "1",
            "--save", "", "--cluster-enabled", "yes",
            "--repl-diskless-sync-delay", "0", "--logfile", os.path.join(inner, "log"),
        ]  # fmt: skip
        self.bus = [str(free_port())] if VALKEY else []
        if VALKEY:
            self.words += [
                "--cluster-port", *self.bus, "--cluster-node-timeout", "2000",
                "--cluster-allow-replica-migration", "no", "--shutdown-on-sigterm", "failover",
            ]  # fmt: skip
        else:
            # Only we take a path.
            nodes = os.path.join(self.folder, "nodes.conf")
            self.words += ["--cluster-coordinator", coordinator, "--cluster-config-file", nodes]
        self.start()

    def start(self):
        words = list(self.words)
        if getattr(self, "is_made", False) and not VALKEY:
            words += ["--cluster-endpoint", ENDPOINT]
        self.process = subprocess.Popen(SERVER + words, stdout=subprocess.DEVNULL)
        eventually("a node listens", self.listens)

    def listens(self):
        try:
            self.ask("PING")
            return True
        except (OSError, Refused):
            return False

    def ask(self, *words):
        """Returns a reply: a text, or a list of replies."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as stream:
            request = f"CLIENT CAPA cluster\r\n*{len(words)}\r\n"
            request += "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            stream.sendall(request.encode())
            reader = stream.makefile("rb")
            reader.readline()
            return reply_of(reader)

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait()

    def ranges(self):
        """Returns the slots of a primary, as pairs of first and last."""
        own = next(line for line in self.ask("CLUSTER", "NODES").splitlines() if "myself" in line)
        ranges = [word.split("-") for word in own.split()[8:] if not word.startswith("[")]
        return [(int(bounds[0]), int(bounds[-1])) for bounds in ranges]

    def healths(self):
        """Returns what the node says of each node."""
        shards = [dict(zip(shard[::2], shard[1::2])) for shard in self.ask("CLUSTER", "SHARDS")]
        nodes = [dict(zip(node[::2], node[1::2])) for shard in shards for node in shard["nodes"]]
        return [node["health"] for node in nodes]

    def role(self):
        fields = dict(line.split(":", 1) for line in self.ask("INFO", "replication").splitlines() if ":" in line)
        return fields["role"], fields.get("master_link_status"), fields.get("master_port")


def make(nodes):
    """Gives the first three nodes the slots, and each a replica."""
    for node in nodes[1:]:
        node.ask("CLUSTER", "MEET", "127.0.0.1", str(nodes[0].port), *nodes[0].bus)
    for number, node in enumerate(nodes[:3]):
        first, last = number * 5461, 16383 if number == 2 else (number + 1) * 5461 - 1
        node.ask("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
    for number, node in enumerate(nodes[3:]):
        name = nodes[number].ask("CLUSTER", "MYID")
        eventually("a replica knows its primary", lambda: name in node.ask("CLUSTER", "NODES"))
        node.ask("CLUSTER", "REPLICATE", name)
    until_whole(nodes)
    for node in nodes:
        node.is_made = True
        if not VALKEY:
            node.ask("CONFIG", "SET", "cluster-endpoint", ENDPOINT)


def is_whole(nodes):
    try:
        if not all("cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in nodes):
            return False
        roles = [node.role() for node in nodes]
        primaries = sum(role == "master" for role, _, _ in roles)
        if primaries != 3 or any(role == "slave" and link != "up" for role, link, _ in roles):
            return False
        # A replica that is no member yet is not online, and cannot take over.
        return all(node.healths() == ["online"] * len(nodes) for node in nodes)
    except (OSError, Refused):
        return False


def until_whole(nodes):
    eventually("the cluster is whole", lambda: is_whole(nodes))


def move(primaries, rng):
    """Moves some slots from a shard to one that has fewer. Returns what happened."""
    counts = {node: sum(last - first + 1 for first, last in node.ranges()) for node in primaries}
    target, source = sorted(rng.sample(primaries, 2), key=counts.get)
    first, last = rng.choice(source.ranges())
    first = rng.randint(first, last)
    last = min(last, first + rng.randint(0, 1000))
    words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", str(first), str(last), "NODE", target.ask("CLUSTER", "MYID")]
    try:
        source.ask(*words)
    except Refused as why:
        return f"no move: {why}"
    slots = f"{first}-{last}"

    def state():
        jobs = [dict(zip(job[::2], job[1::2])) for job in source.ask("CLUSTER", "GETSLOTMIGRATIONS")]
        # The newest is the first.
        return next(job["state"] for job in jobs if job["slot_ranges"] == slots)

    eventually(f"slots {slots} move", lambda: state() in ("success", "failed", "cancelled"))
    return "move of slots" if state() == "success" else f"move that ended as {state()}"


def change(nodes, rng, may_end):
    """Makes one change, and waits until the cluster is whole again. Returns what it was."""
    replicas = [node for node in nodes if node.role()[0] == "slave"]
    primaries = [node for node in nodes if node not in replicas]
    what = rng.choice(["switch", "switch", "kill of a replica", "end of a primary", "move of slots"])
    if what == "switch":
        successor = rng.choice(replicas)
        try:
            successor.ask("CLUSTER", "FAILOVER")
        except Refused as why:
            return f"no switch: {why}"
        eventually("the successor leads", lambda: successor.role()[0] == "master" or is_whole(nodes))
    elif what == "move of slots":
        what = move(primaries, rng)
    else:
        node = rng.choice(replicas if what == "kill of a replica" else primaries)
        if node not in may_end:
            return "nothing"
        node.end(signal.SIGKILL if what == "kill of a replica" else signal.SIGTERM)
        time.sleep(rng.uniform(0, 1))
        node.start()
    until_whole(nodes)
    return what


def main():
    folder = tempfile.mkdtemp(prefix="dunlin-churn-", dir=VALKEY and os.path.join(VALKEY, "tmp"))
    etcd_port, peer = free_port(), free_port()
    url = f"http://127.0.0.1:{etcd_port}"
    etcd = subprocess.Popen(
        [os.environ["ETCD"], "--unsafe-no-fsync", "--data-dir", os.path.join(folder, "etcd"),
         "--listen-client-urls", url, "--advertise-client-urls", url,
         "--listen-peer-urls", f"http://127.0.0.1:{peer}",
         "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
         "--initial-cluster", f"default=http://127.0.0.1:{peer}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    nodes, works = [], {}
    try:
        for number in range(6):
            nodes.append(Node(folder, f"etcd://127.0.0.1:{etcd_port}", number))
        make(nodes)
        seeds = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        environment = dict(os.environ, SEEDS=seeds, SECONDS=str(SECONDS))
        for line in sys.stdin.read().splitlines():
            name, command = line.split(" ", 1)
            works[name] = subprocess.Popen(command, shell=True, env=environment, stdout=subprocess.PIPE)
        print(f"seed {SEED}, endpoint {ENDPOINT}, {SECONDS:.0f} s, clients {', '.join(works)}", flush=True)
        # Before one address a client cannot leave the node that it is connected to.
        may_end = nodes if ENDPOINT == "cluster" else nodes[1:]
        rng = random.Random(SEED)
        changes = {}
        journal = open(os.path.join(folder, "changes"), "w")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and any(work.poll() is None for work in works.values()):
            begun = time.strftime("%T")
            what = change(nodes, rng, may_end)
            changes[what] = changes.get(what, 0) + 1
            print(begun, time.strftime("%T"), what, file=journal, flush=True)
            time.sleep(rng.uniform(0, 0.5))
        print("changes:", ", ".join(f"{count} {what}" for what, count in sorted(changes.items())))
        return 0 if all([report(name, work) for name, work in works.items()]) else 1
    finally:
        for process in [*works.values(), *(node.process for node in nodes), etcd]:
            process.kill()
            process.wait()
        if os.environ.get("KEEP"):
            print("files are in", folder)
        else:
            shutil.rmtree(folder)


def report(name, work):
    """Prints what a client has met. Returns whether it is what it should be."""
    output = work.communicate(timeout=60)[0].decode()
    results = [line for line in output.splitlines() if line.startswith("result ")]
    if not results:
        print(f"{name:12} has no result: {output[-500:]}")
        return False
    _, operations, errors, wrong, *texts = results[-1].split(" ", 4)
    print(f"{name:12} {operations:>8} operations, {errors} errors, {wrong} wrong reads", *texts)
    return int(operations) > 0 and int(errors) == 0 and int(wrong) == 0


sys.exit(main())
