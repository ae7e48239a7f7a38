//! An etcd of a test's own.

use cluster::Moment;
use cluster::coordinator::Coordinator;
use etcd::{Client, Endpoint};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
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

fn spawn(folder: &Path, [client, peer]: [u16; 2]) -> Child {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    Command::new(program())
        .args(["--name", "one", "--data-dir"])
        .arg(folder)
        .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
        .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
        .args(["--initial-cluster", &format!("one={}", url(peer))])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts")
}

pub(crate) fn start(name: &str) -> Etcd {
    for attempt in 0..10 {
        let folder = format!("dunlin-etcd-{}-{name}-{attempt}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let ports = free_ports();
        let endpoint = Endpoint { host: "127.0.0.1".into(), port: ports[0] };
        let process = spawn(&folder, ports);
        let mut etcd = Etcd { process, folder, ports, endpoint };
        if etcd.is_there(Instant::now()) {
            return etcd;
        }
    }
    panic!("etcd does not start");
}

impl Etcd {
    pub(crate) fn client(&self) -> Client {
        Client::new(vec![self.endpoint.clone()], TIMEOUT)
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Starts the server that was killed on its data, again if something holds its port for a moment.
    pub(crate) fn start_again(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.process = spawn(&self.folder, self.ports);
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
