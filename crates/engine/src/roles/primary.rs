//! As a primary: granting the stream, feeding it, and asking for acknowledgements.

use crate::engine::Engine;
use crate::mailbox::Message;
use crate::replicas::Begun;
use config::ReplicaRdbVersion;
use journal::{IfBehind, Reader};
use keyspace::{DbIndex, Millis};
use replication::primary::{Kept, NEWEST_RDB, OLDEST_RDB, Settings, Stage, Sync};
use replication::wire::{self, Wanted};
use std::sync::atomic::Ordering::*;
use structs::sync::lock;

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

    /// Puts something into the stream that is no write.
    pub fn append_to_stream(&self, command: &[u8]) {
        if self.journal.is_recording() && !self.journal.is_copy() {
            let db = self.journal.selected_db().unwrap_or(DbIndex(0));
            self.journal.append_command(db, command);
            self.nudge_feeds(usize::MAX);
        }
    }

    /// Whether nothing is to enter the stream that is no write: replicas are to catch up with it, so that
    /// another server takes over or this one goes down.
    pub fn stream_stands_still(&self) -> bool {
        self.failover.is_on() || self.pause.is_shutdown()
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
}
