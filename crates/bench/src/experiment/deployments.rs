//! The same program in each of its deployments: natively, in a container on the host's network and
//! behind a bridge, alone in a virtual machine, and in a container of that machine; on any core and
//! on one.
//!
//! The figures published for it are ratios: what the paper on Unikraft measured (EuroSys 2021,
//! artifacts, figure 12; redis-benchmark against a server on one core).

use super::Bench;
use super::runs::scaled;
use super::servers::target;
use crate::generator::os;
use resp::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a container or an emulated machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Runs of each measurement.
const TRIALS: u32 = 3;

/// One deployment.
struct Deployment {
    name: &'static str,
    /// GET and SET of the published figures as shares of the native ones.
    published: Option<(&'static str, &'static str)>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Native,
    HostNetwork,
    Bridge,
    Machine,
    /// A container of the machine, which has its network.
    Nested,
}

const DEPLOYMENTS: [Deployment; 5] = [
    Deployment { name: "native", published: Some(("1.00", "1.00")), kind: Kind::Native },
    Deployment {
        name: "container, host network",
        published: Some(("0.80", "0.83")),
        kind: Kind::HostNetwork,
    },
    Deployment { name: "container, bridge", published: None, kind: Kind::Bridge },
    Deployment { name: "machine image", published: Some(("0.63", "0.65")), kind: Kind::Machine },
    Deployment { name: "container in the machine image", published: None, kind: Kind::Nested },
];

/// A server that was started here; it ends with this.
struct Running {
    child: Child,
    port: u16,
    /// The container to remove.
    container: Option<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(name) = &self.container {
            // Killing the client of Docker leaves the container.
            let mut remove = Command::new("docker");
            let _ = remove
                .args(["rm", "-fv", name])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs it.
pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), String> {
    let requests = scaled(1e6, bench.scale, 10_000);
    bench.sizes = format!(
        "GET and SET, 30 clients, pipeline 1 and 16, at least {requests} requests, {TRIALS} trials; {}",
        surroundings()
    );
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for core in [None, Some(cores - 1)] {
        let mut native: Option<Vec<f64>> = None;
        for deployment in &DEPLOYMENTS {
            let pinned = if core.is_some() { ", pinned" } else { "" };
            let what = format!("{}{pinned}", deployment.name);
            let server = match start(bench, deployment.kind, core) {
                Ok(server) => server,
                Err(why) => {
                    bench.row(&what, "requests/s", None, &[], &format!("not measured: {why}"));
                    continue;
                }
            };
            let base = measure(bench, &server, deployment, &what, requests, native.as_deref())?;
            native.get_or_insert(base);
        }
    }
    Ok(())
}

/// Measures one deployment; returns the mean rates.
fn measure(
    bench: &mut Bench<'_>,
    server: &Running,
    deployment: &Deployment,
    what: &str,
    requests: u64,
    native: Option<&[f64]>,
) -> Result<Vec<f64>, String> {
    let mut means = Vec::new();
    for depth in [1, 16] {
        for test in ["get", "set"] {
            let line = format!("-c 30 -P {depth} -n {requests} -t {test}");
            let rates = bench.rates(server.port, &line, TRIALS)?;
            let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
            let remark = native
                .and_then(|native| native.get(means.len()))
                .map_or(String::new(), |native| format!("{:.2} × native", mean / native));
            let published = deployment
                .published
                .filter(|_| depth == 16)
                .map(|(get, set)| format!("{} × native", if test == "get" { get } else { set }));
            let row = format!("{what}, {}, pipeline {depth}", test.to_uppercase());
            bench.row(&row, "requests/s", published.as_deref(), &rates, &remark);
            means.push(mean);
        }
    }
    Ok(means)
}

fn start(bench: &mut Bench<'_>, kind: Kind, core: Option<usize>) -> Result<Running, String> {
    let port = bench.lab.free_port();
    let number = port.to_string();
    let name = format!("dunlin-experiment-{}-{port}", std::process::id());
    let mut container = None;
    let mut command = match kind {
        Kind::Native => {
            let program =
                std::env::current_exe().map_err(|error| format!("where is dunlin? {error}"))?;
            let mut command = Command::new(program);
            command.args(["server", "--port", &number, "--bind", "127.0.0.1", "--save", ""]);
            command
        }
        Kind::HostNetwork | Kind::Bridge => {
            let image = bench.image.as_deref().unwrap_or("dunlin:latest").to_owned();
            let known = Command::new("docker").args(["image", "inspect", &image]).output();
            if !known.is_ok_and(|output| output.status.success()) {
                return Err(format!(
                    "there is no image {image}; see deploy/image/build and --image"
                ));
            }
            let mut command = Command::new("docker");
            command.args(["run", "--name", &name]);
            if let Some(core) = core {
                command.args(["--cpuset-cpus", &core.to_string()]);
            }
            if kind == Kind::HostNetwork {
                command.args(["--network", "host", &image, "--port", &number, "--save", ""]);
            } else {
                let published = format!("127.0.0.1:{port}:6379");
                command.args(["--publish", &published, &image, "--save", ""]);
            }
            container = Some(name);
            command
        }
        Kind::Machine | Kind::Nested => {
            let Some(words) = bench.machine.as_deref() else {
                return Err("--machine 'deploy/machine/run FOLDER' starts the machine image".into());
            };
            let mut words = words.split_whitespace();
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words).arg(&number);
            if kind == Kind::Nested {
                command.env("CONTAINER", "1");
            }
            command
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    os::tie(&mut command, core.filter(|_| container.is_none()).as_slice());
    let child = command.spawn().map_err(|error| error.to_string())?;
    let mut server = Running { child, port, container };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = target(port).connect().and_then(|mut client| client.ask(&["PING"]));
        match answer {
            Ok(Value::Simple(_)) => return Ok(server),
            _ if os::interrupted() => return Err("interrupted".into()),
            _ if Instant::now() > deadline => return Err("it did not answer in time".into()),
            _ if matches!(server.child.try_wait(), Ok(Some(_))) => {
                return Err(match kind {
                    Kind::Nested => {
                        "it ended before it answered; the image has to be built with --container"
                    }
                    _ => "it ended before it answered",
                }
                .into());
            }
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Which of the deployments this program itself is in.
pub(super) fn surroundings() -> &'static str {
    let groups = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    let contained = Path::new("/.dockerenv").exists()
        || Path::new("/run/.containerenv").exists()
        || ["docker", "kubepods", "containerd"].iter().any(|word| groups.contains(word));
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let virtual_machine = processor
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    match (contained, virtual_machine) {
        (false, false) => "run natively",
        (true, false) => "run in a container",
        (false, true) => "run in a virtual machine",
        (true, true) => "run in a container in a virtual machine",
    }
}
