//! The server, as a running script sees it: commands under the locks that the script has.

use crate::args::Args;
use crate::cold;
use crate::command::Flags;
use crate::cx::Cx;
use crate::dispatch::{is_permitted, may_script_run, run_nested};
use crate::effort::is_long;
use crate::engine::Engine;
use crate::error::{Error, NotNow};
use crate::locks::Locked;
use crate::scripts::{Kind, RunningScript, RunsOn, Verdict};
use crate::table::Resolved;
use crate::{KeyUse, RequestKeys};
use keyspace::Key;
use resp::Protocol;
use script::{Host, LogLevel, ReplicateTo, Stop};
use std::sync::Arc;
use std::time::Duration;

/// After this time on a reactor a script begins again on a background thread.
const IN_PLACE: Duration = Duration::from_millis(5);

/// See the module.
pub(super) struct ScriptHost<'h, 'c> {
    pub cx: &'h mut Cx<'c>,
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, words: &[&[u8]], is_resp3: bool, reply: &mut Vec<u8>) -> Result<(), Stop> {
        let cx = &mut *self.cx;
        let engine = cx.engine;
        let row = match engine.table.resolve(words).map_err(Error::from) {
            Ok(row) => row,
            Err(error) => {
                refuse(cx, reply, &unresolved(error));
                return Ok(());
            }
        };
        let args = Args::new(words);
        if let Err(error) = may_script_run(cx, row, args) {
            cx.thread.stats().by_command[row.index].rejected.add_own(1);
            refuse(cx, reply, &error);
            return Ok(());
        }
        admit(cx, row, args)?;
        if row.command.flags.has(Flags::WRITE) {
            note_write(cx);
        }
        let protocol = if is_resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        // The error, if any, is the reply.
        let _ = cx.capture(reply, protocol, |cx| run_nested(cx, row, args));
        Ok(())
    }

    fn may_run(&mut self, words: &[&[u8]]) -> Option<bool> {
        let row = self.cx.engine.table.lookup(words)?;
        Some(is_permitted(self.cx, row, Args::new(words)))
    }

    fn log(&mut self, level: LogLevel, line: &[u8]) {
        write_log(self.cx.engine, level, line);
    }

    fn replicate_to(&mut self, to: ReplicateTo) {
        // The append-only file and replicas read the same journal: what one of them gets, both get.
        self.cx.db.effects.is_muted = !to.append_only_file && !to.replicas;
    }

    fn tick(&mut self) -> Result<(), Stop> {
        tick(self.cx)
    }
}

/// Returns the error for a request that has no row.
fn unresolved(error: Error) -> Error {
    match error {
        Error::Arity(_) => Error::text("ERR Wrong number of args calling command from script"),
        error if error.line().starts_with(b"ERR unknown subcommand") => error,
        _ => Error::text("ERR Unknown command called from script"),
    }
}

fn refuse(cx: &Cx<'_>, reply: &mut Vec<u8>, error: &Error) {
    let line = error.line();
    reply.push(b'-');
    reply.extend(line.iter().map(|&b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }));
    reply.extend_from_slice(b"\r\n");
    cx.engine.count_error(&line);
}

pub(super) fn write_log(engine: &Engine, level: LogLevel, line: &[u8]) {
    let Some(host) = engine.host() else { return };
    let line = String::from_utf8_lossy(line);
    match level {
        LogLevel::Debug | LogLevel::Verbose => host.verbose(&line),
        LogLevel::Notice => host.log(&line),
        LogLevel::Warning => host.warn(&line),
    }
}

fn note_write(cx: &mut Cx<'_>) {
    if let Some(rules) = &mut cx.script {
        rules.has_written = true;
    }
    if let Some(running) = cx.attempt.as_ref().and_then(|attempt| attempt.running.as_ref()) {
        running.note_write();
    }
}

// ---- may this command touch its keys? -----------------------------------------------------

fn stop(cx: &mut Cx<'_>, verdict: Verdict) -> Result<(), Stop> {
    if let Some(attempt) = &mut cx.attempt {
        attempt.verdict = Some(verdict);
    }
    Err(Stop)
}

/// Sees to it that the command may touch all its keys, and that what it changes can be undone.
fn admit(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<(), Stop> {
    let flags = row.command.flags;
    let writes = flags.any(Flags::WRITE.with(Flags::MAY_REPLICATE));
    let mut is_in_ram = true;
    if crate::transaction::reaches(flags) || row.needs_world(args.words()) {
        admit_all(cx, writes)?;
    } else if row.single_key > 0 {
        let key = args.key(row.single_key);
        reach(cx, cx.engine.keyspace.stripe_of(key))?;
        is_in_ram = read_cold(cx, row, args);
        if writes {
            remember(cx, key)?;
        }
    } else if !row.command.keys.is_empty() {
        let keys = RequestKeys::of(&cx.engine.keyspace, row.command, args.words());
        for key in keys.iter() {
            reach(cx, key.stripe())?;
        }
        is_in_ram = read_cold(cx, row, args);
        for key in keys.iter().filter(|key| writes && key.usage() != KeyUse::Read) {
            remember(cx, key.key(args.words()))?;
        }
    }
    cx.keys.clear();
    let may_move = cx.attempt.as_ref().is_some_and(|attempt| attempt.place == RunsOn::Reactor);
    if may_move && is_in_ram && cx.db.undo.is_some() && is_long(cx, row, args) {
        return stop(cx, Verdict::TakesLong);
    }
    Ok(())
}

/// Waits for the values that the command needs and that are not in RAM: its cost is estimated by
/// them, and they are copied. Says whether all are there; one that cannot be read fails the command
/// later.
fn read_cold(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> bool {
    keyspace::cold::entries() == 0 || cold::read_in_place(cx, row, args).is_ok()
}

/// Sees to it that a stripe is held.
#[inline]
fn reach(cx: &mut Cx<'_>, stripe: usize) -> Result<(), Stop> {
    let Some(attempt) = &mut cx.attempt else { return Ok(()) };
    if attempt.declared.covers(stripe) {
        return Ok(());
    }
    attempt.touched_undeclared = true;
    if cx.db.locks.held().covers(stripe) {
        return Ok(());
    }
    if cx.db.undo.is_some() {
        return stop(cx, Verdict::NeedsWorld);
    }
    wait_for(cx, &Locked::One(stripe));
    Ok(())
}

/// Admits the script to all keys.
fn admit_all(cx: &mut Cx<'_>, writes: bool) -> Result<(), Stop> {
    if let Some(attempt) = &mut cx.attempt {
        attempt.touched_undeclared = true;
    }
    if cx.db.holds_world() {
        // The script may write keys that are not known here.
        if writes {
            if is_untried_on_reactor(cx) {
                return stop(cx, Verdict::TakesLong);
            }
            cx.db.undo = None;
        }
        return Ok(());
    }
    if cx.db.undo.is_some() {
        return stop(cx, Verdict::NeedsWorld);
    }
    (0..cx.engine.keyspace.stripes().len()).for_each(|stripe| wait_for(cx, &Locked::One(stripe)));
    Ok(())
}

/// Waits for a stripe beside those that are held. This ends: the script has the turn, so that every
/// other holder of a stripe goes on to its end, or gives its locks back, without waiting for this
/// one.
fn wait_for(cx: &mut Cx<'_>, stripe: &Locked) {
    debug_assert!(cx.attempt.as_ref().is_some_and(|attempt| attempt.holds_turn));
    let scripts = &cx.engine.scripts;
    while cx.db.locks.extend(stripe).is_err() {
        scripts.set_turn_waits(true);
        std::thread::yield_now();
    }
    scripts.set_turn_waits(false);
}

/// Returns whether the script runs on a reactor, which has other clients, and no run like it has
/// ended soon: there it must do nothing that cannot be undone, as it could run for ever.
fn is_untried_on_reactor(cx: &Cx<'_>) -> bool {
    cx.attempt.as_ref().is_some_and(|attempt| {
        let target = attempt.target.as_ref();
        let is_trusted = target.is_some_and(|target| target.learned().is_trusted(attempt.shape));
        attempt.place == RunsOn::Reactor && !is_trusted
    })
}

/// Copies what the key holds, or makes sure that the script need not be undone.
fn remember(cx: &mut Cx<'_>, key: Key<'_>) -> Result<(), Stop> {
    if cx.db.remember(key).is_ok() {
        return Ok(());
    }
    if is_untried_on_reactor(cx) {
        return stop(cx, Verdict::TakesLong);
    }
    if !cx.db.holds_world() {
        if let Err(reason) = super::run::take_turn(cx) {
            return stop(cx, Verdict::Retry(reason));
        }
        if let Some(attempt) = &mut cx.attempt {
            attempt.holds_turn = true;
        }
    }
    cx.db.undo = None;
    Ok(())
}

// ---- time ---------------------------------------------------------------------------------

fn tick(cx: &mut Cx<'_>) -> Result<(), Stop> {
    let engine = cx.engine;
    let Some(attempt) = &mut cx.attempt else { return Ok(()) };
    let clock = &cx.thread.clock;
    let elapsed = Duration::from_nanos(clock.nanoseconds(attempt.started, clock.now()));
    if attempt.place == RunsOn::Reactor && elapsed > IN_PLACE && cx.db.undo.is_some() {
        return stop(cx, Verdict::TakesLong);
    }
    if attempt.place == RunsOn::Reactor
        && elapsed > IN_PLACE
        && let Some(target) = &attempt.target
    {
        target.learned().distrust();
    }
    let has_written = cx.script.is_some_and(|rules| rules.has_written);
    let running = attempt.running.get_or_insert_with(|| {
        let name = attempt.target.as_ref().map_or(&b""[..], |target| target.name());
        let running = RunningScript::new(attempt.kind, name, &[], attempt.started);
        if has_written {
            running.note_write();
        }
        let running = Arc::new(running);
        engine.scripts.running.add(&running);
        running
    });
    if running.is_killed() {
        return stop(cx, Verdict::Killed);
    }
    // A script on a background thread ends and starts again later if another request waits for its
    // end: at once if that request's script can no longer be undone, and for a request that stops
    // the world after the script's minimum time.
    let had_its_time = elapsed >= attempt.min_time;
    let is_world_wanted = cx.thread.reader.is_wanted() || engine.holds.world_is_wanted();
    let is_in_the_way = engine.scripts.turn_waits() || (had_its_time && is_world_wanted);
    if attempt.place == RunsOn::Background && cx.db.undo.is_some() && is_in_the_way {
        return stop(cx, Verdict::Retry(NotNow::Busy));
    }
    let elapsed = Duration::from_millis(running.elapsed_ms(&engine.clock));
    let threshold = engine.config.busy_reply_threshold();
    if threshold > 0 && elapsed >= Duration::from_millis(threshold) {
        if let Some(rules) = &mut cx.script {
            rules.is_overdue = true;
        }
        let is_new = engine.scripts.running.note_busy(running);
        if is_new {
            // Requests that wait for the script get BUSY from now on.
            engine.holds.recheck(&engine.mailboxes);
            engine.background.refuse_scripts();
        }
        if is_new && let Some(host) = engine.host() {
            host.warn(&format!(
                "Slow script detected: still in execution after {} milliseconds. You can try \
                 killing the script using the {} command.",
                elapsed.as_millis(),
                match running.kind {
                    Kind::Script => "SCRIPT KILL",
                    Kind::Function => "FUNCTION KILL",
                }
            ));
        }
    }
    Ok(())
}
