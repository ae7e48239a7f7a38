//! From a request to its effects: gates, locks, the command itself, commit.
//!
//! The gates come in Redis's order, because clients see which one refuses first. All of them but
//! the first are skipped with one test when the session and the server are in no special state.

use crate::args::Args;
use crate::blocking::{self, BlockRequest, Resumption, Suspension, TimeoutReply, Until, Waiter};
use crate::command::{Command, Flags, Group, KeyFlags};
use crate::commit;
use crate::cx::Cx;
use crate::db::Db;
use crate::effort::is_long;
use crate::engine::Engine;
use crate::error::Error;
use crate::keys;
use crate::latency::Slow;
use crate::locks::{Busy, Locked};
use crate::long;
use crate::mailbox::{Message, Push};
use crate::pubsub::Space;
use crate::session::{Fate, ReplyMode, Session};
use crate::table::Resolved;
use crate::transaction::Queued;
use config::ProtectedAction;
use keyspace::snapshot::{Touch, Urgency};
use keyspace::{DbIndex, Entry, Key, Kind, Millis, Stripe};
use resp::{Protocol, Reply};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Why a request was not run; nothing has happened, and it is to be tried again.
#[derive(Debug)]
pub enum NotNow {
    /// A stripe is held by somebody else.
    Busy(Busy),
    /// CLIENT PAUSE.
    Paused {
        /// End of the pause.
        until: Millis,
    },
    /// A long command is in the way: of a key that it holds, or of stopping the world.
    Held,
}

/// Runs one request of the session.
#[inline]
pub(crate) fn process(
    cx: &mut Cx<'_>,
    resolved: Option<&'static Resolved>,
    args: Args<'_>,
) -> Result<(), NotNow> {
    let Some(row) = resolved.or_else(|| resolve(cx, args)) else { return Ok(()) };
    let engine = cx.engine;
    let started = cx.reply.len();
    let is_special = cx.session.is_special() || engine.is_special();
    if is_special && !pass_gates(cx, row, args)? {
        after_reply(cx, row, started);
        return Ok(());
    }
    let flags = row.command.flags;
    let needs_world = flags.has(Flags::WORLD)
        || (flags.any(Flags::MAYBE_WORLD.with(Flags::NOT_QUEUED)) && wants_world(cx, row, args));
    if needs_world {
        // Every protected command needs the world, so that others do not pay for the question.
        if flags.has(Flags::PROTECTED) && is_protected(cx) {
            reject(cx, row, &protected_error());
        } else {
            run_in_stopped_world(cx, row, args)?;
        }
    } else {
        run_with_stripes(cx, row, args)?;
    }
    if is_special {
        if engine.monitors.load(Relaxed) > 0 {
            crate::monitor::feed(cx, row.command, args.words());
        }
        after_reply(cx, row, started);
        deliver_own_pushes(cx);
    }
    if !cx.db.effects.ready.is_empty() {
        serve_ready(cx);
    }
    Ok(())
}

/// The row of a request whose name or number of words is wrong, or that was not looked up yet.
#[cold]
fn resolve(cx: &mut Cx<'_>, args: Args<'_>) -> Option<&'static Resolved> {
    let engine = cx.thread.engine;
    match engine.table.resolve(args.words()) {
        Ok(row) => Some(row),
        Err(error) => {
            if let Some(multi) = &mut cx.session.multi {
                multi.is_broken = true;
            }
            let started = cx.reply.len();
            let row = engine.table.find(args[0]);
            if row.is_some_and(|row| row.command.name == "exec") {
                abort_exec(cx, &error);
            } else {
                refuse(cx, &error);
            }
            if let Some(row) = row {
                cx.thread.stats().by_command[row.index].rejected.add_own(1);
            }
            if cx.session.reply_mode != ReplyMode::On {
                silence(cx, started);
            }
            None
        }
    }
}

#[cold]
fn refuse(cx: &mut Cx<'_>, error: &Error) {
    let line = error.line();
    cx.reply.error_bytes(&line);
    cx.engine.count_error(&line);
}

fn reject(cx: &mut Cx<'_>, row: &Resolved, error: &Error) {
    if let Some(multi) = &mut cx.session.multi {
        multi.is_broken = true;
    }
    cx.thread.stats().by_command[row.index].rejected.add_own(1);
    if row.command.name == "exec" {
        abort_exec(cx, error);
    } else {
        refuse(cx, error);
    }
}

/// An EXEC that is refused ends its transaction all the same.
#[cold]
fn abort_exec(cx: &mut Cx<'_>, error: &Error) {
    cx.session.multi = None;
    crate::transaction::unwatch(&cx.db, cx.session);
    let line = error.line();
    let mut text = b"EXECABORT Transaction discarded because of: ".to_vec();
    text.extend_from_slice(line.strip_prefix(b"ERR ").unwrap_or(&line));
    refuse(cx, &Error::Bytes(text));
}

/// The gates; `false` if the request is answered already.
fn pass_gates(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<bool, NotNow> {
    let flags = row.command.flags;
    if flags.has(Flags::PROTECTED) && is_protected(cx) {
        reject(cx, row, &protected_error());
        return Ok(false);
    }
    if !cx.session.authenticated && !cx.engine.acl.is_open() && !flags.has(Flags::NO_AUTH) {
        reject(cx, row, &Error::NoAuth);
        return Ok(false);
    }
    if let Some(until) = paused_until(cx, row) {
        return Err(NotNow::Paused { until });
    }
    if cx.engine.journal.is_full() && may_write(cx, row) {
        // The disk is far behind: whoever writes waits, and is told when it goes on.
        return Err(NotNow::Held);
    }
    if cx.engine.overdue_mailboxes.load(Relaxed) > 0 && posts_messages(cx, row) {
        return Err(NotNow::Busy(Busy));
    }
    let has_room = cx.engine.config.maxmemory() == 0 || crate::evict::make_room(cx);
    cx.engine.tracking.limit_keys(&cx.db);
    // What that and eviction took from the client's cache it learns before the reply.
    deliver_own_pushes(cx);
    if !has_room && (flags.has(Flags::DENYOOM) || queue_has(cx, row, Flags::DENYOOM)) {
        reject(cx, row, &Error::OutOfMemory);
        return Ok(false);
    }
    if let Some(error) = trouble_of_disk(cx.engine)
        && is_refused_without_disk(cx, row)
    {
        reject(cx, row, &error);
        return Ok(false);
    }
    if cx.session.is_subscribed()
        && cx.session.protocol == Protocol::Resp2
        && !allowed_when_subscribed(row)
    {
        let name = &row.full_name;
        let text = format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        );
        reject(cx, row, &Error::format(text));
        return Ok(false);
    }
    if cx.engine.loading.is_on() && refused_while_loading(cx, row) {
        reject(cx, row, &Error::Loading);
        return Ok(false);
    }
    if cx.session.multi.is_some() && flags.has(Flags::NO_MULTI) {
        let text = format!("ERR Command '{}' not allowed inside a transaction", row.full_name);
        reject(cx, row, &Error::format(text));
        return Ok(false);
    }
    if cx.session.multi.is_some() && !flags.has(Flags::NOT_QUEUED) {
        if let Some(multi) = &mut cx.session.multi {
            multi.push(row.index, args.words());
        }
        cx.reply.simple("QUEUED");
        return Ok(false);
    }
    Ok(true)
}

/// What keeps writes from being made to last, if that is a reason to refuse them.
fn trouble_of_disk(engine: &Engine) -> Option<Error> {
    if engine.refuses_writes() {
        return Some(Error::Misconfigured);
    }
    engine.append_log.is_broken().then(|| {
        let why = engine.append_log.error();
        Error::format(format!("MISCONF Errors writing to the AOF file: {why}"))
    })
}

/// Whether this request is refused while what it writes could not be made to last. PING is, so that
/// whoever watches the server notices; what only goes to others, as PUBLISH, is not.
fn is_refused_without_disk(cx: &Cx<'_>, row: &Resolved) -> bool {
    row.command.flags.has(Flags::WRITE)
        || row.command.name == "ping"
        || queue_has(cx, row, Flags::WRITE)
}

/// Whether this client may not run DEBUG.
fn is_protected(cx: &Cx<'_>) -> bool {
    match cx.engine.config.enable_debug_command() {
        ProtectedAction::Yes => false,
        ProtectedAction::Local => !cx.session.is_local,
        ProtectedAction::No => true,
    }
}

fn protected_error() -> Error {
    Error::text(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.",
    )
}

fn refused_while_loading(cx: &Cx<'_>, row: &Resolved) -> bool {
    let all = cx.engine.table.all();
    let may_run = |command: &Command| command.flags.has(Flags::LOADING);
    !may_run(row.command)
        || (row.command.name == "exec"
            && queued(cx).iter().any(|queued| !may_run(all[queued.command].command)))
}

fn allowed_when_subscribed(row: &Resolved) -> bool {
    matches!(
        row.command.name,
        "ping"
            | "subscribe"
            | "ssubscribe"
            | "sunsubscribe"
            | "psubscribe"
            | "unsubscribe"
            | "punsubscribe"
            | "quit"
            | "reset"
    )
}

fn paused_until(cx: &Cx<'_>, row: &Resolved) -> Option<Millis> {
    let pause = &cx.engine.pause;
    let until = Millis(pause.until_ms.load(Relaxed));
    if until <= cx.now() {
        return None;
    }
    // A pause of everything holds back what would end it too, as in Valkey: only time does.
    (!pause.writes_only.load(Relaxed) || may_write(cx, row)).then_some(until)
}

/// Whether a request may have messages for any number of clients.
#[cold]
fn posts_messages(cx: &Cx<'_>, row: &Resolved) -> bool {
    let engine = cx.engine;
    engine.monitors.load(Relaxed) > 0
        || row.command.flags.has(Flags::PUBSUB)
        || queue_has(cx, row, Flags::PUBSUB)
        || (engine.has_global_interest() && may_write(cx, row))
}

/// Whether a request may change keys; EXEC may if a queued command may.
fn may_write(cx: &Cx<'_>, row: &Resolved) -> bool {
    let changing = Flags::WRITE.with(Flags::MAY_REPLICATE);
    row.command.flags.any(changing) || queue_has(cx, row, changing)
}

/// Whether this is an EXEC of a command with any of these flags.
fn queue_has(cx: &Cx<'_>, row: &Resolved, wanted: Flags) -> bool {
    let has = |queued: &Queued| cx.engine.table.all()[queued.command].command.flags.any(wanted);
    row.command.name == "exec" && queued(cx).iter().any(has)
}

fn queued<'c>(cx: &'c Cx<'_>) -> &'c [Queued] {
    cx.session.multi.as_ref().map_or(&[], |multi| multi.queue())
}

/// Whether a command that may need the world does with these arguments: SORT, which is the only
/// one with such a flag, and EXEC if a queued command does.
fn wants_world(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    if row.command.name == "exec" {
        return queued(cx).iter().any(|queued| {
            let command = cx.engine.table.all()[queued.command].command;
            let flags = command.flags;
            let words: Vec<&[u8]> = queued.argv.iter().map(|word| &**word).collect();
            flags.any(Flags::WORLD.with(Flags::WALKS))
                || (flags.has(Flags::MAYBE_WORLD) && keys::sort_follows_patterns(&words))
        });
    }
    row.command.flags.has(Flags::MAYBE_WORLD) && keys::sort_follows_patterns(args.words())
}

fn run_in_stopped_world(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
) -> Result<(), NotNow> {
    // Everybody would wait for the long command's end, not only this client.
    if cx.engine.holds.keep_world() {
        return Err(NotNow::Held);
    }
    cx.thread.reader.leave();
    let world = cx.thread.reader.world();
    let stopped = world.stop();
    if cx.engine.holds.keep_world() {
        // One has begun meanwhile.
        drop(stopped);
        cx.thread.reader.enter();
        return Err(NotNow::Held);
    }
    cx.db.locked = Locked::World;
    cx.start_timing();
    call(cx, row, args);
    finish(cx, args);
    cx.db.locked = Locked::None;
    drop(stopped);
    cx.thread.reader.enter();
    Ok(())
}

/// Words of a request above which its keys are fetched into the cache before they are locked, and
/// above which the first would be gone from there before the last has come.
const FETCH_FROM: usize = 64;
const FETCH_UP_TO: usize = 8192;

#[inline]
fn run_with_stripes(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<(), NotNow> {
    let keyspace = &cx.engine.keyspace;
    if row.single_key == 0 && (FETCH_FROM + 1..=FETCH_UP_TO).contains(&args.len()) {
        fetch(cx, row, args);
    }
    let need = if row.single_key > 0 {
        Locked::One(keyspace.stripe_of(args.key(row.single_key)))
    } else if row.command.keys.is_empty() && !row.command.flags.has(Flags::NOT_QUEUED) {
        Locked::None
    } else {
        stripes_of(cx, row.command, args)
    };
    need.acquire(keyspace).map_err(NotNow::Busy)?;
    cx.db.locked = need;
    let may_have_to_wait = cx.engine.holds.any() || cx.engine.snapshots.is_running();
    if may_have_to_wait && may_write(cx, row) && is_held_back(cx, row, args) {
        std::mem::replace(&mut cx.db.locked, Locked::None).release(keyspace);
        return Err(NotNow::Held);
    }
    if is_long(&cx.db, row, args) {
        std::mem::replace(&mut cx.db.locked, Locked::None).release(keyspace);
        long::run_in_background(cx, row, args);
        return Ok(());
    }
    call(cx, row, args);
    finish(cx, args);
    std::mem::replace(&mut cx.db.locked, Locked::None).release(keyspace);
    Ok(())
}

/// Fetches the buckets and entries of many keys into the cache, so that their stripes are locked
/// for less time.
#[cold]
#[allow(unsafe_code)]
fn fetch(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) {
    /// About what a core can have under way.
    const TOGETHER: usize = 32;
    let (keyspace, db) = (&cx.engine.keyspace, cx.db.index);
    let mut batch = Vec::with_capacity(TOGETHER);
    let fetch_entries = |batch: &mut Vec<(usize, u64)>| {
        for (stripe, hash) in batch.drain(..) {
            // SAFETY: commands run inside the world.
            unsafe { keyspace.stripe(stripe).prefetch_entry(db, hash) }
        }
    };
    // Keys that cannot be found make a syntax error.
    let _ = keys::for_each_key(row.command, args.words(), |index, _| {
        let key = Key::new(args[index]);
        let stripe = keyspace.stripe_of(key);
        // SAFETY: commands run inside the world.
        unsafe { keyspace.stripe(stripe).prefetch_bucket(db, key.hash) }
        batch.push((stripe, key.hash));
        if batch.len() == TOGETHER {
            fetch_entries(&mut batch);
        }
    });
    fetch_entries(&mut batch);
}

/// Whether a key that this command, whose stripes are locked, may change is held by a long command,
/// or a snapshot has no room for what it holds. If so, the thread is told when that ends.
#[cold]
fn is_held_back(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    if !finds_hold(cx, row, args) {
        return false;
    }
    // A second look, so that the end of what is in the way cannot be missed: only who waits pays
    // for saying so.
    cx.engine.holds.wait();
    if cx.engine.snapshots.is_running() {
        cx.engine.snapshots.wait();
    }
    finds_hold(cx, row, args)
}

/// Whether something is in the way of this command just now.
fn finds_hold(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    let is_snapshot_running = cx.engine.snapshots.is_running();
    let db = cx.db.index;
    let mut is_held = false;
    let mut look = |command: &Command, words: &[&[u8]]| {
        let _ = keys::for_each_key(command, words, |index, flags| {
            let key = Key::new(words[index]);
            let stripe = cx.engine.keyspace.stripe_of(key);
            is_held |= cx.db.with_stripe(stripe, |data| {
                data.want(key.hash)
                    || (is_snapshot_running
                        && !flags.has(KeyFlags::RO)
                        && data.is_delayed(db, key.hash, touch(command, flags), Urgency::Waiting))
            });
        });
    };
    if row.command.name == "exec" {
        for queued in queued(cx) {
            let words: Vec<&[u8]> = queued.argv.iter().map(|word| &**word).collect();
            look(cx.engine.table.all()[queued.command].command, &words);
        }
    } else {
        look(row.command, args.words());
    }
    is_held
}

/// What a command does to a key, for a snapshot that streams the key's value.
fn touch(command: &Command, flags: KeyFlags) -> Touch {
    let is_of_elements = matches!(command.group, Group::Hash | Group::Set | Group::SortedSet);
    let replaces = flags.has(KeyFlags::OW) || flags.has(KeyFlags::RM);
    if is_of_elements && !replaces { Touch::Elements } else { Touch::Whole }
}

pub(crate) fn stripes_of(cx: &Cx<'_>, command: &Command, args: Args<'_>) -> Locked {
    let keyspace = &cx.engine.keyspace;
    let mut need = Locked::None;
    if command.name == "exec" {
        for queued in queued(cx) {
            let words: Vec<&[u8]> = queued.argv.iter().map(|word| &**word).collect();
            let command = cx.engine.table.all()[queued.command].command;
            add_keys(cx.engine, command, &words, &mut need);
        }
        for (_, key) in &cx.session.watched {
            need.add(keyspace.stripe_of(Key::new(key)));
        }
    } else if args.len() > FETCH_FROM {
        add_keys(cx.engine, command, args.words(), &mut need);
    } else {
        add_keys_and_prefetch(cx, command, args.words(), &mut need);
    }
    need
}

/// The stripes of a command with several keys; meanwhile their buckets come into the cache, then
/// their entries, all at once instead of one after the other.
fn add_keys_and_prefetch(cx: &Cx<'_>, command: &Command, words: &[&[u8]], need: &mut Locked) {
    let keyspace = &cx.engine.keyspace;
    let mut hashes = cx.thread.key_hashes.take();
    let _ = keys::for_each_key(command, words, |index, _| {
        let key = Key::new(words[index]);
        let stripe = keyspace.stripe_of(key);
        need.add(stripe);
        prefetch_bucket(keyspace.stripe(stripe), cx.db.index, key.hash);
        hashes.push((stripe, key.hash));
    });
    for (stripe, hash) in hashes.drain(..) {
        prefetch_entry(keyspace.stripe(stripe), cx.db.index, hash);
    }
    if hashes.capacity() <= resp::KEPT_WORDS {
        cx.thread.key_hashes.replace(hashes);
    }
}

/// Brings the bucket of a key into the cache. The caller is inside the world.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn prefetch_bucket(stripe: &Stripe, db: DbIndex, hash: u64) {
    // SAFETY: requests are taken apart and run inside the world.
    unsafe { stripe.prefetch_bucket(db, hash) }
}

/// Brings an entry into the cache whose bucket is there. The caller is inside the world.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn prefetch_entry(stripe: &Stripe, db: DbIndex, hash: u64) {
    // SAFETY: requests are taken apart and run inside the world.
    unsafe { stripe.prefetch_entry(db, hash) }
}

fn add_keys(engine: &Engine, command: &Command, words: &[&[u8]], need: &mut Locked) {
    // A request whose keys cannot be found runs with the locks of those that can, and answers
    // with a syntax error of its own.
    let _ = keys::for_each_key(command, words, |index, _| {
        need.add(engine.keyspace.stripe_of(Key::new(words[index])));
    });
}

/// Runs a command whose locks are held, and turns its error into its reply.
#[inline]
pub fn call(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) {
    let started = cx.reply.len();
    let before = cx.last_end;
    cx.resolved = row;
    cx.session.last_command = row.index + 1;
    let outcome = (row.command.run)(cx, args);
    let stats = cx.thread.stats();
    let command_stats = &stats.by_command[row.index];
    if let Err(error) = &outcome {
        cx.reply.truncate(started);
        if *error == Error::TakesLong {
            return put_off(cx);
        }
        cx.block_request = None;
        command_stats.failed.add_own(1);
        refuse(cx, error);
    }
    let clock = &cx.thread.clock;
    cx.last_end = clock.now();
    let nanoseconds = clock.nanoseconds(before, cx.last_end);
    command_stats.count(nanoseconds, cx.engine.config.latency_tracking());
    let is_fast = row.command.flags.has(Flags::FAST);
    cx.engine.note_latency(if is_fast { Slow::FastCommand } else { Slow::Command }, nanoseconds);
    stats.commands.add_own(1);
    cx.session.commands += 1;
    // EXEC has run others.
    cx.session.last_command = row.index + 1;
    if cx.session.tracking.is_some() && row.command.flags.has(Flags::READONLY) {
        crate::tracking::remember_reads(cx, row.command, args);
    }
    crate::commandlog::note(cx, row, args, nanoseconds, cx.reply.len() - started);
    if cx.is_over_output_limit() {
        overflow(cx, started);
    }
}

/// The command has looked at its key and will look again on a background thread, where it counts.
#[cold]
fn put_off(cx: &mut Cx<'_>) {
    cx.db.hits.set(cx.db.hits.get().saturating_sub(1));
    let (until, on_timeout) = (Until::Background, TimeoutReply::Null);
    cx.block_request = Some(BlockRequest { until, deadline: None, on_timeout });
}

/// A reply too many: the client is going to be closed without having got it. The rest of a
/// transaction still runs.
#[cold]
fn overflow(cx: &mut Cx<'_>, started: usize) {
    cx.reply.truncate(started);
    cx.session.overflows = true;
    cx.session.fate = Fate::Close;
}

/// Commits one command of a transaction, whose locks stay held.
pub fn commit_queued(cx: &mut Cx<'_>, words: &[&[u8]]) {
    cx.block_request = None;
    if cx.engine.monitors.load(Relaxed) > 0 {
        crate::monitor::feed(cx, cx.resolved.command, words);
    }
    commit::commit(cx, words);
}

/// What follows the command while its locks are held.
#[inline]
fn finish(cx: &mut Cx<'_>, args: Args<'_>) {
    if cx.block_request.is_some() {
        suspend(cx, args);
    }
    commit::commit(cx, args.words());
}

/// Registers a blocked command with its keys, whose stripes are locked, or with what else it waits
/// for.
#[cold]
#[allow(unsafe_code)]
fn suspend(cx: &mut Cx<'_>, args: Args<'_>) {
    let Some(request) = cx.block_request.take() else { return };
    if let Until::Background = request.until {
        let engine = cx.thread.engine;
        return long::run_in_background(cx, &engine.table.all()[cx.resolved.index], args);
    }
    let waiter = Arc::new(Waiter::new(cx, args.words(), request.until));
    let engine = cx.engine;
    for key in waiter.keys() {
        let stripe = engine.keyspace.stripe_of(Key::new(key));
        cx.db.with_stripe(stripe, |data| {
            // SAFETY: the stripe is locked.
            let interest = unsafe { engine.interests.stripe(stripe) };
            let waiters = &mut interest.of_or_new(waiter.db, key).waiters;
            // BLPOP k k waits once.
            if !waiters.iter().any(|other| Arc::ptr_eq(other, &waiter)) {
                waiters.push(Arc::clone(&waiter));
            }
            data.has_interest = true;
        });
    }
    engine.stats.blocked_clients.fetch_add(1, Relaxed);
    let suspension = Suspension {
        token: 0,
        deadline: request.deadline,
        on_timeout: request.on_timeout,
        waiter: Some(Arc::clone(&waiter)),
        can_unblock: true,
        is_silent: false,
        ends_in_error: false,
    };
    let token = cx.thread.suspend(cx.session, suspension);
    waiter.set_token(token);
    if let Until::Acks(_) = waiter.until {
        engine.wait_for_acks(&waiter);
    }
}

/// Serves the clients that wait for the keys that became ready, longest wait first.
#[cold]
pub(crate) fn serve_ready(cx: &mut Cx<'_>) {
    let mut ready = std::mem::take(&mut cx.db.effects.ready);
    while !ready.is_empty() {
        let mut more = Vec::new();
        for (db, key) in ready {
            for waiter in waiters_of(&cx.db, db, &key) {
                let Some(kind) = kind_of(&cx.db, db, &key) else { break };
                serve(cx, &waiter, kind, &mut more);
            }
        }
        ready = more;
    }
}

#[allow(unsafe_code)]
fn waiters_of(db: &Db<'_>, index: DbIndex, key: &[u8]) -> Vec<Arc<Waiter>> {
    let stripe = db.engine.keyspace.stripe_of(Key::new(key));
    db.with_stripe(stripe, |_| {
        // SAFETY: `with_stripe` holds the stripe's lock.
        let interest = unsafe { db.engine.interests.stripe(stripe) };
        interest.of(index, key).map_or_else(Vec::new, |of_key| of_key.waiters.clone())
    })
}

fn kind_of(db: &Db<'_>, index: DbIndex, key: &[u8]) -> Option<Kind> {
    let key = Key::new(key);
    let stripe = db.engine.keyspace.stripe_of(key);
    db.with_stripe(stripe, |data| data.find(index, key).map(Entry::kind))
}

/// Whether a command that waits is woken by a key of this type: by one of another type it is not.
fn is_woken_by(command: &Command, kind: Kind) -> bool {
    match command.group {
        Group::List => kind == Kind::List,
        Group::SortedSet => kind == Kind::Zset,
        _ => true,
    }
}

/// Runs a waiter's command again on its behalf, because of a key of this type.
fn serve(cx: &mut Cx<'_>, waiter: &Arc<Waiter>, kind: Kind, ready: &mut Vec<(DbIndex, Box<[u8]>)>) {
    let engine = cx.thread.engine;
    let words: Vec<&[u8]> = waiter.argv.iter().map(|word| &**word).collect();
    let Ok(row) = engine.table.resolve(&words) else { return };
    if !is_woken_by(row.command, kind) || !waiter.claim() {
        return;
    }
    let args = Args::new(&words);
    let mut session = waiter.guest_session();
    let mut out = Vec::new();
    let mut guest = Cx {
        db: Db::new(engine, cx.now(), engine.access_policy(), cx.thread.rng()),
        reply: Reply::new(&mut out, waiter.protocol),
        session: &mut session,
        engine,
        thread: cx.thread,
        resolved: row,
        in_transaction: false,
        block_request: None,
        last_end: cx.last_end,
    };
    guest.db.index = waiter.db;
    guest.db.touches = !waiter.no_touch;
    let need = stripes_of(&guest, row.command, args);
    if !lock_to_serve(&mut guest, need, row, args) {
        drop(guest);
        if !waiter.put_back() {
            return blocking::end(&cx.db, waiter);
        }
        for key in waiter.keys() {
            ready.append(&mut engine.holds.serve_later((waiter.db, key.clone())));
        }
        return;
    }
    let outcome = engine.timed(Slow::CommandUnblocking, || (row.command.run)(&mut guest, args));
    let goes_on = guest.block_request.take().is_some();
    if goes_on {
        if !waiter.put_back() {
            blocking::end(&guest.db, waiter);
        }
    } else {
        if let Err(error) = &outcome {
            refuse(&mut guest, error);
        }
        blocking::forget(&guest.db, waiter);
        waiter.finish();
    }
    commit::commit(&mut guest, args.words());
    std::mem::replace(&mut guest.db.locked, Locked::None).release(&engine.keyspace);
    ready.append(&mut guest.db.effects.ready);
    drop(guest);
    if !goes_on {
        engine.stats.blocked_clients.fetch_sub(1, Relaxed);
        let written = session.written;
        let resumption = Resumption { token: waiter.token(), reply: out, written };
        engine.mailboxes[waiter.thread].post(Message::Resume(waiter.client, resumption));
    }
}

/// Takes the locks for a blocked command; `false` if a long command is in the way.
fn lock_to_serve(guest: &mut Cx<'_>, need: Locked, row: &'static Resolved, args: Args<'_>) -> bool {
    /// Attempts before a lock that somebody holds beside a long command counts as that one's.
    const PATIENCE: usize = 1000;
    let keyspace = &guest.engine.keyspace;
    let mut attempts = 0;
    while need.acquire(keyspace).is_err() {
        attempts += 1;
        if attempts > PATIENCE && guest.engine.holds.any() {
            return false;
        }
        std::thread::yield_now();
    }
    guest.db.locked = need;
    if guest.engine.holds.any() && is_held_back(guest, row, args) {
        std::mem::replace(&mut guest.db.locked, Locked::None).release(keyspace);
        return false;
    }
    true
}

/// Messages that a command caused for its own client follow its reply at once, as if they had been
/// written while it ran but after it.
fn deliver_own_pushes(cx: &mut Cx<'_>) {
    // A look at all that waits for others is not for nothing.
    let session = &cx.session;
    if !(session.is_subscribed() || session.is_monitor || session.tracking.is_some()) {
        return;
    }
    let mailbox = &cx.engine.mailboxes[cx.thread.index];
    if !mailbox.has_mail() {
        return;
    }
    for push in mailbox.take_pushes(cx.session.id()) {
        write_push(cx.session, &push, &mut cx.reply);
    }
}

/// Whether a command answers with out-of-band messages, which CLIENT REPLY does not silence.
fn answers_with_pushes(row: &Resolved) -> bool {
    matches!(
        row.command.name,
        "subscribe" | "psubscribe" | "ssubscribe" | "unsubscribe" | "punsubscribe" | "sunsubscribe"
    )
}

/// CLIENT REPLY and what belongs to the end of a reply in a special state.
fn after_reply(cx: &mut Cx<'_>, row: &Resolved, started: usize) {
    // CLIENT REPLY SKIP is not itself the next command.
    if cx.session.reply_mode != ReplyMode::On && row.full_name != "client|reply" {
        let first = cx.reply.written_since(started).first();
        if answers_with_pushes(row) && matches!(first, Some(b'>' | b'*')) {
            end_skipping(cx.session);
        } else {
            silence(cx, started);
        }
    }
    if row.command.name != "caching"
        && cx.session.multi.is_none()
        && let Some(tracking) = &mut cx.session.tracking
    {
        tracking.caching = None;
    }
}

fn silence(cx: &mut Cx<'_>, started: usize) {
    cx.reply.truncate(started);
    end_skipping(cx.session);
}

fn end_skipping(session: &mut Session) {
    if session.reply_mode == ReplyMode::Skip {
        session.reply_mode = ReplyMode::On;
    }
}

/// Encodes an out-of-band message for a client.
pub(crate) fn write_push(session: &Session, push: &Push, reply: &mut Reply<'_>) {
    // CLIENT REPLY is about replies; MONITOR's lines are such.
    if session.reply_mode != ReplyMode::On && matches!(push, Push::Monitor(_)) {
        return;
    }
    match push {
        Push::Message { channel, payload } => {
            reply.push(3);
            reply.bulk(b"message");
            reply.bulk(channel);
            reply.bulk(payload);
        }
        Push::PatternMessage { pattern, channel, payload } => {
            reply.push(4);
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
            reply.bulk(channel);
            reply.bulk(payload);
        }
        Push::ShardMessage { channel, payload } => {
            reply.push(3);
            reply.bulk(b"smessage");
            reply.bulk(channel);
            reply.bulk(payload);
        }
        Push::Invalidate(keys) => write_invalidation(session, keys.as_deref(), reply),
        Push::TrackingRedirBroken(client) if reply.is_resp3() => {
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.integer(*client as i64);
        }
        Push::TrackingRedirBroken(_) => {}
        Push::Monitor(line) => {
            reply.raw(b"+");
            reply.raw(line);
            reply.raw(b"\r\n");
        }
    }
}

fn write_invalidation(session: &Session, keys: Option<&[Box<[u8]>]>, reply: &mut Reply<'_>) {
    if reply.is_resp3() {
        reply.push(2);
        reply.bulk(b"invalidate");
    } else if session.is_subscribed() {
        reply.push(3);
        reply.bulk(b"message");
        reply.bulk(b"__redis__:invalidate");
    } else {
        // RESP2 has no way to tell a client that is not subscribed.
        return;
    }
    match keys {
        None => reply.null_array(),
        Some(keys) => {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
    }
}

/// Ends everything a session takes part in: watches, subscriptions, tracking, waits.
pub fn release_everything(db: &Db<'_>, session: &mut Session) {
    let engine = db.engine;
    crate::transaction::unwatch(db, session);
    session.multi = None;
    if let Some(suspension) = session.suspension.take()
        && let Some(waiter) = suspension.waiter
        && waiter.abandon()
    {
        blocking::end(db, &waiter);
    }
    session.subscribed_bytes = 0;
    let subscriptions = std::mem::take(&mut session.subscriptions);
    for (space, names) in [
        (Space::Channels, subscriptions.channels),
        (Space::Patterns, subscriptions.patterns),
        (Space::ShardChannels, subscriptions.shard_channels),
    ] {
        names.iter().for_each(|name| engine.pubsub.unsubscribe(space, name, session.id()));
    }
    if session.tracking.take().is_some() {
        engine.tracking.remove(session.id());
    }
    if std::mem::take(&mut session.is_monitor) {
        engine.monitors.fetch_sub(1, Relaxed);
    }
}
