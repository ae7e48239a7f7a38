//! The site at etcd: reads, and changes that rest on what was read.

use crate::keys::{PARTS, SiteKeys};
use crate::settings::Wrong;
use crate::site::{Event, Site, encode, now_ms, unchanged};
use cluster::Moment;
use cluster::coordinator::{Change, Changes, Coordinator as _, Failure, Health, Item, LeaseCall};
use cluster::coordinator::{LeaseId, LeaseReply, Member, Outcome, Range, Revision, Transaction};
use cluster::id::Id;
use cluster::view::{Keys, View};
use etcd::Client;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How often a change is made anew because others were faster.
const ATTEMPTS: usize = 16;

/// Events that are kept.
const MAX_EVENTS: usize = 200;

/// For so long two nodes mean the same event with the same text; their clocks may differ a little.
const ONCE: Duration = Duration::from_secs(30);

/// Why something was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It cannot be: the text says what to do.
    Wrong(String),
    /// There is no such thing.
    Missing(String),
    /// etcd is away, or others change the same all the time: it may be tried again.
    Away(String),
}

impl From<Wrong> for Problem {
    fn from(wrong: Wrong) -> Problem {
        Problem::Wrong(wrong.0)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        match failure {
            Failure::Away(why) => Problem::Away(format!("etcd is away: {why}")),
            Failure::Compacted(_) => Problem::Away("etcd has forgotten that revision".into()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Problem::Wrong(text) | Problem::Missing(text) | Problem::Away(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Problem {}

/// See the head of this file. One thread uses it.
pub struct Store {
    client: Client,
    /// Keys of nodes and databases.
    pub keys: SiteKeys,
    /// Keys of copies.
    pub copies: Keys,
    /// The machine that makes the changes, for events.
    pub machine: String,
}

impl Store {
    /// For a cluster of this name at this etcd.
    pub fn new(cluster: &str, client: Client, machine: &str) -> Store {
        let (keys, copies) = (SiteKeys::new(cluster), Keys::new(cluster));
        Store { client, keys, copies, machine: machine.to_owned() }
    }

    /// Removes the sign of life of a copy whose process has ended and was not started again.
    /// Returns whether there was one.
    ///
    /// # Errors
    /// etcd is away, or another version wrote what is there.
    pub fn release(&mut self, copy: Id) -> Result<bool, Problem> {
        let home = self.client.range(&self.copies.home(copy), None)?;
        let Some(home) = home.items.first() else { return Ok(false) };
        let database: Id = serde_json::from_slice(&home.value)
            .map_err(|error| Problem::Wrong(error.to_string()))?;
        let key = self.copies.alive(database, copy);
        let alive = self.client.range(&key, None)?;
        let Some(alive) = alive.items.first() else { return Ok(false) };
        let compares = vec![unchanged(key.clone(), alive.revision)];
        let transaction = Transaction { compares, changes: vec![Change::Delete { key }] };
        Ok(matches!(self.client.commit(&transaction)?, Outcome::Done(_)))
    }

    /// Reads everything.
    ///
    /// # Errors
    /// etcd is away.
    pub fn read(&mut self) -> Result<Site, Failure> {
        let (range, foreign) = self.client.parts(self.keys.all(), &PARTS)?;
        let mut site = Site::decode(&self.keys, &range);
        site.has_unknown_keys |= foreign > 0;
        Ok(site)
    }

    /// Waits for a change after a revision, at most so long.
    ///
    /// # Errors
    /// etcd is away.
    pub fn watch(&mut self, after: Revision, wait: Moment) -> Result<Changes, Failure> {
        self.client.watch(self.keys.all(), after + 1, wait)
    }

    /// Asks about a lease.
    ///
    /// # Errors
    /// etcd is away.
    pub fn lease(&mut self, call: LeaseCall) -> Result<LeaseReply, Failure> {
        self.client.lease(call)
    }

    /// Makes a transaction.
    ///
    /// # Errors
    /// etcd is away, perhaps after it was made.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        self.client.commit(transaction)
    }

    /// How etcd is.
    ///
    /// # Errors
    /// It is away.
    pub fn health(&mut self) -> Result<(Health, Vec<Member>), Failure> {
        Ok((self.client.health()?, self.client.members()?))
    }

    /// Takes a machine that was forgotten out of the members of etcd, if it is one. A machine
    /// without a server takes its place.
    pub fn remove_member(&mut self, machine: &str) {
        let found = self.client.peers().and_then(|peers| {
            let peer = peers.iter().find(|peer| peer.name == machine);
            match peer.filter(|_| peers.len() > 1) {
                Some(peer) => self.client.remove_peer(&peer.id).map(|_| true),
                None => Ok(false),
            }
        });
        match found {
            Ok(false) => {}
            Ok(true) => self.note(&format!("machine '{machine}' is no member of etcd any more")),
            Err(failure) => {
                let why = Problem::from(failure);
                self.note(&format!("machine '{machine}' is still a member of etcd: {why}"));
            }
        }
    }

    /// Returns whether a machine has the only server of etcd.
    pub fn is_only_member(&mut self, machine: &str) -> bool {
        let peers = self.client.peers();
        peers.is_ok_and(|peers| matches!(&peers[..], [peer] if peer.name == machine))
    }

    /// Reads the topology of a database, and which copies have a lease.
    ///
    /// # Errors
    /// etcd is away, or the values are not readable.
    pub fn view(&mut self, database: Id) -> Result<Option<View>, Problem> {
        let range = self.client.range(&self.copies.database(database), None)?;
        View::decode(&self.copies, database, &range)
            .map_err(|why| Problem::Wrong(format!("the topology at etcd: {}", why.0)))
    }

    /// Reads the topologies of all databases of the cluster, at one revision. What cannot be read
    /// is left out.
    ///
    /// # Errors
    /// etcd is away.
    pub fn views(&mut self) -> Result<BTreeMap<Id, View>, Problem> {
        let range = self.client.range(&self.copies.databases(), None)?;
        let mut by_database: BTreeMap<Id, Vec<Item>> = BTreeMap::new();
        for item in range.items {
            if let Some(database) = self.copies.database_of(&item.key) {
                by_database.entry(database).or_default().push(item);
            }
        }
        let revision = range.revision;
        let views = by_database.into_iter().filter_map(|(database, items)| {
            let view = View::decode(&self.copies, database, &Range { items, revision });
            Some((database, view.ok().flatten()?))
        });
        Ok(views.collect())
    }

    /// Makes a change: `change` makes the transaction of the newest site, and is asked again after
    /// a conflict.
    ///
    /// # Errors
    /// Those of `change`, or etcd is away.
    pub fn change<T>(
        &mut self,
        change: impl Fn(&Site, &SiteKeys, &Keys) -> Result<(T, Transaction), Problem>,
    ) -> Result<T, Problem> {
        for _ in 0..ATTEMPTS {
            let site = self.read()?;
            let (value, transaction) = change(&site, &self.keys, &self.copies)?;
            if let Outcome::Done(_) = self.client.commit(&transaction)? {
                return Ok(value);
            }
        }
        Err(Problem::Away("others change the cluster at the same time, try again".into()))
    }

    /// Notes that something happened, if etcd is there.
    pub fn note(&mut self, text: &str) {
        self.note_unless(text, |_| false);
    }

    /// Adds an event that several nodes may see: only the first of them adds it.
    pub fn note_once(&mut self, text: &str) {
        let since = now_ms().saturating_sub(ONCE.as_millis() as u64);
        self.note_unless(text, |event| event.at_ms >= since && event.text == text);
    }

    fn note_unless(&mut self, text: &str, is_it: impl Fn(&Event) -> bool) {
        let event = Event { at_ms: now_ms(), machine: self.machine.clone(), text: text.to_owned() };
        // An event is no reason to stop; the node's log has it as well.
        let _ = self.change(|site, keys, _| {
            if site.events.iter().any(&is_it) {
                return Ok(((), Transaction::default()));
            }
            let mut events = site.events.clone();
            events.push(event.clone());
            let surplus = events.len().saturating_sub(MAX_EVENTS);
            events.drain(..surplus);
            let compares = vec![unchanged(keys.events(), site.events_revision)];
            let changes = vec![put(keys.events(), encode(&events))];
            Ok(((), Transaction { compares, changes }))
        });
    }
}

/// The change that sets a key which stays.
pub fn put(key: String, value: Vec<u8>) -> Change {
    Change::Put { key, value, lease: None }
}

/// The change that sets a key which goes with a lease.
pub fn put_with(key: String, value: Vec<u8>, lease: LeaseId) -> Change {
    Change::Put { key, value, lease: Some(lease) }
}
