//! One server: both machines, and a stream as its data.

use journal::{History, HistoryId, JournalPos};
use keyspace::Millis;
use replication::failover::Failover;
use replication::primary::{Kept, Primary};
use replication::replica::framing::{EntryKind, Framer};
use replication::replica::{Identity, Promise, Replica, Surroundings};
use replication::wire::{DualChannels, SnapshotEnd};

pub struct Server {
    pub history: History,
    /// All of it, from the first position on.
    pub stream: Vec<u8>,
    /// From here on the bytes are kept for others.
    pub kept_from: u64,
    pub is_running: bool,
    /// The server that it follows.
    pub upstream: Option<usize>,
    pub primary: Primary,
    pub replica: Replica,
    pub failover: Failover,
    pub connection: Option<u64>,
    pub input: Vec<u8>,
    /// The second connection, for a snapshot, and what has come over it.
    pub rdb_channel: Option<u64>,
    pub rdb_input: Vec<u8>,
    /// What it knows of second connections.
    pub dual: DualChannels,
    pub framer: Framer,
    /// A snapshot is being received.
    pub promise: Option<Promise>,
    pub full: u64,
    /// Those of them that came over a second connection.
    pub parallel: u64,
    pub partial: u64,
}

impl Server {
    pub fn new(id: HistoryId, dual: DualChannels) -> Server {
        Server {
            history: History { id, second: None },
            stream: Vec::new(),
            kept_from: 0,
            is_running: true,
            upstream: None,
            primary: Primary::default(),
            replica: Replica::default(),
            failover: Failover::default(),
            connection: None,
            input: Vec::new(),
            rdb_channel: None,
            rdb_input: Vec::new(),
            dual,
            framer: Framer::default(),
            promise: None,
            full: 0,
            parallel: 0,
            partial: 0,
        }
    }

    pub fn position(&self) -> JournalPos {
        JournalPos(self.stream.len() as u64)
    }

    pub fn kept(&self) -> Kept {
        let first = Some(JournalPos(self.kept_from));
        Kept { history: self.history, first, position: self.position() }
    }

    pub fn around(&self, port: u16) -> Surroundings {
        Surroundings {
            identity: Identity { port, version: "8.0.0".into(), ..Identity::default() },
            has: Some((self.history.id, self.position())),
            timeout_ms: 3000,
            hands_over: self.failover.stage() == replication::failover::Stage::Handing,
            dual: self.dual,
        }
    }

    /// The link is gone.
    pub fn close(&mut self) {
        (self.connection, self.rdb_channel) = (None, None);
        self.input.clear();
        self.rdb_input.clear();
        self.framer = Framer::default();
        self.promise = None;
    }

    /// It ends; what it has is on its disk.
    pub fn crash(&mut self) {
        self.close();
        self.is_running = false;
        self.primary = Primary::default();
        self.replica = Replica::default();
        self.failover = Failover::default();
    }

    /// Takes the snapshot if all of it has come; `true` if it did. It takes the place of the old
    /// data only then.
    pub fn take_snapshot(&mut self) -> bool {
        let Some(promise) = self.promise else { return false };
        let input = if promise.is_parallel { &mut self.rdb_input } else { &mut self.input };
        let end = match promise.end {
            SnapshotEnd::Length(bytes) => Some((bytes as usize, 0)),
            SnapshotEnd::Mark(mark) => {
                let at = input.windows(mark.len()).position(|window| window == mark);
                at.map(|at| (at, mark.len()))
            }
        };
        let Some((bytes, mark)) = end.filter(|(bytes, _)| *bytes <= input.len()) else {
            return false;
        };
        let (id, position) = promise.from.expect("all of them count positions");
        let rest = input.split_off(bytes + mark);
        input.truncate(bytes);
        assert_eq!(input.len() as u64, position.0, "a snapshot of this position");
        self.stream = std::mem::replace(input, rest);
        assert!(!promise.is_parallel || self.rdb_input.is_empty(), "bytes behind a snapshot");
        self.parallel += u64::from(promise.is_parallel);
        self.history = History { id, second: None };
        self.kept_from = position.0;
        self.framer = Framer::default();
        self.promise = None;
        true
    }

    /// Applies what has come of the stream; whether an acknowledgement was asked for, at which
    /// position.
    pub fn apply(&mut self) -> Option<JournalPos> {
        let mut asked_at = None;
        loop {
            self.framer.parse(&self.input, 5).expect("it makes sense");
            let entries = self.framer.take();
            if entries.all().is_empty() {
                return asked_at;
            }
            let base = self.stream.len();
            let mut begin = 0;
            for entry in entries.all() {
                if entry.kind == EntryKind::GetAck {
                    asked_at = Some(JournalPos((base + begin) as u64));
                }
                begin = entry.end;
            }
            self.stream.extend(self.input.drain(..entries.bytes()));
        }
    }

    /// A new history begins where this server is.
    pub fn promote(&mut self, id: HistoryId, now: Millis) {
        self.history = History { id, second: Some((self.history.id, self.position())) };
        self.upstream = None;
        self.close();
        self.replica.restart(now);
    }
}
