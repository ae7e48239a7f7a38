"""What operators do with the chart, under writers: the scenarios of `tests/kubernetes kubelet`.

Each has writers of its own, whose ledgers are audited behind it and behind each that follows. What their clients see is compared with what
docs/kubernetes.md says of it (section "What clients see")."""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

from kubelet import CONTROL
from kubernetes import CACHE, CHART, NAMESPACE, ApiServer, fail, free_port, passed, pods_of, run, template
from kubernetes import until as until_soon

VALUES = f"{CHART}/ci/kubelet.yaml"
PROGRAM = os.environ.get("PROGRAM", "")
VOLUMES = 14



class Seen:
    """What clients may see, as a row of docs/kubernetes.md says: codes of errors, and whether connections are closed."""

    def __init__(self, row):
        with open("docs/kubernetes.md") as file:
            rows = [line.split("|") for line in file if line.startswith(f"| {row}")]
        if len(rows) != 1:
            fail(f"docs/kubernetes.md has {len(rows)} rows about: {row}")
        _, _, connections, errors, _ = rows[0]
        self.codes, self.stay = set(re.findall("`([A-Z]+)`", errors)), connections.strip() == "stay"


# Each can be left out but the first two: STEPS="install grow_to_three roll".
STEPS = """install grow_to_three roll roll_back kill_pod change_secret change_options change_image surge change_password
renew_certificates renew_certificates_of_etcd grow_volumes lose_machine grow_to_five shrink_to_three"""
LIVE = Seen("a database's options or password")
PLANNED = Seen("a roll")
LOST = Seen("a pod that is killed, a machine that is lost")
WITHOUT_REPLICA = Seen("`replicas: 0`")


def until(what, condition):
    """Waits, and leaves the processor to the machines meanwhile."""
    until_soon(what, condition, pause_s=1)


def live(cluster):
    def are_ready():
        cluster.is_running()
        found = [it for node in cluster.get("nodes")["items"] for it in node["status"]["conditions"]]
        return len([it for it in found if it["type"] == "Ready" and it["status"] == "True"]) == len(cluster.machines)

    until("the machines are ready", are_ready)
    passed(f"{len(cluster.machines)} kubelets are ready")
    began, counts = time.monotonic(), []
    test = Test(cluster)
    for step in os.environ.get("STEPS", STEPS).split():
        print(f"--- {step}, after {time.monotonic() - began:.0f} s", flush=True)
        getattr(test, step)()
        counts = test.check_ledgers(step)
    for count in counts:
        print(f"    {count}", flush=True)
    passed(f"no acknowledged write of {len(counts)} ledgers is lost")


class Test:
    """One release, what it was installed with, and what was written."""

    def __init__(self, cluster):
        self.cluster, self.options, self.password = cluster, {}, "not a secret"
        self.ledgers = []
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "test"},
             "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": True},
            secret("sessions", password=self.password), *(volume(cluster, number) for number in range(VOLUMES)))

    # --- what scenarios are made of

    def helm(self, *words, release="t"):
        """Lets Helm do something, and waits until pods are ready and jobs have ended."""
        done = self.cluster.helm(words[0], release, *words[1:], "--wait", "--timeout", "10m", check=False)
        if done.returncode:
            state = self.cluster.kubectl("get", "pods,jobs,pvc", "-o", "wide") + self.cluster.kubectl("get", "events")[-4000:]
            state += self.cluster.kubectl("logs", f"job/{release}-dunlin-databases", "--tail=20", check=False)
            fail(f"helm {' '.join(words)}: {done.stderr[-3000:]}\n{state}\n{self.cluster.logs()}")

    def upgrade(self, **options):
        """Changes values, which stay changed. Dots are written as two underscores."""
        self.options.update({name.replace("__", "."): value for name, value in options.items()})
        self.helm("upgrade", CHART, "-f", VALUES, *self.values())
        self.until_ready()

    def values(self):
        return [word for name, value in self.options.items() for word in ("--set", f"{name}={value}")]

    def pods(self):
        """The pods of nodes by name, with what tells one from its successor."""
        found = self.cluster.get("pods")["items"]
        nodes = [it for it in found if it["metadata"]["labels"].get("app.kubernetes.io/component") == "node"
                 and it["metadata"]["labels"].get("app.kubernetes.io/instance") == "t"]
        return {it["metadata"]["name"]: (it["metadata"]["uid"], it["status"].get("podIP")) for it in nodes}

    def until_ready(self):
        count = int(self.options.get("nodes.count", 3))

        def is_ready():
            self.cluster.is_running()
            status = self.cluster.get("statefulset", "t-dunlin")["status"]
            return status.get("readyReplicas") == count and status.get("updatedReplicas") == count

        until(f"{count} pods are ready", is_ready)

    def ask(self, *words, release="t", pod=0, check=True):
        """Runs `dunlin cluster` in a pod."""
        done = run(*self.exec(f"{release}-dunlin-{pod}", "env", f"DUNLIN_ADMIN_PASSWORD={self.admin_password(release)}",
                              "dunlin", "cluster", *words), check=False)
        if check and done.returncode:
            fail(f"dunlin cluster {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def exec(self, pod, *words):
        return [f"{CACHE}/kubectl", "exec", "-n", NAMESPACE, pod, "--", *words]

    def admin_password(self, release="t"):
        return base64.b64decode(self.cluster.get("secret", f"{release}-dunlin")["data"]["admin-password"]).decode()

    def copies(self, pod=0):
        """The machines that have copies of the database, as a pod says."""
        shards = json.loads(self.ask("databases", "sessions", "--json", pod=pod))["shards"]
        return [[copy["machine"] for copy in shard["copies"]] for shard in shards]

    def databases(self):
        """The request that tells of databases, at whatever node the service leads to."""
        login = base64.b64encode(f"admin:{self.admin_password()}".encode()).decode()
        scheme = "http" if self.options["nodes.tls.enabled"] == "false" else "https"
        return urllib.request.Request(f"{scheme}://{self.address('t-dunlin')}:8380/api/v1/cluster/databases",
                                      headers={"Authorization": f"Basic {login}"})

    @staticmethod
    def members(request):
        """How many copies of each shard are in step; nothing while no node answers that knows it."""
        try:
            with urllib.request.urlopen(request, timeout=5, context=ssl._create_unverified_context()) as answer:
                databases = json.load(answer)
        except (OSError, ValueError):
            return []
        shards = [shard["copies"] for database in databases for shard in database["shards"]]
        # Without an answer of etcd a node knows no roles.
        return [sum(copy["is_member"] for copy in copies) for copies in shards if any(it["role"] != "none" for it in copies)]

    def address(self, service):
        return self.cluster.get("service", service)["spec"]["clusterIP"]

    def target(self):
        return ["-h", self.address("t-dunlin-sessions"), "-p", "6379", "-a", self.password]

    @contextlib.contextmanager
    def writers(self, name, may_see):
        """Clients that write meanwhile. Their ledger is audited in the end, and their errors are looked at now."""
        writers = Writers(self, name)
        yield writers
        writers.end(may_see)

    def all_are_others(self, before):
        after = self.pods()
        if any(after[name][0] == before[name][0] for name in before):
            fail(f"these pods were to be started again: {before}, {after}")

    def all_stay(self, before):
        if self.pods() != before:
            fail(f"these pods were to stay: {before}, {self.pods()}")

    # --- scenarios

    def install(self):
        # A claim that is there before, of a volume with a file.
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-t-dunlin-2", "namespace": NAMESPACE},
                 "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "test", "volumeName": f"v{VOLUMES - 1}",
                          "resources": {"requests": {"storage": "1Gi"}}}}
        self.cluster.apply(claim)
        self.claim = self.cluster.get("pvc", "data-t-dunlin-2")["metadata"]["uid"]
        with open(f"{self.cluster.work}/volume-{VOLUMES - 1}/there-before", "w") as file:
            file.write("kept")
        # As the release before installed it.
        self.options = {"nodes.count": 1, "nodes.tls.enabled": "false", "databases.sessions.replicas": 0}
        self.helm("install", CHART, "-f", VALUES, *self.values())
        passed("helm install: one node is ready, and the job has created the database")

    def grow_to_three(self):
        with self.writers("one-to-three", WITHOUT_REPLICA):
            self.upgrade(nodes__count=3, databases__sessions__replicas=1)
        if sorted(map(len, self.copies())) != [2, 2, 2] or len(set(sum(self.copies(), []))) != 3:
            fail(f"the copies are on {self.copies()}")
        members = self.ask("status")
        claim = self.cluster.get("pvc", "data-t-dunlin-2")
        text = run(*self.exec("t-dunlin-2", "cat", "/data/there-before")).stdout
        if claim["metadata"]["uid"] != self.claim or claim["spec"]["volumeName"] != f"v{VOLUMES - 1}" or text != "kept":
            fail(f"the pod has not the claim that was there: {claim}, {text}")
        print("   ", "\n    ".join(members.splitlines()[:4]), flush=True)
        passed("one node becomes three, each with copies, and a pod takes the claim that was there before it")

    def roll(self):
        before = self.pods()
        with self.writers("roll", PLANNED):
            self.upgrade(podAnnotations__roll="yes", nodes__tls__enabled="true")
            self.all_are_others(before)
        self.speaks_tls(self.token_authority())
        passed("helm upgrade: each pod is started again, one after the other, under writes, and their port speaks TLS")

    def roll_back(self):
        job = lambda: self.cluster.get("job", "t-dunlin-databases")["metadata"]["uid"]
        before, old_job = self.pods(), job()
        with self.writers("rollback", PLANNED):
            self.helm("rollback", "2")
            self.until_ready()
            self.all_are_others(before)
        if job() == old_job:
            fail("the job has not run at the rollback")
        passed("helm rollback: the pods of before, and the job has run")
        self.options["nodes.tls.enabled"] = "false"

    def kill_pod(self):
        before = self.pods()["t-dunlin-1"]
        with self.writers("killed-pod", LOST):
            self.cluster.kubectl("delete", "pod", "t-dunlin-1", "--grace-period=0", "--force")
            until("another pod of that name", lambda: self.pods().get("t-dunlin-1", before)[0] != before[0])
            self.until_ready()
        if self.pods()["t-dunlin-1"][1] == before[1]:
            fail("the pod has its old address")
        passed("a pod that is killed comes back with another address")

    def change_secret(self):
        before = self.pods()
        patch(self.cluster, "t-dunlin", **{"admin-password": "another password"})
        with self.writers("secret", PLANNED):
            self.upgrade(nodes__tls__enabled="true")
            self.all_are_others(before)
            after = self.pods()
            self.ask("status")
            self.upgrade()
            self.all_stay(after)
        passed("a changed secret reaches the pods with the next upgrade, and only then")

    def change_options(self):
        before = self.pods()
        option = lambda: run(PROGRAM, "cli", *self.target(), "CONFIG", "GET", "maxmemory-policy").stdout
        with self.writers("option", LIVE):
            self.upgrade(databases__sessions__eviction="volatile-ttl")
            self.all_stay(before)
            if "volatile-ttl" not in option():
                fail(f"servers have {option()}")
        with self.writers("option-of-nodes", PLANNED):
            self.upgrade(nodes__memory="640mb")
            self.all_are_others(before)
        nodes = self.ask("nodes", "--json")
        if nodes.count(str(640 * 1024 * 1024)) != 3:
            fail(f"nodes have {nodes}")
        passed("a changed option of a database reaches servers that run, one of nodes rolls the pods")

    def change_image(self):
        for machine in self.cluster.machines:
            machine.ctr("images", "tag", f"docker.io/library/{image()}", "docker.io/library/dunlin:another")
        before = self.pods()
        with self.writers("image", PLANNED):
            self.upgrade(image__tag="another")
            self.all_are_others(before)
        images = {it["spec"]["containers"][0]["image"] for it in self.cluster.get("pods")["items"]
                  if it["metadata"]["name"] in before}
        if images != {"dunlin:another"}:
            fail(f"the pods have {images}")
        passed("another image: each pod is started again with it, one after the other")

    def surge(self):
        """A roll during which no shard has fewer copies in step than before."""
        before, least, looks, is_over, request = self.pods(), [], [], threading.Event(), self.databases()

        def watch():
            while not is_over.wait(0.5):
                shards = self.members(request)
                looks.append(shards)
                least.extend(shard for shard in shards if shard < 2)

        watcher = threading.Thread(target=watch)
        with self.writers("surge", PLANNED):
            watcher.start()
            try:
                self.upgrade(nodes__surge="true", podAnnotations__roll="surge")
            finally:
                is_over.set()
                watcher.join()
            self.all_are_others(before)
        if least or len(looks) < 20 or not any(shards == [3, 3, 3] for shards in looks):
            fail(f"copies in step: {looks}")
        if sorted(map(len, self.copies())) != [2, 2, 2]:
            fail(f"the copies are on {self.copies()}")
        left = [it["metadata"]["name"] for kind in ("serviceaccounts", "roles", "rolebindings", "jobs")
                for it in self.cluster.get(kind)["items"] if it["metadata"]["name"].endswith("-rolled")]
        if left:
            fail(f"what waited for the roll is left: {left}")
        self.options["nodes.surge"] = "false"
        passed(f"nodes.surge: in {len(looks)} looks no shard had fewer copies in step than before the roll")

    def change_password(self):
        before = self.pods()
        with self.writers("password", LIVE):
            patch(self.cluster, "sessions", password="changed")
            self.upgrade()
            self.all_stay(before)
            # Clients that are connected stay, and new ones need the new password.
        old, self.password = self.target(), "changed"
        ping = lambda target: run(PROGRAM, "cli", *target, "PING", check=False).stdout
        if "PONG" in ping(old) or "PONG" not in ping(self.target()):
            fail(f"the old password: {ping(old)}; the new one: {ping(self.target())}")
        passed("a database's password changes with helm upgrade, while its clients stay connected")

    def renew_certificates(self):
        names = ["localhost", "t-dunlin", f"t-dunlin.{NAMESPACE}.svc"]
        authority = Authority(self.cluster.work, "first")
        self.cluster.apply(secret("nodes-tls", **authority.issue(names)), secret("clients-tls", **authority.issue(["sessions.example"])))
        before = self.pods()
        self.upgrade(nodes__tls__existingSecret="nodes-tls", tls__enabled="true", tls__existingSecret="clients-tls")
        self.all_are_others(before)
        after = self.pods()
        self.speaks_tls(authority.text)
        for port in ((self.address("t-dunlin"), 8380, names[2]), (self.address("t-dunlin-sessions"), 6380, "sessions.example")):
            connect(*port, authority.text).close()
        with self.writers("certificates", LIVE):
            renewed = Authority(self.cluster.work, "second")
            patch(self.cluster, "nodes-tls", **renewed.issue(names))
            patch(self.cluster, "clients-tls", **renewed.issue(["sessions.example"]))
            # Of each pod: the service leads to any of them.
            for _, address in after.values():
                for port, name in ((8380, names[2]), (13000, "sessions.example")):
                    until(f"port {port} of {address} shows the renewed certificate",
                          lambda port=port, name=name, address=address: shows(address, port, name, renewed.text))
            self.all_stay(after)
            self.ask("status")
            self.upgrade()
            self.all_stay(after)
        passed("renewed certificates of the nodes' port and of databases are used without a restart of pods")

    def renew_certificates_of_etcd(self):
        """A second release, with an etcd of the user's."""
        etcd = UserEtcd(self.cluster.work)
        authority = Authority(self.cluster.work, "etcd-first")
        etcd.start(authority)
        self.cluster.apply(secret("etcd-client", **authority.issue(["client"])))
        more = {"nodes.count": 1, "nodes.memory": "128mb", "etcd.endpoints[0]": etcd.url, "etcd.tlsSecret": "etcd-client",
                "image.tag": image().split(":")[1], "storage.data.storageClass": "test", "databases.lone.memory": "32mb",
                "databases.lone.port": 12000, "nodes.tls.enabled": self.options["nodes.tls.enabled"]}
        words = [word for name, value in more.items() for word in ("--set", f"{name}={value}")]
        self.helm("install", CHART, *words, release="e")
        uid = lambda: self.cluster.get("pod", "e-dunlin-0")["metadata"]["uid"]
        before = uid()
        renewed = Authority(self.cluster.work, "etcd-second")
        files = renewed.issue(["client"])
        patch(self.cluster, "etcd-client", **files)
        there = lambda: run(*self.exec("e-dunlin-0", "cat", "/etc/dunlin/etcd/ca.crt")).stdout == renewed.text
        until("the pod has the renewed certificates", there)
        # From now on it takes these alone.
        etcd.stop()
        etcd.start(renewed)
        changed = lambda: "done" in self.ask("update-db", "lone", "--memory", "40mb", release="e", check=False)
        until("the node changes something at etcd", changed)
        if uid() != before:
            fail("the pod was started again")
        self.cluster.helm("uninstall", "e", "--wait")
        etcd.stop()
        passed("renewed certificates for an etcd of the user's are used without a restart of the pod")

    def grow_volumes(self):
        before = self.pods()
        with self.writers("volumes", LIVE):
            words = [*self.values(), "--set", "storage.data.size=2Gi,storage.grow.enabled=false"]
            done = self.cluster.helm("upgrade", "t", CHART, "-f", VALUES, *words, check=False)
            if done.returncode == 0 or "storage.grow.enabled" not in done.stderr:
                fail(f"larger volumes are not refused: {done.stderr}")
            self.upgrade(storage__data__size="2Gi")
            claims = {it["metadata"]["name"]: it["spec"]["resources"]["requests"]["storage"]
                      for it in self.cluster.get("pvc")["items"] if it["metadata"]["name"].startswith("data-t-")}
            template = self.cluster.get("statefulset", "t-dunlin")["spec"]["volumeClaimTemplates"][0]["spec"]
            if set(claims.values()) != {"2Gi"} or len(claims) != 3 or template["resources"]["requests"]["storage"] != "2Gi":
                fail(f"the claims: {claims}, {template}")
            self.all_stay(before)
        passed("volumes grow with helm upgrade, and no pod is started again")

    def lose_machine(self):
        """A machine goes with the volumes of its pods, and does not come back."""
        machine = self.cluster.machines[-1]
        gone = [it["metadata"]["name"] for it in self.cluster.get("pods")["items"]
                if it["spec"].get("nodeName") == machine.name and it["metadata"]["name"] in self.pods()]
        if len(gone) != 1:
            fail(f"{machine.name} has {gone}: the pods are not spread")
        pod, other = gone[0], min(int(name[-1]) for name in self.pods() if name not in gone)
        before = self.pods()
        with self.writers("lost-machine", LOST) as writers:
            machine.lose()
            until("Kubernetes knows that the machine is away", lambda: not is_ready(self.cluster.get("node", machine.name)))
            writers.go_on()
            passed(f"a machine is lost with {pod}, and the writers go on")
            # Before the pod comes back: its new volume would have an etcd that is forgotten.
            print("   ", self.ask("forget", pod, "--replace", pod=other).strip().replace("\n", "\n    "), flush=True)
            if sorted(map(len, self.copies(other))) != [2, 2, 2]:
                fail(f"the copies are on {self.copies(other)}")
            name = self.cluster.get("pvc", f"data-{pod}")["spec"]["volumeName"]
            self.cluster.kubectl("delete", "node", machine.name)
            self.cluster.kubectl("delete", "pvc", f"data-{pod}", "--wait=false")
            self.cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
            shutil.rmtree(f"{self.cluster.work}/volume-{name[1:]}")
            self.cluster.kubectl("delete", "pv", name, "--wait=false")
            self.until_ready()
            self.ask("add-node", pod, pod=other)
        if self.pods()[pod][0] == before[pod][0] or set(sum(self.copies(), [])) != set(before):
            fail(f"the copies are on {self.copies()}")
        passed("forget --replace gives its shards new copies, and the pod is back with an empty volume, and has copies again")

    def grow_to_five(self):
        with self.writers("three-to-five", PLANNED):
            self.upgrade(nodes__count=5)
            machines = set(sum(self.copies(), []))
            if machines != {f"t-dunlin-{number}" for number in range(5)}:
                fail(f"the copies are on {machines}")
        passed("two more nodes have joined, and have copies")

    def shrink_to_three(self):
        names = lambda: [it["name"] for it in json.loads(self.ask("nodes", "--json"))]
        with self.writers("five-to-three", PLANNED):
            for number in (4, 3):
                self.ask("drain-node", f"t-dunlin-{number}")
            self.upgrade(nodes__count=3)
            for number in (4, 3):
                self.ask("forget", f"t-dunlin-{number}")
                self.cluster.kubectl("delete", "pvc", f"data-t-dunlin-{number}")
        machines = {f"t-dunlin-{number}" for number in range(3)}
        if set(sum(self.copies(), [])) != machines or set(names()) != machines:
            fail(f"the copies are on {self.copies()}, nodes are {names()}")
        passed("five nodes become three: drained, gone, forgotten")

    def check_ledgers(self, step):
        """No write of this scenario, or of one before it, is lost. Returns what each audit has counted."""
        counts = []
        for ledger in self.ledgers:
            done = run(PROGRAM, "bench", "audit", *self.target(), ledger, check=False)
            if done.returncode:
                fail(f"after {step}, {ledger}: acknowledged writes are lost: {done.stdout}{done.stderr}")
            said = [line.strip() for line in done.stdout.splitlines() if "acknowledged" in line or "lost" in line]
            counts.append(f"{os.path.basename(ledger)}: {', '.join(said)}")
        return counts

    # --- TLS

    def token_authority(self):
        return run(*self.exec("t-dunlin-0", "cat", "/data/node/tls/ca.pem")).stdout

    def speaks_tls(self, authority):
        """The nodes' port shows a certificate by the service's name, and takes nothing in clear."""
        address = self.address("t-dunlin")
        with connect(address, 8380, f"t-dunlin.{NAMESPACE}.svc", authority) as session:
            session.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            if b"200 OK" not in session.recv(100):
                fail("the nodes' port does not answer by TLS")
        with socket.create_connection((address, 8380), timeout=30) as plain:
            plain.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            if b"200 OK" in plain.recv(100):
                fail("the nodes' port answers without TLS")


class Writers:
    """Clients of the database that note what was acknowledged, and what they saw."""

    def __init__(self, test, name):
        work = test.cluster.work
        self.name, self.ledger, self.report, self.log = name, f"{work}/{name}.ledger", f"{work}/{name}.json", f"{work}/{name}.bench"
        test.ledgers.append(self.ledger)
        words = [PROGRAM, "bench", *test.target(), "--ledger", self.ledger, "--key-prefix", f"{name}-", "--key-maximum", "2000",
                 "-c", "6", "--rps", "60", "--duration", "3600", "--give-up", "300", "--json-out-file", self.report]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        self.go_on()

    def go_on(self):
        """Waits until more is acknowledged."""
        size = lambda: os.path.getsize(self.ledger) if os.path.exists(self.ledger) else 0
        before = size()
        until("writes are acknowledged", lambda: self.process.poll() is not None or size() > before)
        if self.process.poll() is not None:
            with open(self.log) as log:
                fail(f"{self.name}: the writers have ended with {self.process.returncode}: {log.read()[:1500]}")

    def end(self, may_see):
        self.go_on()
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        with open(self.report) as file:
            seen = json.load(file)["runs"][0]
        errors = seen["error_texts"]
        print(f"    {self.name}: {seen['total']['requests']} writes, {seen['lost_connections']} connections closed, "
              f"errors: {errors or 'none'}", flush=True)
        if may_see.stay and seen["lost_connections"]:
            fail(f"{self.name}: connections were closed: {seen['first_loss']}")
        wrong = {text: count for text, count in errors.items() if text.split()[0] not in may_see.codes}
        if wrong or seen["total"]["errors"] != sum(errors.values()):
            # Leases of four seconds end where processes get no processor, and then the docs promise nothing.
            fail(f"{self.name}: clients saw errors that the docs do not name: {wrong or seen['total']}; the load is "
                 f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} processors")


class Authority:
    """An authority of certificates."""

    def __init__(self, work, name):
        self.path, self.count = f"{work}/{name}", 0
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{self.path}.key",
            "-out", f"{self.path}.crt", "-days", "9", "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign")
        with open(f"{self.path}.crt") as file:
            self.text = file.read()

    def issue(self, names):
        """Returns the files of a secret with a certificate for these names."""
        self.count += 1
        path = f"{self.path}-{self.count}"
        alternatives = ",".join(f"{'IP' if name[0].isdigit() else 'DNS'}:{name}" for name in names)
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{path}.key",
            "-out", f"{path}.crt", "-days", "9", "-subj", f"/CN={names[0]}", "-CA", f"{self.path}.crt", "-CAkey", f"{self.path}.key",
            "-addext", f"subjectAltName={alternatives}", "-addext", "basicConstraints=critical,CA:false")
        found = {"ca.crt": self.text}
        for name, end in (("tls.crt", "crt"), ("tls.key", "key")):
            with open(f"{path}.{end}") as file:
                found[name] = file.read()
        return found


class UserEtcd:
    """An etcd beside the machines, which takes clients of one authority."""

    def __init__(self, work):
        self.work, self.port, self.peers = work, free_port(), free_port()
        self.url = f"https://{CONTROL}:{self.port}"

    def start(self, authority):
        authority.issue([CONTROL])
        path, peers = f"{authority.path}-{authority.count}", f"http://127.0.0.1:{self.peers}"
        self.process = ApiServer.start(
            self.work, "etcd-of-user", os.environ["ETCD"], "--data-dir", f"{self.work}/etcd-of-user", "--listen-client-urls", self.url,
            "--advertise-client-urls", self.url, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", f"default={peers}", "--cert-file", f"{path}.crt", "--key-file", f"{path}.key",
            "--trusted-ca-file", f"{authority.path}.crt", "--client-cert-auth")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def connect(address, port, name, authority):
    plain = socket.create_connection((address, port), timeout=30)
    return ssl.create_default_context(cadata=authority).wrap_socket(plain, server_hostname=name)


def shows(address, port, name, authority):
    try:
        connect(address, port, name, authority).close()
    except ssl.SSLCertVerificationError:
        return False
    return True


def image():
    """The image that the chart has for an etcd of its own."""
    return pods_of(template(VALUES))["t-dunlin"]["spec"]["containers"][0]["image"]


def is_ready(node):
    return any(it["type"] == "Ready" and it["status"] == "True" for it in node["status"]["conditions"])


def secret(name, **texts):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": texts}


def patch(cluster, name, **texts):
    cluster.kubectl("patch", "secret", name, "-p", json.dumps({"stringData": texts}))


def volume(cluster, number):
    path = f"{cluster.work}/volume-{number}"
    os.makedirs(path)
    os.chown(path, 999, 999)
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"v{number}"},
            "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "test",
                     "hostPath": {"path": path}, "persistentVolumeReclaimPolicy": "Retain"}}
