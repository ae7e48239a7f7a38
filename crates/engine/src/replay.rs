//! Repeating the history that the journal once held: how an append-only file is loaded.
//!
//! The commands run in the engine's own way, with their keys fetched and locked, for no client:
//! no gate stands in front of them, nothing blocks, nothing is journalled or counted as a change,
//! and no key is gone because its time has come. Keys that had expired are deleted by the history
//! itself, where it says so, so that what they were when a later command met them is what it was.
//! Nothing else may change the data set meanwhile.

use crate::args::Args;
use crate::batch::fetch_stripe;
use crate::clients::Client;
use crate::command::Flags;
use crate::commit;
use crate::cx::Cx;
use crate::dispatch;
use crate::engine::Engine;
use crate::error::Error;
use crate::locks::Locked;
use crate::request_keys::{prefetch_bucket, prefetch_entry};
use crate::session::Session;
use crate::table::Resolved;
use crate::thread::ThreadContext;
use crate::tier;
use keyspace::{DbIndex, Millis};
use resp::Output;
use std::sync::Arc;

/// The row of each command, with stripe and hash of its only key.
type Rows = Vec<Option<(&'static Resolved, Option<(usize, u64)>)>>;

/// Repeats history; see the module's documentation.
pub struct Replay<'t> {
    engine: &'static Engine,
    thread: &'t ThreadContext,
    session: Session,
    replies: Output,
    rows: Rows,
}

/// A command that could not be repeated.
#[derive(Debug)]
pub enum ReplayError {
    /// There is no such command, or not with so many words.
    Unknown {
        /// Its place among the commands of the call.
        index: usize,
        /// Why, as a client would be told.
        error: Error,
    },
    /// It answered with an error, as it did not when it ran first. It changed nothing; the commands
    /// behind it were not repeated yet.
    Failed {
        /// Its place among the commands of the call.
        index: usize,
        /// Its answer.
        error: Error,
    },
}

impl<'t> Replay<'t> {
    /// Begins in database 0. The thread must be outside the world.
    pub fn new(engine: &'static Engine, thread: &'t ThreadContext) -> Replay<'t> {
        let client = Client::unconnected(0, thread.index, engine.clock.wall());
        let mut session = Session::new(Arc::new(client), engine.acl.default_user(), true);
        session.db = DbIndex(0);
        Replay { engine, thread, session, replies: Output::default(), rows: Vec::new() }
    }

    /// The database that is selected.
    pub fn db(&self) -> DbIndex {
        self.session.db
    }

    /// Repeats some commands in order.
    ///
    /// # Errors
    /// The first that cannot be repeated; those before it were.
    pub fn run(&mut self, commands: &[&[&[u8]]]) -> Result<(), ReplayError> {
        let (engine, thread) = (self.engine, self.thread);
        self.replies.clear();
        thread.reader.enter();
        let mut cx =
            Cx::new(engine, thread, &mut self.session, engine.clock.wall(), &mut self.replies);
        cx.db.horizon = Millis(i64::MIN);
        cx.db.effects.is_replay = true;
        cx.in_transaction = true;
        let outcome = run_all(&mut cx, commands, &mut self.rows);
        cx.session.db = cx.db.index;
        drop(cx);
        thread.reader.leave();
        tier::make_room_for_load(engine, Some(&thread.reader));
        outcome
    }
}

fn run_all(cx: &mut Cx<'_>, commands: &[&[&[u8]]], rows: &mut Rows) -> Result<(), ReplayError> {
    let keyspace = &cx.engine.keyspace;
    rows.clear();
    for words in commands {
        let row = cx.engine.table.resolve_logged(words).ok();
        rows.push(row.map(|row| (row, fetch_stripe(cx.engine, row, words))));
    }
    let keys = || rows.iter().filter_map(|row| row.as_ref()?.1);
    keys().for_each(|(stripe, hash)| prefetch_bucket(keyspace.stripe(stripe), cx.db.index, hash));
    keys().for_each(|(stripe, hash)| prefetch_entry(keyspace.stripe(stripe), cx.db.index, hash));
    for (index, (words, row)) in commands.iter().zip(rows.iter()).enumerate() {
        let Some((row, key)) = *row else {
            let Err(error) = cx.engine.table.resolve_logged(words) else { continue };
            return Err(ReplayError::Unknown { index, error });
        };
        let args = match key {
            Some((_, hash)) => Args::new(words).with_hash(row.single_key, hash),
            None => Args::new(words),
        };
        let outcome = run_one(cx, row, args, key);
        cx.reply.truncate(0);
        outcome.map_err(|error| ReplayError::Failed { index, error })?;
    }
    Ok(())
}

fn run_one(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
    key: Option<(usize, u64)>,
) -> Result<(), Error> {
    cx.resolved = row;
    if row.command.flags.has(Flags::WALKS) || row.needs_world(args.words()) {
        cx.thread.reader.leave();
        let stopped = cx.engine.keyspace.world().stop();
        cx.db.hold_world(stopped);
        let outcome = apply(cx, row, args);
        cx.db.locks.release_inside(&cx.thread.reader);
        return outcome;
    }
    let need = match key {
        Some((stripe, _)) => Locked::One(stripe),
        None => {
            cx.keys.clear();
            cx.find_keys(row, args);
            cx.keys.prefetch(&cx.engine.keyspace, cx.db.index);
            cx.keys.stripes()
        }
    };
    cx.db.locks.acquire_patiently(need);
    let outcome = apply(cx, row, args);
    cx.db.locks.release();
    outcome
}

fn apply(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Error> {
    let outcome = dispatch::run_row(cx, row, args);
    cx.block_request = None;
    commit::commit(cx, args);
    cx.db.effects.ready.clear();
    outcome
}
