//! What a command did, until it is committed.

use crate::events::Event;
use crate::journal::{Effect, Entry, Journal};
use keyspace::DbIndex;

/// A change of one key.
#[derive(Debug)]
pub struct Change {
    pub(crate) db: DbIndex,
    pub(crate) key: Box<[u8]>,
    pub(crate) stripe: usize,
    pub(crate) event: Option<Event>,
    pub(crate) cause: Cause,
    /// Another report stands for the change itself; this one is only to be published.
    pub(crate) is_event_only: bool,
    /// The fields that the event is about, if these are to be published in place of the key alone.
    pub(crate) fields: Option<Vec<Box<[u8]>>>,
}

/// Why a key changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A command meant it to.
    Command,
    /// Its time had come: not the effect of a command, even if a command found it.
    Time,
}

/// What a batch of requests has staged for the journal ([`staging`](crate::staging)).
#[derive(Default, Debug)]
pub(crate) struct Staging {
    /// The request that runs may stage its entry: another one that joins follows.
    pub may_stage: bool,
    /// An entry of the session was staged, and its position is not known yet.
    pub is_pending: bool,
    /// Stripes carry marks of the thread.
    pub has_marks: bool,
}

/// What a command did, until it is committed.
#[derive(Default, Debug)]
pub struct Effects {
    pub(crate) dirty: u64,
    pub(crate) changes: Vec<Change>,
    /// Those of them that are deletions of keys whose time had come: no work of the request.
    pub(crate) expired: u64,
    /// What the journal gets.
    pub(crate) entry: Entry,
    /// What it has got of the batch so far.
    pub(crate) staging: Staging,
    /// The entry says what the request did, so that the request itself is not put there.
    pub(crate) is_rewritten: bool,
    /// A script has said that what it changes is not to be replicated (`redis.set_repl`).
    pub(crate) is_muted: bool,
    /// A transaction runs: its commands make one entry.
    pub(crate) is_transaction: bool,
    /// The history is repeated: it is in the journal, or wherever it came from, already.
    pub(crate) is_replay: bool,
    /// The stream of a primary is applied: the journal gets its bytes as they came.
    pub(crate) is_stream: bool,
    /// Keys for which blocked clients wait, to be served when the locks are free.
    pub(crate) ready: Vec<(DbIndex, Box<[u8]>)>,
}

/// The command that says that a key is gone.
pub(crate) fn deletion(is_lazy: bool) -> &'static [u8] {
    if is_lazy { b"UNLINK" } else { b"DEL" }
}

impl Effects {
    /// Whether the journal is to get an entry of what is done.
    #[inline]
    pub(crate) fn is_recorded(&self, journal: &Journal) -> bool {
        journal.is_recording() && !self.is_stream
    }

    /// Notes that a key was deleted which no command asked to delete; `is_lazy`: a replica may free
    /// it in the background.
    #[inline]
    pub(crate) fn propagate_deletion(
        &mut self,
        journal: &Journal,
        db: DbIndex,
        key: &[u8],
        is_lazy: bool,
    ) {
        if self.is_recorded(journal) {
            self.entry.command(db, &[deletion(is_lazy), key]);
        }
    }

    /// Notes that fields of a hash were deleted which no command asked to delete.
    pub(crate) fn propagate_field_deletion(
        &mut self,
        journal: &Journal,
        db: DbIndex,
        key: &[u8],
        fields: &[Box<[u8]>],
    ) {
        if self.is_recorded(journal) {
            self.entry.begin(db, fields.len() + 2);
            self.entry.word(b"HDEL");
            self.entry.word(key);
            fields.iter().for_each(|field| self.entry.word(field));
        }
    }

    pub(crate) fn propagate_as(&mut self, db: DbIndex, write: impl FnOnce(&mut Effect<'_>)) {
        self.is_rewritten = true;
        if !self.is_muted {
            write(&mut Effect::new(&mut self.entry, db));
        }
    }

    /// Forgets all of it: what was done is undone.
    pub(crate) fn forget(&mut self) {
        self.dirty = 0;
        self.changes.clear();
        self.expired = 0;
        self.entry.clear();
        self.is_rewritten = false;
        self.ready.clear();
    }

    /// The count of changes since the last commit, without keys whose time had come.
    pub(crate) fn take_dirty(&mut self) -> u64 {
        let own = self.dirty - self.expired;
        self.dirty = 0;
        self.expired = 0;
        own
    }
}
