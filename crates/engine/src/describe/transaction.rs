//! MULTI's queue. The commands themselves are in the commands crate.

use crate::command::{Databases, Flags};
use crate::request_keys::RequestKeys;
use crate::table::Resolved;
use crate::words::Words;
use keyspace::{DbIndex, Keyspace};

/// A queued command.
pub struct Queued {
    /// Its row.
    pub row: &'static Resolved,
    words: Words,
}

impl Queued {
    /// Its words.
    pub fn words(&self) -> Vec<&[u8]> {
        self.words.to_vec()
    }
}

/// Returns whether a command may touch keys that its words do not name.
pub(crate) fn reaches(flags: Flags) -> bool {
    flags.any(Flags::WALKS.with(Flags::REACHES))
        || flags.has(Flags::RELINKS) && structs::labels::indexes() > 0
}

/// Returns the database that a request selects, of so many. `None`: it selects none.
pub(crate) fn selected_by(row: &Resolved, argv: &[&[u8]], databases: u32) -> Option<DbIndex> {
    match row.command.databases {
        Databases::Chosen => database(argv.get(1)?, databases),
        _ => None,
    }
}

/// Returns the database that a word names, of so many. `None`: it names none.
pub(crate) fn database(word: &[u8], databases: u32) -> Option<DbIndex> {
    let number = structs::numbers::parse_i64(word)?;
    u32::try_from(number).ok().filter(|&db| db < databases).map(DbIndex)
}

/// The queue of a transaction, and what EXEC has to know of all its commands.
#[derive(Default)]
pub struct Multi {
    queue: Vec<Queued>,
    keys: RequestKeys,
    /// Flags that any of the commands has.
    flags_of_any: Flags,
    may_not_load: bool,
    may_not_be_stale: bool,
    needs_world: bool,
    /// A command does more than to read or change keys that it names, in the selected database.
    must_stay: bool,
    /// A command concerns the client's connection in a way that no script may.
    must_stay_beside_scripts: bool,
    has_scripts: bool,
    bytes: usize,
    /// The database that a queued command selects, if any does.
    selected: Option<DbIndex>,
    /// A command could not be queued, so EXEC will refuse.
    pub is_broken: bool,
}

impl Multi {
    /// Adds a command that has these flags.
    pub(crate) fn push(
        &mut self,
        keyspace: &Keyspace,
        row: &'static Resolved,
        flags: Flags,
        argv: &[&[u8]],
    ) {
        let words = Words::new(argv);
        self.keys.add(keyspace, row.command, argv);
        self.flags_of_any = self.flags_of_any.with(flags);
        self.may_not_load |= !flags.has(Flags::LOADING);
        self.may_not_be_stale |= !flags.has(Flags::STALE);
        self.needs_world |= row.needs_world(argv);
        let is_script = row.command.script.is_some();
        let must_stay = !flags.any(Flags::READONLY.with(Flags::WRITE))
            || flags.any(Flags::WALKS.with(Flags::WORLD).with(Flags::CROSSES_DATABASES))
            || row.command.keys.is_empty();
        self.must_stay |= must_stay || is_script;
        self.must_stay_beside_scripts |= flags.has(Flags::NOSCRIPT) && !is_script;
        self.has_scripts |= is_script;
        self.bytes += words.memory_bytes();
        self.selected = selected_by(row, argv, keyspace.databases()).or(self.selected);
        self.queue.push(Queued { row, words });
    }
    /// The database that the next command will find selected, if a queued one selects any.
    pub(crate) fn selected(&self) -> Option<DbIndex> {
        self.selected
    }
    /// The keys of all commands.
    pub(crate) fn keys(&self) -> &RequestKeys {
        &self.keys
    }
    /// Whether a command has any of these flags.
    pub(crate) fn has_any(&self, flags: Flags) -> bool {
        self.flags_of_any.any(flags)
    }
    /// Whether a command may not run while the data set is loaded.
    pub(crate) fn may_not_load(&self) -> bool {
        self.may_not_load
    }
    /// Whether a command may not run on a replica that has lost its primary.
    pub(crate) fn may_not_be_stale(&self) -> bool {
        self.may_not_be_stale
    }
    /// Whether a command needs the world stopped.
    pub(crate) fn needs_world(&self) -> bool {
        self.needs_world || reaches(self.flags_of_any)
    }
    /// Whether the commands may run as one [long command](crate::long).
    pub(crate) fn may_be_put_off(&self) -> bool {
        !self.must_stay && !self.needs_world() && !self.is_broken && self.keys.check().is_ok()
    }
    /// Whether there are scripts, and the queue may run on another thread than that of its client.
    pub(crate) fn has_scripts_elsewhere(&self) -> bool {
        self.has_scripts && !self.must_stay_beside_scripts && !self.is_broken
    }
    /// Number of commands.
    pub fn len(&self) -> usize {
        self.queue.len()
    }
    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    /// Bytes of the queued words.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// The commands in order.
    pub fn queue(&self) -> &[Queued] {
        &self.queue
    }
}
