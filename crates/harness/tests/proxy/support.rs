//! A proxy in front of servers.

use harness::client::{Client, patience};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server, free_port, signal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A running proxy. Dropping it kills it.
pub struct Proxy {
    child: Child,
    /// Where its pool listens.
    pub address: SocketAddr,
    /// Its configuration.
    pub file: PathBuf,
    log: PathBuf,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three servers.
pub fn servers(program: &Program) -> Vec<Server> {
    (0..3).map(|_| server(program, &[])).collect()
}

/// A server with more arguments.
pub fn server(program: &Program, more: &[&str]) -> Server {
    let mut arguments = vec!["--io-threads", "1"];
    arguments.extend(more);
    Server::start(program, Options::arguments(&arguments)).expect("it starts")
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stops a process, and waits until all its threads stand.
pub fn stop(process_id: u32) {
    signal(process_id, "STOP").expect("it stops");
    let stands = |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
    until("all threads stand", || {
        let tasks = std::fs::read_dir(format!("/proc/{process_id}/task")).expect("it runs");
        tasks
            .flatten()
            .all(|task| std::fs::read_to_string(task.path().join("stat")).map_or(true, stands))
    });
}

/// A pool in Twemproxy's words; `more` is added to it.
pub fn yml(port: u16, servers: &[Server], more: &str) -> String {
    let mut file = format!(
        "pool:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: murmur\n  hash_tag: \"{{}}\"\n{more}  servers:\n"
    );
    for (at, server) in servers.iter().enumerate() {
        file.push_str(&format!("   - 127.0.0.1:{}:1 server{at}\n", server.port()));
    }
    file
}

impl Proxy {
    /// In front of these servers; `more` is added to the pool.
    pub fn start(program: &Program, servers: &[Server], more: &str) -> Proxy {
        let port = free_port().expect("a port");
        let file = servers[0].directory().join("nutcracker.yml");
        Proxy::run(program, &file, port, &yml(port, servers, more))
    }

    /// With a configuration, one of whose pools listens on `port`.
    pub fn run(program: &Program, file: &Path, port: u16, text: &str) -> Proxy {
        std::fs::write(file, text).expect("a file");
        let log = file.with_extension("log");
        // That of an earlier one.
        let _ = std::fs::remove_file(&log);
        let child = program
            .subcommand("proxy")
            .args(["-s", &free_port().expect("a port").to_string(), "--threads", "2", "-c"])
            .arg(file)
            .arg("-o")
            .arg(&log)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let address = ([127, 0, 0, 1], port).into();
        let proxy = Proxy { child, address, file: file.to_owned(), log };
        // The line is written when all listeners are open.
        until("the proxy listens", || proxy.log().contains("dunlin proxy: "));
        proxy
    }

    /// A client.
    pub fn client(&self, protocol: Protocol) -> Client {
        Client::connect_with(self.address, protocol).expect("it answers")
    }

    /// Its process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// `+OK`
pub fn okay() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

/// A reply's text.
pub fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}
