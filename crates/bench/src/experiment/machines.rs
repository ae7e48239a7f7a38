//! Three machines of a cluster, each a directory of this host with a node, copies and an etcd, and
//! the interface by which a database is made there.

use super::servers::Lab;
use crate::generator::os;
use crate::measure::cost::{Sample, process};
use client::http::{Connection, Error, Request, Server};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a node may take to be ready, and a database to be made.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long one answer of a node may take.
const ANSWER: Duration = Duration::from_secs(60);

/// The longest answer.
const MAX_ANSWER: usize = 64 << 20;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// What they are called.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// One of them.
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    directory: PathBuf,
    node: Child,
}

/// All three, which end with this.
pub struct Machines {
    /// The machines.
    pub all: Vec<Machine>,
    program: String,
    /// The port of the first one's interface.
    admin: u16,
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in self.all.iter_mut().rev() {
            let mut down = Command::new(&self.program);
            down.args(["cluster", "down", "--dir"]).arg(&machine.directory);
            // What stays is said below; it has worthless data.
            let _ = down.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            let _ = machine.node.kill();
            let _ = machine.node.wait();
        }
    }
}

/// What the processes of a machine have used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// CPU and memory of node, copies and etcd.
    pub sample: Sample,
    /// Bytes that copies have got, from clients and from each other.
    pub received: f64,
    /// Bytes that copies have sent.
    pub sent: f64,
}

impl Machines {
    /// Starts them, each with so many bytes of memory to give to copies, and as many of flash.
    pub fn start(lab: &mut Lab, memory: u64) -> Result<Machines, String> {
        let etcd = lab.free_port_with_next();
        let admin = lab.free_port();
        let mut machines = Machines { all: Vec::new(), program: lab.program().into(), admin };
        for name in NAMES {
            let directory = lab.directory().join(format!("machine-{name}"));
            fs::create_dir_all(&directory).map_err(|error| refused(&directory, &error))?;
            let port = if name == "a" { admin } else { lab.free_port() };
            let mut command = Command::new(&machines.program);
            command.args([
                "cluster",
                "up",
                "--name",
                "experiment",
                "--host",
                "127.0.0.1",
                "--machine",
            ]);
            let memory = memory.to_string();
            command.args([name, "--memory", &memory, "--flash", &memory]);
            command.args(["--port", &port.to_string()]);
            command.arg("--dir").arg(&directory);
            if name == "a" {
                command.args(["--etcd-port", &etcd.to_string()]);
            } else {
                command.args(["--join", &format!("127.0.0.1:{etcd}"), "--token-file"]);
                command.arg(lab.directory().join("machine-a/tls/join-token"));
            }
            let log = lab.directory().join(format!("machine-{name}.log"));
            let file = File::create(&log).and_then(|out| Ok((out.try_clone()?, out)));
            let (out, err) = file.map_err(|error| refused(&log, &error))?;
            command.stdin(Stdio::null()).stdout(out).stderr(err);
            let node = command.spawn().map_err(|error| format!("{}: {error}", machines.program))?;
            machines.all.push(Machine { name, directory, node });
            machines.until_ready(port, &log)?;
        }
        Ok(machines)
    }

    fn until_ready(&mut self, port: u16, log: &Path) -> Result<(), String> {
        let began = Instant::now();
        while request(port, "GET", "/readyz", "").is_err() {
            let node = &mut self.all.last_mut().ok_or("there is no node")?.node;
            let has_ended = !matches!(node.try_wait(), Ok(None));
            if has_ended || began.elapsed() > PATIENCE || os::interrupted() {
                let said = fs::read_to_string(log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(3).collect();
                return Err(format!("a node does not start: {}", last.join(" | ")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Makes a database of these fields and waits until it serves. Returns the seconds that took.
    pub fn create(&self, fields: &Value) -> Result<f64, String> {
        let began = Instant::now();
        let begun = request(self.admin, "POST", "/api/v1/bdbs", &fields.to_string())?;
        let job = begun["job"].as_str().ok_or_else(|| format!("no job has begun: {begun}"))?;
        loop {
            let path = format!("/api/v1/cluster/job?id={job}");
            let job = request(self.admin, "GET", &path, "")?;
            match job["state"].as_str() {
                Some("done") => return Ok(began.elapsed().as_secs_f64()),
                Some("running") if began.elapsed() < PATIENCE && !os::interrupted() => {
                    std::thread::sleep(LOOK);
                }
                _ => return Err(format!("the database is not made: {}", job["text"])),
            }
        }
    }

    /// The copies of a database: the machine's name and the port of each.
    pub fn copies(&self, database: &str) -> Result<Vec<(String, u16)>, String> {
        let path = format!("/api/v1/cluster/database?name={database}");
        let shown = request(self.admin, "GET", &path, "")?;
        let lists = shown["shards"].as_array().into_iter().flatten();
        let copies = lists.filter_map(|shard| shard["copies"].as_array()).flatten();
        let place = |copy: &Value| {
            let port = copy["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            Some((copy["machine"].as_str()?.to_owned(), port?))
        };
        Ok(copies.filter_map(place).collect())
    }

    /// What each machine has used so far.
    pub fn used(&self, copies: &[(String, u16)]) -> Result<Vec<Used>, String> {
        self.all.iter().map(|machine| machine.used(copies)).collect()
    }
}

impl Machine {
    fn used(&self, copies: &[(String, u16)]) -> Result<Used, String> {
        let mut used = Used::default();
        let others = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
            let at = fs::read_link(entry.path().join("cwd")).ok()?;
            at.starts_with(&self.directory).then_some(pid)
        });
        for pid in others.chain([self.node.id()]) {
            // One that has ended meanwhile uses nothing.
            let Ok(one) = process(pid) else { continue };
            used.sample.cpu_seconds += one.cpu_seconds;
            used.sample.rss_bytes += one.rss_bytes;
        }
        for (_, port) in copies.iter().filter(|(machine, _)| machine == self.name) {
            let refuse = |error: std::io::Error| format!("port {port}: {error}");
            let mut client = super::servers::target(*port).connect().map_err(refuse)?;
            client.ask(&["CLIENT", "CAPA", "cluster", "node"]).map_err(refuse)?;
            let info = client.order(&["INFO", "stats"]).map_err(refuse)?.text();
            let field = |name: &str| -> f64 {
                let found = info.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':'));
                found.and_then(|text| text.trim().parse().ok()).unwrap_or(0.0)
            };
            used.received += field("total_net_input_bytes") + field("total_net_repl_input_bytes");
            used.sent += field("total_net_output_bytes") + field("total_net_repl_output_bytes");
        }
        Ok(used)
    }
}

/// Sends a request to a node's interface, and returns what it answers.
fn request(port: u16, method: &str, path: &str, body: &str) -> Result<Value, String> {
    let host = "127.0.0.1";
    let server = Server { host: host.into(), port, name: format!("{host}:{port}"), tls: None };
    let headers = &[("Content-Type", "application/json")];
    let request = Request { method, path, headers, body: body.as_bytes() };
    let answer = Connection::new(server)
        .map_err(Error::Unsent)
        .and_then(|mut node| node.ask(&request, Instant::now() + ANSWER, MAX_ANSWER))
        .map_err(|error| format!("the node on port {port}: {error}"))?;
    if !(200..300).contains(&answer.status) {
        let said = String::from_utf8_lossy(&answer.body);
        return Err(format!("{method} {path}: status {}, {}", answer.status, said.trim()));
    }
    Ok(serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
}

fn refused(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
