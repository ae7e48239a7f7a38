//! A copy of some slots for another server: what is in them, and what changes from then on.
//!
//! A walk takes the slots' tables piece by piece, each piece under the lock of its stripe. Behind
//! the piece's position in the journal every entry about its keys is sent on, before it none is:
//! the piece has what it did. So the walk and the journal meet at each piece, nothing has to be
//! kept meanwhile, and no hook is in the way of snapshots. [`boundary`] says which keys are taken.
//!
//! An entry about several keys of which some are taken and others are not can be neither sent nor
//! left out. Then those that are taken count as not taken, and are taken again. The same holds for
//! values that are too big to be copied under a lock, or on flash, or in a long command's hand:
//! they are taken one by one, while they are held as a long command's keys are.
//!
//! `docs/internals/slot-moves.md` has the whole.

mod boundary;
mod stream;

use crate::clients::forwarding::push_words;
use crate::cold_values::with_value;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::held_keys::NamedKey;
use crate::journal::{IfBehind, JournalPos, Reader as JournalReader};
use crate::long;
use crate::mailbox::recheck_all;
use crate::membership::each;
use crate::thread::ThreadContext;
use crate::value;
use boundary::Boundary;
use cluster::slots::Slots;
use keyspace::world::Reader as WorldReader;
use keyspace::{DbIndex, Entry, Key, Millis, Slot, StripeData, TableId};
use rdb::Compression;
use resp::Output;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::mpsc::channel;
use std::time::Duration;
use stream::Stream;
use structs::sync::lock;

/// Bytes of values after which a piece ends.
const PIECE: usize = 32 << 10;
/// Homes of a table after which a piece ends.
const PIECE_HOMES: usize = 256;
/// A value that takes more memory is not copied under its stripe's lock.
const MAX_COPIED: usize = 16 << 10;
/// A value that takes more memory is sent as requests that fill it: a payload has to fit into one
/// argument.
const MAX_PAYLOAD: usize = 64 << 20;
/// Keys that are taken together while they are held.
const HELD_TOGETHER: usize = 16;
/// For how long a thread that is copying its entry into the journal is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How far the journal may run ahead before the copy has to begin anew.
const MAX_LAG: u64 = 256 << 20;

/// Why the copy has to begin anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spoiled(pub &'static str);

/// A copy under way; see the head of this file. Dropping it lets requests for its slots go on.
pub struct Export {
    engine: &'static Engine,
    slots: Slots,
    /// There until the end.
    world: Option<WorldReader<'static>>,
    journal: JournalReader<'static>,
    boundary: Boundary,
    stream: Stream,
    /// What is to be sent.
    out: Vec<u8>,
    is_paused: bool,
}

impl Engine {
    /// Begins a copy of these slots. The caller is outside the world, and no thread of the
    /// engine's.
    pub fn export(&'static self, slots: &Slots) -> Export {
        let moves = &self.membership.moves;
        moves.begin_export();
        let spare = lock(&self.snapshots.readers).pop();
        let world = spare.unwrap_or_else(|| self.keyspace.world().register());
        let stopped = self.keyspace.world().stop();
        let journal = self.journal.read(IfBehind::CutOff);
        journal.allow(MAX_LAG);
        self.journal.forget_db();
        drop(stopped);
        Export {
            engine: self,
            slots: slots.clone(),
            world: Some(world),
            journal,
            boundary: Boundary::new(slots, self.keyspace.databases()),
            stream: Stream::default(),
            out: Vec::new(),
            is_paused: false,
        }
    }
}

impl Export {
    /// Takes a piece, if there is anything left to take, and what the journal has until then.
    ///
    /// # Errors
    /// The copy has to begin anew.
    pub fn step(&mut self) -> Result<(), Spoiled> {
        if self.boundary.has_pending() {
            self.take_held()
        } else if self.boundary.is_at_end() {
            self.follow()
        } else {
            self.take_piece()
        }
    }

    /// Whether everything is taken: only the journal is left.
    pub fn is_complete(&self) -> bool {
        self.boundary.is_at_end() && !self.boundary.has_pending()
    }

    /// What is to be sent next.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Bytes of the journal that were not looked at yet.
    pub fn lag(&self) -> u64 {
        self.engine.journal.position().0.saturating_sub(self.journal.position().0)
    }

    /// Looks at what the journal has just now.
    ///
    /// # Errors
    /// The copy has to begin anew.
    pub fn follow(&mut self) -> Result<(), Spoiled> {
        let readable = self.journal.readable();
        self.read(readable)
    }

    /// Lets requests for the slots wait, until [`Export::resume`]. Returns whether those that had
    /// begun have ended in time; if not, none waits. Afterwards nothing changes in the slots, and
    /// the copy is complete when this position is reached.
    pub fn pause(&mut self, patience: Duration) -> Option<JournalPos> {
        let (engine, moves) = (self.engine, &self.engine.membership.moves);
        moves.pause(&self.slots);
        self.is_paused = true;
        let began = engine.clock.now();
        loop {
            // A script on a background thread may run for long.
            let stopped = engine.keyspace.world().try_stop(|| engine.holds.has_scripts());
            if stopped.is_some() && !self.is_any_held() {
                moves.close(&self.slots);
                let end = engine.journal.position();
                drop(stopped);
                return Some(end);
            }
            drop(stopped);
            if engine.clock.elapsed(began) > patience {
                self.resume();
                return None;
            }
            engine.clock.rest(Duration::from_micros(500));
        }
    }

    /// Whether a long command holds a key of the slots. One that takes hold of its keys later sees
    /// that they are closed.
    fn is_any_held(&self) -> bool {
        let keyspace = &self.engine.keyspace;
        let is_meant = |hash| keyspace.slot_of(hash).is_some_and(|slot| self.boundary.has(slot));
        let stripes: BTreeSet<usize> = each(&self.slots).map(Slot::stripe).collect();
        self.engine.holds.any()
            && stripes.iter().any(|stripe| keyspace.stripe(*stripe).lock().holds_any(is_meant))
    }

    /// Lets requests for the slots wait for a moment, so that the target catches up. Those that had
    /// begun go on.
    pub fn slow_down(&mut self) {
        self.engine.membership.moves.pause(&self.slots);
        self.is_paused = true;
    }

    /// Lets requests for the slots go on.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.is_paused) {
            self.engine.membership.moves.resume(&self.slots);
            recheck_all(&self.engine.mailboxes);
        }
    }

    /// Looks at the journal up to this position, which is the end of an entry.
    ///
    /// # Errors
    /// The copy has to begin anew.
    pub fn follow_to(&mut self, end: JournalPos) -> Result<(), Spoiled> {
        let clock = &self.engine.clock;
        let began = clock.now();
        while self.journal.readable() < end {
            if clock.elapsed(began) > PATIENCE {
                return Err(Spoiled("a thread does not end its entry of the journal"));
            }
            clock.rest(Duration::from_micros(20));
        }
        self.read(end)
    }

    fn read(&mut self, end: JournalPos) -> Result<(), Spoiled> {
        while let Some(chunk) = self.journal.chunk(end) {
            let len = chunk.len();
            self.stream.add(&chunk);
            drop(chunk);
            if self.journal.advance(len) {
                recheck_all(&self.engine.mailboxes);
            }
            self.stream.sort_out(self.engine, &mut self.boundary, &mut self.out)?;
        }
        match self.journal.is_cut_off() {
            true => Err(Spoiled("the journal ran too far ahead")),
            false => Ok(()),
        }
    }

    fn take_piece(&mut self) -> Result<(), Spoiled> {
        let Some((db, slot, from)) = self.boundary.next() else { return Ok(()) };
        let mut piece = Piece { commands: Vec::new(), keys: 0, later: Vec::new() };
        let world = self.world.as_ref().expect("it goes with the copy");
        world.enter();
        let data = self.engine.keyspace.stripe(slot.stripe()).lock();
        let (mut at, mut homes) = (Some(from), 0);
        while let Some(from) = at
            && piece.commands.len() < PIECE
            && homes < PIECE_HOMES
        {
            let id = TableId { db, slot: Some(slot) };
            at = data.scan(id, from, |entry| piece.take(&data, entry));
            homes += 1;
        }
        // Entries about keys of this stripe are added under its lock.
        let position = self.engine.journal.position();
        drop(data);
        world.leave();
        self.delay(piece.keys);
        self.follow_to(position)?;
        self.boundary.advance(at);
        if !piece.commands.is_empty() {
            self.stream.select(db, &mut self.out);
            self.out.extend_from_slice(&piece.commands);
        }
        piece.later.into_iter().for_each(|key| self.boundary.postpone(db, &key));
        Ok(())
    }

    /// Applies `rdb-key-save-delay`, for tests.
    fn delay(&self, keys: u32) {
        let each = self.engine.config.rdb_key_save_delay();
        if let Ok(each) = u64::try_from(each)
            && each > 0
        {
            self.engine.clock.rest(Duration::from_micros(each.saturating_mul(keys.into())));
        }
    }

    fn take_held(&mut self) -> Result<(), Spoiled> {
        let (db, keys) = self.boundary.pending(HELD_TOGETHER);
        let engine = self.engine;
        let (done, outcome) = channel();
        let named = keys.clone();
        let job = move |thread: &ThreadContext| {
            // The thread that asks waits for it.
            let _ = done.send(read_held(engine, thread, db, &named));
        };
        engine.background.run_waiting(Box::new(job));
        let read = outcome.recv().ok().flatten();
        let (position, commands) = read.ok_or(Spoiled("a value could not be read"))?;
        self.follow_to(position)?;
        self.stream.select(db, &mut self.out);
        self.out.extend_from_slice(&commands);
        keys.iter().for_each(|key| self.boundary.settle(db, key));
        Ok(())
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.resume();
        self.engine.membership.moves.end_export();
        if let Some(world) = self.world.take() {
            lock(&self.engine.snapshots.readers).push(world);
        }
    }
}

/// What was taken under a lock.
struct Piece {
    /// Commands that make the keys.
    commands: Vec<u8>,
    /// How many keys these are.
    keys: u32,
    /// Keys that are taken later.
    later: Vec<Box<[u8]>>,
}

impl Piece {
    fn take(&mut self, data: &StripeData, entry: &Entry) {
        let key = entry.key();
        let is_small = !entry.is_cold() && entry.memory_usage() <= MAX_COPIED;
        if is_small && !data.is_held(Key::new(key).hash) {
            let payload = rdb::dump(value::view(entry).object(), Compression::Off);
            push_restore(&mut self.commands, key, entry.expiry(), &payload);
            self.keys += 1;
        } else {
            self.later.push(Box::from(key));
        }
    }
}

/// Reads some keys while they are held. Returns the commands that make or delete them, and the
/// position at that moment. `None`: they cannot be held or read.
fn read_held(
    engine: &'static Engine,
    thread: &ThreadContext,
    db: DbIndex,
    keys: &[Box<[u8]>],
) -> Option<(JournalPos, Vec<u8>)> {
    let mut session = engine.own_session(thread);
    session.db = db;
    let mut out = Output::default();
    let mut cx = Cx::new(engine, thread, &mut session, engine.clock.wall(), &mut out);
    let named = keys.iter().map(|bytes| {
        let key = Key::new(bytes);
        let stripe = engine.keyspace.stripe_of(key);
        NamedKey { bytes: bytes.clone(), hash: key.hash, stripe, writes: false }
    });
    long::look_at_held(&mut cx, named.collect(), |cx| {
        let position = engine.journal.position();
        let mut commands = Vec::new();
        for key in keys {
            match cx.db.lookup_no_effects(Key::new(key)) {
                Some(entry) => {
                    let push = |entry: &Entry| push_value(&mut commands, key, entry);
                    with_value(engine, entry, push).ok()?;
                }
                None => push_words(&mut commands, &[b"DEL", key]),
            }
        }
        Some((position, commands))
    })
    .flatten()
}

/// Appends the commands that make a key.
fn push_value(out: &mut Vec<u8>, key: &[u8], entry: &Entry) {
    if entry.memory_usage() > MAX_PAYLOAD {
        let begin = out.len();
        push_words(out, &[b"DEL", key]);
        let push = &mut |words: &[&[u8]]| -> Result<(), Infallible> {
            push_words(out, words);
            Ok(())
        };
        if rdb::fill(value::view(entry).object(), key, push) == Ok(true) {
            let Some(expiry) = entry.expiry() else { return };
            let Ok(()) = rdb::expire_at(key, expiry.0, push);
            return;
        }
        out.truncate(begin);
    }
    let payload = rdb::dump(value::view(entry).object(), Compression::Off);
    push_restore(out, key, entry.expiry(), &payload);
}

fn push_restore(out: &mut Vec<u8>, key: &[u8], expiry: Option<Millis>, payload: &[u8]) {
    let at = expiry.map(|at| at.0.max(1).to_string());
    match &at {
        Some(at) => {
            push_words(out, &[b"RESTORE", key, at.as_bytes(), payload, b"REPLACE", b"ABSTTL"])
        }
        None => push_words(out, &[b"RESTORE", key, b"0", payload, b"REPLACE"]),
    }
}
