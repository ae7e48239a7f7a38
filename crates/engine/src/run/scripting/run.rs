//! Runs scripts: chooses the locks and the thread, and tries again with others if the choice was
//! wrong.

use super::eval::{killed_error, note_memory};
use crate::args::Args;
use crate::background::GAP;
use crate::blocking::{Suspension, TimeoutReply};
use crate::clients::Unfinished;
use crate::cold;
use crate::command::{Flags, ScriptName};
use crate::commit;
use crate::cx::Cx;
use crate::db::UndoLog;
use crate::dispatch::{self, is_held_back};
use crate::engine::Engine;
use crate::error::NotNow;
use crate::evict::{Claim, Reclaimed, reclaim};
use crate::locks::{Busy, Locked};
use crate::long;
use crate::monitor;
use crate::scripts::{Attempt, Kind, RunningScript, RunsOn, Target, Verdict, parse_sha};
use crate::session::Session;
use crate::table::Resolved;
use crate::thread::ThreadContext;
use crate::words::Words;
use resp::Output;
use script::shebang::{ScriptFlags, parse_script};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The longest time for which a script on a background thread keeps others from stopping the world.
const MAX_MIN_TIME: Duration = Duration::from_millis(100);

/// How a script is locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Declared,
    World,
}

/// Returns what a request is about to run, if that is known.
fn identify(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> Option<Target> {
    let scripts = &cx.engine.scripts;
    let sha = match row.command.script? {
        ScriptName::Function => {
            let (library, function) = scripts.functions.find(args[1])?;
            return Some(Target::Function(library, function));
        }
        ScriptName::Digest => parse_sha(args[1])?,
        ScriptName::Source => structs::sha1::sha1(args[1]),
    };
    cx.thread.scripts.borrow_mut().find(scripts, &sha).map(Target::Script)
}

/// Returns the flags of a request that runs a script or a function. A script says in its first line
/// whether it writes, a function when it is registered. Returns `None` if it is another request, or
/// if nothing is said.
pub(crate) fn request_flags(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> Option<Flags> {
    let name = row.command.script?;
    let said = match identify(cx, row, args) {
        Some(Target::Script(script)) => script.flags,
        Some(Target::Function(_, function)) => Some(function.spec.flags),
        // The compiler will report what is wrong with it.
        None if name == ScriptName::Source => parse_script(args[1]).ok()?.flags,
        None => None,
    };
    let only_reads = said?.has(ScriptFlags::NO_WRITES);
    let flags = row.command.flags.without(Flags::MAY_REPLICATE);
    Some(if only_reads { flags } else { flags.with(Flags::WRITE) })
}

// ---- dispatch -----------------------------------------------------------------------------

/// Runs a request of a script on a reactor.
pub(crate) fn dispatch(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
) -> Result<(), NotNow> {
    let target = identify(cx, row, args);
    // A script or function that does not exist gets an error.
    let is_missing = target.is_none() && row.command.script != Some(ScriptName::Source);
    let declares = target.as_ref().is_some_and(|target| target.learned().declares_keys());
    let mut mode = if declares || is_missing { Mode::Declared } else { Mode::World };
    let is_limited = cx.engine.config.maxmemory() > 0;
    let reclaimed = if is_limited { reclaim(&mut cx.db, Claim::Memory) } else { Reclaimed::Enough };
    if reclaimed == Reclaimed::DiskIsBehind && !row.command.flags.has(Flags::READONLY) {
        // Its writes cannot wait one by one.
        cx.engine.tier.throttled.add(1);
        return Err(NotNow::Held);
    }
    let is_out_of_memory = reclaimed == Reclaimed::Nothing;
    // The thread that serves operators runs none itself, since it must stay free.
    let is_long = target.as_ref().is_some_and(|target| target.learned().is_long());
    if is_long || cx.thread.is_for_operators && !is_missing {
        begin_in_background(cx, row, args, mode, is_out_of_memory);
        return Ok(());
    }
    cx.find_keys(row, args);
    let declared = cx.keys.stripes();
    loop {
        if let Err(reason) = lock(cx, row, args, mode, &declared) {
            return dispatch::wait_or_refuse(cx, row, reason);
        }
        if keyspace::cold::entries() > 0
            && let Some(fetched) = cold::fetch_missing(cx, row, args)
        {
            unlock(cx, mode);
            return dispatch::wait_for_values(cx, row, fetched);
        }
        cx.start_timing();
        let attempt = Attempt::new(target.clone(), RunsOn::Reactor, &declared, is_out_of_memory);
        let verdict = run_once(cx, row, args, attempt, mode);
        if verdict.is_none() {
            dispatch::finish(cx, args);
            dispatch::serve_first(cx);
        }
        unlock(cx, mode);
        match verdict {
            None | Some(Verdict::Killed) => return Ok(()),
            Some(Verdict::NeedsWorld) => mode = Mode::World,
            Some(Verdict::Retry(reason)) => return dispatch::wait_or_refuse(cx, row, reason),
            Some(Verdict::TakesLong) => {
                begin_in_background(cx, row, args, mode, is_out_of_memory);
                return Ok(());
            }
        }
    }
}

fn lock(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
    mode: Mode,
    declared: &Locked,
) -> Result<(), NotNow> {
    if mode == Mode::World {
        return dispatch::stop_world(cx);
    }
    cx.db.locks.acquire(declared.clone()).map_err(|Busy| NotNow::Busy)?;
    let may_have_to_wait = cx.engine.holds.any() || cx.engine.snapshots.is_running();
    if may_have_to_wait && is_held_back(cx, row, args) {
        cx.db.locks.release();
        return Err(NotNow::Held);
    }
    Ok(())
}

/// Gives back what the script held; the turn last.
fn unlock(cx: &mut Cx<'_>, mode: Mode) {
    release(cx, mode);
    end_turn(cx);
}

/// Unlocks everything; the thread is inside the world afterwards.
fn release(cx: &mut Cx<'_>, mode: Mode) {
    match mode {
        Mode::World => cx.db.locks.release_inside(&cx.thread.reader),
        Mode::Declared => cx.db.locks.release(),
    }
}

fn end_turn(cx: &mut Cx<'_>) {
    if std::mem::take(&mut cx.holds_turn) {
        cx.engine.scripts.end_turn();
        cx.engine.holds.recheck(&cx.engine.mailboxes);
    }
}

/// Takes the turn: from then on the script may change what it cannot undo, and may wait for
/// stripes.
///
/// # Errors
/// Another script has it, or a long command holds keys and may come to want this script's stripes.
pub(super) fn take_turn(cx: &mut Cx<'_>) -> Result<(), NotNow> {
    if !cx.engine.scripts.take_turn() {
        return Err(NotNow::Busy);
    }
    // No long command begins from here on, but one that began before may hold the keys.
    if cx.engine.holds.blocks_turn() {
        cx.engine.scripts.end_turn();
        return Err(NotNow::Held);
    }
    cx.holds_turn = true;
    Ok(())
}

/// Runs the script once. A verdict other than *killed* says that nothing has happened.
fn run_once(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
    mut attempt: Attempt,
    mode: Mode,
) -> Option<Verdict> {
    let scripts = &cx.engine.scripts;
    let place = attempt.place;
    let can_be_undone = place == RunsOn::Reactor || mode == Mode::Declared;
    cx.db.undo = can_be_undone.then(UndoLog::default);
    attempt.started = cx.last_end;
    if mode == Mode::World {
        scripts.stopped_world.fetch_add(1, Relaxed);
    }
    cx.attempt = Some(attempt);
    // The error, if any, is the reply.
    let _ = dispatch::call(cx, row, args);
    let attempt = cx.attempt.take()?;
    let learned = attempt.target.as_ref().map(Target::learned);
    match attempt.verdict {
        None => {
            cx.db.undo = None;
            if let Some(learned) = learned {
                if mode == Mode::World || attempt.touched_undeclared {
                    learned.note_run(attempt.touched_undeclared);
                }
                let clock = &cx.thread.clock;
                let is_short = clock.nanoseconds(attempt.started, clock.now()) < 1_000_000;
                if is_short {
                    learned.note_short(attempt.shape);
                }
            }
            None
        }
        Some(Verdict::Killed) => {
            cx.db.undo = None;
            None
        }
        verdict => {
            cx.db.undo_all();
            if let Some(running) = &attempt.running {
                running.forget_write();
            }
            scripts.restarted.fetch_add(1, Relaxed);
            match (verdict, learned) {
                (Some(Verdict::NeedsWorld), Some(learned)) => learned.note_run(true),
                (Some(Verdict::TakesLong), Some(learned)) => learned.note_long(),
                _ => {}
            }
            verdict
        }
    }
}

// ---- on a background thread ---------------------------------------------------------------

/// A script on its way to a background thread.
struct Job {
    row: &'static Resolved,
    words: Words,
    session: Session,
    touches: bool,
    token: u64,
    mode: Mode,
    is_out_of_memory: bool,
    /// Dropped when it has ended.
    _unfinished: Option<Unfinished>,
}

#[cold]
fn begin_in_background(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
    mode: Mode,
    is_out_of_memory: bool,
) {
    if cx.engine.scripts.running.is_busy() && cx.engine.background.has_no_script_thread() {
        return dispatch::refuse_busy(cx, row);
    }
    let suspension = Suspension::background(TimeoutReply::Null);
    let token = cx.session.suspend(cx.thread, suspension);
    let mut session = cx.session.guest();
    session.db = cx.db.index;
    if row.command.flags.has(Flags::RUNS_QUEUE) {
        session.set_multi(cx.session.take_multi());
        session.watching = cx.session.watching.take();
    }
    session.output_room = cx.session.output_room;
    cx.session.commands += 1;
    cx.session.last_command = row.index + 1;
    let words = Words::new(args.words());
    let touches = cx.db.touches;
    let engine = cx.engine;
    let _unfinished = long::may_write(row).then(|| engine.clients.keep(&session.client));
    let job = Job { row, words, session, touches, token, mode, is_out_of_memory, _unfinished };
    engine.background.run_script(Box::new(move |thread| job.run(engine, thread)));
}

impl Job {
    fn run(mut self, engine: &'static Engine, thread: &ThreadContext) {
        // No thread became free for it in time, so it is refused.
        let is_refused = !engine.background.is_for_scripts(thread.index - engine.mailboxes.len());
        if is_refused && !engine.scripts.running.is_busy() {
            engine.background.run_script(Box::new(move |thread| self.run(engine, thread)));
            return;
        }
        let words = self.words.to_vec();
        let args = Args::new(&words);
        let mut out = Output::default();
        let mut cx = Cx::new(engine, thread, &mut self.session, engine.clock.wall(), &mut out);
        cx.resolved = self.row;
        cx.db.touches = self.touches;
        if is_refused {
            refuse_busy(&mut cx, self.row);
        } else if self.row.command.flags.has(Flags::RUNS_QUEUE) {
            run_queue_patiently(&mut cx, self.row, args);
        } else {
            run_patiently(&mut cx, self.row, args, self.mode, self.is_out_of_memory);
        }
        cx.count_lookups();
        drop(cx);
        long::resume(engine, &mut self.session, self.token, out);
    }
}

/// Returns whether an EXEC is to run on a background thread: it has a script, which may not end,
/// and nothing that concerns its own session.
pub(crate) fn has_queue_of_scripts(cx: &Cx<'_>, row: &Resolved) -> bool {
    let is_exec = row.command.flags.has(Flags::RUNS_QUEUE);
    is_exec && cx.session.multi().is_some_and(|multi| multi.has_scripts_elsewhere())
}

/// Runs an EXEC with scripts on a background thread.
#[cold]
pub(crate) fn run_queue_in_background(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) {
    begin_in_background(cx, row, args, Mode::World, false);
}

/// Refuses a request on a background thread.
fn refuse_busy(cx: &mut Cx<'_>, row: &Resolved) {
    // Dropping it lets its keys be forgotten when that can be done.
    cx.session.watching = None;
    dispatch::refuse_busy(cx, row);
}

/// Runs an EXEC, whose scripts can be killed, but cannot begin again.
fn run_queue_patiently(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) {
    while dispatch::stop_world_from_outside(cx).is_err() {
        if cx.engine.scripts.running.is_busy() {
            return refuse_busy(cx, row);
        }
        cx.engine.clock.rest(GAP);
    }
    if let Err(error) = dispatch::check_again(cx, row) {
        release(cx, Mode::World);
        cx.thread.reader.leave();
        cx.session.watching = None;
        return dispatch::reject(cx, row, &error);
    }
    cx.start_timing();
    // The error, if any, is the reply.
    let _ = dispatch::call(cx, row, args);
    commit::commit(cx, args);
    dispatch::serve_ready(cx);
    if cx.engine.monitors.any() {
        monitor::feed(cx, row.command, args.words());
    }
    release(cx, Mode::World);
    dispatch::serve_first(cx);
    cx.thread.reader.leave();
    note_memory(cx);
}

/// Runs a script to its end, however often it has to begin again.
fn run_patiently(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
    mut mode: Mode,
    is_out_of_memory: bool,
) {
    let target = identify(cx, row, args);
    cx.find_keys(row, args);
    let declared = cx.keys.stripes();
    // From here on the script can be killed, in whichever attempt it is then.
    let kind = match target {
        Some(Target::Function(..)) => Kind::Function,
        _ => Kind::Script,
    };
    let words: Vec<Box<[u8]>> = args.words().iter().map(|&word| Box::from(word)).collect();
    let name = target.as_ref().map_or(&b""[..], Target::name);
    let running = Arc::new(RunningScript::new(kind, name, &words, cx.thread.clock.now()));
    cx.engine.scripts.running.add(&running);
    let mut spent = Duration::ZERO;
    cx.script_was_shown = false;
    loop {
        if !lock_patiently(cx, row, args, mode, &declared) {
            if cx.engine.scripts.running.is_busy_beside(&running) {
                cx.engine.scripts.running.remove(&running);
                return dispatch::refuse_busy(cx, row);
            }
            if running.is_killed() {
                let error = killed_error(kind, "");
                dispatch::refuse(cx, &error);
                return cx.engine.scripts.running.remove(&running);
            }
            cx.engine.clock.rest(GAP);
            continue;
        }
        if let Err(error) = dispatch::check_again(cx, row) {
            unlock_patiently(cx, mode);
            cx.engine.scripts.running.remove(&running);
            return dispatch::reject(cx, row, &error);
        }
        cx.start_timing();
        let mut attempt =
            Attempt::new(target.clone(), RunsOn::Background, &declared, is_out_of_memory);
        attempt.running = Some(Arc::clone(&running));
        attempt.min_time = spent.min(MAX_MIN_TIME);
        let started = cx.thread.clock.now();
        let verdict = run_once(cx, row, args, attempt, mode);
        spent += cx.thread.clock.elapsed(started);
        if verdict.is_none() {
            commit::commit(cx, args);
            dispatch::serve_ready(cx);
        }
        unlock_patiently(cx, mode);
        match verdict {
            None | Some(Verdict::Killed) => {
                if cx.engine.monitors.any() {
                    monitor::feed_failed_script(cx, row, args.words());
                }
                // The script ran for long, and this thread may not run another one soon.
                cx.engine.scripts.running.remove(&running);
                cx.thread.scripts.borrow().collect();
                note_memory(cx);
                return;
            }
            Some(Verdict::NeedsWorld) => mode = Mode::World,
            Some(Verdict::TakesLong | Verdict::Retry(_)) => cx.engine.clock.rest(GAP),
        }
    }
}

/// Locks, if that is possible now. Returns whether it did.
fn lock_patiently(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
    mode: Mode,
    declared: &Locked,
) -> bool {
    if mode == Mode::World {
        return dispatch::stop_world_from_outside(cx).is_ok();
    }
    // While the script runs no request asks the world to stop: it would wait for this script.
    cx.engine.holds.begin_script(&cx.engine.clock);
    cx.thread.reader.enter();
    if lock(cx, row, args, mode, declared).is_ok() {
        cx.engine.scripts.figures.note(&cx.db.locks, cx.db.now());
        return true;
    }
    cx.thread.reader.leave();
    cx.engine.holds.end_script(&cx.engine.mailboxes);
    false
}

fn unlock_patiently(cx: &mut Cx<'_>, mode: Mode) {
    if mode == Mode::Declared {
        cx.engine.scripts.figures.forget(&cx.db.locks);
    }
    release(cx, mode);
    end_turn(cx);
    dispatch::serve_first(cx);
    cx.thread.reader.leave();
    if mode == Mode::Declared {
        cx.engine.holds.end_script(&cx.engine.mailboxes);
        long::serve_unserved(cx);
    }
}
