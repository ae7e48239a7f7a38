"""A control plane and a kubelet on this machine, in namespaces of their own: `tests/kubernetes kubelet`.

    etcd, kube-apiserver, kube-controller-manager, kube-scheduler    built from the Go modules
    kubelet, kube-proxy                                              likewise; one node
    containerd, runc, CNI plugins                                    Debian's
    names of services and pods                                       answered here, in place of CoreDNS

The chart is installed by Helm, and its pods are the kubelet's."""

import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import socketserver
import ssl
import struct
import subprocess
import tarfile
import tempfile
import threading
import time

import yaml

from kubernetes import CACHE, CHART, NAMESPACE, ApiServer, fail, passed, run, until

NODE = "198.51.100.1"
PODS = "10.244.0.0/24"
DOMAIN = "cluster.local"
VALUES = f"{CHART}/ci/kubelet.yaml"
PROGRAM = os.environ.get("PROGRAM", "")


def network():
    """Gives the namespace an address. No packet leaves it."""
    for words in (["link", "set", "lo", "up"], ["link", "add", "node0", "type", "veth", "peer", "name", "node1"], ["link", "set", "node1", "up"],
                  ["address", "add", f"{NODE}/24", "dev", "node0"], ["link", "set", "node0", "up"],
                  ["route", "add", "default", "dev", "node0"]):
        run("ip", *words)
    with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
        file.write("1")


def archive(path, name, program, entry):
    """Writes an image with one program, as `docker save` does."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(program, entry.lstrip("/"))
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Entrypoint": [entry]},
                         "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for file, content in (("manifest.json", manifest), ("config.json", config), ("layer.tar", layer.getvalue())):
            entry = tarfile.TarInfo(file)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


class Names:
    """Answers for the names of services and of their pods, as the API server has them."""

    def __init__(self, api):
        self.api, self.addresses = api, {}
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                question, reply = self.request
                reply.sendto(outer.answer(question), self.client_address)

        server = socketserver.ThreadingUDPServer((NODE, 53), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            try:
                self.addresses = self.read()
            except OSError:
                pass  # The API server is not there for a moment.
            time.sleep(0.3)

    def read(self):
        services = json.loads(self.api.ask("GET", "api/v1/services"))["items"]
        ends = {(it["metadata"]["namespace"], it["metadata"]["name"]): it.get("subsets") or []
                for it in json.loads(self.api.ask("GET", "api/v1/endpoints"))["items"]}
        found = {}
        for service in services:
            place = (service["metadata"]["namespace"], service["metadata"]["name"])
            name = f"{place[1]}.{place[0]}.svc.{DOMAIN}"
            pods = [it for subset in ends.get(place, []) for it in subset.get("addresses") or []]
            is_headless = service["spec"].get("clusterIP") == "None"
            found[name] = [it["ip"] for it in pods] if is_headless else [service["spec"]["clusterIP"]]
            for pod in pods:
                if is_headless and pod.get("hostname"):
                    found[f"{pod['hostname']}.{name}"] = [pod["ip"]]
        return found

    def answer(self, question):
        at, labels = 12, []
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind = struct.unpack(">H", question[at + 1:at + 3])[0]
        addresses = self.addresses.get(".".join(labels).lower())
        answers = [] if kind != 1 or addresses is None else addresses
        # A name that is not there: the next suffix is tried.
        flags = 0x8580 if addresses is not None else 0x8583
        head = question[:2] + struct.pack(">HHHHH", flags, 1, len(answers), 0, 0)
        body = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + bytes(map(int, it.split("."))) for it in answers)
        return head + question[12:at + 5] + body


class Node:
    """The processes, and Helm and kubectl for them."""

    def __init__(self, work):
        self.work = work
        network()
        self.api = ApiServer(work, NODE)
        until("the API server is ready", self.api.is_ready)
        self.config = self.write("kubeconfig", {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"https://{NODE}:{self.api.port}",
                                                      "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": "secret"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin", "namespace": NAMESPACE}}]})
        os.environ["KUBECONFIG"] = self.config
        os.environ["HOME"] = work
        os.environ["PATH"] += ":/usr/sbin"
        self.names = Names(self.api)
        self.processes = list(self.api.processes)
        self.container_runtime()
        self.control_plane()
        self.kubelet()

    def write(self, name, content):
        path = f"{self.work}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    def start(self, name, *words, **options):
        self.processes.append(ApiServer.start(self.work, name, *words, **options))

    def container_runtime(self):
        self.write("cni/10-pods.conflist", json.dumps({
            "cniVersion": "0.4.0", "name": "pods", "plugins": [
                {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
                 "ipam": {"type": "host-local", "dataDir": f"{self.work}/cni-addresses",
                          "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}},
                {"type": "portmap", "capabilities": {"portMappings": True}}]}))
        self.socket = f"{self.work}/containerd.sock"
        config = self.write("containerd.toml", f"""version = 2
root = "{self.work}/containerd"
state = "{self.work}/containerd-state"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:test"
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{self.work}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
""")
        self.start("containerd", "containerd", "--config", config)
        ctr = ["ctr", "--address", self.socket, "--namespace", "k8s.io"]
        until("containerd answers", lambda: run(*ctr, "version", check=False).returncode == 0)
        source, pause = self.write("pause.c", "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"), f"{self.work}/pause"
        run("cc", "-static", "-O", "-o", pause, source)
        archive(f"{self.work}/pause.tar", "pause:test", pause, "/pause")
        archive(f"{self.work}/kubectl.tar", "kubectl:test", f"{CACHE}/kubectl", "/kubectl")
        with gzip.open(os.environ["IMAGE"]) as packed, open(f"{self.work}/image.tar", "wb") as image:
            shutil.copyfileobj(packed, image)
        for file in ("pause.tar", "kubectl.tar", "image.tar"):
            run(*ctr, "images", "import", f"{self.work}/{file}")

    def control_plane(self):
        self.start("controllers", f"{CACHE}/kube-controller-manager", f"--kubeconfig={self.config}",
                   f"--service-account-private-key-file={self.work}/key", "--leader-elect=false",
                   f"--root-ca-file={self.work}/certificates/apiserver.crt", "--allocate-node-cidrs=true",
                   "--cluster-cidr=10.244.0.0/16", f"--cert-dir={self.work}/controllers-certificates")
        self.start("scheduler", f"{CACHE}/kube-scheduler", f"--kubeconfig={self.config}", "--leader-elect=false",
                   f"--cert-dir={self.work}/scheduler-certificates")

    def kubelet(self):
        names = self.write("resolv.conf", f"nameserver {NODE}\n")
        config = self.write("kubelet.yaml", {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "cgroupRoot": CGROUP,
            "failCgroupV1": False, "failSwapOn": False, "enforceNodeAllocatable": ["pods"],
            "clusterDNS": [NODE], "clusterDomain": DOMAIN, "resolvConf": names,
            "containerRuntimeEndpoint": f"unix://{self.socket}", "evictionHard": {"memory.available": "100Mi"},
            "volumePluginDir": f"{self.work}/volume-plugins", "podLogsDir": f"{self.work}/pod-logs",
            "imageGCHighThresholdPercent": 100, "syncFrequency": "5s", "nodeStatusUpdateFrequency": "2s"})
        self.start("kubelet", f"{CACHE}/kubelet", f"--config={config}", f"--kubeconfig={self.config}",
                   f"--root-dir={self.work}/kubelet", f"--cert-dir={self.work}/kubelet-certificates",
                   f"--node-ip={NODE}", "--hostname-override=node-a",
                   "--node-labels=topology.kubernetes.io/zone=a")
        config = self.write("proxy.yaml", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
            "clientConnection": {"kubeconfig": self.config}, "hostnameOverride": "node-a",
            "clusterCIDR": "10.244.0.0/16", "conntrack": {"maxPerCore": 0},
            "nftables": {"minSyncPeriod": "0s", "syncPeriod": "10s"}})
        self.start("proxy", f"{CACHE}/kube-proxy", f"--config={config}")

    def kubectl(self, *words, check=True, text=None):
        return run(f"{CACHE}/kubectl", *words, check=check, input=text).stdout

    def helm(self, *words, check=True):
        return run(f"{CACHE}/helm", *words, "--namespace", NAMESPACE, check=check)

    def get(self, kind, name=""):
        return json.loads(self.kubectl("get", kind, *([name] if name else []), "-o", "json"))

    def apply(self, *documents):
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(documents))

    def is_running(self):
        for process in self.processes:
            if process.poll() is not None:
                fail(f"{process.args[0]} has ended:\n{self.logs()}")
        return True

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.work)):
            if name.endswith(".log"):
                with open(f"{self.work}/{name}") as file:
                    lines = file.read().splitlines()[-12:]
                text += f"--- {name}\n" + "\n".join(line[:400] for line in lines) + "\n"
        return text

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


CGROUP = "/dunlin-kubelet"


def kubelet():
    os.makedirs("/tmp", exist_ok=True)
    work = tempfile.mkdtemp(prefix="kubelet-")
    os.chmod(work, 0o755)
    for folder in os.listdir("/sys/fs/cgroup"):
        os.makedirs(f"/sys/fs/cgroup/{folder}{CGROUP}", exist_ok=True)
    node = None
    try:
        node = Node(work)
        lives(node)
    except SystemExit:
        # To look at it: nsenter --all --target THIS_PROCESS
        if os.environ.get("KEEP"):
            print(f"kept: KUBECONFIG={work}/kubeconfig; ends with this process", flush=True)
            signal.pause()
        raise
    finally:
        if node:
            node.stop()
        shutil.rmtree(work, ignore_errors=True)


def lives(node):
    def is_ready():
        node.is_running()
        nodes = node.get("nodes")["items"]
        return nodes and any(it["type"] == "Ready" and it["status"] == "True" for it in nodes[0]["status"]["conditions"])

    until("the node is ready", is_ready)
    passed("a kubelet is ready")
    node.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
               {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "test"},
                "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": True},
               {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sessions", "namespace": NAMESPACE},
                "stringData": {"password": "not a secret"}},
               *(volume(node, number) for number in range(6)))
    # As the release before installed it.
    release(node, "install", "t", CHART, "-f", VALUES, "--set", "nodes.tls.enabled=false")
    passed("helm install: three nodes are ready, and the job has created the database")
    writers = Writers(node)
    rolls(node, writers)
    volumes(node, writers)
    writers.audit()
    grows(node)


def release(node, *words):
    """Lets Helm do something, and waits until pods are ready and jobs have ended."""
    done = node.helm(*words, "--wait", "--timeout", "8m", check=False)
    if done.returncode:
        state = node.kubectl("get", "pods,jobs,pvc", "-o", "wide") + node.kubectl("get", "events")[-4000:]
        fail(f"helm {words[0]}: {done.stderr[-3000:]}\n{state}\n{node.logs()}")


def pods(node):
    """The pods of nodes by name, with what tells one from its successor."""
    found = node.get("pods")["items"]
    nodes = [it for it in found if it["metadata"]["labels"].get("app.kubernetes.io/component") == "node"]
    return {it["metadata"]["name"]: (it["metadata"]["uid"], it["status"].get("podIP")) for it in nodes}


def until_ready(node, count):
    def is_ready():
        node.is_running()
        status = node.get("statefulset", "t-dunlin")["status"]
        return status.get("readyReplicas") == count and status.get("updatedReplicas") == count

    until(f"{count} pods are ready", is_ready)


def speaks_tls(node):
    """The nodes' port shows a certificate of the token's authority by the service's name, and takes nothing in clear."""
    authority = node.kubectl("exec", "t-dunlin-0", "--", "cat", "/data/node/tls/ca.pem")
    address = node.get("service", "t-dunlin")["spec"]["clusterIP"]
    rules = ssl.create_default_context(cadata=authority)
    with socket.create_connection((address, 8380), timeout=30) as plain:
        with rules.wrap_socket(plain, server_hostname=f"t-dunlin.{NAMESPACE}.svc") as session:
            session.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            if b"200 OK" not in session.recv(100):
                fail("the nodes' port does not answer by TLS")
    with socket.create_connection((address, 8380), timeout=30) as plain:
        plain.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        if b"200 OK" in plain.recv(100):
            fail("the nodes' port answers without TLS")


class Writers:
    """Clients of the database that note what was acknowledged."""

    def __init__(self, node):
        address = node.get("service", "t-dunlin-sessions")["spec"]["clusterIP"]
        self.ledger, self.log = f"{node.work}/ledger", f"{node.work}/bench.txt"
        self.target = ["-h", address, "-p", "6379", "-a", "not a secret"]
        words = [PROGRAM, "bench", *self.target, "--ledger", self.ledger, "--key-maximum", "5000", "-c", "4",
                 "--duration", "3600"]
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
                fail(f"the writers have ended with {self.process.returncode}: {log.read()[:1500]}")

    def audit(self):
        self.go_on()
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        done = run(PROGRAM, "bench", "audit", *self.target, self.ledger, check=False)
        print("   ", "\n    ".join((done.stdout + done.stderr).strip().splitlines()[-6:]), flush=True)
        if done.returncode:
            fail("acknowledged writes are lost")
        passed("no acknowledged write is lost")


def rolls(node, writers):
    before = pods(node)
    release(node, "upgrade", "t", CHART, "-f", VALUES, "--set", "podAnnotations.roll=yes")
    until_ready(node, 3)
    after = pods(node)
    if any(after[name][0] == before[name][0] for name in before):
        fail(f"these pods were to be started again: {before}, {after}")
    writers.go_on()
    speaks_tls(node)
    passed("helm upgrade: each pod is started again, one after the other, under writes, and their port speaks TLS")

    job = lambda: node.get("job", "t-dunlin-databases")["metadata"]["uid"]
    old_job = job()
    release(node, "rollback", "t", "1")
    until_ready(node, 3)
    if job() == old_job:
        fail("the job has not run at the rollback")
    writers.go_on()
    passed("helm rollback: the pods of before, and the job has run")

    before = pods(node)
    node.kubectl("delete", "pod", "t-dunlin-1", "--grace-period=0", "--force")
    until("another pod of that name", lambda: pods(node).get("t-dunlin-1", before["t-dunlin-1"])[0] != before["t-dunlin-1"][0])
    until_ready(node, 3)
    if pods(node)["t-dunlin-1"][1] == before["t-dunlin-1"][1]:
        fail("the pod has its old address")
    writers.go_on()
    passed("a pod that is killed comes back with another address")

    before = pods(node)
    node.kubectl("patch", "secret", "t-dunlin", "-p", json.dumps({"stringData": {"admin-password": "another password"}}))
    release(node, "upgrade", "t", CHART, "-f", VALUES)
    until_ready(node, 3)
    after = pods(node)
    if any(after[name][0] == before[name][0] for name in before):
        fail("pods have not been started again for another secret")
    cluster(node, "status")
    release(node, "upgrade", "t", CHART, "-f", VALUES)
    if pods(node) != after:
        fail("an upgrade that changes nothing starts pods again")
    writers.go_on()
    passed("a changed secret reaches the pods with the next upgrade, and only then")


def volumes(node, writers):
    before = pods(node)
    done = node.helm("upgrade", "t", CHART, "-f", VALUES, "--set", "storage.data.size=2Gi,storage.grow.enabled=false", check=False)
    if done.returncode == 0 or "storage.grow.enabled" not in done.stderr:
        fail(f"larger volumes are not refused: {done.stderr}")
    release(node, "upgrade", "t", CHART, "-f", VALUES, "--set", "storage.data.size=2Gi")
    until_ready(node, 3)
    sizes = {it["metadata"]["name"]: it["spec"]["resources"]["requests"]["storage"] for it in node.get("pvc")["items"]}
    template = node.get("statefulset", "t-dunlin")["spec"]["volumeClaimTemplates"][0]["spec"]
    if set(sizes.values()) != {"2Gi"} or len(sizes) != 3 or template["resources"]["requests"]["storage"] != "2Gi":
        fail(f"the claims: {sizes}, {template}")
    if pods(node) != before:
        fail("pods were started again for larger volumes")
    writers.go_on()
    passed("volumes grow with helm upgrade, and no pod is started again")


def grows(node):
    release(node, "upgrade", "t", CHART, "-f", VALUES, "--set", "storage.data.size=2Gi,nodes.count=5")
    until_ready(node, 5)
    text = cluster(node, "databases", "sessions", "--json")
    machines = {copy["machine"] for shard in json.loads(text)["shards"] for copy in shard["copies"]}
    if machines != {f"t-dunlin-{number}" for number in range(5)}:
        fail(f"the copies are on {machines}")
    passed("two more nodes have joined, and have copies")


def cluster(node, *words):
    return node.kubectl("exec", "t-dunlin-0", "--", "env", "DUNLIN_ADMIN_PASSWORD=another password", "dunlin", "cluster", *words)


def volume(node, number):
    path = f"{node.work}/volume-{number}"
    os.makedirs(path)
    os.chown(path, 999, 999)
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"v{number}"},
            "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "test",
                     "hostPath": {"path": path}, "persistentVolumeReclaimPolicy": "Retain"}}
