//! Reaches the ports that other copies have for each other, before this one announces its own
//! (`cluster::copy::Copy::unreached`). A thread does it, since a firewall may answer nothing.

use crate::log;
use crate::socket;
use crate::tls::{self, Certificates};
use client::{Client, Dial, Patience, Stream, dial};
use cluster::copy::{Copy, Door};
use engine::Engine;
use net::TlsClient;
use process::thread;
use std::io;
use std::iter;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use structs::sync::lock;

/// How long another copy may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Copies that are asked at a time.
const AT_ONCE: usize = 32;

/// Bytes of the longest answer that is read.
const MAX_ANSWER: usize = 4 << 10;

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
            self.engine.membership.set_unreached(String::new());
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
fn run(engine: &'static Engine, shared: &Mutex<State>) {
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
        match first_unreached(&doors, move |door| reach(engine, door)) {
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

/// Asks copies side by side, so that one that does not answer holds up no other. Returns the first
/// that is not reached, and why.
fn first_unreached(
    doors: &[Door],
    ask: impl Fn(&Door) -> io::Result<()> + Clone + Send + 'static,
) -> Option<(&Door, io::Error)> {
    doors.chunks(AT_ONCE).find_map(|doors| {
        let begin = |door: &Door| {
            let (door, ask) = (door.clone(), ask.clone());
            thread::spawn("cluster-reach", move || ask(&door))
        };
        let asked: Vec<_> = doors.iter().map(begin).collect();
        let end = |thread: io::Result<JoinHandle<io::Result<()>>>| {
            thread?.join().expect("a thread that panics takes the process with it")
        };
        let answers: Vec<io::Result<()>> = asked.into_iter().map(end).collect();
        doors.iter().zip(answers).find_map(|(door, answer)| Some((door, answer.err()?)))
    })
}

/// Asks a copy by its port for others, from each address that links to it may have: those of
/// replication have `bind-source-addr`, others the machine's usual one.
///
/// # Errors
/// It does not answer, or not to a server with these certificates.
pub(super) fn reach(engine: &Engine, door: &Door) -> io::Result<()> {
    let end = Instant::now() + TIMEOUT;
    let deadline = Some(end);
    let rules = tls::outgoing(&engine.config, Certificates::Bus).map_err(io::Error::other)?;
    let tls = TlsClient::new(rules, &door.host)?;
    let bound = socket::source(&engine.config)?;
    for source in iter::once(None).chain(bound.map(Some)) {
        let how = Dial { deadline, source, ..Dial::default() };
        let mut stream = Stream::from(dial(&door.host, door.port, &how)?);
        stream.encrypt(&tls)?;
        stream.shake_hands(deadline, || true)?;
        // Any answer will do: without a password it is an error.
        Client::over(stream, Patience::Until(end), MAX_ANSWER).ask(&["PING"])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Condvar;

    #[test]
    fn copies_are_asked_side_by_side() {
        const COPIES: u16 = 4;
        let door =
            |port| Door { copy: "1".repeat(40).parse().expect("an id"), host: "h".into(), port };
        let doors: Vec<Door> = (1..=COPIES).map(door).collect();
        let arrived = Arc::new((Mutex::new(0_u16), Condvar::new()));
        // None is answered before all are asked; those with these ports are not reached.
        let ask = move |door: &Door, closed: &[u16]| {
            let (count, has_changed) = &*arrived;
            let mut count = lock(count);
            *count += 1;
            has_changed.notify_all();
            while !count.is_multiple_of(COPIES) {
                let (now, waited) = has_changed
                    .wait_timeout(count, Duration::from_secs(60))
                    .expect("no thread panics");
                assert!(!waited.timed_out(), "the others are not asked");
                count = now;
            }
            match closed.contains(&door.port) {
                true => Err(io::Error::other("closed")),
                false => Ok(()),
            }
        };
        let first = |closed: &'static [u16]| {
            let ask = ask.clone();
            let found = first_unreached(&doors, move |door| ask(door, closed));
            found.map(|(door, why)| (door.port, why.to_string()))
        };
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[4, 2]), Some((2, "closed".into())));
    }
}
