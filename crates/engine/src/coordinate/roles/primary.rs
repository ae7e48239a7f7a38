//! The primary's role: granting the stream, feeding it, and asking for acknowledgements.

use crate::engine::Engine;
use crate::epochs::Leadership;
use crate::mailbox::Message;
use crate::persistence::snapshots::buffer_limit;
use crate::replicas::Begun;
use crate::votes::Rule;
use config::ReplicaRdbVersion;
use journal::{IfBehind, JournalPos, Reader};
use keyspace::{DbIndex, Millis};
use replication::primary::{
    Acknowledged, Kept, Link, Primary, RdbVersions, Settings, Stage, Sync, said,
};
use replication::vote::{Vote, Voter};
use replication::wire::{self, DualChannel, DualChannels, Wanted};
use std::sync::atomic::Ordering::*;
use structs::sync::lock;

fn rdb_versions(option: ReplicaRdbVersion) -> RdbVersions {
    match option {
        ReplicaRdbVersion::Auto | ReplicaRdbVersion::V10 => RdbVersions::OLDEST,
        ReplicaRdbVersion::V11 => RdbVersions::NEWEST,
        ReplicaRdbVersion::V12 => RdbVersions::REDIS,
    }
}

impl Engine {
    /// Returns the part of the history that decides whether a replica may continue.
    fn kept(&self) -> Kept {
        let journal = &self.journal;
        let position = journal.position();
        // The journal may keep more for a slow replica than another replica may lack.
        let most = self.config.repl_backlog_size().max(self.replica_allowance());
        let first = journal.kept_from();
        Kept {
            history: journal.history(),
            first: first.map(|first| first.max(JournalPos(position.0.saturating_sub(most)))),
            position,
        }
    }

    /// Returns the options of replication.
    pub fn replication_settings(&self) -> Settings {
        let config = &self.config;
        Settings {
            diskless: config.repl_diskless_sync(),
            delay_s: config.repl_diskless_sync_delay().into(),
            max_replicas: config.repl_diskless_sync_max_replicas() as usize,
            ping_period_s: config.repl_ping_replica_period().into(),
            timeout_s: config.repl_timeout().into(),
            rdb: rdb_versions(config.replica_rdb_version()),
            rdb_of_files: match (config.replica_rdb_version(), config.rdb_version()) {
                (ReplicaRdbVersion::Auto, ReplicaRdbVersion::Auto) => {
                    RdbVersions { timed: RdbVersions::VALKEY.timed, ..RdbVersions::OLDEST }
                }
                (ReplicaRdbVersion::Auto, of_files) => {
                    RdbVersions { timed: rdb_versions(of_files).timed, ..RdbVersions::OLDEST }
                }
                (of_replicas, _) => rdb_versions(of_replicas),
            },
        }
    }

    /// Returns the two-channel protocols that this server supports as a replica.
    pub fn dual_channels(&self) -> DualChannels {
        DualChannels {
            valkey: self.config.dual_channel_replication_enabled(),
            redis: self.config.repl_rdb_channel(),
        }
    }

    /// Returns those it supports as a primary. A snapshot that goes through a file is sent over the
    /// one connection.
    fn offered_channels(&self) -> DualChannels {
        let is_diskless = self.config.repl_diskless_sync();
        if is_diskless { self.dual_channels() } else { DualChannels::default() }
    }

    /// Returns the bytes by which a replica may be behind beyond the backlog: its hard output
    /// limit.
    pub fn replica_allowance(&self) -> u64 {
        let limit = self.config.client_output_buffer_limit(config::ClientClass::Replica);
        if limit.hard_bytes == 0 { u64::MAX } else { limit.hard_bytes }
    }

    /// Returns where that ends for a replica that has failed to catch up before: at a quarter of
    /// `maxmemory`, which is what operators leave beside it.
    pub fn most_allowance(&self) -> u64 {
        match self.config.maxmemory() {
            0 => u64::MAX,
            bytes => bytes / 4,
        }
    }

    /// Returns the allowance of one replica. It is more if the replica has failed to catch up
    /// before.
    pub fn allowance_of(&self, client: u64) -> u64 {
        let (usual, most) = (self.replica_allowance(), self.most_allowance());
        self.replicas.primary().allowance(client, usual, most)
    }

    /// Returns the bytes that writers may keep for a snapshot that goes to these replicas, instead
    /// of `snapshot-buffer-limit`. They are more if one of the replicas has failed to catch up
    /// before.
    pub fn snapshot_allowance(&self, clients: &[u64]) -> usize {
        let (usual, most) = (buffer_limit(&self.config) as u64, self.most_allowance());
        let primary = self.replicas.primary();
        let all = clients.iter().map(|&client| primary.allowance(client, usual, most));
        all.max().unwrap_or(usual) as usize
    }

    /// Applies changed limits of replicas, and cuts off those that are too far behind.
    pub fn follow_replica_limits(&self) {
        let clients: Vec<u64> = self.replicas.parts().keys().copied().collect();
        for client in clients {
            let allowance = self.allowance_of(client);
            if let Some(limit) =
                self.replicas.parts().get(&client).and_then(|own| own.limit.as_ref())
            {
                limit.allow(allowance);
            }
        }
        self.journal.check_limits();
    }

    /// Notes when replicas that load their snapshots were last heard of. Meanwhile they send empty
    /// lines, which acknowledge nothing.
    pub fn hear_loading_replicas(&self) {
        let loading: Vec<u64> = self.replicas.primary().loading().collect();
        for client in loading.into_iter().filter_map(|client| self.clients.get(client)) {
            let at = Millis(client.live.last_seen_ms.load(Relaxed));
            self.replicas.primary().hear(client.id, at);
        }
    }

    /// Records that a replica is behind by `lag` bytes. Returns whether that is little and the
    /// replica has loaded its snapshot.
    pub fn note_replica_lag(&self, client: u64, lag: u64) -> bool {
        lag <= self.config.repl_backlog_size() && self.replicas.primary().caught_up(client)
    }

    /// Answers a client that asks for the stream.
    pub fn begin_replica(
        &'static self,
        client: u64,
        ip: &str,
        wanted: Wanted,
        now: Millis,
    ) -> Begun {
        let kept = self.kept();
        let mut primary = self.replicas.primary();
        let offered = self.offered_channels();
        let mut sync = primary.sync(client, ip, wanted, &kept, offered, now);
        if !self.has_reader(&mut primary, client, sync) {
            // The needed bytes were dropped in between.
            sync = primary.sync(client, ip, Wanted::Everything, &kept, offered, now);
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
            // The second connection is counted instead.
            Sync::OwnChannel { protocol, was_partial } => {
                figures.refused.fetch_add(u64::from(was_partial), Relaxed);
                let line = wire::propose(protocol, client);
                match protocol {
                    DualChannel::Valkey => Begun::AskAgain(line),
                    DualChannel::Redis => Begun::Parallel(line),
                }
            }
            Sync::Join(_) => {
                figures.partial.fetch_add(1, Relaxed);
                Begun::Parallel(wire::resume(&kept.history.id, true))
            }
        };
        let lines = primary.link(client).map(|link| {
            let name = format!("{}:{}", link.shown_ip(), link.facts.port);
            said::lines(&name, wanted, sync, &kept, primary.is_sending())
        });
        drop(primary);
        if let Some(host) = self.host() {
            lines.into_iter().flatten().for_each(|line| host.log(&line));
        }
        self.replicas.count_again(now, self.config.min_replicas_max_lag(), &self.votes);
        begun
    }

    /// Creates and stores the reader that a decision needs. Returns `false` if the bytes are gone.
    fn has_reader(&'static self, primary: &mut Primary, client: u64, sync: Sync) -> bool {
        let reader = match sync {
            Sync::Continue(from) => self.journal.read_from(from, IfBehind::CutOff).ok(),
            Sync::Join(second) => {
                let reader = self.replicas.take_reader(second);
                reader.filter(|reader| !reader.is_cut_off())
            }
            _ => return true,
        };
        match reader {
            Some(reader) => {
                let (usual, most) = (self.replica_allowance(), self.most_allowance());
                reader.allow(primary.allowance(client, usual, most));
                self.replicas.keep_reader(client, reader);
                true
            }
            None => {
                if let Some(link) = primary.link_mut(client) {
                    link.facts.rdb_client = None;
                }
                false
            }
        }
    }

    /// Returns the replica's reader for its thread, if the stream is to begin. From now on, the
    /// replica counts as a copy of everything before, unless another connection still transfers its
    /// snapshot.
    pub fn take_stream(&self, client: u64) -> Option<Reader<'static>> {
        let mut primary = self.replicas.primary();
        let link = primary.link_mut(client)?;
        if !matches!(link.stage, Stage::Online | Stage::Parallel) {
            return None;
        }
        let reader = self.replicas.parts().get_mut(&client)?.reader.take()?;
        if link.stage == Stage::Online {
            link.copy.get_or_insert_with(|| self.safe.add_copy(reader.position()));
        }
        Some(reader)
    }

    /// Records which position a replica has received, and which is on its disk.
    pub fn acknowledge(
        &self,
        client: u64,
        received: JournalPos,
        synced: Option<JournalPos>,
        vote: Option<Vote>,
        now: Millis,
    ) {
        let mut primary = self.replicas.primary();
        if let Some(link) = primary.link_mut(client) {
            link.vote = vote.map(|vote| (vote, received));
            self.weigh(link);
        }
        let acknowledged = primary.acknowledge(client, received, synced, now);
        if acknowledged == Acknowledged::Counts
            && let Some(link) = primary.link_mut(client)
        {
            link.copy.get_or_insert_with(|| self.safe.add_copy(received));
            self.weigh(link);
        }
    }

    /// Updates whether a replica's acknowledgements count, if only those of members do.
    fn weigh(&self, link: &Link) {
        if let Some(copy) = &link.copy
            && let Some(rule) = &*self.votes.rule()
        {
            copy.set_member(rule.counts(link.vote));
        }
    }

    /// Sets the rule by which acknowledgements count. `None`: all count, as outside of a cluster.
    pub fn count_votes(&self, rule: Option<Rule>) {
        let primary = self.replicas.primary();
        let mut current = self.votes.rule();
        let copies = || {
            let links = primary.replicas();
            links.filter_map(|link| link.copy.as_ref().map(|copy| (copy, link.vote)))
        };
        if current.as_ref().map(|old| old.leadership) != rule.as_ref().map(|new| new.leadership) {
            // Until all are weighed by the new rule, none counts.
            copies().for_each(|(copy, _)| copy.set_member(false));
        }
        self.safe.set_members_only(rule.is_some());
        if let Some(rule) = &rule {
            copies().for_each(|(copy, vote)| copy.set_member(rule.counts(vote)));
        }
        *current = rule;
        drop(current);
        drop(primary);
        self.confirm_writes();
    }

    /// Returns the copies that have acknowledged everything before `position` in the present epoch,
    /// members or not.
    pub fn voters_at(&self, position: JournalPos) -> Vec<Voter> {
        self.voters(position, |_| true)
    }

    /// Returns those of them that hold it as a quorum's confirmation counts it: on their disks with
    /// `commit-quorum-fsync`.
    pub fn holders_at(&self, position: JournalPos) -> Vec<Voter> {
        let is_on_disk =
            |link: &Link| link.copy.as_ref().is_some_and(|copy| copy.synced() >= position);
        let needs_disk = self.config.commit_quorum_fsync();
        self.voters(position, |link| !needs_disk || is_on_disk(link))
    }

    fn voters(&self, position: JournalPos, counts: impl Fn(&Link) -> bool) -> Vec<Voter> {
        let primary = self.replicas.primary();
        let rule = self.votes.rule();
        let Some(rule) = &*rule else { return Vec::new() };
        let votes = primary.replicas().filter(|link| counts(link)).filter_map(|link| link.vote);
        votes
            .filter(|(vote, at)| rule.is_present(vote, *at) && *at >= position)
            .map(|(vote, _)| vote.voter)
            .collect()
    }

    /// Returns the copies that have sent something within so many seconds, members or not.
    pub fn heard_voters(&self, within_s: i64) -> Vec<Voter> {
        let now = self.clock.wall();
        let primary = self.replicas.primary();
        let heard = primary.replicas().filter(|link| link.lag_s(now) <= within_s);
        heard.filter_map(|link| Some(link.vote?.0.voter)).collect()
    }

    /// Removes a client that has disconnected and may be a replica.
    pub(crate) fn end_replica(&self, client: u64) {
        let link = self.replicas.primary().disconnected(client);
        self.replicas.parts().remove(&client);
        if let Some(copy) = link.and_then(|link| link.copy) {
            self.safe.remove_copy(&copy);
        }
        let max_lag_s = self.config.min_replicas_max_lag();
        self.replicas.count_again(self.clock.wall(), max_lag_s, &self.votes);
    }

    /// Appends a command that is no write to the stream.
    pub fn append_to_stream(&self, command: &[u8]) {
        if self.journal.is_recording() && !self.journal.is_copy() {
            let db = self.journal.selected_db().unwrap_or(DbIndex(0));
            self.journal.append_command(db, command);
            self.nudge_feeds(usize::MAX);
        }
    }

    /// Makes this server lead in this epoch: appends the entry that begins it. No other write may
    /// be in progress.
    pub fn begin_epoch(&self, epoch: u64) -> Leadership {
        self.journal.keep();
        let begun = self.epochs.begin(epoch, || {
            self.append_to_stream(&wire::epoch_entry(epoch));
            self.journal.position()
        });
        self.nudge_feeds(usize::MAX);
        begun
    }

    /// Returns whether only writes may enter the stream, because replicas are to catch up with it
    /// before another server takes over or this one shuts down.
    pub fn stream_stands_still(&self) -> bool {
        self.failover.is_on() || self.pause.is_shutdown()
    }

    /// Asks the replicas for acknowledgements for a waiting client, unless they were asked since
    /// the last entry.
    pub fn ask_for_acks(&self) {
        if self.replicas.count() == 0 || self.stream_stands_still() {
            return;
        }
        let position = self.journal.position().0;
        // Another history may have begun at a lower position, so the positions are compared for
        // equality.
        if self.replicas.asked_at.load(SeqCst) != position {
            self.timings.replica_ack.begin(JournalPos(position));
            self.append_to_stream(wire::GETACK);
            self.replicas.asked_at.store(self.journal.position().0, SeqCst);
        }
    }

    /// Notifies the other threads that feed replicas of new entries, at the end of a turn of
    /// `thread`.
    #[inline]
    pub fn nudge_feeds(&self, thread: usize) {
        if self.has_feeds() {
            self.nudge_each_feed(thread);
        }
    }

    /// Returns whether some thread feeds replicas.
    #[inline]
    pub fn has_feeds(&self) -> bool {
        self.replicas.has_feeds.load(Acquire)
    }

    #[cold]
    fn nudge_each_feed(&self, thread: usize) {
        let position = self.journal.position().0;
        for feed in lock(&self.replicas.feeds).iter() {
            let has_news = feed.thread != thread && position > feed.seen.load(SeqCst);
            if has_news && !feed.is_told.swap(true, SeqCst) {
                self.mailboxes[feed.thread].post(Message::Feed);
            }
        }
    }
}
