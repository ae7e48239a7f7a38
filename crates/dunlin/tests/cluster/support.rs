//! Machines of a cluster: nodes in directories of their own, all on the loopback or each in a
//! network namespace.

use harness::cluster::Etcd;
pub use harness::http::base64;
use harness::network::Place;
use harness::server::{Program, free_port, free_ports, signal};
use harness::wait::eventually;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// The ports of a node and of etcd on a machine of its own.
const ADMIN_PORT: u16 = 8380;
const ETCD_PORT: u16 = 2379;

/// The stock etcd.
pub fn etcd() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(Etcd::program)
}

/// A port that is free.
pub fn port() -> u16 {
    free_port().expect("a port is free")
}

/// The first of twelve ports in a row that are free: for the six copies of a database
/// on one host and those that take their places elsewhere, or for an etcd.
pub fn row_of_ports() -> u16 {
    free_ports(12).expect("ports are free")
}

/// `dunlin cluster` with arguments.
pub fn command(words: &[&str]) -> Command {
    command_of(&Program::under_test(), words)
}

/// The same of another program.
fn command_of(program: &Program, words: &[&str]) -> Command {
    let mut command = program.subcommand("cluster");
    command.args(words).env("DUNLIN_ETCD", etcd()).env_remove("DUNLIN_NODE");
    command.stdin(Stdio::null());
    command
}

/// What a command printed, and whether it succeeded.
pub fn run(words: &[&str]) -> (bool, String) {
    output_of(command(words))
}

fn output_of(mut command: Command) -> (bool, String) {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let text = [stdout, stderr].concat();
    (status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Asks an etcd without TLS. `None`: it is not there, or refuses it.
pub fn ask_etcd(port: u16, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    let len = body.len();
    write!(
        stream,
        "POST /v3/{path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}"
    )
    .ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    reply.starts_with("HTTP/1.1 200").then_some(reply)
}

/// A machine, whose copies and etcd end with it.
pub struct Machine {
    pub name: String,
    pub directory: PathBuf,
    pub admin_port: u16,
    pub etcd_port: Option<u16>,
    zone: String,
    /// Further words that its node is started with.
    more: Vec<String>,
    /// What its node runs, and what asks it.
    pub program: Program,
    /// The program of its copies, if it is not the node's.
    pub copy_program: Option<PathBuf>,
    /// The environment of its node, and so of its copies.
    pub environment: Vec<(&'static str, PathBuf)>,
    /// Where it is, if not on the loopback.
    place: Option<Place>,
    node: Option<Child>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_node();
        let directory = self.directory.to_string_lossy().into_owned();
        self.there(|| run(&["down", "--dir", &directory]));
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.join("logs/node.log"));
            eprintln!("--- log of machine {}:\n{}", self.name, log.unwrap_or_default());
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Machine {
    /// Starts the first machine of a cluster, with an etcd of its own; on other ports if some were
    /// taken meanwhile.
    pub fn first(test: &str, name: &str) -> Machine {
        Machine::first_with(test, name, &[])
    }

    /// The same with further options.
    pub fn first_with(test: &str, name: &str, more: &[&str]) -> Machine {
        Machine::first_of(|attempt| {
            let mut machine = Machine::new(test, &format!("{name}-{attempt}"), "");
            machine.name = name.to_owned();
            machine.with(more)
        })
    }

    /// The same with another program.
    pub fn first_of_program(program: &Program, test: &str, name: &str) -> Machine {
        Machine::first_of(|attempt| {
            let mut machine = Machine::new(test, &format!("{name}-{attempt}"), "");
            (machine.name, machine.program) = (name.to_owned(), program.clone());
            machine
        })
    }

    /// The same in a folder of the test's.
    pub fn first_in(folder: &Path, name: &str) -> Machine {
        Machine::first_of(|attempt| {
            let mut machine = Machine::new("", name, "");
            machine.directory = folder.join(attempt.to_string());
            machine
        })
    }

    fn first_of(make: impl Fn(usize) -> Machine) -> Machine {
        for attempt in 0..5 {
            let mut machine = make(attempt);
            machine.etcd_port = Some(row_of_ports());
            if machine.start() {
                return machine;
            }
        }
        panic!("the first machine does not start");
    }

    /// The same with an etcd that speaks no TLS, so that the test can ask it.
    pub fn with_plain_etcd(test: &str, name: &str) -> Machine {
        for _ in 0..5 {
            let mut machine = Machine::new(test, name, "");
            let port = row_of_ports();
            machine.etcd_port = Some(port);
            let mut words = machine.words();
            let more = ["--etcd-port", &port.to_string(), "--etcd-plain"].map(str::to_owned);
            words.extend(more);
            if machine.start_with(&words) {
                return machine;
            }
        }
        panic!("the machine does not start");
    }

    /// Asks its etcd, which speaks no TLS.
    pub fn ask_etcd(&self, path: &str, body: &str) -> String {
        let answer = ask_etcd(self.etcd_port.expect("it has an etcd"), path, body);
        answer.unwrap_or_else(|| panic!("etcd refuses {path} {body}"))
    }

    /// Starts another machine, which uses the etcd of the first one.
    pub fn beside(first: &Machine, test: &str, name: &str) -> Machine {
        Machine::beside_of_program(&Program::under_test(), first, test, name)
    }

    /// The same with another program.
    pub fn beside_of_program(
        program: &Program,
        first: &Machine,
        test: &str,
        name: &str,
    ) -> Machine {
        let etcd = format!("https://127.0.0.1:{}", first.etcd_port.expect("it has an etcd"));
        for _ in 0..5 {
            let mut machine = Machine::new(test, name, "");
            machine.program = program.clone();
            let mut words = machine.words();
            words.extend(["--etcd".to_owned(), etcd.clone()]);
            // As any client of that etcd.
            for (option, file) in
                [("--etcd-cacert", "ca"), ("--etcd-cert", "machine"), ("--etcd-key", "machine")]
            {
                words.extend([option.to_owned(), first.path(&format!("tls/{file}.pem"))]);
            }
            words.extend(["--token-file".to_owned(), first.path("tls/join-token")]);
            if machine.start_with(&words) {
                return machine;
            }
        }
        panic!("machine {name} does not start");
    }

    /// Starts another machine, with a member of the first one's etcd.
    pub fn join(first: &Machine, test: &str, name: &str) -> Machine {
        Machine::join_of_program(&Program::under_test(), first, test, name)
    }

    /// The same with another program.
    pub fn join_of_program(program: &Program, first: &Machine, test: &str, name: &str) -> Machine {
        let place = format!("127.0.0.1:{}", first.etcd_port.expect("it has an etcd"));
        let mut machine = Machine::new(test, name, "");
        machine.program = program.clone();
        let mut words = machine.words();
        let port = row_of_ports().to_string();
        words.extend(["--join".to_owned(), place, "--etcd-port".to_owned(), port]);
        let (is_ready, text) = machine.try_with(&words);
        assert!(!is_ready && text.contains("--token-file"), "without a token: {text}");
        words.extend(["--token-file".to_owned(), first.path("tls/join-token")]);
        assert!(machine.start_with(&words), "machine {name} does not start");
        machine
    }

    /// A file in its directory.
    pub fn path(&self, file: &str) -> String {
        self.directory.join(file).to_string_lossy().into_owned()
    }

    /// A machine that is not started yet.
    pub fn new(test: &str, name: &str, zone: &str) -> Machine {
        let directory = format!("dunlin-node-{}-{test}-{name}", std::process::id());
        Machine {
            name: name.to_owned(),
            directory: std::env::temp_dir().join(directory),
            admin_port: port(),
            etcd_port: None,
            zone: zone.to_owned(),
            more: Vec::new(),
            program: Program::under_test(),
            copy_program: None,
            environment: Vec::new(),
            place: None,
            node: None,
        }
    }

    /// One in a network namespace, with its files in this folder. It is not started yet.
    pub fn at(place: Place, folder: &Path, name: &str) -> Machine {
        let mut machine = Machine::new("", name, "");
        machine.directory = folder.join("machine");
        (machine.admin_port, machine.etcd_port) = (ADMIN_PORT, Some(ETCD_PORT));
        machine.place = Some(place);
        machine
    }

    /// Runs something where the machine is.
    pub fn there<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        match &self.place {
            Some(place) => place.at(run),
            None => run(),
        }
    }

    /// Where others reach it.
    pub fn host(&self) -> Ipv4Addr {
        self.place.as_ref().map_or(Ipv4Addr::LOCALHOST, |place| place.address)
    }

    /// Takes further words that its node is started with.
    fn with(mut self, more: &[&str]) -> Machine {
        self.more = more.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// What it is started with.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = ["up", "--name", "t", "--memory", "8gb"]
            .iter()
            .map(|word| (*word).to_owned())
            .collect();
        let port = self.admin_port.to_string();
        let directory = self.directory.to_string_lossy().into_owned();
        for (option, value) in [
            ("--host", &self.host().to_string()),
            ("--machine", &self.name),
            ("--dir", &directory),
            ("--port", &port),
            ("--zone", &self.zone),
        ] {
            words.extend([option.to_owned(), value.clone()]);
        }
        words.extend(self.more.iter().cloned());
        words
    }

    /// Starts the node. Returns false if it has ended instead.
    pub fn start(&mut self) -> bool {
        let mut words = self.words();
        if let Some(port) = self.etcd_port {
            words.extend(["--etcd-port".to_owned(), port.to_string()]);
        }
        self.start_with(&words)
    }

    /// Starts the node of a machine of its own, which joins the cluster of the first one: with a
    /// member of etcd as long as there are fewer than three.
    pub fn start_joining(&mut self, first: &Machine) -> bool {
        let port = self.etcd_port.unwrap_or(ETCD_PORT).to_string();
        let place = format!("{}:{port}", first.host());
        let mut words = self.words();
        for (option, value) in [
            ("--join", &place),
            ("--etcd-port", &port),
            ("--token-file", &first.path("tls/join-token")),
        ] {
            words.extend([option.to_owned(), value.clone()]);
        }
        self.start_with(&words)
    }

    /// Starts a node again that has been there, and does not wait for it.
    pub fn start_again(&mut self) {
        let mut command = self.command(&["up", "--dir", &self.directory.to_string_lossy()]);
        command.envs(self.copy_program.iter().map(|program| ("DUNLIN_COPY_PROGRAM", program)));
        command.envs(self.environment.iter().cloned()).stdout(Stdio::null()).stderr(Stdio::null());
        self.node = Some(self.there(|| command.spawn().expect("it starts")));
    }

    /// Ends the node by SIGTERM and starts it again with another program. The copies go on, each
    /// with its program, until they are started again.
    pub fn replace_program(&mut self, program: &Program) {
        signal(self.process_id(), "TERM").expect("the node runs");
        eventually("the node ends", || self.has_ended());
        self.program = program.clone();
        let words = ["up".to_owned(), "--dir".to_owned(), self.path("")];
        assert!(self.start_with(&words), "machine {} does not start again", self.name);
    }

    /// `dunlin cluster` of its program with arguments.
    fn command(&self, words: &[&str]) -> Command {
        command_of(&self.program, words)
    }

    /// The process of its node, if it was not killed.
    pub fn node_process(&self) -> Vec<u32> {
        self.node.iter().map(Child::id).collect()
    }

    /// A command for this node that ends after some seconds in any case. It has to run where the
    /// machine is.
    pub fn command_within(&self, seconds: u32, words: &[&str]) -> Command {
        let node = format!("127.0.0.1:{}", self.admin_port);
        let asked = command(&[words, &["--node", &node]].concat());
        let mut command = Command::new("timeout");
        command.arg(seconds.to_string()).arg(asked.get_program()).args(asked.get_args());
        command.stdin(Stdio::null());
        command
    }

    pub fn start_with(&mut self, words: &[String]) -> bool {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = self.command(&words);
        command.envs(self.copy_program.iter().map(|program| ("DUNLIN_COPY_PROGRAM", program)));
        command.envs(self.environment.iter().cloned()).stdout(Stdio::piped());
        let mut child = self.there(|| command.spawn().expect("it starts"));
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let is_ready = out.lines().map_while(Result::ok).any(|line| line == "Ready.");
        self.node = Some(child);
        is_ready
    }

    /// Starts the node as a command that is expected to fail; returns whether it got ready, and
    /// what it said.
    pub fn try_with(&self, words: &[String]) -> (bool, String) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        output_of(self.command(&words))
    }

    /// The process of the node.
    pub fn process_id(&self) -> u32 {
        self.node.as_ref().map_or(0, Child::id)
    }

    /// Returns whether the node has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.node.as_mut().is_some_and(|node| matches!(node.try_wait(), Ok(Some(_))))
    }

    /// Kills the node; copies and etcd go on.
    pub fn kill_node(&mut self) {
        if let Some(mut node) = self.node.take() {
            let _ = node.kill();
            let _ = node.wait();
        }
    }

    /// What the node says, with `--json`.
    pub fn json(&self, words: &[&str]) -> Value {
        let (is_done, text) = self.ask(&[words, &["--json"]].concat());
        assert!(is_done, "{words:?}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"))
    }

    /// What a command for this node printed, and whether it succeeded.
    pub fn ask(&self, words: &[&str]) -> (bool, String) {
        let node = format!("127.0.0.1:{}", self.admin_port);
        self.there(|| output_of(self.command(&[words, &["--node", &node]].concat())))
    }

    /// Creates a database of three shards with so many replicas each, and returns its port.
    pub fn create(&self, name: &str, replicas: &str) -> (u16, String) {
        self.create_with(name, &["--replicas", replicas])
    }

    /// Whether its etcd has noticed that it did not get to its work, as on a busy machine.
    pub fn etcd_was_late(&self) -> bool {
        let log = std::fs::read_to_string(self.directory.join("logs/etcd.log"));
        let log = log.unwrap_or_default();
        ["took too long", "overloaded", "slow fdatasync"].iter().any(|word| log.contains(word))
    }

    /// Creates a database of three shards with these options, and returns its port and what was
    /// said.
    pub fn create_with(&self, name: &str, options: &[&str]) -> (u16, String) {
        let mut text = String::new();
        for _ in 0..5 {
            let port = row_of_ports();
            let number = port.to_string();
            let words = ["create-db", name, "--memory", "96mb", "--shards", "3", "--port", &number];
            let asked = self.ask(&[&words[..], options].concat());
            if asked.0 {
                return (port, asked.1);
            }
            text = asked.1;
            // Another process has taken one of the ports.
            self.ask(&["delete-db", name, "--confirm", name]);
        }
        panic!("the database is not created: {text}");
    }

    /// The copies of a database.
    pub fn copies(&self, name: &str) -> Vec<Value> {
        let database = self.json(&["databases", name]);
        let shards = database["shards"].as_array().cloned().unwrap_or_default();
        shards
            .iter()
            .flat_map(|shard| shard["copies"].as_array().cloned().unwrap_or_default())
            .collect()
    }

    /// The process of a copy, as the system knows it.
    pub fn process_of(&self, copy: &Value) -> Option<u32> {
        let id = copy["id"].as_str().expect("a copy has an id");
        let is_there =
            |there: &Path| there.starts_with(&self.directory) && ends_with(there, &id[..8]);
        processes_in(is_there).first().copied()
    }

    /// The processes of its copies and of its etcd.
    pub fn supervised(&self) -> Vec<u32> {
        processes_in(|there| there.starts_with(&self.directory))
    }

    /// The processes of its own etcd.
    pub fn etcds(&self) -> Vec<u32> {
        let folder = self.directory.join("etcd");
        processes_in(|there| there == folder)
    }
}

/// Returns the processes that run in such directories.
fn processes_in(is_there: impl Fn(&Path) -> bool) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let runs_there = |id: &u32| {
        std::fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|there| is_there(&there))
    };
    ids.filter(runs_there).collect()
}

fn ends_with(path: &Path, text: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(text))
}

/// Waits until a database is whole.
pub fn until_ok(machine: &Machine, name: &str) {
    eventually("the database is whole", || machine.json(&["databases", name])["health"] == "ok");
}
