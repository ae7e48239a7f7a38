"""The parts of tests/kubernetes, which installs what they need."""

import base64
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

CACHE = os.environ["CACHE"]
CHART = "deploy/helm/dunlin"
NAMESPACE = "db"
VERSION = "1.34"
# A container of the test has this much time for anything; the machine may be busy.
PATIENCE_S = 300


def fail(text):
    print(f"FAILED: {text}", file=sys.stderr)
    sys.exit(1)


def passed(text):
    print(f"ok: {text}", flush=True)


def run(*words, check=True, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if check and done.returncode:
        fail(f"{' '.join(words[:6])}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def until(what, condition, patience_s=PATIENCE_S, pause_s=0.2):
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            fail(f"never came true: {what}")
        time.sleep(pause_s)


def values_files():
    folder = f"{CHART}/ci"
    return [f"{folder}/{name}" for name in sorted(os.listdir(folder))]


def template(file, *more):
    words = [f"{CACHE}/helm", "template", "t", CHART, "--namespace", NAMESPACE, "--kube-version", f"{VERSION}.0"]
    done = run(*words, "-f", file, *more)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


# --- render ----------------------------------------------------------------------------------------------------------


def render():
    for file in values_files():
        run(f"{CACHE}/helm", "lint", "--strict", CHART, "-f", file, "--kube-version", f"{VERSION}.0")
        text = yaml.safe_dump_all(template(file))
        said = run(f"{CACHE}/venv/bin/kubernetes-validate", "-k", VERSION, "--strict", "--quiet", "--no-warn", "-",
                   input=text, check=False)
        if said.returncode:
            fail(f"{file}: {said.stdout}{said.stderr}")
        passed(f"{os.path.basename(file)}: lint, template, schemas of Kubernetes {VERSION}")
    for values, why in [
        ("mode=both", "mode"),
        ("nodes.count=none", "nodes"),
        ("databases.a.port=99999", "databases"),
        ("databases.a.size=1gb", "databases"),
        ("storage.whenDeleted=Never", "storage"),
        ("image.digest=latest", "image"),
        ("auth.enabled=true", "databases.NAME.passwordSecret"),
        ("mode=server,databases.a.memory=1gb,databases.a.port=7000", "mode: cluster"),
        ("tls.certManager.isuer=x", "tls.certManager.isuer"),
        ("nodes.busPortOffset=1000,tls.enabled=true,tls.existingSecret=x", "nodes.busPortOffset and tls.portOffset are both 1000"),
        ("databases.a.memory=1gb,databases.a.port=12000,databases.b.memory=1gb,databases.b.port=15000,nodes.busPortOffset=3000", "databases.b.port is 15000"),
        # Ranges that meet although their first ports do not.
        ("databases.a.memory=1gb,databases.a.port=12000,databases.a.shards=3,databases.b.memory=1gb,databases.b.port=15002,nodes.busPortOffset=3000",
         "Copies of a reach each other by 15000 to 15002"),
        ("databases.a.memory=1gb,databases.a.port=12002,databases.b.memory=1gb,databases.b.port=15000,databases.b.shards=3,nodes.busPortOffset=3000",
         "clients have its ports 15000 to 15002"),
        ("databases.a.memory=1gb,databases.a.port=12000,databases.b.memory=1gb,databases.b.port=14000,nodes.busPortOffset=3000,tls.enabled=true,tls.existingSecret=x",
         "databases.b.port is 14000, so clients have its ports 15000 to 15000"),
        ("databases.a.memory=1gb,databases.a.port=7379,databases.a.shards=2,nodes.busPortOffset=1000", "port 8380 (nodes.busPortOffset), which nodes have"),
        ("databases.a.memory=1gb,databases.a.port=64000,nodes.busPortOffset=3000", "port 67000 (nodes.busPortOffset), which is none"),
    ]:
        done = run(f"{CACHE}/helm", "template", "t", CHART, "--kube-version", f"{VERSION}.0", "--set", values,
                   check=False)
        if done.returncode == 0 or why not in done.stderr:
            fail(f"values {values} are not refused: {done.stderr}")
    passed("values that make no sense are refused")
    documents = template(f"{CHART}/ci/everything.yaml")
    kinds = {document["kind"] for document in documents}
    wanted = {"Certificate", "ConfigMap", "Job", "NetworkPolicy", "PodDisruptionBudget", "PrometheusRule", "Secret",
              "Service", "ServiceAccount", "ServiceMonitor", "StatefulSet"}
    if kinds != wanted:
        fail(f"the kinds are {kinds}")
    json.loads(named(documents, "ConfigMap", "t-dunlin-dashboards")["data"]["dunlin.json"])
    if not named(documents, "PrometheusRule", "t-dunlin")["spec"]["groups"]:
        fail("there are no rules")
    passed("dashboards and rules are those of the compose files")
    strangers()
    globals_of_charts()
    images()
    containers_and_claims()
    secrets()
    nodes_tls()
    surges()
    networks()
    buses()
    notes()
    alarms()
    monitored()
    quoted()


def strangers():
    """All values of other charts are refused at once, each with what does the same here."""
    with open(f"{CHART}/files/others.yaml") as file:
        others = yaml.safe_load(file)
    with open(f"{CHART}/values.yaml") as file:
        own = yaml.safe_load(file)
    values = {}
    for path in sorted(others):
        place, known, names = values, own, path.split(".")
        for name in names[:-1]:
            place, known = place.setdefault(name, {}), known.get(name) or {}
        if names[-1] in known:
            fail(f"{path} is a value of this chart, and others.yaml has it")
        place.setdefault(names[-1], {})
    values["livenessProbe"] = {"enabled": True}
    values["databases"]["NAME"].update(memory="1gb", port=12000)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        words = ["template", "t", CHART, "--kube-version", f"{VERSION}.0", "-f", file.name]
        done = run(f"{CACHE}/helm", *words, check=False)
    others["livenessProbe.enabled"] = "livenessProbe, with"
    missing = [path for path, hint in others.items() if f"\n  {path}: take {hint}" not in done.stderr]
    if done.returncode == 0 or missing:
        fail(f"these are not refused: {missing}: {done.stderr}")
    for value, wanted in [
        ("databases.a.shard=3,databases.a.memory=1gb,databases.a.port=12000", "databases.a.shard: take databases.a.shards\n"),
        ("databases.a.persist=rdb,databases.a.memory=1gb,databases.a.port=12000", "databases.a.persist: is it databases.a.persistence?"),
        ("databases.a.service.nodeport=1,databases.a.memory=1gb,databases.a.port=12000",
         "databases.a.service.nodeport: is it databases.a.service.nodePort?"),
        ("databases.a.passwordSecret.nmae=x,databases.a.memory=1gb,databases.a.port=12000", "  databases.a.passwordSecret.nmae\n"),
        ("nodes.tls.exists=x", "  nodes.tls.exists\n"),
        ("mode=server,service.sort=1", "  service.sort\n"),
    ]:
        done = run(f"{CACHE}/helm", "template", "t", CHART, "--kube-version", f"{VERSION}.0", "--set", value, check=False)
        if done.returncode == 0 or wanted not in done.stderr:
            fail(f"{value}: {done.stderr}")
    passed(f"{len(others)} values of other charts are refused, each with the name that it has here")


def globals_of_charts():
    """Values below `global` are read or refused; below another chart, passwords that nothing reads."""
    open_database = "databases.a.memory=1gb,databases.a.port=12000"
    takes = "take auth.enabled with auth.password or auth.existingSecret (mode: server), or databases.NAME.passwordSecret"
    with tempfile.TemporaryDirectory() as work:
        os.makedirs(f"{work}/around/charts")
        shutil.copytree(CHART, f"{work}/around/charts/dunlin")
        with open(f"{work}/around/Chart.yaml", "w") as file:
            yaml.safe_dump({"apiVersion": "v2", "name": "around", "version": "1.0.0"}, file)
        alone, below = CHART, f"{work}/around"
        for chart, values, refused in [
            (alone, "mode=server,global.redis.password=x", f"global.redis.password: {takes}"),
            (alone, "mode=server,auth.enabled=true,global.valkey.password=x", f"global.valkey.password: {takes}"),
            (alone, "global.storageClass=x", "global.storageClass: take storage.data.storageClass, or dataStorage.className"),
            (alone, "global.imageregistry=x", "global.imageregistry: is it global.imageRegistry?"),
            (alone, "global.other.deep=x", "  global.other\n"),
            (alone, "global=null", None),
            (alone, "global.imageRegistry=x,global.imagePullSecrets[0]=y", None),
            (alone, "global.cattle.systemDefaultRegistry=,global.systemDefaultRegistry=,global.replicated.licenseID=x", None),
            (below, "global.postgresql.auth.password=x,global.storageClass=fast,global.imageRegistry=x", None),
            (below, "dunlin.mode=server,global.redis.password=x", f"global.redis.password: {takes}"),
            (below, "dunlin.mode=server,global.dunlin.auth.password=x", f"global.dunlin.auth: {takes}"),
            (below, "dunlin.mode=server,global.redis.password=", None),
            (below, "dunlin.mode=server,dunlin.auth.enabled=true,global.redis.password=x", None),
            (below, ",".join(f"dunlin.{it}" for it in open_database.split(",")) + ",global.valkey.password=x",
             f"global.valkey.password: {takes}"),
            (below, ",".join(f"dunlin.{it}" for it in open_database.split(","))
             + ",dunlin.databases.a.passwordSecret.name=s,global.valkey.password=x", None),
            (below, "dunlin.nodes.replicas=5", "nodes.replicas: take nodes.count"),
        ]:
            done = run(f"{CACHE}/helm", "template", "t", chart, "--kube-version", f"{VERSION}.0", "--set", values, check=False)
            if (done.returncode == 0) != (refused is None) or refused and refused not in done.stderr:
                fail(f"{os.path.basename(chart)}, {values}: {done.stderr}")
    passed("values below global are read or refused, and a chart around this one has its own")


def pods_of(documents):
    """The templates of pods: of StatefulSets and of the job."""
    return {it["metadata"]["name"]: it["spec"]["template"] for it in documents if it["kind"] in ("StatefulSet", "Job")}


def images():
    with open(f"{CHART}/Chart.yaml") as file:
        version = yaml.safe_load(file)["appVersion"]
    digest = "sha256:" + "0" * 64
    for file, more, wanted in [
        ("cluster.yaml", [], f"dunlin:{version}-cluster"),
        ("server.yaml", [], f"dunlin:{version}"),
        ("server.yaml", ["image.registry=r.example"], f"r.example/dunlin:{version}"),
        ("server.yaml", ["global.imageRegistry=g.example", "image.tag=v7"], "g.example/dunlin:v7"),
        ("etcd.yaml", [f"image.digest={digest}"], f"registry.example/dunlin@{digest}"),
        ("odd-cluster.yaml", [], f"dunlin:{version}"),
    ]:
        documents = template(f"{CHART}/ci/{file}", *[word for one in more for word in ("--set", one)])
        found = {container["image"] for pod in pods_of(documents).values() for container in pod["spec"]["containers"]}
        if found != {wanted}:
            fail(f"{file} {more}: the images are {found}")
    passed("images have the tag of the version, or a digest")


def containers_and_claims():
    more = ["--set", "extraInitContainers[0].name=before,extraContainers[0].name=beside"]
    for file, names in [("cluster.yaml", ["t-dunlin"]), ("replicas.yaml", ["t-dunlin-primary", "t-dunlin-replica"])]:
        pods = pods_of(template(f"{CHART}/ci/{file}", *more))
        for name in names:
            spec = pods[name]["spec"]
            if [it["name"] for it in spec["initContainers"]] != ["before"] or spec["containers"][1:] != [{"name": "beside"}]:
                fail(f"{file}: {name} has not the containers before and beside")
    documents = template(f"{CHART}/ci/everything.yaml")
    job = pods_of(documents)["t-dunlin-databases"]["spec"]["containers"][0]
    if job["resources"] != {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}:
        fail(f"the job has the resources {job['resources']}")
    hooks = named(documents, "Job", "t-dunlin-databases")["metadata"]["annotations"]["helm.sh/hook"]
    if hooks != "post-install,post-upgrade,post-rollback":
        fail(f"the job runs at {hooks}")
    documents = template(f"{CHART}/ci/replicas.yaml", "--set", "dataStorage.existingClaim=old")
    primary, replica = (named(documents, "StatefulSet", f"t-dunlin-{role}")["spec"] for role in ("primary", "replica"))
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "old"}}
    if claim not in primary["template"]["spec"]["volumes"] or "volumeClaimTemplates" in primary:
        fail("the primary has not the claim that is there")
    if claim in replica["template"]["spec"]["volumes"] or not replica["volumeClaimTemplates"]:
        fail("the replicas have the primary's claim")
    passed("containers before and beside, resources and hooks of the job, a claim that is there")


def secrets():
    """Pods are others when their secret is."""
    def state(file, *more):
        documents = template(f"{CHART}/ci/{file}", *more)
        states = {pod["metadata"]["annotations"].get("checksum/secret") for name, pod in pods_of(documents).items()
                  if name != "t-dunlin-databases"}
        if len(states) != 1:
            fail(f"{file}: pods of one release have {states}")
        return documents, states.pop()

    for _ in range(2):
        documents, found = state("cluster.yaml")
        data = named(documents, "Secret", "t-dunlin")["data"]
        text = "\n".join(f"{key}: {data[key]}" for key in sorted(data))
        if found != hashlib.sha256(text.encode()).hexdigest():
            fail("the pods' checksum is not that of the secret")
    one = state("odd-server.yaml")[1]
    if one != state("odd-server.yaml")[1]:
        fail("the checksum of passwords that are given changes by itself")
    if one == state("odd-server.yaml", "--set", "auth.aclUsers.1e3.password=other")[1]:
        fail("another password leaves the checksum as it is")
    if state("server-tls.yaml")[1] is not None:
        fail("a server without secrets has a checksum of them")
    passed("pods change with the secret that the chart makes, and only then")


def nodes_tls():
    """The nodes' port with TLS, by the token's authority or a certificate of the user's: all that asks it."""
    names = ["t-dunlin", f"t-dunlin.{NAMESPACE}.svc", f"t-dunlin.{NAMESPACE}.svc.cluster.local",
             f"$(POD_NAME).t-dunlin-nodes.{NAMESPACE}.svc.cluster.local"]
    own = [f"--admin-tls-{it}=/etc/dunlin/nodes-tls/tls.{end}" for it, end in (("cert-file", "crt"), ("key-file", "key"))]
    kinds = {
        # File, more values, arguments of a node, its authority in the pod, secret, key and option of jobs, what Prometheus checks.
        "token": ("cluster.yaml", [], ["--admin-tls", *(f"--admin-tls-name={it}" for it in names)], "/data/node/tls/ca.pem",
                  "t-dunlin", "token", "--token-file", {"insecureSkipVerify": True}),
        "own": ("nodes-tls.yaml", [], own, "/etc/dunlin/nodes-tls/ca.crt", "mine", "ca.crt", "--cacert",
                {"ca": {"secret": {"name": "mine", "key": "ca.crt"}}, "serverName": f"t-dunlin.{NAMESPACE}.svc"}),
        "checked": ("cluster.yaml", ["--set", "metrics.serviceMonitor.tlsConfig.serverName=localhost"], ["--admin-tls"],
                    "/data/node/tls/ca.pem", "t-dunlin", "token", "--token-file", {"serverName": "localhost"}),
    }
    for kind, (file, more, wanted, authority, secret, key, option, trust) in kinds.items():
        documents = template(f"{CHART}/ci/{file}", "--set", "metrics.serviceMonitor.enabled=true", *more)
        pod = named(documents, "StatefulSet", "t-dunlin")["spec"]["template"]["spec"]
        container = pod["containers"][0]
        given = [it for it in container["args"] if it.startswith("--admin-tls")]
        if given[:len(wanted)] != wanted or (kind != "checked" and len(given) != len(wanted)):
            fail(f"{kind}: nodes get {given}")
        if {"name": "DUNLIN_CACERT", "value": authority} not in container["env"]:
            fail(f"{kind}: commands in the pod do not know the authority")
        probes = [container[f"{it}Probe"]["httpGet"]["scheme"] for it in ("startup", "liveness", "readiness")]
        if probes != ["HTTPS"] * 3:
            fail(f"{kind}: probes are {probes}")
        volumes = [it["secret"] for it in pod["volumes"] if it["name"] == "nodes-tls"]
        if [it["secretName"] for it in volumes] != (["mine"] if kind == "own" else []):
            fail(f"{kind}: the nodes' certificates are {volumes}")
        pod = named(documents, "Job", "t-dunlin-databases")["spec"]["template"]["spec"]
        args, (volume,) = pod["containers"][0]["args"], [it for it in pod["volumes"] if it["name"] == "nodes-tls"]
        if args[-2:] != ["--node=https://t-dunlin:8380", f"{option}=/etc/dunlin/nodes-tls/{key}"]:
            fail(f"{kind}: the job asks by {args}")
        if volume["secret"] != {"secretName": secret, "defaultMode": 0o440, "items": [{"key": key, "path": key}]}:
            fail(f"{kind}: the job gets {volume}")
        if "/etc/dunlin/nodes-tls" not in [it["mountPath"] for it in pod["containers"][0]["volumeMounts"]]:
            fail(f"{kind}: the job has no authority")
        monitor = named(documents, "ServiceMonitor", "t-dunlin")["spec"]["endpoints"][0]
        if monitor["scheme"] != "https" or monitor["tlsConfig"] != trust:
            fail(f"{kind}: Prometheus asks by {monitor}")
    text = yaml.safe_dump_all(template(f"{CHART}/ci/cluster.yaml", "--set", "nodes.tls.enabled=false"))
    if "--admin-tls" in text or "https://t-dunlin" in text or "nodes-tls" in text or "HTTPS" in text:
        fail("nodes.tls.enabled=false leaves something of TLS")
    tokens = lambda *more: [it for it in named(template(f"{CHART}/ci/etcd.yaml", *more), "StatefulSet", "t-dunlin")[
        "spec"]["template"]["spec"]["containers"][0]["args"] if it.startswith("--token-file")]
    if tokens() != ["--token-file=/etc/dunlin/secret/token"] or tokens(
            "--set", "nodes.extraArgs[0]=--token-file=/mine,nodes.tls.enabled=false") != ["--token-file=/mine"]:
        fail("with an etcd of the user's nodes have not one token")
    tokens_of_the_user(tokens)
    passed("the nodes' port with TLS: certificates for its names, and probes, jobs and Prometheus that know them")


def tokens_of_the_user(tokens):
    """A token by an argument or a variable: the chart gives no other one, and jobs check what nodes show."""
    argument, variable = "nodes.extraArgs[0]=--token-file=/mine", "extraEnv[0].name=DUNLIN_JOIN_TOKEN"
    given = f"{variable},extraEnv[0].value=x"
    by_key = lambda name: f"{variable},extraEnv[0].valueFrom.secretKeyRef.name={name},extraEnv[0].valueFrom.secretKeyRef.key=token"
    of_secret, chart = "--token-file=/etc/dunlin/secret/token", ["--token-file=/etc/dunlin/secret/token"]
    plain, own = "nodes.tls.enabled=false", "nodes.tls.existingSecret=x"
    # etcd.yaml has existingSecret: mine.
    for values, wanted in [
        (f"{argument},{plain}", ["--token-file=/mine"]), (f"{argument},{own}", ["--token-file=/mine"]),
        (f"nodes.extraArgs={{--token-file,/mine}},{own}", ["--token-file"]),
        (f"nodes.extraArgs[0]={of_secret}", chart), ("nodes.extraArgs={--token-file,/etc/dunlin/secret/token}", ["--token-file"]),
        (f"{given},{plain}", []), (f"{given},{own}", []), (by_key("mine"), []), (f"{by_key('other')},{own}", []),
        (f"{given},nodes.extraArgs[0]={of_secret}", chart), (f"{variable},extraEnv[0].value=", chart),
        # Nodes with an etcd of their own have always had the argument, which counts before the variable.
        (f"{given},etcd.endpoints=null,etcd.user=,etcd.tlsSecret=", chart),
        (f"nodes.extraArgs[0]=--etcd-plain,{plain}", [*chart]), (f"nodes.extraArgs[0]=--etcd-plain,{own}", [*chart]),
    ]:
        if tokens("--set", values) != wanted:
            fail(f"{values}: nodes get {tokens('--set', values)}")
    with_key = ["existingSecret names", "nodes.tls.existingSecret"]
    for values, wanted in [
        (argument, ["nodes.extraArgs: --token-file=/mine", *with_key]),
        ("nodes.extraArgs={--token-file,/mine}", ["nodes.extraArgs: --token-file /mine", *with_key]),
        (f"{argument},{given}", ["nodes.extraArgs: --token-file=/mine", *with_key]),
        (given, ["extraEnv: DUNLIN_JOIN_TOKEN", *with_key]), (by_key("other"), ["extraEnv: DUNLIN_JOIN_TOKEN", *with_key]),
        ("nodes.extraArgs[0]=--etcd-plain", ["--etcd-plain", "nodes.tls.enabled: false", "nodes.tls.existingSecret"]),
    ]:
        words = ["template", "t", CHART, "--kube-version", f"{VERSION}.0", "-f", f"{CHART}/ci/etcd.yaml", "--set", values]
        done = run(f"{CACHE}/helm", *words, check=False)
        if done.returncode == 0 or not all(part in done.stderr for part in wanted):
            fail(f"{values}: {done.stderr}")
    passed("a token of the user's has no other one beside it, and nodes do not show what jobs cannot check")


class Released:
    """What Helm's `lookup` asks of an API server: objects of a release, by kind and name."""

    PLACES = {"ConfigMap": ("/api/v1", "configmaps"), "StatefulSet": ("/apis/apps/v1", "statefulsets")}

    def __init__(self, documents):
        pages = {}
        for place in ("/api/v1", "/apis/apps/v1"):
            kinds = [{"name": plural, "kind": kind, "namespaced": True, "verbs": ["get", "list"]}
                     for kind, (there, plural) in self.PLACES.items() if there == place]
            more = ["Secret", "PersistentVolumeClaim"] if place == "/api/v1" else []
            kinds += [{"name": f"{kind.lower()}s", "kind": kind, "namespaced": True, "verbs": ["get"]} for kind in more]
            group = place.removeprefix("/apis/").removeprefix("/api/")
            pages[place] = {"kind": "APIResourceList", "groupVersion": group, "resources": kinds}
        for document in documents:
            if document["kind"] in self.PLACES:
                place, plural = self.PLACES[document["kind"]]
                pages[f"{place}/namespaces/{NAMESPACE}/{plural}/{document['metadata']['name']}"] = document

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                page = pages.get(self.path.split("?")[0])
                missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
                self.send_response(200 if page else 404)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(page or missing).encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def upgrade(self, file, *more):
        """Renders the upgrade of this release."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            yaml.safe_dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "test",
                "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.server.server_port}"}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": ""}}]}, config)
            config.flush()
            words = ["template", "t", CHART, "--namespace", NAMESPACE, "--kube-version", f"{VERSION}.0", "-f", file, *more]
            return run(f"{CACHE}/helm", *words, "--is-upgrade", "--dry-run=server", "--kubeconfig", config.name, check=False)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def surges():
    """Copies for a roll: for databases whose replicas the values name, before and after the upgrade."""
    file, named_by = f"{CHART}/ci/cluster.yaml", "databases.lone.replicas=0"
    before = Released(template(file, "--set", named_by))
    done = before.upgrade(file, "--set", f"nodes.surge=true,{named_by},databases.sessions.replicas=2")
    if done.returncode:
        fail(done.stderr)
    documents = [it for it in yaml.safe_load_all(done.stdout) if it]
    said = run(f"{CACHE}/venv/bin/kubernetes-validate", "-k", VERSION, "--strict", "--quiet", "--no-warn", "-",
               input=done.stdout, check=False)
    if said.returncode:
        fail(f"{said.stdout}{said.stderr}")
    spec = named(documents, "Job", "t-dunlin-surge")["spec"]["template"]["spec"]
    asked = [it["args"][2:4] for it in [*spec["initContainers"], *spec["containers"]]]
    if asked != [["cache", "--replicas=2"], ["lone", "--replicas=1"], ["sessions", "--replicas=2"]]:
        fail(f"surge asks for {asked}")
    # The account is there before the job that waits, which alone has it, and goes with it; databases come then.
    order, policies = {}, {}
    for it in documents:
        annotations = it["metadata"].get("annotations", {})
        if it["metadata"]["name"] == "t-dunlin-rolled" or it["metadata"]["name"] == "t-dunlin-databases" and it["kind"] == "Job":
            key = (it["kind"], it["metadata"]["name"].removeprefix("t-dunlin-"))
            order[key] = int(annotations.get("helm.sh/hook-weight", "0"))
            policies[key] = annotations["helm.sh/hook-delete-policy"]
            if "post-upgrade" not in annotations["helm.sh/hook"]:
                fail(f"{key} is made at {annotations['helm.sh/hook']}")
    objects = [(kind, "rolled") for kind in ("ServiceAccount", "Role", "RoleBinding")]
    if len(order) != 5 or not (max(order[it] for it in objects) < order["Job", "rolled"] < order["Job", "databases"]):
        fail(f"the weights are {order}")
    if {policies[it] for it in [*objects, ("Job", "rolled")]} != {"before-hook-creation,hook-succeeded"}:
        fail(f"what is left is {policies}")
    holders = [name for name, pod in pods_of(documents).items() if pod["spec"].get("automountServiceAccountToken") is not False]
    if holders != ["t-dunlin-rolled"] or pods_of(documents)[holders[0]]["spec"]["serviceAccountName"] != "t-dunlin-rolled":
        fail(f"a token of the API server is in {holders}")
    # One that the values leave out is not raised, nor a new one.
    with open(file) as text, tempfile.NamedTemporaryFile("w", suffix=".yaml") as out:
        databases = {"cache": yaml.safe_load(text)["databases"]["cache"], "new": {"memory": "1gb", "port": 15000}}
        yaml.safe_dump({"databases": databases}, out)
        out.flush()
        done = before.upgrade(out.name, "--set", "nodes.surge=true")
    if done.returncode or re.findall(r"--request-id=surge-(\w+)-", done.stdout) != ["cache"]:
        fail(f"copies are added by {done.stdout}{done.stderr}")
    if "-surge" in before.upgrade(file).stdout or "-rolled" in before.upgrade(file).stdout:
        fail("without nodes.surge copies are added")
    for values, wanted in [("nodes.tls.enabled=false", "this upgrade changes nodes.tls"), ("nodes.count=4", "give databases.lone.replicas")]:
        done = before.upgrade(file, "--set", f"nodes.surge=true,{values}")
        if done.returncode == 0 or wanted not in done.stderr:
            fail(f"surge with {values}: {done.stderr}")
    before.close()
    before = Released(template(file))
    done = before.upgrade(file, "--set", f"nodes.surge=true,{named_by}")
    if done.returncode == 0 or "the release that runs does not say databases.lone.replicas" not in done.stderr:
        fail(f"replicas that are not known are raised: {done.stderr}")
    before.close()
    passed("with nodes.surge databases get the copies that the values name and one more, and one job waits for the roll")


def networks():
    def rules(*more):
        documents = template(f"{CHART}/ci/everything.yaml", *more)
        rules = named(documents, "NetworkPolicy", "t-dunlin")["spec"]["ingress"]
        return [rule["from"] for rule in rules if {"protocol": "TCP", "port": 8380} in rule.get("ports", [])]

    monitors = [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}]
    admins = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    if rules() != [monitors, admins]:
        fail(f"the port of nodes is open for {rules()}")
    if rules("--set", "metrics.serviceMonitor.enabled=false") != [admins]:
        fail("the port of nodes is open for Prometheus, which has no monitor")
    passed("with a network policy the monitor's Prometheus gets in")


def buses():
    """Copies have a port for each other unless it is switched off, which a network policy opens for pods alone."""
    for value, wanted in [(None, 10000), (0, 0), (10000, 10000), (3000, 3000)]:
        more = [] if value is None else ["--set", f"nodes.busPortOffset={value}"]
        # The default is the program's.
        given = [] if value in (None, 10000) else [f"--bus-port-offset={value}"]
        documents = template(f"{CHART}/ci/everything.yaml", *more)
        words = pods_of(documents)["t-dunlin"]["spec"]["containers"][0]["args"]
        if [word for word in words if "bus-port" in word] != given:
            fail(f"nodes.busPortOffset: the arguments are {words}")
        with open(f"{CHART}/ci/everything.yaml") as file:
            databases = yaml.safe_load(file)["databases"].values()
        rules = named(documents, "NetworkPolicy", "t-dunlin")["spec"]["ingress"]
        pods = [rule for rule in rules if "ports" not in rule]
        if len(pods) != 1 or [list(peer) for peer in pods[0]["from"]] != [["podSelector"]]:
            fail(f"other ports are open for {pods}")
        ranges = [(port["port"], port.get("endPort", port["port"])) for rule in rules for port in rule.get("ports", [])]
        for bus in [database["port"] + wanted for database in databases if wanted]:
            if any(first <= bus <= last for first, last in ranges):
                fail(f"clients reach port {bus}, which is for copies")
    # What an earlier release was installed with renders as before: nodes find other ports, or do without.
    for values in ["tls.enabled=true,tls.existingSecret=x,tls.portOffset=10000",
                   "databases.a.memory=1gb,databases.a.port=12000,databases.b.memory=1gb,databases.b.port=22000",
                   "databases.a.memory=1gb,databases.a.port=12000,databases.a.shards=3,databases.b.memory=1gb,databases.b.port=22002"]:
        run(f"{CACHE}/helm", "template", "t", CHART, "--kube-version", f"{VERSION}.0", "--set", values)
    passed("copies have a port for each other, which clients do not reach")


def notes():
    """What helm prints in the end."""
    with tempfile.TemporaryDirectory() as work:
        chart = f"{work}/dunlin"
        shutil.copytree(CHART, chart)
        with open(f"{chart}/templates/NOTES.txt") as file:
            text = file.read()
        with open(f"{chart}/templates/notes.yaml", "w") as file:
            file.write('{{- define "notes" }}' + text + '{{ end }}\nkind: Notes\ntext: {{ include "notes" . | quote }}\n')

        def said(file, *more):
            words = ["template", "t", chart, "--namespace", NAMESPACE, "--kube-version", f"{VERSION}.0"]
            done = run(f"{CACHE}/helm", *words, "-f", f"{CHART}/ci/{file}", "--show-only", "templates/notes.yaml", *more)
            return yaml.safe_load(done.stdout)["text"]

        for file, more, wanted, unwanted in [
            ("etcd.yaml", ["--set", "resources.requests.cpu=1"], ["NO DATABASE"], ["NO PASSWORD", "NO PROCESSOR"]),
            ("cluster.yaml", [], ["NO PASSWORD", "database lone", "database cache"], ["NO DATABASE", "database sessions"]),
            ("kubelet.yaml", ["--set", "resources.requests.cpu=null"], ["NO PROCESSOR", "loses its primaries"], ["NO PASSWORD"]),
            ("server-tls.yaml", [], ["NO PASSWORD"], ["get secret"]),
            ("server.yaml", ["--set", "resources.limits.cpu=1"], ["get secret"], ["NO PROCESSOR"]),
            ("server.yaml", [], ["get secret t-dunlin -o jsonpath='{.data.password}'"], ["NO PASSWORD"]),
        ]:
            text = said(file, *more)
            if not all(part in text for part in wanted) or any(part in text for part in unwanted):
                fail(f"{file}: the notes say {text}")
    passed("the notes say that there is no database, no password, and no processor")


def alarms():
    """Rules are about this release alone, and fire when its pods are gone."""
    promtool = os.environ["PROMTOOL"]
    for file, job, pods in [("everything.yaml", "t-dunlin", 5), ("replicas.yaml", "t-dunlin-metrics", 3)]:
        documents = template(f"{CHART}/ci/{file}", "--set", "metrics.prometheusRule.enabled=true")
        spec = named(documents, "PrometheusRule", "t-dunlin")["spec"]
        names = {rule["alert"] for group in spec["groups"] for rule in group["rules"]}
        cluster = {"EtcdAway", "MachineDown", "CopyRestarts", "MachineFull", "JobRuns"}
        if (names & cluster) != (cluster if job == "t-dunlin" else set()):
            fail(f"{file}: the alarms are {names}")
        own = f'job="{job}", namespace="{NAMESPACE}"'
        for rule in (rule for group in spec["groups"] for rule in group["rules"]):
            series = re.findall(r"\b(?:redis|dunlin)_\w+|\bup\b", rule["expr"])
            if rule["expr"].count(own.replace(", ", ",")) != len(series):
                fail(f"{file}: {rule['alert']} is about more than this release: {rule['expr']}")
        up = lambda number, job=job: f'up{{job="{job}", namespace="{NAMESPACE}", instance="{number}", metrics_path="/metrics"}}'
        down = {"exp_labels": {"severity": "critical", "job": job, "namespace": NAMESPACE, "instance": "0",
                               "metrics_path": "/metrics"}, "exp_annotations": {"summary": "0 does not answer"}}

        def missing(count):
            summary = f"{count} of {pods} pods of t-dunlin answer Prometheus"
            return {"exp_labels": {"severity": "critical", "job": job, "namespace": NAMESPACE},
                    "exp_annotations": {"summary": summary}}

        def case(series, expected):
            tests = [{"eval_time": "25m", "alertname": name, "exp_alerts": alerts} for name, alerts in expected.items()]
            values = [{"series": it, "values": value} for it, value in series]
            return {"interval": "1m", "input_series": values, "alert_rule_test": tests}

        of_another = (f'up{{job="other-dunlin", namespace="{NAMESPACE}", instance="9"}}', "0x30")
        every = [(up(number), "1x30") for number in range(pods)]
        tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [
            case([*every, of_another], {"ServerDown": [], "ServersMissing": []}),
            # It does not answer, and is gone.
            case([(up(0), "0x30"), *every[1:]], {"ServerDown": [down], "ServersMissing": [missing(pods - 1)]}),
            case(every[1:], {"ServerDown": [], "ServersMissing": [missing(pods - 1)]}),
            case([of_another], {"ServerDown": [], "ServersMissing": [missing(0)]}),
        ]}
        with tempfile.TemporaryDirectory() as work:
            for name, content in (("rules.yml", spec), ("tests.yml", tests)):
                with open(f"{work}/{name}", "w") as out:
                    yaml.safe_dump(content, out)
            run(promtool, "test", "rules", f"{work}/tests.yml")
    passed("rules are about this release, and fire when a pod does not answer, is gone, and when all are")


def monitored():
    """What Prometheus is told to send is what the server asks for."""
    def ends(file, *more):
        documents = template(f"{CHART}/ci/{file}", *more)
        monitor = next(it for it in documents if it["kind"] == "ServiceMonitor")["spec"]["endpoints"][0]
        user = None
        if "basicAuth" in monitor:
            secret = named(documents, "Secret", monitor["basicAuth"]["username"]["name"])
            user = base64.b64decode(secret["data"]["username"]).decode()
        password = monitor.get("basicAuth", {}).get("password")
        return monitor.get("scheme"), user, password and (password["name"], password["key"])

    wanted = {
        "server-tls.yaml": ("https", None, None),
        "server.yaml": (None, "default", ("t-dunlin", "password")),
        "replicas.yaml": (None, "default", ("users-t", "default")),
        "everything.yaml": ("https", "admin", ("t-dunlin", "admin-password")),
    }
    for file, values in wanted.items():
        if ends(file) != values:
            fail(f"{file}: the monitor has {ends(file)}")
    monitor = named(template(f"{CHART}/ci/everything.yaml"), "ServiceMonitor", "t-dunlin")["spec"]["endpoints"]
    if [it["path"] for it in monitor] != ["/metrics", "/metrics/copies"] or not all(
            it["relabelings"][0]["targetLabel"] == "metrics_path" and it["basicAuth"] for it in monitor):
        fail(f"nodes and copies are scraped as {monitor}")
    if ends("replicas.yaml", "--set", "metrics.serviceMonitor.user=repl")[1:] != ("repl", ("users-t", "replication")):
        fail("the monitor's user is not heeded")
    done = run(f"{CACHE}/helm", "template", "t", CHART, "-f", f"{CHART}/ci/replicas.yaml", "--set",
               "metrics.serviceMonitor.user=none", "--kube-version", f"{VERSION}.0", check=False)
    if done.returncode == 0 or "auth.aclUsers" not in done.stderr:
        fail(f"a monitor of an unknown user is not refused: {done.stderr}")
    passed("Prometheus gets the scheme, the user and the password of the server")


def quoted():
    """Texts of the values arrive as they are, whatever YAML would take them for."""
    documents = template(f"{CHART}/ci/odd-server.yaml")
    server = named(documents, "StatefulSet", "true-primary")
    pod = server["spec"]["template"]["spec"]
    container = pod["containers"][0]
    wanted = {"1000": "1000", "true": "123", "1e3": "456", "*x": "star"}
    args = container["args"]
    users = [args[at + 1] for at, arg in enumerate(args) if arg == "--user"]
    keys = {}
    for user in users:
        at = args.index(user)
        variable = args[at + 2].removeprefix(">$(").removesuffix(")")
        source = next(it for it in container["env"] if it["name"] == variable)
        keys[user] = source["valueFrom"]["secretKeyRef"]["key"]
    if keys != wanted:
        fail(f"users and the keys of their passwords: {keys}")
    at = args.index("1000")
    if args[at + 3:at + 6] != ["+psync", "+replconf", "+ping"] or "~$$(HOME)" not in args or "~*" not in args:
        fail(f"the permissions: {args}")
    passwords = {key: base64.b64decode(value).decode()
                 for key, value in named(documents, "Secret", "true")["data"].items()}
    if passwords != {"1000": "1000000", "123": "yes", "456": "1e3", "star": "a: b #c"}:
        fail(f"the passwords: {passwords}")
    config = named(documents, "ConfigMap", "true")["data"]["dunlin.conf"]
    if config != "  save 60 1\r\nappendonly yes\r\n# *x: 'y' \"z\"\r\n":
        fail(f"the configuration: {config!r}")
    labels = server["metadata"]["labels"]
    if [labels[key] for key in ("7", "true", "e", "star")] != ["8", "true", "1e3", "0x7"]:
        fail(f"the labels: {labels}")
    if pod["nodeSelector"] != {"disk": "1", "fast": "true"} or pod["serviceAccountName"] != "007":
        fail(f"the pod: {pod}")
    probes = {name: container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    own = {"path": "/healthz", "port": "metrics", "scheme": "HTTPS"}
    if (list(probes["startupProbe"]) != ["exec", "failureThreshold"] or probes["livenessProbe"]["httpGet"] != own
            or probes["livenessProbe"]["timeoutSeconds"] != 7 or "httpGet" in probes["readinessProbe"]
            or probes["readinessProbe"]["tcpSocket"] != {"port": "redis"}):
        fail(f"the probes: {probes}")
    documents = template(f"{CHART}/ci/odd-cluster.yaml")
    container = named(documents, "StatefulSet", "t-dunlin")["spec"]["template"]["spec"]["containers"][0]
    for arg in ("--name=1e3", "--etcd-user=1000", "--drain-timeout=1000000", "--tls-cert-file=/etc/dunlin/tls/1"):
        if arg not in container["args"]:
            fail(f"there is no {arg}: {container['args']}")
    databases = yaml.safe_load(named(documents, "ConfigMap", "t-dunlin-databases")["data"]["databases.yaml"])
    if set(databases["databases"]) != {"1000", "True_x"} or databases["databases"]["1000"]["memory"] != "1000000":
        fail(f"the databases: {databases}")
    passed("texts that YAML would take for something else arrive as they are, and probes can be changed")


def named(documents, kind, name):
    for document in documents:
        if document["kind"] == kind and document["metadata"]["name"] == name:
            return document
    fail(f"there is no {kind} {name}")


# --- image -----------------------------------------------------------------------------------------------------------


def image():
    """The image for clusters is not built with an etcd that is too old, or a busybox that would not start."""
    with tempfile.TemporaryDirectory() as work:
        def build(**more):
            words = ["deploy/image/build", "--etcd", f"{work}/image.tar.gz"]
            return run(*words, check=False, env={**os.environ, "PROGRAM": "/bin/true", **more})

        etcd = f"{work}/etcd"
        for version, is_taken in [("3.4.23", False), ("3.5.9", False), ("3.5.12", False), ("3.5.13", True), ("3.10.0", True)]:
            with open(etcd, "w") as file:
                file.write(f"#!/bin/sh\necho etcd Version: {version}\n")
            os.chmod(etcd, 0o755)
            done = build(ETCD=etcd)
            if (done.returncode == 0) != is_taken or not is_taken and "needs 3.5.13 or later" not in done.stderr:
                fail(f"etcd {version}: {done.stdout}{done.stderr}")
        done = build(ETCD=etcd, BUSYBOX="/bin/ls")
        if done.returncode == 0 or "is not static" not in done.stderr:
            fail(f"a busybox that is not static: {done.stdout}{done.stderr}")
    passed("an image is not built with an etcd before 3.5.13, or a busybox that is not static")


# --- api -------------------------------------------------------------------------------------------------------------

PLURALS = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Job": ("apis/batch/v1", "jobs"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "Secret": ("api/v1", "secrets"),
    "Service": ("api/v1", "services"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class ApiServer:
    """A kube-apiserver with an etcd."""

    def __init__(self, work, host="127.0.0.1"):
        client, peer, self.port = free_port(), free_port(), free_port()
        self.host = host
        key, tokens = f"{work}/key", f"{work}/tokens"
        run("openssl", "genrsa", "-out", key, "2048")
        with open(tokens, "w") as file:
            file.write('secret,admin,1,"system:masters"\n')
        url = f"http://127.0.0.1:{client}"
        peers = f"http://127.0.0.1:{peer}"
        self.processes = [
            self.start(work, "etcd", os.environ["ETCD"], "--data-dir", f"{work}/etcd", "--listen-client-urls", url,
                       "--advertise-client-urls", url, "--listen-peer-urls", peers, "--initial-advertise-peer-urls",
                       peers, "--initial-cluster", f"default={peers}"),
            self.start(work, "api", f"{CACHE}/kube-apiserver", f"--etcd-servers={url}", f"--secure-port={self.port}",
                       f"--bind-address={host}", f"--advertise-address={host}", f"--cert-dir={work}/certificates",
                       "--service-account-issuer=https://test", "--allow-privileged=true",
                       "--kubelet-preferred-address-types=InternalIP", f"--service-account-key-file={key}",
                       f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.0.0.0/24",
                       "--authorization-mode=RBAC", f"--token-auth-file={tokens}"),
        ]

    @staticmethod
    def start(work, name, *words):
        with open(f"{work}/{name}.log", "w") as log:
            return subprocess.Popen(words, stdout=log, stderr=log)

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        kind = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        headers = {"Authorization": "Bearer secret", "Content-Type": kind}
        url = f"https://{self.host}:{self.port}/{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=30) as answer:
            return answer.read()

    def is_ready(self):
        try:
            return self.ask("GET", "readyz") is not None
        except OSError:
            return False

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def api():
    with tempfile.TemporaryDirectory() as work:
        server = ApiServer(work)
        try:
            until("the API server is ready", server.is_ready)
            server.ask("POST", "api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            for file in values_files():
                for document in template(file):
                    apply(server, file, document)
                passed(f"{os.path.basename(file)}: applied by a real API server, as a dry run with strict fields")
        finally:
            server.stop()


def apply(server, file, document):
    kind, name = document["kind"], document["metadata"]["name"]
    if kind not in PLURALS:
        return  # Of other projects: the server has no definitions of it.
    group, plural = PLURALS[kind]
    query = "dryRun=All&fieldManager=test&fieldValidation=Strict"
    try:
        server.ask("PATCH", f"{group}/namespaces/{NAMESPACE}/{plural}/{name}?{query}", document)
    except urllib.error.HTTPError as error:
        fail(f"{file}: {kind} {name}: {error.read().decode()[:1000]}")


# --- pods ------------------------------------------------------------------------------------------------------------


class Docker:
    """A dockerd with a network, whose host is the network's first address."""

    def __init__(self, work):
        self.work = work
        os.environ["DOCKER_HOST"] = f"unix://{work}/docker.sock"
        words = ["dockerd", "--host", os.environ["DOCKER_HOST"], "--data-root", f"{work}/docker", "--exec-root",
                 f"{work}/exec", "--pidfile", f"{work}/docker.pid", "--bridge", "none", "--iptables=false",
                 "--ip6tables=false"]
        with open(f"{work}/dockerd.log", "w") as log:
            self.daemon = subprocess.Popen(words, stdout=log, stderr=log)
        until("dockerd answers", lambda: run("docker", "info", check=False).returncode == 0)
        # Addresses for documentation: nothing of the machine's has them.
        run("docker", "network", "create", "--internal", "--subnet", "198.51.100.0/24", "pods")
        self.host = "198.51.100.1"

    def stop(self):
        ids = run("docker", "ps", "-aq", check=False).stdout.split()
        if ids:
            run("docker", "rm", "-fv", *ids, check=False)
        # Its bridge would outlive the daemon, and take the packets of the next run.
        run("docker", "network", "rm", "pods", check=False)
        self.daemon.terminate()
        self.daemon.wait()


class Service:
    """What kube-proxy does for a service: each connection leads to a pod that is ready."""

    def __init__(self, host, port, target_port, ready):
        self.target_port, self.ready = target_port, ready
        self.listeners = [socket.create_server((address, port), backlog=512) for address in ("127.0.0.1", host)]
        for listener in self.listeners:
            threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def close(self):
        for listener in self.listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        addresses = self.ready()
        try:
            pod = socket.create_connection((random.choice(addresses), self.target_port), timeout=10)
        except (OSError, IndexError):
            client.close()
            return
        pod.settimeout(None)
        for connection in (client, pod):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((client, pod), (pod, client)):
            threading.Thread(target=pump, args=(source, target), daemon=True).start()


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for connection in (source, target):
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Kubelet:
    """Runs the pods of a rendered chart: what Kubernetes would do with them, as far as the chart uses it."""

    def __init__(self, docker, documents):
        self.docker, self.documents = docker, documents
        self.secrets = {document["metadata"]["name"]: {key: base64.b64decode(value) for key, value in
                                                       document["data"].items()}
                        for document in documents if document["kind"] == "Secret"}
        self.maps = {document["metadata"]["name"]: {key: value.encode() for key, value in document["data"].items()}
                     for document in documents if document["kind"] == "ConfigMap"}
        self.hosts = {}
        self.addresses = {}
        self.ready = set()
        self.next_address = 10
        self.is_over = False

    def alias(self, name, address):
        self.hosts[name] = address

    def pod(self, template, name, aliases, labels=()):
        """Starts the container of a pod under a new address, as a pod gets one whenever it is made."""
        address = f"198.51.100.{self.next_address}"
        self.next_address += 1
        spec, container = template["spec"], template["spec"]["containers"][0]
        fields = {"metadata.name": name, "status.podIP": address}
        fields.update({f"metadata.labels['{key}']": value for key, value in labels})
        environment = {}
        for variable in container.get("env", []):
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                value = fields.get(source["fieldRef"]["fieldPath"], "")
            elif "secretKeyRef" in source:
                reference = source["secretKeyRef"]
                value = self.secrets[reference["name"]][reference["key"]].decode()
            else:
                value = variable["value"]
            environment[variable["name"]] = value
        words = ["docker", "run", "-d", "--name", name, "--network", "pods", "--ip", address]
        for alias in aliases:
            words += ["--network-alias", alias]
        for host, there in self.hosts.items():
            words += ["--add-host", f"{host}:{there}"]
        pod_security, security = spec["securityContext"], container["securityContext"]
        words += ["--user", f"{pod_security['runAsUser']}:{pod_security['runAsGroup']}"]
        words += ["--read-only"] if security["readOnlyRootFilesystem"] else []
        words += [word for drop in security["capabilities"]["drop"] for word in ("--cap-drop", drop)]
        words += [] if security["allowPrivilegeEscalation"] else ["--security-opt", "no-new-privileges"]
        for key, value in environment.items():
            words += ["-e", f"{key}={value}"]
        for mount in container["volumeMounts"]:
            words += ["-v", self.mount(spec, name, mount, pod_security["fsGroup"])]
        entry = container.get("command")
        words += ["--entrypoint", entry[0]] if entry else []
        words += [container["image"], *(entry or [""])[1:]]
        for arg in container.get("args", []):
            for key, value in environment.items():
                arg = arg.replace(f"$({key})", value)
            words.append(arg)
        run("docker", "rm", "-fv", name, check=False)
        run(*words)
        self.addresses[name] = address

    def mount(self, spec, pod, mount, group):
        name = mount["name"]
        volume = next((volume for volume in spec.get("volumes", []) if volume["name"] == name), None)
        if volume is None or "emptyDir" in volume:
            # A claim stays with the name of the pod.
            folder = f"{self.docker.work}/volumes/{pod}-{name}"
            if volume is not None:
                shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder, exist_ok=True)
            os.chown(folder, 0, group)
            os.chmod(folder, 0o2775)
            return f"{folder}:{mount['mountPath']}"
        folder = tempfile.mkdtemp(dir=self.docker.work)
        os.chmod(folder, 0o755)
        if "secret" in volume:
            files = self.secrets[volume["secret"]["secretName"]]
            mode = volume["secret"].get("defaultMode", 0o644)
            items = volume["secret"].get("items")
            if items:
                files = {item["path"]: files[item["key"]] for item in items}
        else:
            files, mode = self.maps[volume["configMap"]["name"]], 0o644
        for key, value in files.items():
            with open(f"{folder}/{key}", "wb") as file:
                file.write(value)
            os.chown(f"{folder}/{key}", 0, group)
            os.chmod(f"{folder}/{key}", mode)
        return f"{folder}:{mount['mountPath']}:ro"

    def probe(self, container, name, kind):
        action = container[kind]["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        url = f"{action['scheme'].lower()}://{self.addresses[name]}:{ports[action['port']]}{action['path']}"
        # As a kubelet: probes check no certificate.
        context = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(url, timeout=container[kind].get("timeoutSeconds", 1), context=context) as answer:
                return answer.status == 200
        except OSError:
            return False

    def is_running(self, name):
        done = run("docker", "inspect", "-f", "{{.State.Running}}", name, check=False)
        return done.stdout.strip() == "true"

    def watch(self, container, names):
        """Keeps the list of pods that are ready, as endpoints have it."""
        while not self.is_over:
            for name in list(names):
                is_ready = name in self.addresses and self.probe(container, name, "readinessProbe")
                (self.ready.add if is_ready else self.ready.discard)(name)
            time.sleep(0.5)

    def ready_addresses(self):
        return [self.addresses[name] for name in sorted(self.ready) if name in self.addresses]

    def wait_ready(self, container, name):
        def is_ready():
            if not self.is_running(name):
                fail(f"pod {name} has ended:\n{run('docker', 'logs', '--tail', '40', name, check=False)}")
            return self.probe(container, name, "readinessProbe")
        until(f"pod {name} is ready", is_ready)

    def end(self, name, grace_s):
        """Deletes a pod: its endpoints go, and it gets SIGTERM."""
        self.ready.discard(name)
        run("docker", "stop", "-t", str(grace_s), name)
        status = run("docker", "inspect", "-f", "{{.State.ExitCode}}", name).stdout.strip()
        if status != "0":
            fail(f"pod {name} ended with {status}:\n{run('docker', 'logs', '--tail', '40', name).stdout}")
        run("docker", "rm", "-v", name)
        del self.addresses[name]


def pods():
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)
        image = f"{work}/image.tar.gz"
        name = pods_of(template(f"{CHART}/ci/cluster.yaml"))["t-dunlin"]["spec"]["containers"][0]["image"]
        run("deploy/image/build", "--etcd", image, env={**os.environ, "NAME": name})
        size = os.path.getsize(image)
        if size > 45_000_000 and "release" in os.environ["PROGRAM"]:
            fail(f"the image with etcd has {size} bytes")
        docker = Docker(work)
        try:
            run("docker", "load", "-q", "-i", image)
            grow(docker)
            cluster(docker)
        finally:
            docker.stop()


def nodes_of(kubelet, documents):
    """The StatefulSet of the nodes, and what starts one of its pods."""
    nodes = named(documents, "StatefulSet", "t-dunlin")["spec"]

    def start(name):
        aliases = [f"{name}.{nodes['serviceName']}.{NAMESPACE}.svc.cluster.local"]
        zone = f"zone-{name[-1]}"
        kubelet.pod(nodes["template"], name, aliases, labels=[("topology.kubernetes.io/zone", zone)])

    return nodes, start


def apply_databases(kubelet, documents, said_of_each, count):
    """Runs the job of the chart until it has ended."""
    kubelet.pod(named(documents, "Job", "t-dunlin-databases")["spec"]["template"], "apply", [])
    until("the job has ended", lambda: not kubelet.is_running("apply"))
    said = run("docker", "logs", "apply")
    status = run("docker", "inspect", "-f", "{{.State.ExitCode}}", "apply").stdout.strip()
    if status != "0" or said.stdout.count(said_of_each) < count:
        fail(f"the job: {status} {said.stdout}{said.stderr}")


def grow(docker):
    """One node becomes three. The new pods come while the first one is away, and are two of three."""
    one, three = (template(f"{CHART}/ci/grow.yaml", "--set", f"nodes.count={count}") for count in (1, 3))
    kubelet = Kubelet(docker, one)
    nodes, start = nodes_of(kubelet, one)
    pod = nodes["template"]["spec"]
    container, grace_s = pod["containers"][0], pod["terminationGracePeriodSeconds"]
    names = [f"t-dunlin-{number}" for number in range(3)]
    # What kube-proxy does: the service leads to any pod.
    kubelet.alias("t-dunlin", docker.host)
    balancer = Service(docker.host, 8380, 8380, kubelet.ready_addresses)

    def cli(name, *words):
        return run(os.environ["PROGRAM"], "cli", "-h", kubelet.addresses[name], "-p", "14000", *words,
                   check=False).stdout.strip()

    start(names[0])
    kubelet.wait_ready(container, names[0])
    kubelet.ready.add(names[0])
    apply_databases(kubelet, one, "created", 1)
    until("a write", lambda: cli(names[0], "set", "kept", "yes") == "OK")
    kubelet.end(names[0], grace_s)
    _, start = nodes_of(kubelet, three)
    for name in names[1:]:
        start(name)
    waits = lambda name: "machine 't-dunlin-0' founds it" in run("docker", "logs", name).stdout
    for name in names[1:]:
        until(f"{name} waits for the first pod", lambda: waits(name))
    start(names[0])
    for name in names:
        kubelet.wait_ready(container, name)
        kubelet.ready.add(name)
    apply_databases(kubelet, three, "as the file says", 1)
    for name in names:
        until(f"{name} has the data", lambda: cli(name, "get", "kept") == "yes")
    for name in names:
        kubelet.end(name, grace_s)
    balancer.close()
    shutil.rmtree(f"{docker.work}/volumes")
    passed("one node becomes three, in one cluster with its database")


def cluster(docker):
    documents = template(f"{CHART}/ci/cluster.yaml")
    kubelet = Kubelet(docker, documents)
    kubelet.secrets["sessions"] = {"password": b"not a secret"}
    nodes, start = nodes_of(kubelet, documents)
    container = nodes["template"]["spec"]["containers"][0]
    names = [f"t-dunlin-{number}" for number in range(nodes["replicas"])]

    for service in ("t-dunlin", "t-dunlin-sessions"):
        kubelet.alias(service, docker.host)
    Service(docker.host, 8380, 8380, kubelet.ready_addresses)
    port = free_port()
    Service(docker.host, port, 12000, kubelet.ready_addresses)
    for name in names:
        start(name)
    for name in names:
        kubelet.wait_ready(container, name)
    threading.Thread(target=kubelet.watch, args=(container, names), daemon=True).start()
    passed("three nodes with an etcd each are ready: read-only, not root, without capabilities, no shell")

    for said_of_each in ("created", "as the file says"):
        apply_databases(kubelet, documents, said_of_each, 3)
    passed("the job has created three databases, and the second time changed nothing")
    for name in names:
        answers = lambda: run(os.environ["PROGRAM"], "cli", "-h", kubelet.addresses[name], "-p", "14000", "ping",
                              check=False).stdout.strip() == "PONG"
        until(f"{name} answers for a database that has no copy there", answers)
    passed("each node answers for a database with one copy")

    until("all pods are ready", lambda: len(kubelet.ready) == 3)
    roll(docker, kubelet, start, container, names, port, nodes["template"]["spec"]["terminationGracePeriodSeconds"])
    kubelet.is_over = True


def roll(docker, kubelet, start, container, names, port, grace_s):
    program = os.environ["PROGRAM"]
    ledger = f"{docker.work}/ledger"
    login = {"REDISCLI_AUTH": "not a secret", **os.environ}
    target = ["-h", "127.0.0.1", "-p", str(port), "-a", "not a secret"]
    bench = subprocess.Popen([program, "bench", *target, "--ledger", ledger, "--key-maximum", "5000", "-c", "8",
                              "--duration", "3600", "--json-out-file", f"{docker.work}/bench.json"],
                             stdout=open(f"{docker.work}/bench.log", "w"), stderr=subprocess.STDOUT, env=login)
    until("writes are acknowledged", lambda: os.path.exists(ledger) and os.path.getsize(ledger) > 0)
    for name in reversed(names):
        before, began = kubelet.addresses[name], time.monotonic()
        kubelet.end(name, grace_s)
        ended = time.monotonic()
        start(name)
        kubelet.wait_ready(container, name)
        until("the service has it again", lambda: name in kubelet.ready)
        if kubelet.addresses[name] == before:
            fail("the pod has its old address")
        print(f"    {name}: ended in {ended - began:.1f} s, in step again after {time.monotonic() - ended:.1f} s")
        if bench.poll() is not None:
            fail(f"the writers have ended: {open(f'{docker.work}/bench.log').read()[-2000:]}")
    bench.send_signal(signal.SIGINT)
    bench.wait()
    log = open(f"{docker.work}/bench.log").read()
    print("   ", "\n    ".join(log.strip().splitlines()[-12:]))
    audit = run(program, "bench", "audit", *target, ledger, check=False, env=login)
    print("   ", "\n    ".join((audit.stdout + audit.stderr).strip().splitlines()[-6:]))
    if audit.returncode:
        fail("acknowledged writes are lost")
    passed("a roll under writes: each pod has come back with another address, and no acknowledged write is lost")


def kubelet():
    import kubelet as node

    node.kubelet()


if __name__ == "__main__":
    for part in sys.argv[1:]:
        {"render": render, "image": image, "pods": pods, "api": api, "kubelet": kubelet}[part]()
