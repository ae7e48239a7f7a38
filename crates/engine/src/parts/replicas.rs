//! The replicas of this server, as commands, INFO and the threads that feed them know them.
//!
//! Decisions are made by [`replication::primary::Primary`]. Here is what they are about: for each
//! replica a reader of the journal, a socket for its snapshot, and its place among the sources of
//! [`journal::safe`]. The server's `replication` module does the I/O.

use crate::votes::Votes;
use journal::{HistoryId, JournalPos, Limit, Reader};
use keyspace::Millis;
use keyspace::snapshot::Shared;
use replication::primary::{Primary, Stage};
use replication::wire::{self, EndOffset};
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use structs::sync::lock;

/// What of a replica moves between threads.
#[derive(Default)]
pub(crate) struct Parts {
    /// Reads what the replica is to get; its thread takes it when the stream begins.
    pub(crate) reader: Option<Reader<'static>>,
    /// How far behind that may be.
    pub(crate) limit: Option<Limit>,
    /// A second descriptor of its socket, for the thread that sends snapshots.
    pub(crate) socket: Option<OwnedFd>,
}

/// The replicas; see the module's documentation.
#[derive(Default)]
pub struct Replicas {
    primary: Mutex<Primary>,
    parts: Mutex<HashMap<u64, Parts>>,
    /// The snapshot that is written for some of them.
    snapshot: Mutex<Option<Arc<Shared>>>,
    /// How many there are.
    count: AtomicUsize,
    /// How many of them get the stream and were heard of lately.
    good: AtomicUsize,
    /// Threads that feed replicas and have not been told of the latest entries, by thread.
    pub(crate) feeds: Mutex<Vec<Arc<Feed>>>,
    pub(crate) has_feeds: AtomicBool,
    /// The journal's end when acknowledgements were last asked for.
    pub(crate) asked_at: AtomicU64,
    /// Full synchronisations, and partial ones that were granted and refused, for INFO.
    pub figures: Figures,
}

/// What INFO counts.
#[derive(Default)]
pub struct Figures {
    /// `sync_full`
    pub full: AtomicU64,
    /// `sync_partial_ok`
    pub partial: AtomicU64,
    /// `sync_partial_err`
    pub refused: AtomicU64,
    /// Bytes of snapshots that replicas have taken, a part of `total_net_repl_output_bytes`.
    pub snapshot_bytes: AtomicU64,
}

impl Figures {
    /// Forgets them (CONFIG RESETSTAT).
    pub fn reset(&self) {
        [&self.full, &self.partial, &self.refused, &self.snapshot_bytes]
            .iter()
            .for_each(|figure| figure.store(0, Relaxed));
    }
}

/// A thread that feeds replicas.
pub struct Feed {
    pub(crate) thread: usize,
    /// It was told that there is something to feed, and has not looked yet.
    pub(crate) is_told: AtomicBool,
    /// Where the journal ended when it looked last.
    pub(crate) seen: AtomicU64,
}

impl Feed {
    /// The thread looks now, while the journal ends there.
    pub fn looks(&self, position: JournalPos) {
        self.seen.store(position.0, SeqCst);
        self.is_told.store(false, SeqCst);
    }
}

/// The answer to PSYNC.
pub enum Begun {
    /// This line, and then the stream.
    Stream(Vec<u8>),
    /// Nothing yet: a snapshot comes first.
    Snapshot,
    /// This line, and then the stream, while the snapshot goes to the replica's other connection.
    Parallel(Vec<u8>),
    /// This line: the replica is to ask once more, when it has another connection for the snapshot.
    AskAgain(Vec<u8>),
}

impl Replicas {
    /// The machine that decides.
    pub fn primary(&self) -> MutexGuard<'_, Primary> {
        lock(&self.primary)
    }

    /// How many replicas there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// How many of them get the stream and were heard of within `min-replicas-max-lag`.
    pub fn good(&self) -> usize {
        self.good.load(Relaxed)
    }

    pub(crate) fn parts(&self) -> MutexGuard<'_, HashMap<u64, Parts>> {
        lock(&self.parts)
    }

    /// Counts anew. In a cluster only those are good that a fail-over counts.
    pub fn count_again(&self, now: Millis, max_lag_s: u32, votes: &Votes) {
        let primary = self.primary();
        self.count.store(primary.replicas().count(), Relaxed);
        self.good.store(
            primary.good_replicas(now, i64::from(max_lag_s), |link| votes.counts(link)),
            Relaxed,
        );
    }

    /// A replica's socket, for its snapshot.
    pub fn put_socket(&self, client: u64, socket: OwnedFd) {
        self.parts().entry(client).or_default().socket = Some(socket);
        if let Some(link) = self.primary().link_mut(client) {
            link.has_socket = true;
        }
    }

    /// Whether a replica waits for a snapshot and its socket is not there yet.
    pub fn lacks_socket(&self, client: u64) -> bool {
        self.primary()
            .link(client)
            .is_some_and(|link| link.stage == Stage::Waiting && !link.has_socket)
    }

    /// Whether a client wanted only a snapshot, and the sender has written all of it.
    pub fn is_served(&self, client: u64) -> bool {
        self.primary().link(client).is_some_and(|link| link.is_served())
    }

    /// What a client is told before its snapshot, which is this moment of the history.
    pub fn snapshot_line(&self, client: u64, id: &HistoryId, position: JournalPos) -> Vec<u8> {
        let primary = self.primary();
        let Some(link) = primary.link(client) else { return Vec::new() };
        if link.is_old {
            // It asked with SYNC, and knows of no positions.
            return Vec::new();
        }
        if link.facts.rdb_channel && link.facts.main_client.is_none() {
            return EndOffset { position, id: *id, client }.line();
        }
        wire::full_resync(id, position)
    }

    /// The sender of snapshots takes the socket.
    pub fn take_socket(&self, client: u64) -> Option<OwnedFd> {
        let socket = self.parts().get_mut(&client)?.socket.take();
        if let Some(link) = self.primary().link_mut(client) {
            link.has_socket = false;
        }
        socket
    }

    /// Tells a replica that waits for its snapshot that the link is alive. Only the thread that
    /// starts snapshots may do so: in the midst of one, the byte would be part of it.
    pub fn keep_alive(&self, client: u64) {
        if let Some(Parts { socket: Some(socket), .. }) = self.parts().get(&client)
            && let Ok(socket) = socket.try_clone()
        {
            // A link that is dead is noticed elsewhere, and a full one is alive.
            let _ = std::fs::File::from(socket).write(wire::KEEPALIVE);
        }
    }

    /// What a replica is to get, from the position at which its reader stands.
    pub fn put_reader(&self, client: u64, reader: Reader<'static>) {
        let primary = self.primary();
        // A client that is gone takes its parts with it, after its link.
        if primary.link(client).is_some() {
            self.keep_reader(client, reader);
        }
    }

    /// The same for a replica that is known to be there: the caller holds its link.
    pub(crate) fn keep_reader(&self, client: u64, reader: Reader<'static>) {
        let mut parts = self.parts();
        let own = parts.entry(client).or_default();
        own.limit = Some(reader.limit());
        own.reader = Some(reader);
    }

    /// Takes that back.
    pub(crate) fn take_reader(&self, client: u64) -> Option<Reader<'static>> {
        self.parts().get_mut(&client)?.reader.take()
    }

    /// A snapshot is written for replicas; `None` when it has ended.
    pub fn note_snapshot(&self, snapshot: Option<Arc<Shared>>) {
        *lock(&self.snapshot) = snapshot;
    }

    /// Ends that snapshot, if it has begun: no replica waits for it.
    pub fn call_off_snapshot(&self) {
        if let Some(snapshot) = &*lock(&self.snapshot) {
            snapshot.end();
        }
    }

    /// Those that the journal has cut off before their streams began: no snapshot is of use to
    /// them.
    pub fn cut_off_early(&self) -> Vec<u64> {
        let parts = self.parts();
        let is_lost = |own: &Parts| own.reader.as_ref().is_some_and(|reader| reader.is_cut_off());
        parts.iter().filter(|(_, own)| is_lost(own)).map(|(client, _)| *client).collect()
    }

    /// A thread begins to feed replicas.
    pub fn add_feed(&self, thread: usize) -> Arc<Feed> {
        let feed =
            Arc::new(Feed { thread, is_told: AtomicBool::new(false), seen: AtomicU64::new(0) });
        lock(&self.feeds).push(Arc::clone(&feed));
        self.has_feeds.store(true, SeqCst);
        feed
    }

    /// A thread feeds no replica any more.
    pub fn remove_feed(&self, feed: &Arc<Feed>) {
        let mut feeds = lock(&self.feeds);
        feeds.retain(|other| !Arc::ptr_eq(other, feed));
        self.has_feeds.store(!feeds.is_empty(), SeqCst);
    }
}
