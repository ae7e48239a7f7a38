//! Repeating the history that the journal once held: how an append-only file is loaded.
//!
//! The commands run in the engine's own way, with their keys fetched and locked, for no client:
//! no gate stands in front of them, nothing blocks, nothing is journalled or counted as a change,
//! and no key is gone because its time has come. Keys that had expired are deleted by the history
//! itself, where it says so, so that what they were when a later command met them is what it was.
//! Commands of one key each run beside each other on several threads ([`crate::appliers`]).
//! Nothing else may change the data set meanwhile.

use crate::appliers::{Job, Manner, SharedCommands};
use crate::args::Args;
use crate::command::Flags;
use crate::cx::Cx;
use crate::dispatch;
use crate::engine::Engine;
use crate::error::Error;
use crate::lanes::{Lanes, Request};
use crate::session::Session;
use crate::table::Resolved;
use crate::thread::ThreadContext;
use crate::tier;
use keyspace::DbIndex;
use keyspace::keyspace::Taken;
use resp::Output;
use std::ops::Range;
use std::sync::Arc;

/// Commands between two moments at which the world can be stopped.
const AT_ONCE: usize = 1024;

/// Repeats history; see the module's documentation.
pub struct Replay<'t> {
    engine: &'static Engine,
    thread: &'t ThreadContext,
    session: Session,
    replies: Output,
    lanes: Lanes,
}

/// There is no such command, or not with so many words.
#[derive(Debug)]
pub struct Unknown {
    /// Its number in the list of commands.
    pub command: usize,
    /// Why, as a client would be told.
    pub error: Error,
}

/// Takes the keys of all databases and the libraries of functions away. Notifies no client and
/// journals nothing. The calling thread is outside the world, which it stops once no command or
/// script runs in the background. The caller has closed the gate for those that would begin
/// ([`Loading::begin`](crate::loading::Loading::begin)).
pub fn take_everything(engine: &Engine) -> Taken {
    let stopped = dispatch::stop_world_patiently(engine);
    let dbs: Vec<DbIndex> = engine.keyspace.used_databases().collect();
    let mut taken = Taken::default();
    engine.scripts.functions.flush();
    for stripe in engine.keyspace.stripes() {
        taken.take(&mut stripe.lock(), dbs.iter().copied());
    }
    drop(stopped);
    taken
}

/// A command as it is to be repeated.
enum Planned {
    Single(Job),
    Other { command: usize, row: &'static Resolved },
}

impl<'t> Replay<'t> {
    /// Begins in database 0. The thread must be outside the world.
    pub fn new(engine: &'static Engine, thread: &'t ThreadContext) -> Replay<'t> {
        let mut session = engine.own_session(thread);
        session.db = DbIndex(0);
        let lanes = Lanes::new(engine, thread);
        Replay { engine, thread, session, replies: Output::default(), lanes }
    }

    /// The database that is selected.
    pub fn db(&self) -> DbIndex {
        self.session.db
    }

    /// Repeats commands in order. Returns those that answered with an error, as they did not when
    /// they ran first, and changed nothing; the others were repeated all the same.
    ///
    /// # Errors
    /// The first that cannot be repeated; those before it were.
    pub fn run(&mut self, source: &Arc<SharedCommands>) -> Result<Vec<(usize, Error)>, Unknown> {
        let mut failures = Vec::new();
        let count = source.commands.len();
        for begin in (0..count).step_by(AT_ONCE) {
            let range = begin..count.min(begin + AT_ONCE);
            self.run_some(source, range, &mut failures)?;
        }
        Ok(failures)
    }

    fn run_some(
        &mut self,
        source: &Arc<SharedCommands>,
        commands: Range<usize>,
        failures: &mut Vec<(usize, Error)>,
    ) -> Result<(), Unknown> {
        let (thread, engine) = (self.thread, self.engine);
        let (mut planned, mut words) = (Vec::with_capacity(commands.len()), Vec::new());
        let mut outcome = Ok(());
        for command in commands {
            source.words(command, &mut words);
            match engine.table.resolve_logged(&words).map_err(Error::from) {
                Ok(row) => planned.push(match Job::of(engine, row, command, &words) {
                    Some(job) => Planned::Single(job),
                    None => Planned::Other { command, row },
                }),
                Err(error) => {
                    outcome = Err(Unknown { command, error });
                    break;
                }
            }
        }
        thread.reader.enter();
        let mut cx = Manner::File.context(engine, thread, &mut self.session, &mut self.replies);
        let mut rest = planned.as_slice();
        while let Some(first) = rest.first() {
            if let Planned::Other { command, row } = *first {
                source.words(command, &mut words);
                if let Err(error) = run_one(&mut cx, row, Args::new(&words)) {
                    failures.push((command, error));
                }
                rest = &rest[1..];
                continue;
            }
            let single = |planned: &Planned| match planned {
                Planned::Single(job) => Some(*job),
                Planned::Other { .. } => None,
            };
            let singles = rest.iter().take_while(|planned| single(planned).is_some()).count();
            let (now, later) = rest.split_at(singles);
            let jobs = now.iter().filter_map(single);
            rest = later;
            if engine.appliers.are_worth(singles) && keyspace::cold::entries() == 0 {
                let (manner, db) = (Manner::File, cx.db.index);
                let request = Request { manner, db, source: Arc::clone(source), jobs };
                failures.extend(engine.appliers.run(
                    engine,
                    thread,
                    &mut self.lanes,
                    request,
                    || (),
                ));
                continue;
            }
            let jobs: Vec<Job> = jobs.collect();
            failures.extend(Manner::File.run_jobs(&mut cx, source, &jobs));
        }
        cx.session.db = cx.db.index;
        drop(cx);
        thread.reader.leave();
        tier::make_room_for_load(engine, Some(&thread.reader));
        outcome
    }
}

/// Repeats a command that has another number of keys than one.
fn run_one(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<(), Error> {
    cx.resolved = row;
    if row.command.flags.has(Flags::WALKS) || row.needs_world(args.words()) {
        cx.thread.reader.leave();
        let stopped = cx.engine.keyspace.world().stop();
        cx.db.hold_world(stopped);
        let outcome = Manner::File.apply(cx, row, args);
        cx.db.locks.release_inside(&cx.thread.reader);
        return outcome;
    }
    cx.keys.clear();
    cx.find_keys(row, args);
    cx.keys.prefetch(&cx.engine.keyspace, cx.db.index);
    let need = cx.keys.stripes();
    cx.db.locks.acquire_patiently(need);
    Manner::File.run(cx, row, args)
}
