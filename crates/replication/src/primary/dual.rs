//! Replicas with two connections: the snapshot goes to the second and the stream to the first.
//!
//! Valkey's primary learns which connections belong together from the first, when it asks for the
//! stream behind the snapshot; Redis's from the second, before the snapshot begins.

use super::{Link, Primary, RdbVersions, Settings, Stage, Sync, parse_client};
use crate::wire::{DualChannel, DualChannels, Wanted};
use journal::{HistoryId, JournalPos};
use keyspace::Millis;

impl Link {
    /// Returns the protocol by which the replica has to fetch its snapshot over a second
    /// connection, if it can.
    pub(super) fn own_channel(&self, offered: DualChannels) -> Option<DualChannel> {
        let is_first = !self.facts.rdb_only && !self.facts.rdb_channel;
        offered.common(self.facts.dual).filter(|_| is_first)
    }
}

impl Primary {
    /// Returns whether an option of REPLCONF that names another connection of a replica names one.
    pub(super) fn is_pair(&self, option: &[u8], value: &[u8]) -> bool {
        let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
        let other = || parse_client(value).and_then(|other| self.links.get(&other));
        if is(b"main-ch-client-id") {
            return other().is_some_and(|link| link.stage == Stage::Paired);
        }
        !is(b"set-rdb-client-id") || other().is_some_and(|link| link.cut.is_some())
    }

    /// Answers a first connection that asks for the stream behind the snapshot of its second
    /// connection.
    pub(super) fn join(&mut self, client: u64, wanted: Wanted, now: Millis) -> Option<Sync> {
        let second = self.links.get(&client)?.facts.rdb_client?;
        let cut = self.links.get(&second).and_then(|link| link.cut);
        let joins = cut.is_some_and(|(id, position)| wanted == Wanted::From(id, position));
        let link = self.links.get_mut(&client)?;
        (link.heard, link.waits_since) = (now, now);
        if !joins {
            // The bytes may still be kept, but the replica has no data set to which they belong.
            link.stage = Stage::Waiting;
            return Some(Sync::Full { was_partial: true });
        }
        link.stage = Stage::Parallel;
        Some(Sync::Join(second))
    }

    /// Returns the first connection of a replica, by its second.
    pub fn main_of(&self, second: u64) -> Option<u64> {
        let link = self.links.get(&second).filter(|link| link.facts.rdb_channel)?;
        let names_it = |first: &&Link| first.facts.rdb_client == Some(second);
        let named = || self.links.values().find(names_it).map(|first| first.client);
        link.facts.main_client.or_else(named)
    }

    /// Begins the snapshot of a second connection. The first connection gets the stream from here
    /// on, if it is known; it is returned.
    pub fn begin_parallel(&mut self, second: u64, cut: (HistoryId, JournalPos)) -> Option<u64> {
        let link = self.links.get_mut(&second).filter(|link| link.facts.rdb_channel)?;
        link.cut = Some(cut);
        let main = link.facts.main_client?;
        let first = self.links.get_mut(&main).filter(|first| first.stage == Stage::Paired)?;
        first.stage = Stage::Parallel;
        Some(main)
    }

    /// Returns how many second connections with Valkey's protocol wait for their first ones to ask
    /// for the stream.
    pub fn waiting_for_main(&self) -> usize {
        let waits = |link: &&Link| link.cut.is_some() && self.main_of(link.client).is_none();
        self.links.values().filter(waits).count()
    }

    /// Returns the RDB versions that a replica reads. A second connection of Redis does not say it,
    /// but the first may.
    pub(super) fn rdb_versions(&self, link: &Link, settings: &Settings) -> RdbVersions {
        let first = link.facts.main_client.and_then(|main| self.links.get(&main));
        match first {
            Some(first) if link.facts.version.is_none() => first.facts.rdb_versions(settings),
            _ => link.facts.rdb_versions(settings),
        }
    }

    /// Connections that are of no use, since the other one of the replica is gone or does not come.
    pub(super) fn broken_pairs(
        &self,
        timeout_ms: i64,
        now: Millis,
    ) -> impl Iterator<Item = u64> + use<> {
        let is_broken = |link: &&Link| {
            let is_late = |since: Millis| now.0 - since.0 > timeout_ms;
            match link.stage {
                Stage::Paired => !self.has_second(link) && is_late(link.waits_since),
                Stage::Parallel => !link.snapshot_is_sent && !self.has_second(link),
                // The replica closes it when it has the snapshot.
                Stage::Loading if link.facts.rdb_channel => false,
                _ => link.facts.main_client.is_some_and(|main| !self.links.contains_key(&main)),
            }
        };
        let broken: Vec<u64> =
            self.links.values().filter(is_broken).map(|link| link.client).collect();
        broken.into_iter()
    }

    fn has_second(&self, first: &Link) -> bool {
        let names_it = |link: &Link| link.facts.main_client == Some(first.client);
        match first.facts.rdb_client {
            Some(second) => self.links.contains_key(&second),
            None => self.links.values().any(names_it),
        }
    }
}
