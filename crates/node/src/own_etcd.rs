//! An etcd of our own: the stock program, started and watched like a copy, with its snapshots and
//! defragmentation.

use crate::authority::Files;
use crate::disks;
use crate::settings::Wrong;
use crate::supervise::{Supervised, Survivors};
use cluster::Moment;
use etcd::{Client, Endpoint, Size, Way};
use process::log;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The folder of the server in the directory of a node.
pub const FOLDER: &str = "etcd";

/// Snapshots that are kept.
const SNAPSHOTS: usize = 24;

/// The time between two snapshots.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(3600);

/// The time between two looks at the size of the file.
const SIZE_INTERVAL: Duration = Duration::from_secs(600);

/// A smaller file is not worth a defragmentation.
const MIN_DEFRAGMENTATION_BYTES: u64 = 64 << 20;

/// How long the server has to end after it was asked to.
const FAREWELL: Duration = Duration::from_secs(20);

/// How long a snapshot may take.
const SNAPSHOT_LIMIT: Moment = Moment::from_secs(120);

/// What a server of etcd is started with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Server {
    /// Its name among the members.
    pub name: String,
    /// Where others reach it.
    pub host: String,
    /// The port of its clients.
    pub client_port: u16,
    /// The port of its peers.
    pub peer_port: u16,
    /// All members at its first start: `name=url,…`.
    pub initial_cluster: String,
    /// It joins members that are there.
    pub joins: bool,
    /// It speaks TLS, with certificates of the cluster's authority.
    #[serde(default)]
    pub is_tls: bool,
    /// It finds a new leader sooner, and grants leases of a second.
    #[serde(default)]
    pub is_fast: bool,
    /// The cluster's name, so that two clusters are not mixed up.
    pub token: String,
    /// Where it listens: empty is its host; a wildcard if that is a name, whose address changes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub listens_at: String,
}

/// See the head of this file.
pub struct OwnEtcd {
    program: PathBuf,
    directory: PathBuf,
    log: Option<PathBuf>,
    server: Server,
    files: Files,
    way: Way,
    process: Supervised,
    next_snapshot: Instant,
    next_size: Instant,
}

/// Returns whether a host is an address of this machine's own.
pub fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns whether the server of a node in `directory` was started before: it has written a log of
/// its own then. What etcd makes before that, it makes anew.
///
/// # Errors
/// The folder cannot be read.
pub fn has_data(directory: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(directory.join(FOLDER).join("data").join("member/wal")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        if entry?.path().extension().is_some_and(|it| it == "wal") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Finds the program: `DUNLIN_ETCD`, or the path.
///
/// # Errors
/// There is none; the text says how to get one.
pub fn find_program() -> Result<PathBuf, Wrong> {
    if let Some(program) = std::env::var_os("DUNLIN_ETCD").filter(|program| !program.is_empty()) {
        return Ok(program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join("etcd")).find(|it| it.is_file());
    found.ok_or_else(|| {
        Wrong(
            "there is no program etcd on the path. Install it (Debian: apt install etcd-server), name it in \
             DUNLIN_ETCD, or use an etcd that you have: --etcd http://HOST:2379"
                .into(),
        )
    })
}

impl Server {
    /// Returns the URL at which its peers reach it.
    pub fn peer_url(&self) -> String {
        self.peer_endpoint().url()
    }

    /// Returns the endpoint at which its peers reach it.
    pub fn peer_endpoint(&self) -> Endpoint {
        Endpoint { host: self.host.clone(), port: self.peer_port, is_tls: self.is_tls }
    }

    /// Returns the address at which it listens for its peers.
    pub fn peer_bind(&self) -> &str {
        if self.listens_at.is_empty() { &self.host } else { &self.listens_at }
    }

    /// Returns the endpoint at which clients reach it.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { host: self.host.clone(), port: self.client_port, is_tls: self.is_tls }
    }

    /// Returns a URL of this server for etcd's options.
    fn url(&self, host: &str, port: u16) -> String {
        Endpoint { host: host.to_owned(), port, is_tls: self.is_tls }.url()
    }

    fn arguments(&self, files: &Files) -> Vec<String> {
        let (client, peer) = (self.endpoint().url(), self.peer_url());
        let local = self.url("127.0.0.1", self.client_port);
        let listen_peers = self.url(self.peer_bind(), self.peer_port);
        let listen = match &*self.listens_at {
            "" if is_loopback(&self.host) => client.clone(),
            "" => format!("{client},{local}"),
            wildcard => self.url(wildcard, self.client_port),
        };
        let state = if self.joins { "existing" } else { "new" };
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let (authority, machine) = (path(&files.authority), path(&files.machine));
        let tls = [
            ("--trusted-ca-file", &*authority),
            ("--cert-file", &*machine),
            ("--key-file", &*machine),
            ("--client-cert-auth", "true"),
            ("--peer-trusted-ca-file", &*authority),
            ("--peer-cert-file", &*machine),
            ("--peer-key-file", &*machine),
            ("--peer-client-cert-auth", "true"),
        ];
        let tls = if self.is_tls { &tls[..] } else { &[] };
        // The shortest lease is one and a half times the election's, in whole seconds.
        let fast = [("--heartbeat-interval", "50"), ("--election-timeout", "500")];
        let fast = if self.is_fast { &fast[..] } else { &[] };
        [
            ("--name", &*self.name),
            ("--data-dir", "data"),
            ("--listen-client-urls", &listen),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &listen_peers),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &self.initial_cluster),
            ("--initial-cluster-state", state),
            ("--initial-cluster-token", &self.token),
            ("--auto-compaction-mode", "periodic"),
            ("--auto-compaction-retention", "1h"),
            ("--snapshot-count", "10000"),
            ("--log-level", "warn"),
        ]
        .iter()
        .chain(tls)
        .chain(fast)
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
    }
}

impl OwnEtcd {
    /// Starts a server in `directory`, which is absolute, or adopts the one that runs there.
    ///
    /// # Errors
    /// The directory cannot be made, or the program not be started.
    pub fn start(
        program: PathBuf,
        directory: &Path,
        log: Option<&Path>,
        server: Server,
        files: Files,
        way: Way,
    ) -> io::Result<OwnEtcd> {
        fs::create_dir_all(directory.join("data"))?;
        fs::create_dir_all(directory.join("snapshots"))?;
        let now = Instant::now();
        let process = Supervised::new(directory, log, &Survivors::of(&program), now);
        let mut own = OwnEtcd {
            program,
            directory: directory.to_owned(),
            log: log.map(Path::to_owned),
            server,
            files,
            way,
            process,
            next_snapshot: now + SNAPSHOT_INTERVAL,
            next_size: now + SIZE_INTERVAL,
        };
        match own.process.id() {
            Some(id) => log!(Notice, "etcd runs as process {id}"),
            None => own.spawn(now)?,
        }
        Ok(own)
    }

    fn spawn(&mut self, now: Instant) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(self.server.arguments(&self.files));
        // Options of the environment are meant for another etcd.
        for (name, _) in
            std::env::vars_os().filter(|(it, _)| it.to_string_lossy().starts_with("ETCD_"))
        {
            command.env_remove(name);
        }
        // Its heap is small: collecting it more often costs less than the memory.
        command.env("GOGC", "40");
        let id = self.process.start(command, now)?;
        log!(Notice, "etcd starts on port {}, process {id}", self.server.client_port);
        Ok(())
    }

    /// Returns whether its process runs. It is not started again by this.
    pub fn runs(&mut self) -> bool {
        if let Some(end) = self.process.look(Instant::now()) {
            self.log_end(&end);
        }
        self.process.id().is_some()
    }

    /// Watches the server until `is_over`: starts it again when it has ended, writes snapshots,
    /// defragments its file. Then ends it if it `ends_as_well`, and leaves it running otherwise.
    pub fn watch(mut self, is_over: &AtomicBool, ends_as_well: bool) {
        while !is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            if let Some(end) = self.process.look(now) {
                self.log_end(&end);
            }
            if self.process.is_due(now)
                && let Err(error) = self.spawn(now)
            {
                log!(Warning, "etcd cannot be started: {error}");
            }
            if now >= self.next_snapshot {
                self.next_snapshot = now + SNAPSHOT_INTERVAL;
                self.snapshot();
            }
            if now >= self.next_size {
                self.next_size = now + SIZE_INTERVAL;
                self.defragment();
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        if ends_as_well {
            self.end();
        }
    }

    fn log_end(&self, end: &str) {
        let log = self.log.as_ref().map(|log| format!("; see {}", log.display()));
        let log = log.unwrap_or_default();
        match &*disks::lack(&self.directory) {
            "" => log!(Warning, "etcd has ended: {end}{log}"),
            lack => log!(Warning, "etcd has ended: {end}; {lack}{log}"),
        }
    }

    /// Ends the process. etcd gives up its leadership first.
    fn end(&mut self) {
        let Some(id) = self.process.id() else { return };
        log!(Notice, "etcd ends, process {id}");
        self.process.end(Instant::now(), FAREWELL);
        while self.process.id().is_some() {
            // How it ends does not matter any more.
            let _ = self.process.look(Instant::now());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn client(&self) -> Client {
        self.way.client(Moment::from_secs(30))
    }

    fn snapshot(&self) {
        let folder = self.directory.join("snapshots");
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match snapshot(&mut self.client(), &folder, seconds) {
            Ok(bytes) => log!(Notice, "A snapshot of etcd was written ({bytes} bytes)"),
            Err(why) => log!(Warning, "There is no snapshot of etcd this time: {why}"),
        }
    }

    fn defragment(&self) {
        let mut client = self.client();
        let Ok(Size { bytes, used_bytes }) = client.size() else { return };
        if bytes < MIN_DEFRAGMENTATION_BYTES || used_bytes > bytes / 2 {
            return;
        }
        match client.defragment() {
            Ok(()) => log!(Notice, "etcd's file of {bytes} bytes was defragmented"),
            Err(why) => log!(Warning, "etcd's file could not be defragmented: {why}"),
        }
    }
}

/// Writes a snapshot into a folder, and removes the oldest ones.
///
/// # Errors
/// Why there is none.
pub fn snapshot(client: &mut Client, folder: &Path, seconds: u64) -> Result<u64, Wrong> {
    let wrong = |error: io::Error| Wrong(error.to_string());
    let (path, temporary) = (folder.join(format!("{seconds}.db")), folder.join("new"));
    let mut file = fs::File::create(&temporary).map_err(wrong)?;
    let bytes =
        client.snapshot(&mut file, SNAPSHOT_LIMIT).map_err(|failure| Wrong(failure.to_string()))?;
    file.sync_all().and_then(|()| fs::rename(&temporary, &path)).map_err(wrong)?;
    let entries = fs::read_dir(folder).map_err(wrong)?.flatten().map(|entry| entry.path());
    let mut old: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|it| it == "db")).collect();
    old.sort();
    let surplus = old.len().saturating_sub(SNAPSHOTS);
    for path in &old[..surplus] {
        fs::remove_file(path).map_err(wrong)?;
    }
    Ok(bytes)
}
