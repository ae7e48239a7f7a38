//! Users, libraries of functions and keyspace events of a database, which are the same at all its
//! copies.
//!
//! | key, behind `/dunlin/<cluster>/shared/<database>/` | value | ends |
//! |---|---|---|
//! | `users` | the text of an ACL file | with the database |
//! | `functions` | [`Functions`] | with the database |
//! | `events` | the letters of `notify-keyspace-events` | with the database |
//! | `applied/<copy>` | [`Applied`] | with the copy's lease |
//!
//! They are apart from the keys of the view, because libraries may be long and change seldom. Each
//! of the first two is one key: a reader sees all users, or all libraries, of one moment, and a
//! change is one compare-and-set.

use crate::coordinator::{Change, Compare, LeaseId, Range, Revision, Transaction};
use crate::id::Id;
use crate::topology::Invalid;
use crate::view::{At, Keys, encode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The longest value that is written. etcd refuses requests of more than 1.5 MB, and values travel
/// in base64.
pub const MAX_BYTES: usize = 1 << 20;

/// A library of functions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// The names of its functions, in lower case.
    pub functions: Vec<String>,
    /// Its text, with the line that names it.
    pub source: String,
}

/// What happens to libraries that are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// They stay, and a name that is taken is an error.
    Add,
    /// One of the same name is replaced.
    Replace,
    /// All go.
    ReplaceAll,
}

/// A name that is taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// A library has it.
    Library(String),
    /// A function of another library has it.
    Function(String),
}

/// All libraries of a database.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Functions {
    /// In the order of their names.
    pub libraries: Vec<Library>,
    /// The shards whose primaries have what is here. The libraries of others are added before they
    /// take it over.
    #[serde(default)]
    pub joined: BTreeSet<Id>,
}

impl Functions {
    /// Adds libraries, all or none.
    ///
    /// # Errors
    /// A name is taken.
    pub fn add(&mut self, libraries: &[Library], policy: Policy) -> Result<(), Taken> {
        let mut changed = match policy {
            Policy::ReplaceAll => Vec::new(),
            Policy::Add | Policy::Replace => self.libraries.clone(),
        };
        for library in libraries {
            match changed.iter().position(|other| other.name == library.name) {
                Some(at) if policy == Policy::Replace => drop(changed.remove(at)),
                Some(_) => return Err(Taken::Library(library.name.clone())),
                None => {}
            }
            let is_taken = |name: &&String| {
                changed.iter().any(|other: &Library| other.functions.contains(name))
            };
            if let Some(name) = library.functions.iter().find(is_taken) {
                return Err(Taken::Function(name.clone()));
            }
            changed.push(library.clone());
        }
        changed.sort_by(|one, other| one.name.cmp(&other.name));
        self.libraries = changed;
        Ok(())
    }

    /// Removes a library. Returns false if there is none of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.libraries.len();
        self.libraries.retain(|library| library.name != name);
        self.libraries.len() < before
    }

    /// Adds what a shard has that is new here. Returns the libraries that it has to give up, since
    /// their names are taken by others.
    pub fn join(&mut self, shard: Id, own: &[Library]) -> Vec<String> {
        self.joined.insert(shard);
        let mut refused = Vec::new();
        for library in own {
            if !self.libraries.contains(library)
                && self.add(std::slice::from_ref(library), Policy::Add).is_err()
            {
                refused.push(library.name.clone());
            }
        }
        refused
    }
}

/// What a copy has applied: the revisions of the values' last changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Applied {
    /// Of the users.
    pub users: Revision,
    /// Of the functions. 0: the copy leads no shard, and has those of its primary.
    pub functions: Revision,
    /// Of the keyspace events to publish.
    #[serde(default)]
    pub events: Revision,
}

/// All of it, at one revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definitions {
    prefix: String,
    /// The revision of the read.
    pub revision: Revision,
    /// The users, as the text of an ACL file.
    pub users: Option<At<Vec<u8>>>,
    /// The functions.
    pub functions: Option<At<Functions>>,
    /// The keyspace events to publish, as the letters of `notify-keyspace-events`. `None`: each
    /// node has its own option.
    pub events: Option<At<String>>,
    /// What copies have applied.
    pub applied: BTreeMap<Id, Applied>,
}

impl Definitions {
    /// Reads the keys behind [`Keys::shared`].
    pub fn decode(keys: &Keys, database: Id, range: &Range) -> Result<Definitions, Invalid> {
        let prefix = keys.shared(database);
        let (mut users, mut functions, mut events) = (None, None, None);
        let mut applied = BTreeMap::new();
        for item in &range.items {
            let unreadable =
                |why: &dyn fmt::Display| Invalid(format!("{} is not readable: {why}", item.key));
            let name = item.key.strip_prefix(&prefix).unwrap_or_default();
            match (name, name.strip_prefix("applied/")) {
                ("users", _) => {
                    users = Some(At { value: item.value.clone(), revision: item.revision });
                }
                ("functions", _) => {
                    let value = serde_json::from_slice(&item.value);
                    let value = value.map_err(|error| unreadable(&error))?;
                    functions = Some(At { value, revision: item.revision });
                }
                ("events", _) => {
                    let value = String::from_utf8(item.value.clone());
                    let value = value.map_err(|error| unreadable(&error))?;
                    events = Some(At { value, revision: item.revision });
                }
                (_, Some(copy)) => {
                    let copy = copy.parse().map_err(|_| unreadable(&"it names no copy"))?;
                    let value = serde_json::from_slice(&item.value);
                    applied.insert(copy, value.map_err(|error| unreadable(&error))?);
                }
                // A later version may have more.
                _ => {}
            }
        }
        Ok(Definitions { prefix, revision: range.revision, users, functions, events, applied })
    }

    /// Returns the transaction that changes the users, if they are still those that were read.
    pub fn put_users(&self, text: Vec<u8>) -> Transaction {
        self.put("users", self.users.as_ref().map_or(0, |at| at.revision), text)
    }

    /// Returns the transaction that changes the functions, if they are still those that were read.
    pub fn put_functions(&self, functions: &Functions) -> Transaction {
        let revision = self.functions.as_ref().map_or(0, |at| at.revision);
        self.put("functions", revision, encode(functions))
    }

    /// Returns the transaction that changes the keyspace events to publish, if they are still those
    /// that were read.
    pub fn put_events(&self, letters: &str) -> Transaction {
        let revision = self.events.as_ref().map_or(0, |at| at.revision);
        self.put("events", revision, letters.into())
    }

    fn put(&self, name: &str, revision: Revision, value: Vec<u8>) -> Transaction {
        let key = format!("{}{name}", self.prefix);
        let compares = vec![Compare { key: key.clone(), revision }];
        Transaction { compares, changes: vec![Change::Put { key, value, lease: None }] }
    }

    /// Returns the transaction that says what a copy has applied, as long as its lease lasts.
    pub fn put_applied(&self, copy: Id, applied: Applied, lease: LeaseId) -> Transaction {
        let key = format!("{}applied/{copy}", self.prefix);
        let change = Change::Put { key, value: encode(&applied), lease: Some(lease) };
        Transaction { compares: Vec::new(), changes: vec![change] }
    }
}

/// Returns the keys that do not end by themselves.
pub fn keys(keys: &Keys, database: Id) -> [String; 3] {
    let prefix = keys.shared(database);
    ["users", "functions", "events"].map(|name| format!("{prefix}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Item;

    fn library(name: &str, functions: &[&str]) -> Library {
        let functions = functions.iter().map(|name| (*name).to_owned()).collect();
        Library { name: name.into(), functions, source: format!("#!lua name={name}") }
    }

    fn names(functions: &Functions) -> Vec<&str> {
        functions.libraries.iter().map(|library| &*library.name).collect()
    }

    #[test]
    fn libraries_are_added_all_or_none() {
        let mut all = Functions::default();
        assert_eq!(all.add(&[library("b", &["f"]), library("a", &["g"])], Policy::Add), Ok(()));
        assert_eq!(names(&all), ["a", "b"]);
        let taken = Err(Taken::Library("a".into()));
        assert_eq!(all.add(&[library("c", &["h"]), library("a", &["i"])], Policy::Add), taken);
        let taken = Err(Taken::Function("f".into()));
        assert_eq!(all.add(&[library("a", &["f"])], Policy::Replace), taken);
        assert_eq!(names(&all), ["a", "b"]);
        assert_eq!(all.add(&[library("a", &["i"])], Policy::Replace), Ok(()));
        assert_eq!(all.libraries[0].functions, ["i"]);
        assert_eq!(all.add(&[library("c", &["f"])], Policy::ReplaceAll), Ok(()));
        assert_eq!(names(&all), ["c"]);
        assert!(all.remove("c") && !all.remove("c"));
    }

    #[test]
    fn a_shard_brings_what_is_new() {
        let mut all = Functions::default();
        let (one, other) = (Id::new([1; 20]), Id::new([2; 20]));
        assert!(all.join(one, &[library("a", &["f"]), library("b", &["g"])]).is_empty());
        let own = [library("a", &["f"]), library("b", &["other"]), library("c", &["h"])];
        assert_eq!(all.join(other, &own), ["b"]);
        assert_eq!(names(&all), ["a", "b", "c"]);
        assert_eq!(all.joined.len(), 2);
    }

    #[test]
    fn what_is_written_is_read() {
        let (keys, database) = (Keys::new("c"), Id::new([7; 20]));
        let empty = Range { items: Vec::new(), revision: 5 };
        let none = Definitions::decode(&keys, database, &empty).expect("it is empty");
        let mut functions = Functions::default();
        functions.join(Id::new([1; 20]), &[library("a", &["f"])]);
        let applied = Applied { users: 3, functions: 4, events: 5 };
        let transactions = [
            none.put_users(b"user default on".to_vec()),
            none.put_functions(&functions),
            none.put_events("Ex"),
            none.put_applied(database, applied, 1),
        ];
        let put = |change: Change| match change {
            Change::Put { key, value, .. } => Item { key, value, revision: 9 },
            Change::Delete { .. } => unreachable!("nothing is deleted"),
        };
        let items = transactions.into_iter().flat_map(|it| it.changes).map(put).collect();
        let range = Range { items, revision: 9 };
        let read = Definitions::decode(&keys, database, &range).expect("it was written so");
        assert_eq!(read.users.map(|at| at.value), Some(b"user default on".to_vec()));
        assert_eq!(read.functions.map(|at| at.value), Some(functions));
        assert_eq!(read.applied.get(&database), Some(&applied));
        assert_eq!(read.events.map(|at| at.value), Some("Ex".to_owned()));
        let written = range.items[..3].iter().map(|item| item.key.clone());
        assert_eq!(written.collect::<Vec<_>>(), super::keys(&keys, database));
    }
}
