//! EVAL, FCALL and their siblings: from a request to the script's reply.

use super::host::ScriptHost;
use super::library_loader::LoadHost;
use crate::args::Args;
use crate::command::{Flags, Outcome, ScriptName};
use crate::cx::Cx;
use crate::dispatch;
use crate::engine::Engine;
use crate::error::Error;
use crate::locks::Locked;
use crate::monitor::{self, Source};
use crate::scripts::{
    Attempt, Kind, LastUse, Learned, RunsOn, Script, ScriptRules, Shape, Target, Verdict, parse_sha,
};
use crate::table::Resolved;
use resp::{Output, Reply};
use script::shebang::{ScriptFlags, parse_script};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Keys and arguments.
type Halves<'a> = (&'a [&'a [u8]], &'a [&'a [u8]]);

/// Keys and arguments of a request `… script numkeys [key …] [arg …]`.
fn split<'a>(args: Args<'a>) -> Result<Halves<'a>, Error> {
    let rest = args.from(3);
    let count = args.integer(2)?;
    if count > rest.len() as i64 {
        return Err(Error::text("ERR Number of keys can't be greater than number of args"));
    }
    let count =
        usize::try_from(count).map_err(|_| Error::text("ERR Number of keys can't be negative"))?;
    Ok(rest.split_at(count))
}

const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script.");

/// Runs EVAL and its siblings.
///
/// # Errors
/// That of the request or of the script.
pub fn eval(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let command = cx.resolved.command;
    let is_read_only = command.flags.has(Flags::READONLY);
    if command.script == Some(ScriptName::Digest) && args[1].len() != 40 {
        return Err(NO_SCRIPT);
    }
    let (keys, rest) = split(args)?;
    let script = find_script(cx, command.script == Some(ScriptName::Digest), args[1])?;
    script.touch(cx.now());
    let rules = rules(cx, script.flags, is_read_only)?;
    let prepared = cx.thread.scripts.borrow_mut().prepare(&script.sha, script.code());
    prepared.map_err(Error::Bytes)?;
    run_script(cx, rules, Kind::Script, args, |cx, reply| {
        let thread = cx.thread;
        let mut local = thread.scripts.borrow_mut();
        local.of_scripts().eval(&script.sha, keys, rest, &mut ScriptHost { cx }, reply)
    })
}

fn known_target(cx: &Cx<'_>) -> Option<Target> {
    cx.attempt.as_ref().and_then(|attempt| attempt.target.clone())
}

fn find_script(cx: &mut Cx<'_>, is_by_sha: bool, word: &[u8]) -> Result<Arc<Script>, Error> {
    if let Some(Target::Script(script)) = known_target(cx) {
        return Ok(script);
    }
    if is_by_sha {
        let found = parse_sha(word).and_then(|sha| cx.engine.scripts.cache.get(&sha));
        return found.ok_or(NO_SCRIPT);
    }
    let script = add_script(cx, word, false)?;
    if let Some(attempt) = &mut cx.attempt {
        attempt.target = Some(Target::Script(Arc::clone(&script)));
    }
    Ok(script)
}

/// Compiles a script and keeps it; `stays`: until SCRIPT FLUSH.
///
/// # Errors
/// It cannot be compiled.
pub fn add_script(cx: &mut Cx<'_>, source: &[u8], stays: bool) -> Result<Arc<Script>, Error> {
    let sha = structs::sha1::sha1(source);
    let parsed = parse_script(source).map_err(|text| Error::format(format!("ERR {text}")))?;
    let code_at = source.len() - parsed.code.len();
    cx.thread.scripts.borrow_mut().prepare(&sha, parsed.code).map_err(Error::Bytes)?;
    let source = Box::from(source);
    let (flags, learned, used) = (parsed.flags, Learned::default(), LastUse::default());
    let script = Script { sha, source, code_at, flags, learned, used };
    Ok(cx.engine.scripts.cache.add(script, stays))
}

/// Keeps the text of a script that another node runs, so that EVALSHA finds it at each.
pub(crate) fn note_script(cx: &mut Cx<'_>, source: &[u8]) {
    let mut seen = cx.thread.noted_scripts.borrow_mut();
    let generation = cx.engine.scripts.cache.generation();
    if seen.0 != generation || seen.1.len() >= MAX_NOTED {
        *seen = (generation, HashSet::new());
    }
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    if seen.1.insert(hasher.finish()) {
        drop(seen);
        // The node that runs it says what is wrong with it.
        let _ = add_script(cx, source, false);
    }
}

/// Scripts whose texts a thread has kept lately.
const MAX_NOTED: usize = 512;

impl Engine {
    /// Returns the text of a script.
    pub fn script_text(&self, digest: &[u8]) -> Option<Vec<u8>> {
        let script = self.scripts.cache.get(&parse_sha(digest)?)?;
        Some(script.source.to_vec())
    }
}

/// Returns what a script may do, or why it may not run at all.
fn rules(
    cx: &Cx<'_>,
    flags: Option<ScriptFlags>,
    is_read_only: bool,
) -> Result<ScriptRules, Error> {
    let is_full = cx.attempt.as_ref().is_some_and(|attempt| attempt.is_out_of_memory);
    let Some(flags) = flags else {
        if dispatch::has_stale_data(cx.engine) && !cx.db.effects.is_replay {
            return Err(Error::MasterDown);
        }
        return Ok(ScriptRules {
            is_read_only,
            is_out_of_memory: is_full,
            ..ScriptRules::default()
        });
    };
    if cx.engine.membership.is_on() && flags.has(ScriptFlags::NO_CLUSTER) {
        return Err(Error::text("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    let only_reads = flags.has(ScriptFlags::NO_WRITES);
    if cx.db.effects.is_replay {
        return Ok(ScriptRules { is_read_only: only_reads, ..ScriptRules::default() });
    }
    if dispatch::has_stale_data(cx.engine) && !flags.has(ScriptFlags::ALLOW_STALE) {
        return Err(Error::MasterDown);
    }
    if !only_reads && dispatch::refuses_writes_of_clients(cx.engine) {
        return Err(Error::ReadOnlyReplica);
    }
    if is_read_only && !only_reads {
        let text = "ERR Can not execute a script with write flag using *_ro command.";
        return Err(Error::text(text));
    }
    if is_full && !only_reads && !flags.has(ScriptFlags::ALLOW_OOM) {
        return Err(Error::text(
            "OOM allow-oom flag is not set on the script, can not run it when used memory > \
             'maxmemory'",
        ));
    }
    let keeps_to_slot = !flags.has(ScriptFlags::ALLOW_CROSS_SLOT_KEYS);
    Ok(ScriptRules { is_read_only: only_reads, keeps_to_slot, ..ScriptRules::default() })
}

/// Runs FCALL and FCALL_RO.
///
/// # Errors
/// That of the request or of the function.
pub fn fcall(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let is_read_only = cx.resolved.command.flags.has(Flags::READONLY);
    let found = match known_target(cx) {
        Some(Target::Function(library, function)) => Some((library, function)),
        _ => cx.engine.scripts.functions.find(args[1]),
    };
    let (library, function) = found.ok_or(Error::text("ERR Function not found"))?;
    let (keys, rest) = split_of_function(args)?;
    let rules = rules(cx, Some(function.spec.flags), is_read_only)?;
    let thread = cx.thread;
    let prepared = {
        let mut host = LoadHost::patient(cx.engine);
        thread.scripts.borrow_mut().prepare_library(&cx.engine.scripts, &library, &mut host)
    };
    prepared.map_err(Error::Bytes)?;
    let name = function.spec.name.clone();
    run_script(cx, rules, Kind::Function, args, |cx, reply| {
        let mut local = thread.scripts.borrow_mut();
        let mut host = ScriptHost { cx };
        local.of_functions().call(library.id, &name, keys, rest, &mut host, reply)
    })
}

/// Splits as [`split`] does, with FCALL's error for what is no number.
fn split_of_function<'a>(args: Args<'a>) -> Result<Halves<'a>, Error> {
    if args.integer(2).is_err() {
        return Err(Error::text("ERR Bad number of keys provided"));
    }
    split(args)
}

/// Runs a script that is prepared, and answers with its result.
fn run_script<'c>(
    cx: &mut Cx<'c>,
    rules: ScriptRules,
    kind: Kind,
    args: Args<'_>,
    run: impl FnOnce(&mut Cx<'c>, &mut Reply<'_>) -> script::Outcome,
) -> Outcome {
    let row = cx.resolved;
    let (keys, rest) = split(args).unwrap_or_default();
    let shape = Shape::new(keys.len(), rest.len());
    let slot = keys.first().and_then(|key| cx.slot_of(keyspace::Key::new(key)));
    let is_own_attempt = cx.attempt.is_none();
    if is_own_attempt {
        let mut attempt = Attempt::new(None, RunsOn::Queue, &Locked::World, false);
        attempt.started = cx.thread.clock.now();
        cx.attempt = Some(attempt);
    }
    if let Some(attempt) = &mut cx.attempt {
        attempt.kind = kind;
        attempt.shape = shape;
        if cx.session.checks_slot {
            attempt.declared_keys = keys.iter().map(|key| keyspace::Key::new(key).hash).collect();
        }
    }
    cx.script_was_shown = true;
    let is_monitored = cx.engine.monitors.any();
    if is_monitored {
        note_for_monitors(cx, row, args);
    }
    let before = cx.script.replace(ScriptRules { slot, ..rules });
    let (db, session_db) = (cx.db.index, cx.session.db);
    let is_nested = cx.in_transaction;
    if !is_nested {
        cx.begin_transaction();
    }
    let protocol = cx.reply.protocol();
    let mut out = Output::default();
    let outcome = run(cx, &mut Reply::new(&mut out, protocol));
    if !is_nested {
        cx.end_transaction();
    }
    cx.script = before;
    cx.db.effects.is_muted = false;
    (cx.db.index, cx.session.db) = (db, session_db);
    cx.resolved = row;
    let verdict = cx.attempt.as_ref().and_then(|attempt| attempt.verdict);
    end_running(cx);
    if is_monitored && matches!(verdict, None | Some(Verdict::Killed)) {
        let lines = cx.attempt.as_mut().map(|attempt| std::mem::take(&mut attempt.monitored));
        lines.unwrap_or_default().into_iter().for_each(|line| monitor::post(cx.engine, line));
    }
    if is_own_attempt {
        cx.attempt = None;
    }
    answer(cx, row, outcome, verdict, kind, out.plain())
}

/// Notes a request, of the client or of its script, for monitors.
#[cold]
pub(crate) fn note_for_monitors(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) {
    let source = if cx.script.is_some() { Source::Script } else { Source::Client };
    let line = monitor::line(cx, row.command, args.words(), source);
    if let Some(attempt) = &mut cx.attempt {
        attempt.monitored.push(line);
    }
}

/// Notes that the script can no longer be ended.
fn end_running(cx: &mut Cx<'_>) {
    // On a background thread it can be ended until the last of its attempts.
    let attempt = cx.attempt.as_mut().filter(|attempt| attempt.place != RunsOn::Background);
    if let Some(running) = attempt.and_then(|attempt| attempt.running.take()) {
        cx.engine.scripts.running.remove(&running);
    }
    note_memory(cx);
}

/// Notes what the thread's interpreters use, for INFO.
pub(super) fn note_memory(cx: &Cx<'_>) {
    cx.thread.scripts.borrow().note_memory(cx.thread.stats());
}

fn answer(
    cx: &mut Cx<'_>,
    row: &Resolved,
    outcome: script::Outcome,
    verdict: Option<Verdict>,
    kind: Kind,
    out: &[u8],
) -> Outcome {
    match outcome {
        script::Outcome::Replied => {
            cx.reply.raw(out);
            Ok(())
        }
        script::Outcome::Failed(failure) if failure.is_counted => {
            cx.thread.stats().by_command[row.index].failed.add_own(1);
            cx.reply.error_bytes(&failure.line);
            Ok(())
        }
        script::Outcome::Failed(failure) => Err(Error::Bytes(failure.line)),
        script::Outcome::Stopped(place) if verdict == Some(Verdict::Killed) => {
            Err(killed_error(kind, &place))
        }
        script::Outcome::Stopped(_) => Err(Error::StartAgain),
    }
}

/// Returns the error for the client of a script that another client has ended, at this place in its
/// source.
pub(super) fn killed_error(kind: Kind, place: &str) -> Error {
    let command = match kind {
        Kind::Script => "SCRIPT KILL",
        Kind::Function => "FUNCTION KILL",
    };
    Error::format(format!("ERR Script killed by user with {command}.{place}"))
}

/// Returns the error for others while a script is in their way.
pub fn busy_error(engine: &crate::Engine) -> Error {
    let longest = engine.scripts.running.longest();
    match longest.map_or(Kind::Script, |running| running.kind) {
        Kind::Script => Error::text(
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        ),
        Kind::Function => Error::text(
            "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
        ),
    }
}
