//! The site at etcd: reads, and changes that rest on what was read.

use crate::keys::{PARTS, SiteKeys};
use crate::settings::Wrong;
use crate::site::{Event, FORMAT, Site, encode, format_of, later, now_ms, unchanged};
use cluster::Moment;
use cluster::coordinator::{Change, Changes, Coordinator as _, Failure, Health, Item, LeaseCall};
use cluster::coordinator::{LeaseId, LeaseReply, Member, Outcome, Range, Revision, Transaction};
use cluster::id::Id;
use cluster::stored::{Later, check_writer};
use cluster::view::{Keys, View};
use etcd::Client;
use std::collections::{BTreeMap, BTreeSet};
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
            Failure::Unreadable(why) => Problem::Wrong(why),
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
    /// What was read last of the values, to which changes keep: see [`cluster::stored`].
    read: Read,
}

/// What was read last.
struct Read {
    keys: SiteKeys,
    /// See [`SiteKeys::least_writer`].
    least_writer: u32,
    /// The least that a living node can read: see [`FORMAT`].
    least_format: u32,
    /// Keys whose values cannot be read.
    unreadable: BTreeSet<String>,
    /// By key.
    values: BTreeMap<String, Known>,
}

/// A value that was read.
struct Known {
    revision: Revision,
    /// What is not understood of it.
    later: Later,
    /// The least [`FORMAT`] of nodes that can read it.
    format: u32,
}

impl Read {
    /// Nothing was read yet.
    fn new(keys: SiteKeys) -> Read {
        Read {
            keys,
            least_writer: 0,
            least_format: FORMAT,
            unreadable: BTreeSet::new(),
            values: BTreeMap::new(),
        }
    }

    /// Takes a read of the site.
    fn note(&mut self, range: &Range, site: &Site) {
        (self.least_writer, self.unreadable) = (site.least_writer, site.unreadable.clone());
        self.least_format = site.least_format();
        let mut before = std::mem::take(&mut self.values);
        for item in &range.items {
            let known = before.remove(&item.key).filter(|it| it.revision == item.revision);
            let known = known.unwrap_or_else(|| Known {
                revision: item.revision,
                later: later(&self.keys, item),
                format: format_of(&self.keys, &item.key, &item.value),
            });
            self.values.insert(item.key.clone(), known);
        }
    }

    /// Refuses a value with a word that a living node cannot read. A value that had such a word
    /// before may be changed further: what was begun goes on when an older node is started.
    fn check_readable(&self, key: &str, value: &[u8]) -> Result<(), Failure> {
        let format = format_of(&self.keys, key, value);
        let before = self.values.get(key).map_or(0, |known| known.format);
        match format <= self.least_format.max(before) {
            true => Ok(()),
            false => Err(Failure::Unreadable(
                "a node of the cluster is of an older version, which cannot read the change: start \
                 all nodes with this version first"
                    .into(),
            )),
        }
    }

    /// Returns a transaction that keeps what it must, or refuses one that this version may not
    /// make. A node always says how its own machine is.
    fn kept(&self, own: &str, transaction: &Transaction) -> Result<Transaction, Failure> {
        let mut transaction = transaction.clone();
        for change in &mut transaction.changes {
            let (Change::Put { key, .. } | Change::Delete { key }) = &change;
            if !key.starts_with(own) {
                check_writer(self.least_writer).map_err(Failure::Unreadable)?;
            }
            if self.unreadable.contains(key) {
                let why = format!("the value of {key} at etcd is not readable, and is left alone");
                return Err(Failure::Unreadable(why));
            }
            if let Change::Put { key, value, .. } = change {
                self.check_readable(key, value)?;
                if let Some(known) = self.values.get(key) {
                    *value = known.later.keep(std::mem::take(value));
                }
            }
        }
        Ok(transaction)
    }
}

impl Store {
    /// For a cluster of this name at this etcd.
    pub fn new(cluster: &str, client: Client, machine: &str) -> Store {
        let (keys, copies) = (SiteKeys::new(cluster), Keys::new(cluster));
        let read = Read::new(keys.clone());
        Store { client, keys, copies, machine: machine.to_owned(), read }
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
        self.read.note(&range, &site);
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

    /// Makes a transaction that rests on what was read last. Fields of later versions stay.
    ///
    /// # Errors
    /// etcd is away, perhaps after it was made; or this version may not change a value.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        let own = self.keys.of_machine(&self.machine);
        let transaction = self.read.kept(&own, transaction)?;
        self.client.commit(&transaction)
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
            if let Outcome::Done(_) = self.commit(&transaction)? {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Machine;
    use serde_json::Value;

    /// The site that the first release has left behind.
    fn first_release() -> (SiteKeys, Range) {
        let kept = include_str!("../../../tests/releases/0.1/etcd.json");
        let kept: BTreeMap<String, String> = serde_json::from_str(kept).unwrap();
        let keys = SiteKeys::new("kept");
        let is_site = |key: &String| key.starts_with(keys.all());
        let items = kept.into_iter().filter(|(key, _)| is_site(key));
        let items = items.map(|(key, value)| Item { key, value: value.into(), revision: 3 });
        let items = items.collect();
        (keys, Range { items, revision: 4 })
    }

    fn reader(keys: &SiteKeys, range: &Range) -> (Read, Site) {
        let (site, mut read) = (Site::decode(keys, range), Read::new(keys.clone()));
        read.note(range, &site);
        (read, site)
    }

    #[test]
    fn values_of_the_first_release_are_understood_whole() {
        let (keys, range) = first_release();
        let (read, site) = reader(&keys, &range);
        assert_eq!((site.problems.len(), site.has_unknown_keys), (0, false));
        assert_eq!((site.databases.len(), site.jobs.len(), site.machines.len()), (1, 3, 1));
        assert!(read.values.values().all(|known| known.later.is_empty() && known.format <= 1));
    }

    /// Nodes of the first release keep an option that they do not know, and refuse to change a
    /// database that has one.
    #[test]
    fn a_database_without_special_options_has_none_that_the_first_release_does_not_know() {
        let (keys, range) = first_release();
        let words = range.items.iter().find(|item| item.key == keys.database("words"));
        let words: Value = serde_json::from_slice(&words.unwrap().value).unwrap();
        let known = words["settings"].as_object().unwrap();
        let plain = serde_json::to_value(crate::settings::tests::settings()).unwrap();
        for name in plain.as_object().unwrap().keys() {
            let advice = "is in JSON although it has its default: use skip_serializing_if";
            assert!(known.contains_key(name), "{name} {advice}");
        }
    }

    #[test]
    fn a_field_too_many_of_each_stored_type_stays() {
        let (keys, mut range) = first_release();
        let put = |key: String, value: &str| Item { key, value: value.into(), revision: 3 };
        let gone = r#"{"machine":"one","database":"words"}"#;
        let copy = "535d701e09269dd3834390b01d97039859301682".parse().unwrap();
        let schedule = r#"{"at":"FOLDER/backup","every_s":60,"keep":null,"last_ms":0}"#;
        range.items.push(put(keys.gone(copy), gone));
        range.items.push(put(keys.schedule("words"), schedule));
        range.items.push(put(keys.requests(), r#"[{"id":"a","what":"POST"}]"#));
        range.items.retain(|item| item.key != keys.placement());
        for item in &mut range.items {
            let mut value: Value = serde_json::from_slice(&item.value).unwrap();
            for place in
                ["", "/0", "/settings", "/copies/1", "/users/reader", "/aim", "/task/backup"]
            {
                if let Some(Value::Object(map)) = value.pointer_mut(place) {
                    map.insert("colour".into(), "red".into());
                }
            }
            item.value = value.to_string().into();
        }
        let (read, site) = reader(&keys, &range);
        assert_eq!(site.problems, Vec::<String>::new());
        let value = |of: &str| {
            let item = range.items.iter().find(|item| item.key == of).unwrap();
            serde_json::from_slice::<Value>(&item.value).unwrap()
        };
        fn value_of(bytes: &[u8]) -> Value {
            serde_json::from_slice(bytes).unwrap()
        }
        let check = |key: String, bytes: Vec<u8>| {
            let changes = vec![super::put(key.clone(), bytes)];
            let kept = read.kept("/", &Transaction { changes, ..Transaction::default() });
            let Change::Put { value: written, .. } = kept.unwrap().changes.remove(0) else {
                panic!("it is a put")
            };
            assert_eq!(value_of(&written), value(&key), "{key}");
        };
        check(keys.database("words"), encode(&site.databases["words"].value));
        site.jobs.iter().for_each(|(id, at)| check(keys.job(id), encode(&at.value)));
        check(keys.machine("one"), encode(&site.machines["one"].spec.value));
        check(keys.schedule("words"), encode(&site.schedules["words"].value));
        check(keys.gone(copy), encode(&site.gone[&copy].value));
        check(keys.requests(), encode(&site.requests));
        check(keys.events(), encode(&site.events));
    }

    #[test]
    fn a_word_that_a_living_node_cannot_read_is_not_written() {
        let (keys, mut range) = first_release();
        let words = range.items.iter().find(|item| item.key == keys.database("words")).unwrap();
        let value = words.value.clone();
        // A node that knows nothing yet, and one that is down.
        let machine = |reads: u32| {
            let machine = Machine { id: "x".into(), ..Machine::default() };
            let mut value = serde_json::to_value(machine).unwrap();
            value["reads"] = reads.into();
            value.to_string()
        };
        let mut put = |key: String, value: String| {
            range.items.push(Item { key, value: value.into(), revision: 3 });
        };
        put(keys.machine("old"), machine(0));
        put(keys.machine("new"), machine(FORMAT));
        let kept = |range: &Range, name: &str| {
            let (read, _) = reader(&keys, range);
            let changes = vec![super::put(keys.database(name), value.clone())];
            read.kept("/", &Transaction { changes, ..Transaction::default() })
        };
        assert!(kept(&range, "another").is_ok(), "the node is down");
        let alive = br#"{"id":"x","lease":1}"#.to_vec();
        range.items.push(Item { key: keys.alive("old"), value: alive, revision: 3 });
        let refused = kept(&range, "another").expect_err("it lives");
        assert!(Problem::from(refused).to_string().contains("start all nodes with this version"));
        assert!(kept(&range, "words").is_ok(), "it was there before");
    }

    #[test]
    fn what_cannot_be_read_or_is_of_later_versions_is_left_alone() {
        let (keys, mut range) = first_release();
        let key = keys.database("words");
        let item = range.items.iter_mut().find(|item| item.key == key).unwrap();
        item.value = "{}".into();
        let own = keys.of_machine("one");
        let kept = |read: &Read, key: String| {
            let changes = vec![super::put(key, b"{}".to_vec())];
            read.kept(&own, &Transaction { changes, ..Transaction::default() }).is_ok()
        };
        let (read, site) = reader(&keys, &range);
        assert!(site.problems[0].contains("is left alone") && site.jobs.len() == 3);
        assert!(!kept(&read, key) && kept(&read, keys.placement()));
        let (value, revision) = (b"2".to_vec(), 3);
        range.items.push(Item { key: keys.least_writer(), value, revision });
        let (read, site) = reader(&keys, &range);
        assert!(!kept(&read, keys.placement()) && kept(&read, keys.alive("one")));
        assert!(site.warnings(&keys).iter().any(|it| it.contains("later versions only")));
    }
}
