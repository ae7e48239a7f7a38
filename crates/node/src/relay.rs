//! Ports of databases that no copy on this machine has: connections there are passed on to a
//! machine that has one. A copy here may have one of the next ports, if it came when another had
//! the first.
//!
//! This is done for databases with `--endpoint all`, and in a container for all: a service of
//! Kubernetes leads to any pod that is ready, and knows nothing of ports. Copies that come to this
//! machine get the port back: the next look closes the listener, and the copy's start is repeated
//! meanwhile.

use crate::shared::Shared;
use crate::site::{Placed, Site, Stage};
use process::log;
use process::thread;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::sync::lock;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

/// How long the thread waits for a change before it looks again.
const LOOK: Duration = Duration::from_secs(1);

/// How long a copy may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where a copy is: host and port.
type Target = (String, u16);

/// What is passed on.
pub struct Relayed {
    /// The address of this machine.
    pub host: String,
    /// How much higher the ports with TLS of databases are that have both.
    pub tls_offset: Option<u16>,
    /// Whether databases of any endpoint are passed on.
    pub all: bool,
}

/// A port that is passed on.
struct Port {
    targets: Arc<Targets>,
    accepting: JoinHandle<()>,
}

/// The copies behind a port, which take turns.
#[derive(Default)]
struct Targets {
    list: Mutex<Vec<Target>>,
    next: AtomicUsize,
}

impl Targets {
    /// Returns all copies, the one whose turn it is first.
    fn in_turn(&self) -> Vec<Target> {
        let mut list = lock(&self.list).clone();
        if !list.is_empty() {
            let first = self.next.fetch_add(1, Ordering::Relaxed) % list.len();
            list.rotate_left(first);
        }
        list
    }
}

/// Starts the thread. It ends when copies end with the node.
///
/// # Errors
/// The thread cannot be started.
pub fn start(shared: Arc<Shared>, relayed: Relayed) -> io::Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    thread::spawn("relay", move || {
        let (mut ports, mut turns) = (BTreeMap::new(), 0);
        while !shared.ends_copies() {
            let wanted = wanted(&shared.site(), &shared.machine, &relayed);
            keep(&mut ports, wanted, &relayed.host, runtime.handle());
            turns = shared.wait(turns, LOOK);
        }
    })?;
    Ok(())
}

/// Returns the ports to pass on, and where to.
fn wanted(site: &Site, machine: &str, relayed: &Relayed) -> BTreeMap<u16, Vec<Target>> {
    let mut ports = BTreeMap::new();
    for at in site.databases.values().filter(|at| at.value.stage == Stage::Ready) {
        let (copies, settings) = (&at.value.copies, &at.value.settings);
        // Several machines may be one host. A copy that is away for a moment keeps its port.
        let is_here = |it: &&Placed| it.machine == machine || it.host == relayed.host;
        let is_asked_for = relayed.all || settings.endpoint.is_everywhere();
        if !is_asked_for || copies.iter().filter(is_here).any(|it| it.port == settings.port) {
            continue;
        }
        for offset in [Some(0), relayed.tls_offset].into_iter().flatten() {
            let alive = copies.iter().filter(|it| !it.is_leaving && site.is_alive(&it.machine));
            let targets =
                alive.filter_map(|it| Some((it.host.clone(), it.port.checked_add(offset)?)));
            if let Some(port) = settings.port.checked_add(offset) {
                ports.insert(port, targets.collect());
            }
        }
    }
    ports
}

/// Opens and closes ports.
fn keep(
    ports: &mut BTreeMap<u16, Port>,
    wanted: BTreeMap<u16, Vec<Target>>,
    host: &str,
    runtime: &Handle,
) {
    ports.retain(|number, port| {
        let stays = wanted.contains_key(number) && !port.accepting.is_finished();
        if !stays {
            port.accepting.abort();
        }
        stays
    });
    for (number, list) in wanted {
        if let Some(port) = ports.get(&number) {
            *lock(&port.targets.list) = list;
            continue;
        }
        // A copy that has just left may still have the port: the next look tries it again.
        let Ok(listener) = runtime.block_on(TcpListener::bind((host, number))) else { continue };
        log!(Notice, "Port {number} is passed on: no copy of its database has it on this machine");
        let targets = Arc::new(Targets { list: Mutex::new(list), next: AtomicUsize::new(0) });
        let accepting = runtime.spawn(accept(listener, Arc::clone(&targets)));
        ports.insert(number, Port { targets, accepting });
    }
}

async fn accept(listener: TcpListener, targets: Arc<Targets>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(pass_on(client, targets.in_turn()));
            }
            // Descriptors have run out, most likely: others may be closed meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Passes on what comes and goes. The client is closed if no copy accepts.
async fn pass_on(mut client: TcpStream, targets: Vec<Target>) {
    for (host, port) in targets {
        let connecting = TcpStream::connect((&*host, port));
        if let Ok(Ok(mut copy)) = tokio::time::timeout(PATIENCE, connecting).await {
            // Wishes; and the end of a connection is the business of its two sides.
            let _ = (client.set_nodelay(true), copy.set_nodelay(true));
            let _ = tokio::io::copy_bidirectional(&mut client, &mut copy).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::with_database;
    use crate::settings::Endpoint;
    use std::io::{Read as _, Write as _};

    #[test]
    fn ports_of_databases_without_a_copy_here_are_passed_on() {
        let (mut site, _) = with_database(Stage::Ready);
        let relayed = |tls_offset, all| Relayed { host: "h".into(), tls_offset, all };
        assert!(wanted(&site, "a", &relayed(None, true)).is_empty(), "it has copies");
        let ports = wanted(&site, "z", &relayed(Some(1000), true));
        let copies = &site.databases["d"].value.copies;
        assert_eq!(ports.keys().copied().collect::<Vec<_>>(), [12000, 13000]);
        assert_eq!(ports[&12000].len(), copies.len());
        assert_eq!(ports[&13000][0], (copies[0].host.clone(), copies[0].port + 1000));
        let same = Relayed { host: copies[0].host.clone(), tls_offset: None, all: true };
        assert!(wanted(&site, "z", &same).is_empty(), "the port is a copy's");
        let mut moved = site.clone();
        let database = moved.databases.get_mut("d").expect("it is there");
        let here = database.value.copies.iter_mut().filter(|it| it.machine == "a");
        here.for_each(|it| it.port += 10);
        let ports = wanted(&moved, "a", &relayed(None, true));
        assert_eq!(ports.keys().copied().collect::<Vec<_>>(), [12000], "copies have other ports");
        let (creating, _) = with_database(Stage::Creating);
        assert!(wanted(&creating, "z", &relayed(None, true)).is_empty());
        assert!(wanted(&site, "z", &relayed(None, false)).is_empty(), "it is not asked for");
        let database = site.databases.get_mut("d").expect("it is there");
        database.value.settings.endpoint = Endpoint::All;
        assert_eq!(wanted(&site, "z", &relayed(None, false)).len(), 1);
    }

    #[test]
    fn connections_go_to_a_copy_that_accepts() {
        let copy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = |listener: &std::net::TcpListener| listener.local_addr().unwrap().port();
        let targets =
            [port(&gone), port(&copy)].map(|port| ("127.0.0.1".to_owned(), port)).to_vec();
        drop(gone);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let number = port(&free);
        drop(free);
        let mut ports = BTreeMap::new();
        keep(&mut ports, BTreeMap::from([(number, targets)]), "127.0.0.1", runtime.handle());
        let mut client = std::net::TcpStream::connect(("127.0.0.1", number)).unwrap();
        client.write_all(b"PING").unwrap();
        let (mut served, _) = copy.accept().unwrap();
        let mut bytes = [0; 4];
        served.read_exact(&mut bytes).unwrap();
        served.write_all(b"PONG").unwrap();
        client.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"PONG");
        keep(&mut ports, BTreeMap::new(), "127.0.0.1", runtime.handle());
        assert!(ports.is_empty());
    }
}
