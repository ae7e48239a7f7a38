//! Servers that form a cluster at a real etcd, made with the stock redis-cli.

use crate::client::{Client, ask, ok};
use crate::http;
use crate::network::Network;
use crate::reply::{Protocol, Reply};
use crate::server::{Options, Program, Server, free_port, installed, signal};
use crate::wait::eventually;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An etcd of a test's own, removed in the end.
pub struct Etcd {
    process: Child,
    place: Place,
}

/// What an etcd is started with.
struct Place {
    program: String,
    name: String,
    /// All members, with their names.
    members: String,
    folder: PathBuf,
    host: Ipv4Addr,
    port: u16,
    peer: u16,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.place.folder);
        let _ = std::fs::remove_dir_all(self.place.backup());
    }
}

impl Etcd {
    /// Starts one; again on other ports if another process has taken them.
    pub fn start(name: &str) -> Etcd {
        let mut started = Etcd::start_members(name, 1);
        started.pop().expect("it was started")
    }

    /// Starts some that are one cluster.
    pub fn start_members(name: &str, count: usize) -> Vec<Etcd> {
        let program = Etcd::program();
        for attempt in 0..10 {
            let folder = |member: usize| {
                let id = std::process::id();
                std::env::temp_dir().join(format!("dunlin-cluster-{id}-{name}-{attempt}-{member}"))
            };
            let ports: Vec<[u16; 2]> = (0..count)
                .map(|_| [(); 2].map(|()| free_port().expect("a port is free")))
                .collect();
            let member =
                |(at, [_, peer]): (usize, &[u16; 2])| format!("e{at}=http://127.0.0.1:{peer}");
            let members: Vec<String> = ports.iter().enumerate().map(member).collect();
            let place = |at: usize| Place {
                program: program.clone(),
                name: format!("e{at}"),
                members: members.join(","),
                folder: folder(at),
                host: Ipv4Addr::LOCALHOST,
                port: ports[at][0],
                peer: ports[at][1],
            };
            let start = |at| {
                let place = place(at);
                Etcd { process: place.spawn(), place }
            };
            let mut started: Vec<Etcd> = (0..count).map(start).collect();
            if started.iter_mut().all(Etcd::listens) {
                return started;
            }
        }
        panic!("etcd does not start");
    }

    /// Starts one on each of some machines, that are one cluster. It can be asked when most of them
    /// listen.
    pub fn start_on(network: &Network, machines: Range<usize>) -> Vec<Etcd> {
        const CLIENTS: u16 = 2379;
        const PEERS: u16 = 2380;
        let program = Etcd::program();
        let member = |at: usize| format!("e{at}=http://{}:{PEERS}", network.address(at));
        let members: Vec<String> = machines.clone().map(member).collect();
        let start = |at: usize| {
            let host = network.address(at);
            let place = Place {
                program: program.clone(),
                name: format!("e{at}"),
                members: members.join(","),
                folder: std::env::temp_dir().join(format!("{}-etcd-{at}", network.name())),
                host,
                port: CLIENTS,
                peer: PEERS,
            };
            network.at(at, || Etcd { process: place.spawn(), place })
        };
        let mut started: Vec<Etcd> = machines.clone().map(start).collect();
        for (etcd, at) in started.iter_mut().zip(machines) {
            assert!(network.at(at, || etcd.listens()), "etcd does not start");
        }
        started
    }

    /// Where the program etcd is; it is installed if it is not there.
    ///
    /// # Panics
    /// It cannot be.
    pub fn program() -> String {
        installed("tests/etcd", &[]).unwrap_or_else(|why| panic!("there is no etcd: {why}"))
    }

    /// Where nodes find these.
    pub fn coordinator(members: &[Etcd]) -> String {
        let address = |etcd: &Etcd| format!("etcd://{}:{}", etcd.place.host, etcd.place.port);
        members.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Stops the process where it is: connections stay, and nothing is answered.
    pub fn stop(&self) {
        signal(self.process.id(), "STOP").expect("it runs");
    }

    /// The process goes on.
    pub fn go_on(&self) {
        signal(self.process.id(), "CONT").expect("it is there");
    }

    /// Kills the process. Its data stay.
    pub fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Copies its data, as a backup of the machine does. The process is away for a moment.
    pub fn back_up(&mut self) {
        self.kill();
        copy_folder(&self.place.folder, &self.place.backup());
        self.start_again();
    }

    /// Starts the process again with the data that were copied.
    pub fn roll_back(&mut self) {
        self.kill();
        copy_folder(&self.place.backup(), &self.place.folder);
        self.start_again();
    }

    /// Removes a key.
    pub fn remove(&self, key: &str) {
        let body = format!(r#"{{"key":"{}"}}"#, http::base64(key.as_bytes()));
        let answer = http::ask(self.place.port, "POST", "/v3/kv/deleterange", &[], &body);
        let text = answer.expect("etcd answers").text();
        assert!(text.contains(r#""deleted":"1""#), "{key}: {text}");
    }

    /// Starts the process again, with the same data and ports.
    pub fn start_again(&mut self) {
        self.process = self.place.spawn();
        assert!(self.listens(), "etcd does not start again");
    }

    /// Waits until it listens. Returns false if it ends instead.
    fn listens(&mut self) -> bool {
        let mut is_there = false;
        eventually("etcd listens or ends", || {
            is_there = std::net::TcpStream::connect((self.place.host, self.place.port)).is_ok();
            is_there || !matches!(self.process.try_wait(), Ok(None))
        });
        is_there && matches!(self.process.try_wait(), Ok(None))
    }

    /// A server that is a node of the cluster that this etcd has.
    pub fn node(&self) -> Server {
        self.node_with(&[])
    }

    /// The same with more options.
    pub fn node_with(&self, more: &[&str]) -> Server {
        node_at(&Etcd::coordinator(std::slice::from_ref(self)), more)
    }
}

/// A server that is a node of the cluster that a coordinator has.
pub fn node_at(coordinator: &str, more: &[&str]) -> Server {
    node_of(&Program::under_test(), coordinator, more)
}

/// The same of a program.
pub fn node_of(program: &Program, coordinator: &str, more: &[&str]) -> Server {
    let mut arguments = vec![
        "--bind",
        "127.0.0.1",
        "--io-threads",
        "2",
        "--save",
        "",
        "--cluster-enabled",
        "yes",
        "--cluster-coordinator",
        coordinator,
    ];
    arguments.extend(more);
    let node = Server::start(program, Options::arguments(&arguments));
    let node = node.expect("a node starts");
    eventually("the node has a view", || !ask(&mut node.client(), "CLUSTER NODES").is_error());
    node
}

fn copy_folder(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp starts").success(), "{} is copied", from.display());
}

impl Place {
    /// Where a copy of its data is.
    fn backup(&self) -> PathBuf {
        let mut name = self.folder.clone().into_os_string();
        name.push("-backup");
        name.into()
    }

    /// Starts an etcd.
    fn spawn(&self) -> Child {
        let host = self.host;
        let [url, peer] = [self.port, self.peer].map(|port| format!("http://{host}:{port}"));
        Command::new(&self.program)
            .args(["--unsafe-no-fsync", "--name", &self.name])
            .args(["--initial-cluster", &self.members, "--data-dir"])
            .arg(&self.folder)
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd starts")
    }
}

/// Runs redis-cli.
pub fn redis_cli(words: &[&str]) -> String {
    let output = crate::server::redis_cli().expect("it is installed").args(words).output();
    let output = output.expect("redis-cli starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "redis-cli {words:?}: {text}");
    text
}

/// Makes a cluster of six servers, the first three of them primaries.
pub fn six(etcd: &Etcd) -> Vec<Server> {
    let nodes: Vec<Server> = (0..6).map(|_| etcd.node()).collect();
    create(&nodes);
    nodes
}

/// Makes a cluster of servers, of which the first half are primaries.
pub fn create(nodes: &[Server]) {
    let addresses: Vec<String> =
        nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let mut words = vec!["--cluster", "create"];
    words.extend(addresses.iter().map(String::as_str));
    words.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    let text = redis_cli(&words);
    assert!(text.contains("All 16384 slots covered"), "{text}");
    // redis-cli ignores what a server answers to REPLICATE.
    let said = Said { of: "CLUSTER NODES", nodes };
    eventually("all nodes are in step", || {
        nodes.iter().all(|node| {
            let slots = ask(&mut node.client(), "CLUSTER SLOTS");
            let ranges = list(&slots);
            ranges.len() == 3 && ranges.iter().all(|range| list(range).len() == 4)
        })
    });
    drop(said);
}

/// Two nodes that clients see as one server: the first has all keys, the second nothing.
///
/// # Panics
/// They do not become a cluster.
pub fn owner_and_entry(etcd: &Etcd, options: &[&str]) -> [Server; 2] {
    let nodes = [etcd.node_with(options), etcd.node_with(options)];
    let mut owner = nodes[0].client();
    operate(&mut owner, "CLUSTER ADDSLOTSRANGE 0 16383");
    ok(&mut nodes[1].client(), &format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port()));
    eventually("both nodes have a view with all slots", || {
        nodes.iter().all(|node| {
            let info = text(ask(&mut node.client(), "CLUSTER INFO"));
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
        })
    });
    for node in &nodes {
        ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
    }
    nodes
}

/// Prints what nodes say if the test fails while this is there.
struct Said<'n> {
    of: &'static str,
    nodes: &'n [Server],
}

impl Drop for Said<'_> {
    fn drop(&mut self) {
        for node in self.nodes.iter().filter(|_| std::thread::panicking()) {
            let words: Vec<&str> = self.of.split(' ').collect();
            let reply = node.connect(Protocol::Resp2).and_then(|mut client| client.command(&words));
            let text = reply.as_ref().ok().and_then(Reply::text).unwrap_or_default();
            eprintln!("{}: {}", node.port(), String::from_utf8_lossy(text));
        }
    }
}

/// The elements of an array; none of anything else.
pub fn list(reply: &Reply) -> &[Reply] {
    if let Reply::Array(list) = reply { list } else { &[] }
}

/// The text of an error.
///
/// # Panics
/// It is none.
pub fn error(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("no error: {other:?}"),
    }
}

/// The text of a reply.
///
/// # Panics
/// It has none.
pub fn text(reply: Reply) -> String {
    let text = reply.text().unwrap_or_else(|| panic!("no text: {reply:?}"));
    String::from_utf8_lossy(text).into_owned()
}

/// Makes a change of the topology. An etcd that does not answer on a busy machine is asked again.
///
/// # Panics
/// It is refused.
#[track_caller]
pub fn operate(client: &mut Client, request: &str) {
    // It was made although nobody said so.
    operate_unless(client, request, |why, was_away| was_away && why.contains("already busy"));
}

/// The same, unless `is_made` says of an error that the change is made. It is told as well whether
/// etcd was away before.
///
/// # Panics
/// The change is refused.
#[track_caller]
pub fn operate_unless(client: &mut Client, request: &str, is_made: impl Fn(&str, bool) -> bool) {
    let mut was_away = false;
    eventually("the coordinator takes the change", || {
        let Reply::Error(why) = ask(client, request) else { return true };
        let why = why.escape_ascii().to_string();
        if is_made(&why, was_away) {
            return true;
        }
        assert!(why.starts_with("AWAY "), "{request}: {why}");
        was_away = true;
        false
    });
}
