//! A running `dunlin proxy`.

use crate::client::Client;
use crate::reply::Protocol;
use crate::server::{Program, Server, free_port};
use crate::wait::eventually;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};

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
    ///
    /// # Panics
    /// It does not start.
    pub fn start(program: &Program, servers: &[Server], more: &str) -> Proxy {
        let port = free_port().expect("a port");
        let file = servers[0].directory().join("nutcracker.yml");
        Proxy::run(program, &file, port, &yml(port, servers, more))
    }

    /// With a configuration, one of whose pools listens on `port`.
    ///
    /// # Panics
    /// It does not start.
    pub fn run(program: &Program, file: &Path, port: u16, text: &str) -> Proxy {
        Proxy::run_at(program, file, ([127, 0, 0, 1], port).into(), text)
    }

    /// The same at another address than the loopback's.
    ///
    /// # Panics
    /// It does not start.
    pub fn run_at(program: &Program, file: &Path, address: SocketAddr, text: &str) -> Proxy {
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
        let proxy = Proxy { child, address, file: file.to_owned(), log };
        // The line is written when all listeners are open.
        eventually("the proxy listens", || proxy.log().contains("dunlin proxy: "));
        proxy
    }

    /// A client.
    ///
    /// # Panics
    /// The proxy does not answer.
    pub fn client(&self, protocol: Protocol) -> Client {
        Client::connect_with(self.address, protocol).expect("it answers")
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// How it ended is not known.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it is a child of this process")
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
