//! The clients of a [`Rig`](crate::Rig), and the turns of its only reactor.

use engine::clients::Departure;
use engine::dispatch::NotNow;
use engine::expire::Cycle;
use engine::mailbox::{Message, Push};
use engine::session::{Fate, Session};
use engine::worker::{Next, Peer};
use engine::{Engine, Millis, Worker};
use resp::Output;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Between two rounds of housekeeping.
const ROUND_MS: i64 = 100;
/// How long one moment may take, with its background threads, before the test fails.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Output after which a client's further requests have to wait for the next turn.
const TURN_OUTPUT: usize = 1 << 20;

/// A client's session and its bytes in both directions.
struct Connection {
    session: Session,
    input: Vec<u8>,
    output: Output,
    /// Messages that follow the reply of a command that runs elsewhere.
    held: Vec<Arc<Push>>,
    /// Its requests wait for the end of a pause or of a long command.
    is_paused: bool,
}

impl Connection {
    /// Whether there is a request to run, as far as is known.
    fn is_ready(&self) -> bool {
        !self.input.is_empty() && !self.is_paused && self.session.suspension.is_none()
    }

    /// Whether it waits for a background thread.
    fn waits_for_thread(&self) -> bool {
        let suspension = self.session.suspension.as_ref();
        suspension.is_some_and(|suspension| suspension.waiter.is_none())
    }
}

/// All clients.
pub(crate) struct Connections {
    engine: &'static Engine,
    worker: Worker,
    open: BTreeMap<u64, Connection>,
    /// Output of clients that the server has closed.
    closed: BTreeMap<u64, Output>,
    expiry: Cycle,
    next_round: Millis,
}

impl Connections {
    pub fn new(engine: &'static Engine) -> Connections {
        Connections {
            engine,
            worker: Worker::new(engine, 0),
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            expiry: Cycle::default(),
            next_round: engine.clock.wall(),
        }
    }

    pub fn open(&mut self) -> Option<u64> {
        let peer = Peer {
            addr: "127.0.0.1:50000".to_owned(),
            laddr: "127.0.0.1:6379".to_owned(),
            fd: 10,
            is_local: true,
            transport_flags: 0,
            is_insider: false,
            certified: Vec::new(),
        };
        let session = self.worker.connect(peer)?;
        let client = session.id();
        let connection = Connection {
            session,
            input: Vec::new(),
            output: Output::default(),
            held: Vec::new(),
            is_paused: false,
        };
        self.open.insert(client, connection);
        Some(client)
    }

    pub fn receive(&mut self, client: u64, bytes: &[u8]) {
        if let Some(connection) = self.open.get_mut(&client) {
            connection.input.extend_from_slice(bytes);
        }
    }

    pub fn take_output(&mut self, client: u64) -> Vec<u8> {
        let output = match self.open.get_mut(&client) {
            Some(connection) => Some(&mut connection.output),
            None => self.closed.get_mut(&client),
        };
        output.map(std::mem::take).unwrap_or_default().into_bytes()
    }

    pub fn has_output(&self, client: u64) -> bool {
        let open = self.open.get(&client).map(|connection| &connection.output);
        open.or(self.closed.get(&client)).is_some_and(|output| !output.is_empty())
    }

    pub fn is_closed(&self, client: u64) -> bool {
        !self.open.contains_key(&client)
    }

    /// The client closes its side.
    pub fn leave(&mut self, client: u64) {
        self.close(client, Departure::Left);
        self.closed.remove(&client);
        self.settle();
    }

    fn close(&mut self, client: u64, departure: Departure) {
        if let Some(connection) = self.open.remove(&client) {
            self.closed.insert(client, connection.output);
            self.worker.disconnect(connection.session, departure);
        }
    }

    /// Runs and delivers until nothing is left to do at this moment.
    pub fn settle(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            assert!(Instant::now() < deadline, "what was begun does not come to an end");
            let has_run = self.run_requests() | self.deliver_mail();
            self.engine.flush_broadcasts();
            if has_run || self.engine.mailboxes[0].has_mail() {
                continue;
            }
            let is_freeing = self.engine.background.pending_objects() > 0;
            if !is_freeing && !self.open.values().any(Connection::waits_for_thread) {
                return;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Feeds each client's input once; whether anything was run.
    fn run_requests(&mut self) -> bool {
        let is_ready = |(&id, connection): (&u64, &Connection)| connection.is_ready().then_some(id);
        let ready: Vec<u64> = self.open.iter().filter_map(is_ready).collect();
        ready.into_iter().filter(|&client| self.feed(client)).count() > 0
    }

    fn feed(&mut self, client: u64) -> bool {
        let Some(connection) = self.open.get_mut(&client) else { return false };
        let Connection { session, input, output, .. } = connection;
        let before = output.len();
        let fed = self.worker.feed(session, input, output, before + TURN_OUTPUT);
        input.drain(..fed.consumed);
        let (live, stats) = (&session.client.live, self.worker.context().stats());
        let (read, written) = (fed.consumed as u64, (output.len() - before) as u64);
        live.net_in.fetch_add(read, Relaxed);
        live.net_out.fetch_add(written, Relaxed);
        stats.net_in.add_own(read);
        stats.net_out.add_own(written);
        match fed.next {
            Next::Again | Next::NotNow(NotNow::Busy) => return true,
            // Nothing is forwarded without a cluster.
            Next::NotNow(
                NotNow::Paused | NotNow::Limited | NotNow::Held | NotNow::Cold | NotNow::Forwarded,
            ) => connection.is_paused = true,
            Next::Closing => {
                if connection.session.fate == Fate::Close {
                    connection.output.clear();
                }
                self.close(client, Departure::Closed);
                return true;
            }
            Next::Read { .. } | Next::ReadWord { .. } | Next::Suspended => {}
        }
        fed.consumed > 0
    }

    fn deliver_mail(&mut self) -> bool {
        let mail = self.engine.mailboxes[0].take();
        let has_mail = !mail.is_empty();
        mail.into_iter().for_each(|message| self.deliver(message));
        has_mail
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Push(client, push) => {
                let Some(connection) = self.open.get_mut(&client) else { return };
                let Connection { session, output, held, .. } = connection;
                if !self.worker.deliver(session, &push, output) {
                    held.push(push);
                }
            }
            Message::Resume(client, resumption) => {
                let Some(connection) = self.open.get_mut(&client) else { return };
                let Connection { session, output, held, .. } = connection;
                // The whole output may be replaced where it is empty, so it goes through one of its
                // own.
                let mut reply = Output::default();
                if self.worker.resume(session, resumption, &mut reply) {
                    for push in std::mem::take(held) {
                        self.worker.deliver(session, &push, &mut reply);
                    }
                }
                output.append(&mut reply);
            }
            Message::Unblock { client, token, error, fate } => {
                if let Some(connection) = self.open.get_mut(&client) {
                    let Connection { session, output, .. } = connection;
                    if self.worker.unblock(session, token, error, output) && fate != Fate::Open {
                        self.close(client, Departure::Closed);
                    }
                }
            }
            Message::Kill(client) | Message::Overflow(client) | Message::Evict(client) => {
                self.close(client, Departure::Closed);
            }
            Message::Arrived(client) => {
                if let Some(connection) = self.open.get_mut(&client) {
                    connection.is_paused = false;
                }
            }
            Message::Recheck => self.resume_paused(),
            // Replicas and other nodes have sockets, of which there are none here.
            Message::Stream(_)
            | Message::Feed
            | Message::Purge
            | Message::EndLinks
            | Message::Listen
            | Message::Spread(_) => {}
        }
    }

    fn resume_paused(&mut self) {
        self.open.values_mut().for_each(|connection| connection.is_paused = false);
    }

    /// What is due at this time: deadlines, the end of a pause, housekeeping.
    pub fn tick(&mut self) {
        let now = self.engine.clock.wall();
        for (client, token) in self.worker.due(now) {
            if let Some(connection) = self.open.get_mut(&client) {
                let Connection { session, output, .. } = connection;
                self.worker.time_out(session, token, output);
            }
        }
        if self.engine.pause.end_if_over(now) || !self.engine.pause.is_on() {
            self.resume_paused();
        }
        if now >= self.next_round {
            self.next_round = Millis(now.0 + ROUND_MS);
            self.expiry.begin(&mut self.worker);
            while self.expiry.step(&mut self.worker).is_some() {}
            self.worker.with_db(|db| engine::caching::limit_keys(db));
            while self.worker.keep_limit() {}
            self.engine.sample_rates(now);
        }
    }
}
