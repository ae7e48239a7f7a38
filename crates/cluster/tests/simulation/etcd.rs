//! The coordinator in simulation: etcd's keys, revisions, leases and history. Delays and losses are
//! the world's.

use cluster::Moment;
use cluster::coordinator::{
    Change, Changes, Coordinator, Failure, Health, Item, LeaseCall, LeaseId, LeaseReply, Member,
    Outcome, Range, Revision, Transaction,
};
use std::collections::BTreeMap;

#[derive(Clone, Hash, Debug)]
struct Value {
    bytes: Vec<u8>,
    revision: Revision,
    lease: Option<LeaseId>,
}

#[derive(Clone, Hash, Debug)]
struct Lease {
    ttl: Moment,
    deadline: Moment,
}

/// See the head of this file.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Etcd {
    pub(crate) is_down: bool,
    pub(crate) revision: Revision,
    now: Moment,
    items: BTreeMap<String, Value>,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: LeaseId,
    /// The changes since `compacted`, with the value that each has set.
    history: Vec<(Revision, String, Option<Vec<u8>>)>,
    /// The keys as they were then.
    past: BTreeMap<String, Value>,
    compacted: Revision,
    /// A copy of its files.
    backup: Option<Box<Etcd>>,
}

impl Etcd {
    pub(crate) fn new() -> Etcd {
        Etcd {
            is_down: false,
            revision: 1,
            now: Moment::ZERO,
            items: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 1,
            history: Vec::new(),
            past: BTreeMap::new(),
            compacted: 0,
            backup: None,
        }
    }

    /// Copies its files, in place of the copy before.
    pub(crate) fn back_up(&mut self) {
        self.backup = None;
        self.backup = Some(Box::new(self.clone()));
    }

    /// Starts again with the copy of its files. Leases have all their time again. Returns whether
    /// there is a copy.
    pub(crate) fn roll_back(&mut self) -> bool {
        let Some(backup) = self.backup.clone() else { return false };
        // A lease's name is made of the time.
        let (now, next_lease) = (self.now, self.next_lease);
        *self = Etcd { now, next_lease, is_down: false, backup: Some(backup.clone()), ..*backup };
        self.change_leader();
        true
    }

    /// Time passes: leases end, unless there is no leader who could end them.
    pub(crate) fn advance(&mut self, now: Moment) {
        self.now = now;
        let ended = self.leases.iter().filter(|(_, lease)| lease.deadline <= now);
        let ended: Vec<LeaseId> = ended.map(|(&id, _)| id).collect();
        if !self.is_down {
            ended.into_iter().for_each(|id| self.end(id));
        }
    }

    /// A new leader counts all leases from the beginning.
    pub(crate) fn change_leader(&mut self) {
        for lease in self.leases.values_mut() {
            lease.deadline = self.now + lease.ttl;
        }
    }

    /// Old changes are forgotten.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
        self.past = self.items.clone();
        self.history.clear();
    }

    fn end(&mut self, id: LeaseId) {
        self.leases.remove(&id);
        let keys = self.items.iter().filter(|(_, value)| value.lease == Some(id));
        let keys: Vec<String> = keys.map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() {
            self.revision += 1;
        }
        for key in keys {
            self.items.remove(&key);
            self.history.push((self.revision, key, None));
        }
    }

    /// Returns the keys with a prefix as they were at a revision of before.
    fn at(&self, prefix: &str, at: Revision) -> Result<Range, Failure> {
        if at < self.compacted || at > self.revision {
            return Err(Failure::Compacted(self.compacted));
        }
        let item = |key: &String, value: &[u8], revision| Item {
            key: key.clone(),
            value: value.to_vec(),
            revision,
        };
        let past = self.past.iter().filter(|(key, _)| key.starts_with(prefix));
        let mut items: BTreeMap<&String, Item> =
            past.map(|(key, it)| (key, item(key, &it.bytes, it.revision))).collect();
        let changes = self.history.iter().take_while(|(revision, ..)| *revision <= at);
        for (revision, key, value) in changes.filter(|(_, key, _)| key.starts_with(prefix)) {
            match value {
                Some(value) => drop(items.insert(key, item(key, value, *revision))),
                None => drop(items.remove(key)),
            }
        }
        Ok(Range { items: items.into_values().collect(), revision: self.revision })
    }

    fn reachable(&self) -> Result<(), Failure> {
        match self.is_down {
            true => Err(Failure::Away("it is down".into())),
            false => Ok(()),
        }
    }
}

impl Coordinator for Etcd {
    fn range(&mut self, prefix: &str, at: Option<Revision>) -> Result<Range, Failure> {
        self.reachable()?;
        if let Some(at) = at {
            return self.at(prefix, at);
        }
        let items =
            self.items.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let item = |(key, value): (&String, &Value)| Item {
            key: key.clone(),
            value: value.bytes.clone(),
            revision: value.revision,
        };
        Ok(Range { items: items.map(item).collect(), revision: self.revision })
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        self.reachable()?;
        let revision = |key: &str| self.items.get(key).map_or(0, |value| value.revision);
        let holds = transaction.compares.iter().all(|it| revision(&it.key) == it.revision);
        let has_lease = |change: &Change| match change {
            Change::Put { lease: Some(lease), .. } => self.leases.contains_key(lease),
            _ => true,
        };
        if !holds || !transaction.changes.iter().all(has_lease) {
            return Ok(Outcome::Conflict);
        }
        self.revision += 1;
        for change in transaction.changes.clone() {
            let (key, value) = match change {
                Change::Delete { key } => {
                    self.items.remove(&key);
                    (key, None)
                }
                Change::Put { key, value: bytes, lease } => {
                    let value = Value { bytes: bytes.clone(), revision: self.revision, lease };
                    self.items.insert(key.clone(), value);
                    (key, Some(bytes))
                }
            };
            self.history.push((self.revision, key, value));
        }
        Ok(Outcome::Done(self.revision))
    }

    fn lease(&mut self, call: LeaseCall) -> Result<LeaseReply, Failure> {
        self.reachable()?;
        let now = self.now;
        Ok(match call {
            LeaseCall::Grant(ttl) => {
                let id = self.next_lease;
                self.next_lease += 1;
                self.leases.insert(id, Lease { ttl, deadline: now + ttl });
                LeaseReply::Held { id, ttl }
            }
            LeaseCall::Renew(id) => match self.leases.get_mut(&id) {
                Some(lease) => {
                    lease.deadline = now + lease.ttl;
                    LeaseReply::Held { id, ttl: lease.ttl }
                }
                None => LeaseReply::Gone,
            },
            LeaseCall::Revoke(id) => {
                self.end(id);
                LeaseReply::Gone
            }
        })
    }

    fn watch(&mut self, prefix: &str, from: Revision, _: Moment) -> Result<Changes, Failure> {
        self.reachable()?;
        if from <= self.compacted {
            return Err(Failure::Compacted(self.compacted));
        }
        let seen =
            self.history.iter().filter(|(at, key, _)| *at >= from && key.starts_with(prefix));
        Ok(Changes { keys: seen.map(|(_, key, _)| key.clone()).collect(), revision: self.revision })
    }

    fn members(&mut self) -> Result<Vec<Member>, Failure> {
        self.reachable().map(|()| Vec::new())
    }

    fn health(&mut self) -> Result<Health, Failure> {
        self.reachable()?;
        Ok(Health { version: "3.5.13".into(), has_leader: true, size_bytes: 0 })
    }
}
