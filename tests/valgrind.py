"""What the scripts beside this file share that run a server under valgrind: it, its clients, their requests."""

import glob
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

NAME = os.path.basename(sys.argv[0])
REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.environ.get("CARGO_TARGET_DIR", f"{REPOSITORY}/target")
# How long a server under valgrind may take to answer.
PATIENCE_S = 300
# The same of a server that may not have started yet.
GLANCE_S = 10


def encode(*words):
    """Returns a request."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def tool(name, package):
    """Installs a program that is missing."""
    if not shutil.which(name):
        subprocess.run(["apt-get", "install", "-y", "-qq", package], check=True, stdout=subprocess.DEVNULL)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processors(count, what):
    """Returns the numbers of so many processors that this process may use; `what` says what they are for."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < count:
        sys.exit(f"{NAME}: {what}: {count} processors are needed, and this process may use {len(allowed)} (taskset -p $$)")
    return allowed[:count]


def end_process(process):
    """Ends a process, whether it runs or not."""
    process.kill()
    process.wait()


def answers(port):
    """Returns whether a server has started and loaded its files."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=GLANCE_S) as probe:
            probe.sendall(encode(b"PING"))
            return probe.recv(64).startswith(b"+")
    except OSError:
        return False


class Client:
    """One connection."""

    def __init__(self, port, with_tls=False):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if with_tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self.replies = self.socket.makefile("rb")

    def reply(self):
        """Returns the first line of a reply, and reads the rest of it. Messages that no request asked for are
        read on the way."""
        try:
            line = self.replies.readline()
        except TimeoutError:
            sys.exit(f"{NAME}: the server has not answered for {PATIENCE_S} s")
        if not line or line.startswith(b"-"):
            sys.exit(f"{NAME}: the server answers {line!r}")
        count = 0
        if line[:1] in b"$=" and line != b"$-1\r\n":
            self.replies.read(int(line[1:]) + 2)
        elif line[:1] in b"*~>" and line != b"*-1\r\n":
            count = int(line[1:])
        elif line[:1] == b"%":
            count = 2 * int(line[1:])
        for _ in range(count):
            self.reply()
        return self.reply() if line[:1] == b">" else line

    def send(self, requests):
        """Sends requests one after the other."""
        for request in requests:
            self.socket.sendall(request)
            self.reply()

    def ask(self, *words):
        """Sends one request, and returns the first line of the reply."""
        self.socket.sendall(encode(*words))
        return self.reply()


class Server:
    """A server under a tool of valgrind, in a folder of its own."""

    def __init__(self, program, valgrind, options, environment=None):
        """`valgrind` and `options` are arguments; {folder} in them is the server's folder."""
        self.folder = tempfile.mkdtemp(prefix="dunlin-valgrind-")
        self.port = free_port()
        words = ["valgrind", *valgrind, program, "server", "--port", str(self.port), "--io-backend", "epoll"]
        words += ["--save", "", "--dir", self.folder, *options]
        command = [word.replace("{folder}", self.folder) for word in words]
        self.log, self.process = f"{self.folder}/log", None
        try:
            self.prepare()
            with open(self.log, "w") as log:
                environment = {**os.environ, **(environment or {})}
                self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            self.wait_for_start()
        except BaseException:
            self.end()
            raise

    def wait_for_start(self):
        """Returns when the server answers."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if answers(self.port):
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(self.log) as log:
                    sys.exit(f"{NAME}: the server does not start\n{log.read()}")
            time.sleep(0.1)

    def prepare(self):
        """Puts into the folder what the server needs to start."""

    def control(self, what):
        """Gives the tool an order. Callgrind's own callgrind_control does not find a process that sets its title."""
        order = ["vgdb", f"--pid={self.process.pid}", what]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            subprocess.run(order, check=True, timeout=PATIENCE_S, **quiet)
        except subprocess.TimeoutExpired:
            sys.exit(f"{NAME}: valgrind has not obeyed '{what}' for {PATIENCE_S} s")

    def end(self):
        if self.process:
            end_process(self.process)
        shutil.rmtree(self.folder)


class CountedServer(Server):
    """A server under callgrind."""

    def __init__(self, program):
        tls_port = free_port()
        options = ["--tls-port", str(tls_port), "--tls-cert-file", "{folder}/certificate.pem"]
        options += ["--tls-key-file", "{folder}/key.pem", "--tls-auth-clients", "no", "--io-threads", "1"]
        callgrind = ["--tool=callgrind", "--separate-threads=yes", "--callgrind-out-file={folder}/counts"]
        super().__init__(program, callgrind, options)
        self.ports = {False: self.port, True: tls_port}

    def prepare(self):
        """Makes a certificate."""
        request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        request += ["-days", "2", "-subj", "/CN=localhost", "-keyout", f"{self.folder}/key.pem"]
        request += ["-out", f"{self.folder}/certificate.pem"]
        subprocess.run(request, check=True, stderr=subprocess.DEVNULL)

    def counted(self, work):
        """Does some work. Returns the file with the counts of the thread that served it, and their sum."""
        self.control("zero")
        work()
        before = set(glob.glob(f"{self.folder}/counts*"))
        self.control("dump")
        sums = {}
        for path in set(glob.glob(f"{self.folder}/counts*")) - before:
            with open(path) as counts:
                found = re.search(r"^(?:totals|summary): (\d+)", counts.read(), re.MULTILINE)
            sums[path] = int(found[1]) if found else 0
        busiest = max(sums, key=sums.get)
        return busiest, sums[busiest]


def inclusive(path, pattern):
    """Returns the instructions of the functions whose names match, with all that they called, as a file of
    callgrind has them; None if there are none."""
    names, is_wanted, is_call, total, found = {}, False, False, 0, False
    with open(path) as counts:
        for line in counts:
            if line.startswith("cfn="):
                # "(number) name" at first, "(number)" from then on.
                number, _, name = line[4:].strip().partition(" ")
                names[number] = name or names.get(number, "")
                is_wanted = bool(pattern.fullmatch(names[number]))
                found |= is_wanted
            elif line.startswith("fn="):
                number, _, name = line[3:].strip().partition(" ")
                if name:
                    names[number] = name
            elif line.startswith("calls="):
                is_call = True
            elif is_call:
                # The line of the call, and what the function and all that it called cost.
                is_call = False
                if is_wanted:
                    total += int(line.split()[1])
    return total if found else None
