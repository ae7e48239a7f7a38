//! An engine in this process, with several clients, no sockets, and a clock that stands still until
//! it is advanced: for tests.
//!
//! [`Rig`] does what a reactor of the server does: it feeds requests to the worker, delivers the
//! mail of other threads, ends waits whose time has come, and keeps house every tenth of a second
//! of its own time. Background threads run as they do in the server; [`Rig::settle`] waits for
//! them, so that a test never has to.
//!
//! There is no [`engine::engine::Host`]: nothing that needs files, sockets or a process works.

mod connections;

use commands::rows;
use config::Config;
use connections::Connections;
use engine::clock::{Clock, ManualTime};
use engine::{Engine, Millis};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use structs::sync::lock;

/// When a rig's time begins: some day in 2026.
const BEGINNING: Millis = Millis(1_780_000_000_000);
/// How far time advances before the next look at what is due.
const STEP: Duration = Duration::from_millis(1);

/// The engine and its clients; clones are the same one.
#[derive(Clone)]
pub struct Rig {
    connections: Arc<Mutex<Connections>>,
    time: &'static ManualTime,
    engine: &'static Engine,
}

/// One client. It leaves when this is dropped.
pub struct Link {
    rig: Rig,
    client: u64,
}

impl Rig {
    /// An engine with this configuration.
    pub fn new(config: Arc<Config>) -> Rig {
        let time = ManualTime::starting_at(BEGINNING);
        let engine = Engine::new(config, &rows(), &[], 1, Clock::manual(time));
        let connections = Arc::new(Mutex::new(Connections::new(engine)));
        Rig { connections, time, engine }
    }

    /// The engine, for tests that look behind the commands.
    pub fn engine(&self) -> &'static Engine {
        self.engine
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        lock(&self.connections)
    }

    /// A new client; `None` if there are as many as may be.
    pub fn connect(&self) -> Option<Link> {
        let client = self.connections().open()?;
        Some(Link { rig: self.clone(), client })
    }

    /// Does all there is to do at this moment, and waits for the background threads that clients
    /// wait for.
    pub fn settle(&self) {
        self.connections().settle();
    }

    /// Lets time pass.
    pub fn advance(&self, mut by: Duration) {
        self.settle();
        while !by.is_zero() {
            let step = by.min(STEP);
            self.time.advance(step);
            by -= step;
            let mut connections = self.connections();
            connections.tick();
            connections.settle();
        }
    }
}

impl Link {
    /// Sends bytes and has them run.
    pub fn send(&self, bytes: &[u8]) {
        let mut connections = self.rig.connections();
        connections.receive(self.client, bytes);
        connections.settle();
    }

    /// Takes what has arrived for the client.
    pub fn take_output(&self) -> Vec<u8> {
        let mut connections = self.rig.connections();
        connections.settle();
        connections.take_output(self.client)
    }

    /// The same; if nothing has arrived, time passes until something does, for so long at most.
    pub fn await_output(&self, timeout: Duration) -> Vec<u8> {
        let mut left = timeout;
        while !self.has_output() && !self.is_closed() && !left.is_zero() {
            self.rig.advance(STEP);
            left = left.saturating_sub(STEP);
        }
        self.take_output()
    }

    /// Whether anything has arrived for the client.
    pub fn has_output(&self) -> bool {
        let mut connections = self.rig.connections();
        connections.settle();
        connections.has_output(self.client)
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.rig.connections().is_closed(self.client)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.rig.connections().leave(self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(link: &Link, request: &str) -> String {
        link.send(format!("{request}\r\n").as_bytes());
        String::from_utf8_lossy(&link.take_output()).into_owned()
    }

    #[test]
    fn time_passes_only_when_it_is_advanced() {
        let rig = Rig::new(Config::new());
        let link = rig.connect().expect("the first client");
        assert_eq!(ask(&link, "SET k v PX 100"), "+OK\r\n");
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(ask(&link, "PTTL k"), ":100\r\n");
        rig.advance(Duration::from_millis(99));
        assert_eq!(ask(&link, "PTTL k"), ":1\r\n");
        // As in Redis, a key is there until its time has passed.
        rig.advance(Duration::from_millis(1));
        assert_eq!(ask(&link, "GET k"), "$1\r\nv\r\n");
        rig.advance(Duration::from_millis(1));
        assert_eq!(ask(&link, "GET k"), "$-1\r\n");
    }

    #[test]
    fn a_blocked_client_is_served_by_another_or_by_time() {
        let rig = Rig::new(Config::new());
        let (waiting, other) = (rig.connect().expect("a"), rig.connect().expect("b"));
        assert_eq!(ask(&waiting, "BLPOP l 1"), "");
        assert_eq!(ask(&other, "RPUSH l x"), ":1\r\n");
        assert_eq!(waiting.take_output(), b"*2\r\n$1\r\nl\r\n$1\r\nx\r\n");
        assert_eq!(ask(&waiting, "BLPOP l 1"), "");
        rig.advance(Duration::from_millis(999));
        assert!(!waiting.has_output());
        rig.advance(Duration::from_millis(1));
        assert_eq!(waiting.take_output(), b"*-1\r\n");
    }

    #[test]
    fn a_client_that_leaves_is_forgotten() {
        let rig = Rig::new(Config::new());
        let (first, second) = (rig.connect().expect("a"), rig.connect().expect("b"));
        assert_eq!(ask(&second, "SUBSCRIBE c").matches("subscribe").count(), 1);
        assert_eq!(ask(&first, "PUBLISH c m"), ":1\r\n");
        drop(second);
        assert_eq!(ask(&first, "PUBLISH c m"), ":0\r\n");
        assert_eq!(ask(&first, "QUIT"), "+OK\r\n");
        assert!(first.is_closed());
    }
}
