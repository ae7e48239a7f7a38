//! Copies that run although no database at etcd has them: an older etcd was restored, or a key was
//! deleted. They are left alone until an operator says what becomes of them: the nodes write the
//! database again as they knew it last (`unplaced take-up`), or end the copies (`unplaced end`).
//!
//! A database that is deleted by command marks its copies before it goes, so their nodes end them.
//! For nodes that were not there at that time the same transaction leaves a key for each copy
//! ([`Gone`]), which the node removes when the copy is gone.

use crate::file;
use crate::keys::SiteKeys;
use crate::site::{CopyReport, Database, Placed, ProcessState, Site, Stage, encode, unchanged};
use crate::store::{Problem, put};
use cluster::coordinator::{Change, Transaction};
use cluster::id::Id;
use cluster::view::Keys;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Copies that are ended by one transaction, of which etcd takes 128 changes.
const MAX_GONE: usize = 100;

/// A copy that its node is to end with its files, although no database has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gone {
    /// The machine that has it.
    pub machine: String,
    /// The database that had it.
    pub database: String,
}

/// What a node writes beside a copy's configuration: the database as it was known last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Known {
    /// The database's name.
    pub name: String,
    /// The copy.
    pub copy: Id,
    /// The database.
    pub database: Database,
}

impl Known {
    /// The file in a copy's directory.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join("database.json")
    }

    /// Reads the file, if there is one that can be read.
    pub fn read(directory: &Path) -> Option<Known> {
        let bytes = std::fs::read(Known::path(directory)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Writes the file. It has passwords in it.
    pub fn write(&self, directory: &Path) -> std::io::Result<()> {
        let text = String::from_utf8_lossy(&encode(self)).into_owned();
        file::write(&Known::path(directory), &text)
    }

    /// Returns the place that the copy has in the database.
    pub fn placed(&self) -> Option<&Placed> {
        self.database.copies.iter().find(|placed| placed.copy == self.copy)
    }
}

/// Returns the copies that run and are placed nowhere, with their machines, by the name of the
/// database that they are of.
pub fn by_database(site: &Site) -> BTreeMap<&str, Vec<(&str, &CopyReport)>> {
    let mut found: BTreeMap<&str, Vec<(&str, &CopyReport)>> = BTreeMap::new();
    for (machine, known) in &site.machines {
        let reports = known.alive.iter().flat_map(|at| &at.value.copies);
        for report in reports.filter(|report| report.state != ProcessState::Stopping) {
            if !site.placed_on(machine).any(|(_, _, placed)| placed.copy == report.copy) {
                found.entry(&report.database).or_default().push((machine, report));
            }
        }
    }
    found
}

/// Says what there is and what to do, for `status` and events.
pub fn warnings(site: &Site) -> impl Iterator<Item = String> {
    by_database(site).into_iter().map(|(name, copies)| {
        let places: Vec<String> = copies
            .iter()
            .map(|(machine, report)| format!("{:?} on machine '{machine}'", report.copy))
            .collect();
        let (what, take_up) = match site.databases.contains_key(name) {
            true => ("etcd has the database without them", String::new()),
            false => (
                "etcd does not have the database",
                format!("'dunlin cluster unplaced take-up {name}' writes the database again; "),
            ),
        };
        format!(
            "Copies of database '{name}' run, and {what}: {}. They are left alone. \
             {take_up}'dunlin cluster unplaced end {name}' ends them with their data",
            places.join(", ")
        )
    })
}

/// Makes the transaction after which the nodes write a database again. The value of the key does
/// not matter.
///
/// # Errors
/// The database is there, or no copy of it runs.
pub fn take_up(site: &Site, keys: &SiteKeys, name: &str) -> Result<Transaction, Problem> {
    if site.databases.contains_key(name) {
        return Err(Problem::Wrong(format!("etcd has the database '{name}'")));
    }
    if !by_database(site).contains_key(name) {
        let why = format!("no copy of a database '{name}' runs on a machine of the cluster");
        return Err(Problem::Missing(why));
    }
    let compares = vec![unchanged(keys.database(name), 0)];
    Ok(Transaction { compares, changes: vec![put(keys.taken_up(name), Vec::new())] })
}

/// Makes the transaction by which a node that knows a database writes it again, as it was ordered.
/// If the topology is gone as well, the copies are asked to write that: they know it.
pub fn write_again(
    site: &Site,
    (keys, copies): (&SiteKeys, &Keys),
    known: impl Fn(&str) -> Option<Database>,
    has_topology: impl Fn(Id) -> bool,
) -> Option<(String, Transaction)> {
    site.taken_up.iter().find_map(|(name, revision)| {
        let mut transaction = Transaction::default();
        transaction.compares.push(unchanged(keys.taken_up(name), *revision));
        transaction.changes.push(Change::Delete { key: keys.taken_up(name) });
        if !site.databases.contains_key(name) {
            let database = known(name)?;
            // The job that made it is gone.
            let database = Database { stage: Stage::Ready, ..database };
            transaction.compares.push(unchanged(keys.database(name), 0));
            if !has_topology(database.id) {
                transaction.changes.push(put(copies.write_again(database.id), Vec::new()));
            }
            transaction.changes.push(put(keys.database(name), encode(&database)));
            transaction.changes.push(put(keys.placement(), name.clone().into_bytes()));
        }
        Some((name.clone(), transaction))
    })
}

/// Makes the transaction after which the nodes end the copies of this name that no database has.
///
/// # Errors
/// There are none.
pub fn end(site: &Site, keys: &SiteKeys, name: &str) -> Result<Transaction, Problem> {
    let Some(copies) = by_database(site).remove(name) else {
        let why = format!("all copies of a database '{name}' that run are placed by it");
        return Err(Problem::Missing(why));
    };
    let copies = copies.into_iter().take(MAX_GONE);
    let changes = copies.map(|(machine, report)| gone(keys, report.copy, machine, name));
    // As long as the database is as it was: it places none of them.
    let revision = site.databases.get(name).map_or(0, |at| at.revision);
    let compares = vec![unchanged(keys.database(name), revision)];
    Ok(Transaction { compares, changes: changes.collect() })
}

/// The change that tells a machine to end a copy that no database has.
pub fn gone(keys: &SiteKeys, copy: Id, machine: &str, database: &str) -> Change {
    let value = Gone { machine: machine.to_owned(), database: database.to_owned() };
    put(keys.gone(copy), encode(&value))
}
