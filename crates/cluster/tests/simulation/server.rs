//! A simulated process around a copy: its clock, its data, its disk.

use cluster::Moment;
use cluster::copy::{Copy, Facts, Role, Settings};
use cluster::id::{Epoch, Id, Incarnation, Position};
use cluster::topology::Holder;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const SETTINGS: Settings = Settings {
    ttl: Moment::from_secs(4),
    retry: Moment::from_millis(200),
    grace: Moment::from_millis(500),
    comeback: Moment::from_secs(8),
    promise: Moment::from_secs(2),
    switch: Moment::from_secs(3),
};

/// A copy that has acknowledged nothing for so long is not to be promoted, without a quorum.
const SILENT: Moment = Moment::from_secs(6);

/// An entry of the data: the epoch in which it was written, and a number that no other has.
pub(crate) type Entry = (Epoch, u64);

/// What a primary sends.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) epoch: Epoch,
    pub(crate) log: Arc<Vec<Entry>>,
    pub(crate) is_listed: bool,
}

/// See the head of this file.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Server {
    pub(crate) id: Id,
    /// Which of the world's shards it is a copy of.
    pub(crate) shard: usize,
    /// Which run of the process this is. What was meant for an earlier one is dropped.
    pub(crate) run: u64,
    pub(crate) is_up: bool,
    pub(crate) is_paused: bool,
    /// Whether all that is acknowledged is on disk.
    pub(crate) is_synced: bool,
    /// What the clock shows beyond the true time.
    pub(crate) ahead_ms: i64,
    /// What a clock that stands still shows.
    pub(crate) stopped: Option<Moment>,
    pub(crate) machine: Copy,
    pub(crate) incarnation: Incarnation,
    /// The names that the data had before restarts, since data were last discarded.
    former: Vec<Incarnation>,
    pub(crate) log: Arc<Vec<Entry>>,
    pub(crate) on_disk: usize,
    pub(crate) is_whole: bool,
    /// When the full synchronisation is through.
    pub(crate) whole_at: Moment,
    frozen: Option<Epoch>,
    is_listed: bool,
    pub(crate) led_from: usize,
    pub(crate) held: BTreeMap<Id, (Incarnation, usize)>,
    /// Since when it leads, and when others have acknowledged something.
    led_since: Moment,
    heard: BTreeMap<Id, Moment>,
    pub(crate) confirmed: usize,
    /// Its connection to the coordinator has not ended since the last call.
    pub(crate) has_connection: bool,
    /// The calls to the coordinator that are not answered.
    pub(crate) calls: BTreeMap<u64, Moment>,
}

impl Server {
    pub(crate) fn new(
        (id, shard): (Id, usize),
        incarnation: Incarnation,
        ahead_ms: i64,
        is_synced: bool,
    ) -> Server {
        Server {
            id,
            shard,
            run: 0,
            is_up: true,
            is_paused: false,
            is_synced,
            ahead_ms,
            stopped: None,
            machine: Copy::new(id, incarnation, SETTINGS),
            incarnation,
            former: Vec::new(),
            log: Arc::new(Vec::new()),
            on_disk: 0,
            is_whole: true,
            whole_at: Moment::ZERO,
            frozen: None,
            is_listed: false,
            led_from: 0,
            held: BTreeMap::new(),
            led_since: Moment::ZERO,
            heard: BTreeMap::new(),
            confirmed: 0,
            has_connection: true,
            calls: BTreeMap::new(),
        }
    }

    /// What the process's clock shows.
    pub(crate) fn clock(&self, now: Moment) -> Moment {
        let shown = now.as_millis() as i64 + self.ahead_ms;
        self.stopped.unwrap_or(Moment::from_millis(shown.max(0) as u64))
    }

    /// A clock that stood still goes on from there: monotonic, but behind.
    pub(crate) fn start_clock(&mut self, now: Moment) {
        if let Some(shown) = self.stopped.take() {
            self.ahead_ms = shown.as_millis() as i64 - now.as_millis() as i64;
        }
    }

    pub(crate) fn runs(&self) -> bool {
        self.is_up && !self.is_paused
    }

    pub(crate) fn position(&self) -> Position {
        let epoch = self.log.last().map_or(Epoch(0), |&(epoch, _)| epoch);
        Position { epoch, offset: self.log.len() as u64 }
    }

    pub(crate) fn append(&mut self, entry: Entry) {
        Arc::make_mut(&mut self.log).push(entry);
        if self.is_synced {
            self.on_disk = self.log.len();
        }
    }

    /// The members of this copy's shard that have `len` entries of its data, itself among them.
    pub(crate) fn holders(&self, len: usize) -> usize {
        let shard = self.machine.view().and_then(|view| view.topology.value.shard_of(self.id));
        let has = |copy: &cluster::topology::Replica| match copy.id == self.id {
            true => copy.member == Some(self.incarnation),
            false => self.held.get(&copy.id).is_some_and(|&(incarnation, held)| {
                copy.member == Some(incarnation) && held >= len
            }),
        };
        shard.map_or(0, |shard| shard.members().filter(|copy| has(copy)).count())
    }

    /// Confirms what `quorum` members hold in the present leadership. Returns what is new of it.
    pub(crate) fn confirm(&mut self, quorum: usize) -> Vec<Entry> {
        let mut len = self.confirmed.max(self.led_from);
        while len <= self.log.len() && self.holders(len) >= quorum {
            len += 1;
        }
        let len = len - 1;
        if len < self.led_from || len <= self.confirmed {
            return Vec::new();
        }
        let new = self.log[self.confirmed..len].to_vec();
        self.confirmed = len;
        new
    }

    /// Takes an acknowledgement.
    pub(crate) fn acknowledged(&mut self, now: Moment, from: Id, held: (Incarnation, usize)) {
        self.held.insert(from, held);
        self.heard.insert(from, now);
    }

    /// The members that have been silent for too long.
    fn silent(&self, now: Moment) -> Vec<Id> {
        if self.leads().is_none() {
            return Vec::new();
        }
        let heard = |id: &Id| self.heard.get(id).copied().unwrap_or(self.led_since);
        let shard = self.machine.view().and_then(|view| view.topology.value.shard_of(self.id));
        let members = shard.into_iter().flat_map(|shard| shard.members().map(|copy| copy.id));
        members.filter(|id| *id != self.id && heard(id) + SILENT < now).collect()
    }

    pub(crate) fn facts(&self, now: Moment) -> Facts {
        let level = self.held.iter().filter(|(_, held)| held.1 == self.log.len());
        Facts {
            position: self.position(),
            has_keys: !self.log.is_empty(),
            restored: self.former.clone(),
            is_whole: self.is_whole,
            frozen: self.frozen,
            is_listed: self.is_listed,
            holding: self.holders(self.confirmed.max(self.led_from)),
            linked: self.held.keys().copied().collect(),
            level: level.map(|(&id, &(incarnation, _))| Holder { id, incarnation }).collect(),
            silent: self.silent(now),
        }
    }

    pub(crate) fn freeze(&mut self, epoch: Epoch) {
        self.frozen = self.frozen.max(Some(epoch));
    }

    pub(crate) fn lead(&mut self, now: Moment, epoch: Epoch, marker: u64) {
        // An operator may have chosen a copy whose synchronisation cannot go on.
        self.is_whole = true;
        self.append((epoch, marker));
        self.led_from = self.log.len();
        self.held.clear();
        (self.led_since, self.heard) = (now, BTreeMap::new());
        self.confirmed = 0;
    }

    pub(crate) fn follow(&mut self, _: Holder, _: Epoch) {
        self.is_listed = false;
    }

    /// Takes the data of a primary, if it is the one that this copy follows: a server has no link
    /// to any other. Returns the number of entries to acknowledge, and whether a full
    /// synchronisation began.
    pub(crate) fn take(
        &mut self,
        now: Moment,
        (from, stream): (Id, &Stream),
        fresh: u64,
    ) -> (Option<usize>, bool) {
        let follows = matches!(self.machine.role(), Role::Follows(holder, _) if holder.id == from);
        if !follows || !self.machine.accepts(stream.epoch) {
            return (None, false);
        }
        self.is_listed = stream.is_listed;
        let is_prefix = |short: &[Entry], long: &[Entry]| long.starts_with(short);
        if !self.is_whole {
            if now < self.whole_at {
                return (None, false);
            }
            self.is_whole = true;
        } else if is_prefix(&stream.log, &self.log) && stream.log.len() < self.log.len() {
            return (None, false);
        } else if !is_prefix(&self.log, &stream.log) {
            self.incarnation = Incarnation(fresh);
            self.machine.reincarnate(self.incarnation);
            self.former.clear();
            (self.log, self.on_disk) = (Arc::new(Vec::new()), 0);
            (self.is_whole, self.whole_at) = (false, now + Moment::from_millis(fresh % 3000));
            return (None, true);
        }
        self.log = stream.log.clone();
        if self.is_synced {
            self.on_disk = self.log.len();
        }
        (Some(self.log.len()), false)
    }

    /// The process ends, and another begins with what the disk has. If it has ended in order, and
    /// had all on its disk, the data keep their name.
    pub(crate) fn restart(&mut self, fresh: u64, is_in_order: bool) {
        let mut former = std::mem::take(&mut self.former);
        if !(self.is_synced && self.is_whole && is_in_order) {
            former.push(self.incarnation);
            self.incarnation = Incarnation(fresh);
        }
        let me = (self.id, self.shard);
        let mut again = Server::new(me, self.incarnation, self.ahead_ms, self.is_synced);
        again.run = self.run + 1;
        again.machine.remember(self.machine.known().cloned());
        again.former = former;
        again.log = Arc::new(self.log[..self.on_disk].to_vec());
        again.on_disk = self.on_disk;
        *self = again;
    }

    pub(crate) fn leads(&self) -> Option<Epoch> {
        match self.machine.role() {
            Role::Leads(epoch) if self.runs() => Some(epoch),
            _ => None,
        }
    }
}
