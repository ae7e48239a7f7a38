//! Reaches the ports that other copies have for each other, before this one announces its own
//! (`cluster::copy::Copy::unreached`). A thread does it, since a firewall may answer nothing.

use crate::bus;
use crate::log;
use crate::socket::Socket;
use cluster::copy::{Copy, Door};
use engine::Engine;
use process::thread;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;

/// How long another copy may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Between two attempts: the second and later ones wait longer.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

/// See the head of this file.
pub(super) struct Probe {
    engine: &'static Engine,
    state: Arc<Mutex<State>>,
}

/// What the thread is to reach, and has reached.
#[derive(Default)]
struct State {
    /// `None`: there is nothing to reach, and the thread ends.
    doors: Option<Vec<Door>>,
    reached: Option<Vec<Door>>,
    is_running: bool,
}

impl Probe {
    pub(super) fn new(engine: &'static Engine) -> Probe {
        Probe { engine, state: Arc::default() }
    }

    /// Has the thread reach what has to be reached, and tells the copy when it is.
    pub(super) fn follow(&self, copy: &mut Copy) {
        let doors = copy.unreached();
        let mut state = lock(&self.state);
        if doors.is_some() && state.reached == doors {
            log!(Notice, "Cluster: the ports that other nodes have for each other are reached");
            copy.reached_all();
            state.doors = None;
            return;
        }
        let is_due = doors.is_some() && !state.is_running;
        state.doors = doors;
        if is_due {
            let (engine, shared) = (self.engine, Arc::clone(&self.state));
            let started = thread::spawn("cluster-probe", move || run(engine, &shared));
            // Without a thread it is tried again at the next turn.
            state.is_running = started.is_ok();
        }
    }
}

/// Tries until all are reached, or none has to be.
fn run(engine: &Engine, shared: &Mutex<State>) {
    let mut pauses = PAUSES.into_iter();
    let mut said = String::new();
    loop {
        let doors = {
            let mut state = lock(shared);
            if state.doors.is_none() {
                state.is_running = false;
                engine.membership.set_unreached(String::new());
                return;
            }
            state.doors.clone().unwrap_or_default()
        };
        let failed = doors.iter().find_map(|door| Some((door, reach(engine, door).err()?)));
        match failed {
            None => lock(shared).reached = Some(doors),
            Some((Door { copy, host, port }, why)) => {
                let place = format!("{host}:{port}");
                if said != place {
                    log!(
                        Warning,
                        "Cluster: the port that node {copy} has for other nodes, {place}, is not \
                         reached ({why}): nodes do without TLS between each other until it is. \
                         If that node has one, let this machine reach it"
                    );
                }
                engine.membership.set_unreached(place.clone());
                said = place;
            }
        }
        std::thread::sleep(pauses.next().unwrap_or(PAUSES[PAUSES.len() - 1]));
    }
}

/// Asks a copy by its port for others.
///
/// # Errors
/// It does not answer, or not to a server with these certificates.
fn reach(engine: &Engine, door: &Door) -> io::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let rules = bus::Way::by_bus_at(&door.host, door.port).rules(&engine.config);
    let rules = rules.map_err(io::Error::other)?;
    let mut socket = Socket::open(&door.host, door.port, None, TIMEOUT, rules, || true)?;
    socket.write_all(b"*1\r\n$4\r\nPING\r\n")?;
    loop {
        // Any answer will do: without a password it is an error.
        match socket.read(&mut [0; 64]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}
