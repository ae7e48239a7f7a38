//! An etcd of a test's own.

use client::Renewed;
use cluster::Moment;
use cluster::coordinator::Coordinator;
use etcd::{Access, Client, Endpoint};
use harness::tls::Authority;
use net::{NameCheck, TlsSettings};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a test waits for a state.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a call may take.
pub(crate) const TIMEOUT: Moment = Moment::from_secs(30);

/// A server with a folder of its own.
pub(crate) struct Etcd {
    pub(crate) process: Child,
    folder: PathBuf,
    ports: [u16; 2],
    pub(crate) endpoint: Endpoint,
    /// Who has signed its certificate and those of its clients, if it wants TLS.
    authority: Option<Authority>,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // SIGKILL: the folder goes as well.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/etcd");
        let found = Command::new(script).stderr(Stdio::inherit()).output().expect("it starts");
        assert!(found.status.success(), "tests/etcd has found no etcd");
        String::from_utf8(found.stdout).expect("a path is text").trim().into()
    })
}

/// Ports that are free at the moment. Another process may take them before etcd does.
pub(crate) fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
    listeners.map(|listener| listener.local_addr().expect("it is bound").port())
}

fn spawn(folder: &Path, [client, peer]: [u16; 2], authority: Option<&Authority>) -> Child {
    let scheme = if authority.is_some() { "https" } else { "http" };
    let client = format!("{scheme}://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    let mut command = Command::new(program());
    if let Some(authority) = authority {
        command
            .args(["--cert-file", &authority.path("etcd.crt")])
            .args(["--key-file", &authority.path("etcd.key")])
            .args(["--trusted-ca-file", &authority.path("ca.crt"), "--client-cert-auth"]);
    }
    command
        .args(["--name", "one", "--data-dir"])
        .arg(folder)
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("one={peer}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts")
}

pub(crate) fn start(name: &str) -> Etcd {
    start_for(name, || None)
}

/// Starts a server that wants TLS, and certificates of its clients.
pub(crate) fn start_with_tls(name: &str) -> Etcd {
    start_for(name, || {
        let authority = Authority::new(name);
        authority.sign("etcd");
        authority.sign("client");
        Some(authority)
    })
}

fn start_for(name: &str, authority: impl Fn() -> Option<Authority>) -> Etcd {
    for attempt in 0..10 {
        let folder = format!("dunlin-etcd-{}-{name}-{attempt}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let ports = free_ports();
        let authority = authority();
        // The certificate is for this name.
        let host = if authority.is_some() { "localhost" } else { "127.0.0.1" };
        let is_tls = authority.is_some();
        let endpoint = Endpoint { host: host.into(), port: ports[0], is_tls };
        let process = spawn(&folder, ports, authority.as_ref());
        let mut etcd = Etcd { process, folder, ports, endpoint, authority };
        if etcd.is_there(Instant::now()) {
            return etcd;
        }
    }
    panic!("etcd does not start");
}

impl Etcd {
    /// The processor time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        const TICKS_PER_SECOND: u64 = 100;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        let stat = stat.expect("the process is there");
        // The name before may have spaces. See proc_pid_stat(5).
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let ticks = rest.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().expect("ticks")).sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    }

    pub(crate) fn client(&self) -> Client {
        self.client_of(None)
    }

    /// A client with this one's certificates of another server.
    pub(crate) fn client_to(&self, endpoint: Endpoint) -> Client {
        self.connect(endpoint, None)
    }

    /// A client as this user, with this password.
    pub(crate) fn client_of(&self, user: Option<(&str, &str)>) -> Client {
        self.connect(self.endpoint.clone(), user)
    }

    fn connect(&self, endpoint: Endpoint, user: Option<(&str, &str)>) -> Client {
        let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        let tls = self.authority.as_ref().map(|authority| {
            let settings = TlsSettings {
                ca_cert_file: authority.path("ca.crt"),
                cert_file: authority.path("client.crt"),
                key_file: authority.path("client.key"),
                ..TlsSettings::default()
            };
            Arc::new(Renewed::read(settings, NameCheck::Same).expect("the files are good"))
        });
        let client = Client::new(vec![endpoint], TIMEOUT);
        client.with_access(Access { tls, user }).expect("there are rules if it wants TLS")
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Starts the server that was killed on its data, again if something holds its port for a
    /// moment.
    pub(crate) fn start_again(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.process = spawn(&self.folder, self.ports, self.authority.as_ref());
            if self.is_there(begun) {
                return;
            }
        }
        panic!("etcd does not start again");
    }

    /// Waits until the server has a leader. Returns false if it ended instead.
    fn is_there(&mut self, begun: Instant) -> bool {
        while begun.elapsed() < PATIENCE && matches!(self.process.try_wait(), Ok(None)) {
            if self.client().health().is_ok_and(|health| health.has_leader) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}
