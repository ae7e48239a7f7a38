"""A control plane and three kubelets on this machine, in namespaces of their own: `tests/kubernetes kubelet`.

    etcd, kube-apiserver, kube-controller-manager, kube-scheduler    built from the Go modules
    kubelet, kube-proxy                                              likewise, for each machine
    containerd, runc, CNI plugins                                    Debian's, likewise
    names of services and pods                                       answered here, in place of CoreDNS

A machine is a namespace of the network with an address on a common bridge and a range of pods' addresses; the first has
the control plane, too. Files are the same for all, so volumes are folders. The chart is installed by Helm, its pods are
the kubelets', and operations.py says what is done with them."""

import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import socketserver
import struct
import subprocess
import tarfile
import tempfile
import threading
import time

import yaml

from kubernetes import CACHE, NAMESPACE, ApiServer, fail, run, until

CONTROL = "198.51.100.1"
DOMAIN = "cluster.local"
CGROUP = "/dunlin-kubelet"
MACHINES = "abc"


def network():
    """Gives the namespace an address on a bridge. No packet leaves it."""
    for words in (["link", "set", "lo", "up"], ["link", "add", "machines0", "type", "bridge"],
                  ["address", "add", f"{CONTROL}/24", "dev", "machines0"], ["link", "set", "machines0", "up"],
                  ["route", "add", "default", "dev", "machines0"]):
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

        server = socketserver.ThreadingUDPServer((CONTROL, 53), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            try:
                self.addresses = self.read()
            except OSError:
                pass  # The API server is not there for a moment.
            time.sleep(0.5)

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


class Machine:
    """One machine: its network, containerd, kubelet and kube-proxy."""

    def __init__(self, cluster, number):
        self.cluster, self.name = cluster, f"node-{MACHINES[number]}"
        self.work, self.cgroup = f"{cluster.work}/{self.name}", f"{CGROUP}-{MACHINES[number]}"
        self.address, self.pods = f"198.51.100.{number + 1}", f"10.244.{number}.0/24"
        self.socket = f"{self.work}/containerd.sock"
        self.processes, self.namespace, self.link = [], None, f"machine{number}"
        os.makedirs(self.work)
        for folder in os.listdir("/sys/fs/cgroup"):
            os.makedirs(f"/sys/fs/cgroup/{folder}{self.cgroup}", exist_ok=True)
        if number:
            self.join_network()
        self.container_runtime()
        self.kubelet()

    def join_network(self):
        """Makes the namespace, with a cable to the bridge, and routes between its pods and those of the others."""
        self.namespace = self.name
        run("ip", "netns", "add", self.namespace)
        inside = ["ip", "-n", self.namespace]
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "machines0", "netns", self.namespace)
        run("ip", "link", "set", self.link, "master", "machines0", "up")
        for words in (["link", "set", "lo", "up"], ["address", "add", f"{self.address}/24", "dev", "machines0"],
                      ["link", "set", "machines0", "up"], ["route", "add", "default", "via", CONTROL]):
            run(*inside, *words)
        run(*self.inside(), "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        # Each knows the way to the pods of each other one: by way of the first, packets of one connection would take two ways.
        for other in self.cluster.machines:
            run(*other.inside(), "ip", "route", "add", self.pods, "via", self.address)
            run(*inside, "route", "add", other.pods, "via", other.address)

    def inside(self):
        """Words that run a program in the machine's network. Mounts are those of all."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}"] if self.namespace else []

    def start(self, name, *words):
        self.processes.append(ApiServer.start(self.work, name, *self.inside(), *words))

    def ctr(self, *words, **options):
        return run("ctr", "--address", self.socket, "--namespace", "k8s.io", *words, **options)

    def write(self, name, content):
        return write(f"{self.work}/{name}", content)

    def container_runtime(self):
        self.write("cni/10-pods.conflist", json.dumps({
            "cniVersion": "0.4.0", "name": "pods", "plugins": [
                {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
                 "ipam": {"type": "host-local", "dataDir": f"{self.work}/cni-addresses",
                          "ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}},
                {"type": "portmap", "capabilities": {"portMappings": True}}]}))
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
        until("containerd answers", lambda: self.ctr("version", check=False).returncode == 0)
        for file in self.cluster.images:
            self.ctr("images", "import", file)

    def kubelet(self):
        names = self.write("resolv.conf", f"nameserver {CONTROL}\n")
        config = self.write("kubelet.yaml", {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "cgroupRoot": self.cgroup,
            "failCgroupV1": False, "failSwapOn": False, "enforceNodeAllocatable": ["pods"],
            "clusterDNS": [CONTROL], "clusterDomain": DOMAIN, "resolvConf": names,
            "containerRuntimeEndpoint": f"unix://{self.socket}", "evictionHard": {"memory.available": "100Mi"},
            "volumePluginDir": f"{self.work}/volume-plugins", "podLogsDir": f"{self.work}/pod-logs",
            "imageGCHighThresholdPercent": 100, "syncFrequency": "5s", "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 20})
        self.start("kubelet", f"{CACHE}/kubelet", f"--config={config}", f"--kubeconfig={self.cluster.config}",
                   f"--root-dir={self.work}/kubelet", f"--cert-dir={self.work}/kubelet-certificates",
                   f"--node-ip={self.address}", f"--hostname-override={self.name}",
                   f"--node-labels=topology.kubernetes.io/zone={self.name[-1]}")
        config = self.write("proxy.yaml", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
            "clientConnection": {"kubeconfig": self.cluster.config}, "hostnameOverride": self.name,
            "clusterCIDR": "10.244.0.0/16", "conntrack": {"maxPerCore": 0},
            "nftables": {"minSyncPeriod": "0s", "syncPeriod": "10s"}})
        self.start("proxy", f"{CACHE}/kube-proxy", f"--config={config}")

    def lose(self):
        """Cuts the machine off and kills all that runs there, as if its power was gone."""
        run("ip", "link", "set", self.link, "down")
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes = []
        # What keeps containers belongs to no pod, and names containerd's socket.
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{process}/cmdline", "rb") as file:
                    is_shim = self.socket.encode() in file.read().split(b"\0")
            except OSError:
                continue
            if is_shim:
                kill(int(process))
        while processes := self.contained():
            for process in processes:
                kill(process)
            time.sleep(0.1)

    def contained(self):
        """The processes of the machine's pods."""
        found = set()
        for folder in os.listdir("/sys/fs/cgroup"):
            for place, _, files in os.walk(f"/sys/fs/cgroup/{folder}{self.cgroup}"):
                if "cgroup.procs" in files:
                    with open(f"{place}/cgroup.procs") as file:
                        found.update(map(int, file.read().split()))
        return found


def kill(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


class Cluster:
    """The control plane and the machines, and Helm and kubectl for them."""

    def __init__(self, work):
        self.work, self.processes, self.machines = work, [], []
        network()
        self.api = ApiServer(work, CONTROL)
        self.processes += self.api.processes
        until("the API server is ready", self.api.is_ready)
        self.config = write(f"{work}/kubeconfig", {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"https://{CONTROL}:{self.api.port}",
                                                      "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": "secret"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin", "namespace": NAMESPACE}}]})
        os.environ["KUBECONFIG"] = self.config
        os.environ["HOME"] = work
        os.environ["PATH"] += ":/usr/sbin"
        self.names = Names(self.api)
        self.images = self.make_images()
        self.control_plane()
        for number in range(len(MACHINES)):
            self.machines.append(Machine(self, number))

    def make_images(self):
        source, pause = write(f"{self.work}/pause.c", "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"), f"{self.work}/pause"
        run("cc", "-static", "-O", "-o", pause, source)
        archive(f"{self.work}/pause.tar", "pause:test", pause, "/pause")
        archive(f"{self.work}/kubectl.tar", "kubectl:test", f"{CACHE}/kubectl", "/kubectl")
        with gzip.open(os.environ["IMAGE"]) as packed, open(f"{self.work}/image.tar", "wb") as image:
            shutil.copyfileobj(packed, image)
        return [f"{self.work}/{name}.tar" for name in ("pause", "kubectl", "image")]

    def control_plane(self):
        start = lambda name, *words: self.processes.append(ApiServer.start(self.work, name, *words))
        start("controllers", f"{CACHE}/kube-controller-manager", f"--kubeconfig={self.config}",
              f"--service-account-private-key-file={self.work}/key", "--leader-elect=false",
              f"--root-ca-file={self.work}/certificates/apiserver.crt", "--allocate-node-cidrs=true",
              "--cluster-cidr=10.244.0.0/16", f"--cert-dir={self.work}/controllers-certificates",
              "--node-monitor-grace-period=30s")
        start("scheduler", f"{CACHE}/kube-scheduler", f"--kubeconfig={self.config}", "--leader-elect=false",
              f"--cert-dir={self.work}/scheduler-certificates")

    def kubectl(self, *words, check=True, text=None):
        return run(f"{CACHE}/kubectl", *words, check=check, input=text).stdout

    def helm(self, *words, check=True):
        return run(f"{CACHE}/helm", *words, "--namespace", NAMESPACE, check=check)

    def get(self, kind, name=""):
        return json.loads(self.kubectl("get", kind, *([name] if name else []), "-o", "json"))

    def apply(self, *documents):
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(documents))

    def is_running(self):
        for process in [*self.processes, *(it for machine in self.machines for it in machine.processes)]:
            if process.poll() is not None:
                fail(f"{process.args} has ended:\n{self.logs()}")
        return True

    def logs(self):
        text = ""
        for folder in [self.work, *(machine.work for machine in self.machines)]:
            for name in sorted(os.listdir(folder)):
                if name.endswith(".log"):
                    with open(f"{folder}/{name}") as file:
                        lines = file.read().splitlines()[-12:]
                    text += f"--- {folder.removeprefix(self.work)}/{name}\n" + "\n".join(line[:400] for line in lines) + "\n"
        return text

    def stop(self):
        processes = [*self.processes, *(it for machine in self.machines for it in machine.processes)]
        for process in reversed(processes):
            process.terminate()
        for process in reversed(processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def kubelet():
    import operations

    os.makedirs("/tmp", exist_ok=True)
    work = tempfile.mkdtemp(prefix="kubelet-")
    # In memory: four etcds wait for each of their writes, and a busy disk would be what is tested. Two gigabytes are used.
    run("mount", "-t", "tmpfs", "-o", "mode=755,size=6g", "work", work)
    cluster = None
    try:
        cluster = Cluster(work)
        operations.live(cluster)
    except SystemExit:
        # To look at it: nsenter --all --target THIS_PROCESS
        if os.environ.get("KEEP"):
            print(f"kept: KUBECONFIG={work}/kubeconfig; ends with this process", flush=True)
            signal.pause()
        raise
    finally:
        if cluster:
            cluster.stop()
        run("umount", "--lazy", work, check=False)
        os.rmdir(work)
