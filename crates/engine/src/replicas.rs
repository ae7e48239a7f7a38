//! The replicas of this server, as commands, INFO and the threads that feed them know them.
//!
//! Decisions are made by [`replication::primary::Primary`]. Here is what they are about: for each
//! replica a reader of the journal, a socket for its snapshot, and its place among the sources of
//! [`journal::safe`]. The server's `replication` module does the I/O.

use crate::engine::Engine;
use crate::mailbox::Message;
use config::ReplicaRdbVersion;
use journal::{IfBehind, JournalPos, Reader};
use keyspace::{DbIndex, Millis};
use replication::primary::{Kept, NEWEST_RDB, OLDEST_RDB, Primary, Settings, Stage, Sync};
use replication::wire::{self, Wanted};
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use structs::sync::lock;

/// What of a replica moves between threads.
#[derive(Default)]
struct Parts {
    /// Reads what the replica is to get; its thread takes it when the stream begins.
    reader: Option<Reader<'static>>,
    /// A second descriptor of its socket, for the thread that sends snapshots.
    socket: Option<OwnedFd>,
}

/// The replicas; see the module's documentation.
#[derive(Default)]
pub struct Replicas {
    primary: Mutex<Primary>,
    parts: Mutex<HashMap<u64, Parts>>,
    /// How many there are.
    count: AtomicUsize,
    /// How many of them get the stream and were heard of lately.
    good: AtomicUsize,
    /// Threads that feed replicas and have not been told of the latest entries, by thread.
    feeds: Mutex<Vec<Arc<Feed>>>,
    has_feeds: AtomicBool,
    /// The journal's end when acknowledgements were last asked for.
    asked_at: AtomicU64,
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
}

/// A thread that feeds replicas.
pub struct Feed {
    thread: usize,
    /// It was told that there is something to feed, and has not looked yet.
    is_told: AtomicBool,
    /// Where the journal ended when it looked last.
    seen: AtomicU64,
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

    fn parts(&self) -> MutexGuard<'_, HashMap<u64, Parts>> {
        lock(&self.parts)
    }

    /// Counts anew.
    pub fn count_again(&self, now: Millis, max_lag_s: u32) {
        let primary = self.primary();
        self.count.store(primary.replicas().count(), Relaxed);
        self.good.store(primary.good_replicas(now, i64::from(max_lag_s)), Relaxed);
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

    /// Whether a client asked with SYNC, and knows of no positions.
    pub fn is_old(&self, client: u64) -> bool {
        self.primary().link(client).is_some_and(|link| link.is_old)
    }

    /// The sender of snapshots takes the socket.
    pub fn take_socket(&self, client: u64) -> Option<OwnedFd> {
        let socket = self.parts().get_mut(&client)?.socket.take();
        if let Some(link) = self.primary().link_mut(client) {
            link.has_socket = false;
        }
        socket
    }

    /// Tells a replica that waits for its snapshot that the link is alive. Only the thread that starts
    /// snapshots may do so: in the midst of one, the byte would be part of it.
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
        self.parts().entry(client).or_default().reader = Some(reader);
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

impl Engine {
    /// What decides whether a replica may continue.
    fn kept(&self) -> Kept {
        let journal = &self.journal;
        Kept {
            history: journal.history(),
            first: journal.kept_from(),
            position: journal.position(),
        }
    }

    /// The options that replication follows.
    pub fn replication_settings(&self) -> Settings {
        let config = &self.config;
        Settings {
            diskless: config.repl_diskless_sync(),
            delay_s: config.repl_diskless_sync_delay().into(),
            max_replicas: config.repl_diskless_sync_max_replicas() as usize,
            ping_period_s: config.repl_ping_replica_period().into(),
            timeout_s: config.repl_timeout().into(),
            rdb_version: match config.replica_rdb_version() {
                ReplicaRdbVersion::Auto | ReplicaRdbVersion::V10 => OLDEST_RDB,
                ReplicaRdbVersion::V11 => NEWEST_RDB,
            },
        }
    }

    /// How far behind a replica may be beyond the backlog: its hard output limit.
    pub fn replica_allowance(&self) -> u64 {
        let limit = self.config.client_output_buffer_limit(config::ClientClass::Replica);
        if limit.hard_bytes == 0 { u64::MAX } else { limit.hard_bytes }
    }

    /// The same for one replica: more, if it has failed to catch up before.
    pub fn allowance_of(&self, client: u64) -> u64 {
        self.replicas.primary().allowance(client, self.replica_allowance())
    }

    /// A replica lacks so many bytes of the stream.
    pub fn note_replica_lag(&self, client: u64, lag: u64) {
        if lag <= self.config.repl_backlog_size() {
            self.replicas.primary().caught_up(client);
        }
    }

    /// A client asks for the stream.
    pub fn begin_replica(
        &'static self,
        client: u64,
        ip: &str,
        wanted: Wanted,
        now: Millis,
    ) -> Begun {
        let kept = self.kept();
        let mut primary = self.replicas.primary();
        let mut sync = primary.sync(client, ip, wanted, &kept, now);
        if let Sync::Continue(from) = sync {
            match self.journal.read_from(from, IfBehind::CutOff) {
                Ok(reader) => {
                    reader.allow(self.replica_allowance());
                    self.replicas.parts().entry(client).or_default().reader = Some(reader);
                }
                // The bytes were given back at this very moment.
                Err(_) => sync = primary.sync(client, ip, Wanted::Everything, &kept, now),
            }
        }
        let figures = &self.replicas.figures;
        let begun = match sync {
            Sync::Continue(_) => {
                figures.partial.fetch_add(1, Relaxed);
                let knows = primary.link(client).is_some_and(|link| link.facts.knows_ids);
                Begun::Stream(wire::resume(&kept.history.id, knows))
            }
            Sync::Full { was_partial } => {
                figures.refused.fetch_add(u64::from(was_partial), Relaxed);
                figures.full.fetch_add(1, Relaxed);
                Begun::Snapshot
            }
        };
        drop(primary);
        self.replicas.count_again(now, self.config.min_replicas_max_lag());
        begun
    }

    /// The replica's thread takes the reader, if the stream is to begin. From now on the replica counts
    /// as a copy of what is before that.
    pub fn take_stream(&self, client: u64) -> Option<Reader<'static>> {
        let mut primary = self.replicas.primary();
        let link = primary.link_mut(client).filter(|link| link.stage == Stage::Online)?;
        let reader = self.replicas.parts().get_mut(&client)?.reader.take()?;
        link.copy.get_or_insert_with(|| self.safe.add_copy(reader.position()));
        Some(reader)
    }

    /// A client is gone that may be a replica.
    pub(crate) fn end_replica(&self, client: u64) {
        let link = self.replicas.primary().disconnected(client);
        self.replicas.parts().remove(&client);
        if let Some(copy) = link.and_then(|link| link.copy) {
            self.safe.remove_copy(&copy);
        }
        let max_lag_s = self.config.min_replicas_max_lag();
        self.replicas.count_again(self.clock.wall(), max_lag_s);
    }

    /// Whether nothing is to enter the stream that is no write: replicas are to catch up with it, so that
    /// another server takes over or this one goes down.
    pub fn stream_stands_still(&self) -> bool {
        self.failover.is_on() || self.pause.is_shutdown()
    }

    /// Puts something into the stream that is no write.
    pub fn append_to_stream(&self, command: &[u8]) {
        if self.journal.is_recording() && !self.journal.is_copy() {
            let db = self.journal.selected_db().unwrap_or(DbIndex(0));
            self.journal.append_command(db, command);
            self.nudge_feeds(usize::MAX);
        }
    }

    /// A client waits for acknowledgements: asks the replicas for them, unless they were asked since
    /// the last entry.
    pub fn ask_for_acks(&self) {
        if self.replicas.count() == 0 || self.stream_stands_still() {
            return;
        }
        let position = self.journal.position().0;
        if self.replicas.asked_at.load(SeqCst) < position {
            self.append_to_stream(wire::GETACK);
            self.replicas.asked_at.fetch_max(self.journal.position().0, SeqCst);
        }
    }

    /// At the end of a turn of `thread`: tells the other threads that feed replicas of new entries.
    #[inline]
    pub fn nudge_feeds(&self, thread: usize) {
        if self.replicas.has_feeds.load(Relaxed) {
            self.nudge_each_feed(thread);
        }
    }

    #[cold]
    fn nudge_each_feed(&self, thread: usize) {
        // An entry that is still being copied is the news of the thread that copies it.
        let position = self.journal.position().0;
        for feed in lock(&self.replicas.feeds).iter() {
            let has_news = feed.thread != thread && position > feed.seen.load(SeqCst);
            if has_news && !feed.is_told.swap(true, SeqCst) {
                self.mailboxes[feed.thread].post(Message::Feed);
            }
        }
    }

    /// Whether writes are refused because too few replicas are there.
    #[inline]
    pub fn lacks_replicas(&self) -> bool {
        let least = self.config.min_replicas_to_write() as usize;
        least > 0
            && !self.upstream.is_replica()
            && self.config.min_replicas_max_lag() > 0
            && self.replicas.good() < least
    }
}
