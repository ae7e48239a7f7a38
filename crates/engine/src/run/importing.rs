//! Slots that arrive as a copy, from the server that has them: the connection that brings it, and
//! dropping what it has brought.
//!
//! The connection sends commands like a client's, but for slots that are not this server's, and
//! gets no replies. Nothing ends for it because its time has come: the other server says so. The
//! first command that fails ends the connection, and so does FLUSHALL, because what was copied is
//! gone.

use crate::args::Args;
use crate::blocking::{Resumption, Suspension, TimeoutReply};
use crate::command::{Flags, Group};
use crate::commit;
use crate::cx::Cx;
use crate::dispatch::{self, NotNow};
use crate::engine::Engine;
use crate::error::Error;
use crate::journal::JournalPos;
use crate::mailbox::Message;
use crate::membership::each;
use crate::session::Fate;
use crate::table::Resolved;
use crate::thread::ThreadContext;
use cluster::id::Id;
use cluster::slots::{COUNT, Slots};
use keyspace::snapshot::{Touch, Urgency};
use keyspace::{DbIndex, Key, Slot, TableId};
use resp::{Output, Reply};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use structs::table::ScanPosition;

/// Keys that are deleted under a lock at a time.
const TOGETHER: usize = 64;

/// Homes of a table that are looked at under a lock at a time.
const HOMES_TOGETHER: usize = 256;

const UNWANTED: &str = "ERR The copy of the slots is not wanted any more";

/// How long a thread rests when a snapshot or a long command needs the keys.
const REST: Duration = Duration::from_millis(1);

impl Engine {
    /// Returns how many keys of a slot this server has, in all databases.
    pub fn slot_keys(&self, slot: u16) -> usize {
        let Some(slot) = Slot::new(slot) else { return 0 };
        let stripe = self.keyspace.stripe(slot.stripe()).lock();
        self.keyspace.used_databases().map(|db| stripe.slot_key_count(db, slot)).sum()
    }

    /// Deletes the keys of these slots, which are no client's any more, or not yet. Returns whether
    /// all are gone; they are not if `goes_on` is false first. It is asked under the lock of the
    /// keys. The caller is no thread of the engine's.
    pub fn drop_slots(
        &'static self,
        slots: &Slots,
        goes_on: impl Fn() -> bool + Clone + Send + 'static,
    ) -> bool {
        each(slots).all(|slot| {
            let (done, outcome) = channel();
            let goes_on = goes_on.clone();
            let job = move |thread: &ThreadContext| {
                // The thread that asks waits for it.
                let _ =
                    done.send(drop_slot(self, thread, slot, &goes_on, &|_| true) != Ended::Early);
            };
            self.background.run(Box::new(job));
            outcome.recv() == Ok(true)
        })
    }

    /// Deletes the keys that other shards have by the database's hashing rules, as long as this
    /// server leads and the rules do not change. Returns how many there were. `None`: some may be
    /// left. The caller is no thread of the engine's.
    pub fn drop_foreign(&'static self) -> Option<usize> {
        let rules = self.membership.newest()?.hashing().clone();
        let (done, outcome) = channel();
        let job = move |thread: &ThreadContext| {
            let goes_on = || {
                self.membership.newest().is_some_and(|it| {
                    it.leads && it.next().is_none() && Arc::ptr_eq(it.hashing(), &rules)
                })
            };
            let is_foreign = |key: &[u8]| {
                self.membership.newest().is_some_and(|it| it.is_of_other_shard(Key::new(key)))
            };
            let mut dropped = Some(0);
            for slot in (0..COUNT).filter_map(Slot::new) {
                let Some(sum) = dropped else { break };
                dropped = match drop_slot(self, thread, slot, &goes_on, &is_foreign) {
                    Ended::Early => None,
                    Ended::AfterAll(keys) => Some(sum + keys),
                };
            }
            // The thread that asks waits for it.
            let _ = done.send(dropped);
        };
        self.background.run(Box::new(job));
        outcome.recv().ok().flatten()
    }
}

impl Cx<'_> {
    /// Makes the session one that brings a copy of these slots for this job. What is in them is
    /// dropped; then it gets `+OK`. Returns false if another one has brought its copy, and waits
    /// for the decision.
    #[must_use]
    pub fn begin_import(&mut self, job: Id, slots: Slots) -> bool {
        let engine = self.engine;
        let Some(number) = engine.membership.moves.begin_import(job, slots.clone()) else {
            return false;
        };
        self.session.set_import(Some(number));
        // The view may have changed since the request was looked at.
        let newest = engine.membership.newest();
        if !newest.is_some_and(|published| published.expects_copy(job)) {
            engine.membership.moves.end_imports(|other| other == job);
        }
        let token = self.session.suspend(self.thread, Suspension::background(TimeoutReply::Null));
        let (client, reactor) = (self.session.id(), self.session.client.thread);
        let protocol = self.reply.protocol();
        let job = move |thread: &ThreadContext| {
            // A later connection for these slots may bring its copy already.
            let is_wanted = || engine.membership.moves.import(number).is_some();
            let drop = |slot| drop_slot(engine, thread, slot, &is_wanted, &|_| true);
            let is_done = each(&slots).all(|slot| drop(slot) != Ended::Early);
            let mut out = Output::default();
            let mut reply = Reply::new(&mut out, protocol);
            if is_done {
                reply.ok()
            } else {
                reply.error(UNWANTED)
            }
            let resumption = Resumption::new(Some(token), out, JournalPos(0));
            engine.mailboxes[reactor].post(Message::Resume(client, resumption));
        };
        engine.background.run(Box::new(job));
        true
    }
}

/// How the deletion of some keys has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// So many keys were meant, and are gone.
    AfterAll(usize),
    /// The rest is not to be dropped.
    Early,
}

/// Deletes those keys of a slot that `is_meant` names, some at a time, as long as `goes_on`.
fn drop_slot(
    engine: &'static Engine,
    thread: &ThreadContext,
    slot: Slot,
    goes_on: &dyn Fn() -> bool,
    is_meant: &dyn Fn(&[u8]) -> bool,
) -> Ended {
    let mut session = engine.own_session(thread);
    let mut out = Output::default();
    let mut cx = Cx::new(engine, thread, &mut session, engine.clock.wall(), &mut out);
    let mut sum = 0;
    for db in engine.keyspace.used_databases() {
        let mut at = Some(ScanPosition::START);
        while let Some(from) = at {
            thread.reader.enter();
            let dropped = drop_some(&mut cx, db, slot, from, goes_on, is_meant);
            dispatch::serve_first(&mut cx);
            thread.reader.leave();
            match dropped {
                Dropped::UpTo(next, keys) => {
                    sum += keys;
                    at = next;
                }
                Dropped::Blocked => engine.clock.rest(REST),
                Dropped::Unwanted => return Ended::Early,
            }
        }
    }
    Ended::AfterAll(sum)
}

/// How far a slot is dropped.
enum Dropped {
    /// Where to go on, and how many keys were deleted.
    UpTo(Option<ScanPosition>, usize),
    /// A snapshot or a long command needs some of these keys.
    Blocked,
    /// The rest is not to be dropped.
    Unwanted,
}

/// Deletes some keys of a slot, from a position on.
fn drop_some(
    cx: &mut Cx<'_>,
    db: DbIndex,
    slot: Slot,
    from: ScanPosition,
    goes_on: &dyn Fn() -> bool,
    is_meant: &dyn Fn(&[u8]) -> bool,
) -> Dropped {
    let stripe = slot.stripe();
    if !cx.db.locks.try_acquire(stripe) {
        return Dropped::Blocked;
    }
    // A replica's primary does it. What is written later under this lock is not seen.
    if cx.engine.upstream.is_replica() || !goes_on() {
        cx.db.locks.release();
        return Dropped::Unwanted;
    }
    let (mut keys, mut homes, mut at) = (Vec::new(), 0, Some(from));
    let data = cx.db.locks.data(stripe);
    while let Some(from) = at
        && keys.len() < TOGETHER
        && homes < HOMES_TOGETHER
    {
        let id = TableId { db, slot: Some(slot) };
        at = data.scan(id, from, |entry| {
            keys.extend(is_meant(entry.key()).then(|| Box::<[u8]>::from(entry.key())));
        });
        homes += 1;
    }
    let mut is_blocked = false;
    cx.db.in_db(db, |db| {
        for key in keys.iter().map(|key| Key::new(key)) {
            let data = db.locks.data_mut(stripe);
            let is_needed = data.is_held(key.hash)
                || data.is_delayed(db.index, key.hash, Touch::Whole, Urgency::None);
            is_blocked |= is_needed;
            if !is_needed && let Some(entry) = db.take(key) {
                db.discard(entry);
                let (journal, index) = (&db.engine.journal, db.index);
                db.effects.propagate_deletion(journal, index, key.bytes, true);
                // Where the key is served it lives on, so no event says that it was deleted.
                db.changed_silently(key);
            }
        }
    });
    commit::commit_outside(&mut cx.db);
    cx.db.locks.release();
    if is_blocked { Dropped::Blocked } else { Dropped::UpTo(at, keys.len()) }
}

/// Whether a request's reply is sent to the server that brings a copy.
fn is_answered(row: &Resolved) -> bool {
    row.command.keys.is_empty() && row.command.group != Group::Connection
}

/// Runs one request of a connection that brings a copy.
#[cold]
pub(crate) fn process_of_import(
    cx: &mut Cx<'_>,
    resolved: Option<&'static Resolved>,
    args: Args<'_>,
) -> Result<(), NotNow> {
    let started = cx.reply.place();
    let row = resolved.or_else(|| cx.engine.table.resolve(args.words()).ok());
    dispatch::process(cx, resolved, args)?;
    if row.is_some_and(is_answered) {
        return Ok(());
    }
    if let Some(suspension) = &mut cx.session.suspension {
        suspension.is_silent = true;
    }
    if cx.reply.first_since(started) == Some(b'-') {
        cx.session.fate = Fate::CloseAfterReplies;
    } else {
        cx.reply.truncate(started);
        // What is not sent cannot be replaced if its write is not confirmed in time.
        cx.session.write_replies.retain(|reply| reply.end <= started);
    }
    Ok(())
}

/// Whether a request on a connection that brings a copy is about the slots that it brings.
///
/// # Errors
/// It is not, or the copy is of no use any more.
pub(crate) fn check_slots(
    cx: &mut Cx<'_>,
    number: u64,
    row: &Resolved,
    args: Args<'_>,
) -> Result<(), Error> {
    // It is looked at again under the locks of its keys: there may be another connection for the
    // slots then.
    cx.session.checks_slot = true;
    // The first question of the source comes when it has sent all keys.
    if is_answered(row) {
        let now_s = u64::try_from(cx.now().0 / 1000).unwrap_or(0);
        cx.engine.membership.moves.note_whole(number, now_s);
    }
    if row.command.keys.is_empty() || row.command.flags.has(Flags::RUNS_QUEUE) {
        return Ok(());
    }
    cx.find_keys(row, args);
    check_wanted(cx, number)
}

/// Whether the connection with this number still brings a copy of the slots of the request's keys.
///
/// # Errors
/// It does not.
pub(crate) fn check_wanted(cx: &mut Cx<'_>, number: u64) -> Result<(), Error> {
    let leads = cx.membership().is_some_and(|published| published.leads);
    let moves = &cx.engine.membership.moves;
    let mut slots = cx.keys.iter().filter_map(|key| key.slot(&cx.engine.keyspace));
    match leads && slots.all(|slot| moves.imports_slot(number, slot.number())) {
        true => Ok(()),
        false => Err(Error::text(UNWANTED)),
    }
}
