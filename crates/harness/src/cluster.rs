//! Servers that form a cluster at a real etcd, made with the stock redis-cli.

use crate::client::ask;
use crate::reply::Reply;
use crate::server::{Options, Program, Server, free_port, repository, signal};
use crate::wait::eventually;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An etcd of a test's own, removed in the end.
pub struct Etcd {
    process: Child,
    program: String,
    folder: PathBuf,
    port: u16,
    peer: u16,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Etcd {
    /// Starts one; again on other ports if another process has taken them.
    pub fn start(name: &str) -> Etcd {
        let found = Command::new(repository().join("tests/etcd")).output().expect("it starts");
        let program = String::from_utf8(found.stdout).expect("a path is text");
        for attempt in 0..10 {
            let folder = format!("dunlin-cluster-{}-{name}-{attempt}", std::process::id());
            let folder = std::env::temp_dir().join(folder);
            let [port, peer] = [(); 2].map(|()| free_port().expect("a port is free"));
            let program = program.trim().to_owned();
            let process = spawn(&program, &folder, port, peer);
            let mut etcd = Etcd { process, program, folder, port, peer };
            if etcd.listens() {
                return etcd;
            }
        }
        panic!("etcd does not start");
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

    /// Starts the process again, with the same data and ports.
    pub fn start_again(&mut self) {
        self.process = spawn(&self.program, &self.folder, self.port, self.peer);
        assert!(self.listens(), "etcd does not start again");
    }

    /// Waits until it listens. Returns false if it ends instead.
    fn listens(&mut self) -> bool {
        let mut is_there = false;
        eventually("etcd listens or ends", || {
            is_there = std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok();
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
        let coordinator = format!("etcd://127.0.0.1:{}", self.port);
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
            &coordinator,
        ];
        arguments.extend(more);
        let node = Server::start(&Program::under_test(), Options::arguments(&arguments));
        let node = node.expect("a node starts");
        eventually("the node has a view", || !ask(&mut node.client(), "CLUSTER NODES").is_error());
        node
    }
}

/// Starts an etcd.
fn spawn(program: &str, folder: &Path, port: u16, peer: u16) -> Child {
    let (url, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    Command::new(program)
        .args([
            "--unsafe-no-fsync",
            "--name",
            "one",
            "--initial-cluster",
            &format!("one={peer}"),
            "--data-dir",
        ])
        .arg(folder)
        .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts")
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
    eventually("all nodes are in step", || {
        nodes.iter().all(|node| {
            let slots = ask(&mut node.client(), "CLUSTER SLOTS");
            let ranges = list(&slots);
            ranges.len() == 3 && ranges.iter().all(|range| list(range).len() == 4)
        })
    });
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
