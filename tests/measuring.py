"""What the measuring scripts beside this file share: servers to alternate between, and their load."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = subprocess.run([f"{HERE}/peers"], capture_output=True, text=True, check=True).stdout.strip()
TARGET = os.environ.get("CARGO_TARGET_DIR", f"{HERE}/../target")
# UNDER is what the load generator is started under, say "taskset -c 0".
BENCHMARK = [*os.environ.get("UNDER", "").split(), "chroot", PEERS, "valkey-benchmark"]
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def load(port, *arguments):
    """The command line of valkey-benchmark."""
    return BENCHMARK + ["-p", str(port), *map(str, arguments)]


class Server:
    """A release build of Dunlin ("dunlin") or the reference server ("valkey"), with its own folder; on the
    cores `under`, if they are given."""

    def __init__(self, name, *options, under=None):
        self.name = name
        self.under = ["taskset", "-c", ",".join(map(str, under))] if under else []
        root = PEERS if name == "valkey" else ""
        self.folder = tempfile.mkdtemp(dir=f"{root}/tmp")
        self.inside = self.folder.removeprefix(root)
        self.start(*options)

    def start(self, *options):
        """Starts it (again) in its folder; returns when it answers."""
        self.port = free_port()
        program = (
            ["chroot", PEERS, "valkey-server"]
            if self.name == "valkey"
            else [f"{TARGET}/release/dunlin", "server"]
        )
        fixed = ["--port", str(self.port), "--save", "", "--dir", self.inside]
        fixed += ["--logfile", f"{self.inside}/log"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # In a group of its own: a server that saves has a child.
        command = [*self.under, *program, *fixed, *options]
        self.process = subprocess.Popen(command, start_new_session=True, **quiet)
        for _ in range(100):
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"{self.name} does not start")

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def call(self, *words):
        """The reply's bytes as text; `words` are bytes."""
        request = b"*%d\r\n" % len(words)
        request += b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self.socket.sendall(request)
        return self.socket.recv(1 << 16).decode()

    def processor_seconds(self):
        """Of the process and of its children that have ended."""
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / TICKS

    def megabytes(self):
        """The proportional set size of the server and its children."""
        total = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                parent = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
                if self.process.pid in (int(pid), parent):
                    text = open(f"/proc/{pid}/smaps_rollup").read()
                    total += int(re.search(r"Pss:\s+(\d+)", text).group(1))
            except (OSError, AttributeError):
                pass  # it has ended meanwhile
        return total / 1024

    def stop(self):
        """Kills it and what it has started, unless it has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def end(self):
        self.stop()
        subprocess.run(["rm", "-r", self.folder], check=True)
