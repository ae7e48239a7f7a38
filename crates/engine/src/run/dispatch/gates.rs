//! The gates: which command may run for a caller at this moment. Each is a function that answers with a
//! refusal; a caller names those that it applies, in Redis's order, because clients see which one refuses
//! first.
//!
//! - A client's request passes [`CLIENT`].
//! - A command that MULTI queues has passed them when it was queued, and EXEC asks on behalf of its whole
//!   queue ([`queue_has`]); one that a script calls passes [`SCRIPT`], the script itself having passed
//!   [`CLIENT`].
//! - History passes none: what an append-only file repeats has passed them when it ran first.

use super::NotNow;
use super::pushes::deliver_own_pushes;
use crate::args::Args;
use crate::clients::forwarding::Travel;
use crate::command::Flags;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::error::Error;
use crate::evict::{self, Claim, Reclaimed};
use crate::pause::{Actions, Purpose};
use crate::table::Resolved;
use crate::transaction::Multi;
use config::ProtectedAction;
use resp::Protocol;
use std::sync::atomic::Ordering::Relaxed;

/// Why a gate does not let a request pass.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It is answered with an error.
    Error(Error),
    /// It is to be tried again.
    NotNow(NotNow),
    /// Another node of the cluster answers it.
    Forward(Travel),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

impl From<NotNow> for Refusal {
    fn from(reason: NotNow) -> Refusal {
        Refusal::NotNow(reason)
    }
}

/// A gate; it may make reclaimed for the request, but does nothing of it.
pub(super) type Gate = fn(&mut Cx<'_>, &Resolved, Args<'_>) -> Result<(), Refusal>;

/// What a client's request passes.
pub(super) const CLIENT: [Gate; 17] = [
    authentication,
    protection,
    permission,
    super::slots::slot,
    redirection,
    replica_link,
    pause,
    journal_space,
    pending_messages,
    memory,
    disk,
    replicas,
    read_only_replica,
    subscription,
    stale_data,
    loading,
    nesting,
];

/// What a client's request passes that is not plainly allowed to its user, where nothing else is special.
pub(super) const RESTRICTED: [Gate; 2] = [protection, permission_in_full];

/// What a request passes that runs beside a script which keeps the world stopped.
pub(super) const OUTSIDE: [Gate; 4] = [authentication, protection, permission, nesting];

/// What a client's request passes that another node answers, besides the gates before.
pub(super) const FORWARDED: [Gate; 2] = [subscription, nesting];

/// What refuses a request before it is said that a script keeps the world stopped.
pub(super) const LOADING: [Gate; 2] = [authentication, loading];

/// What a command passes that a script calls.
pub(super) const SCRIPT: [Gate; 10] = [
    protection,
    no_script,
    stale_data_of_script,
    script_permission,
    super::slots::slot_of_script,
    read_only_script,
    read_only_replica,
    disk_of_script,
    replicas_of_script,
    script_memory,
];

/// The same where a log is repeated: what it says has happened, whatever the server has become since.
const REPLAYED_SCRIPT: [Gate; 2] = [no_script, read_only_script];

/// Passes the gates in their order.
///
/// # Errors
/// The first refusal.
#[inline(always)]
pub(super) fn pass<const N: usize>(
    cx: &mut Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
    gates: [Gate; N],
) -> Result<(), Refusal> {
    for gate in gates {
        gate(cx, row, args)?;
    }
    Ok(())
}

/// Whether a script may run this command, which the rules of `Cx::script` decide.
///
/// # Errors
/// What the script is told.
pub fn may_script_run(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Error> {
    let passed = match cx.db.effects.is_replay {
        true => pass(cx, row, args, REPLAYED_SCRIPT),
        false => pass(cx, row, args, SCRIPT),
    };
    match passed {
        Ok(()) => Ok(()),
        Err(Refusal::Error(error)) => Err(error),
        Err(Refusal::NotNow(_) | Refusal::Forward(_)) => {
            unreachable!("no gate of a script asks it to wait or sends it away")
        }
    }
}

/// DEBUG is only for clients that the configuration allows it to.
pub(super) fn protection(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if !row.command.flags.has(Flags::PROTECTED) {
        return Ok(());
    }
    let is_protected = match cx.engine.config.enable_debug_command() {
        ProtectedAction::Yes => false,
        ProtectedAction::Local => !cx.session.is_local,
        ProtectedAction::No => true,
    };
    if is_protected { Err(protected_error().into()) } else { Ok(()) }
}

fn protected_error() -> Error {
    Error::text(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.",
    )
}

/// Whether the client may send commands at all.
pub(super) fn is_authenticated(cx: &Cx<'_>) -> bool {
    cx.session.authenticated || cx.engine.acl.is_open()
}

fn authentication(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if is_authenticated(cx) || row.command.flags.has(Flags::NO_AUTH) {
        return Ok(());
    }
    Err(Error::NoAuth.into())
}

/// What the client's user may do.
fn permission(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    super::permission::check(cx, row, args).map_err(|denied| denied.error(cx, row).into())
}

/// The same for a request that is not plainly allowed.
fn permission_in_full(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    let checked = super::permission::check_in_full(cx, row, args);
    checked.map_err(|denied| denied.error(cx, row).into())
}

fn script_permission(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    // Those of the script itself, or of the command before.
    cx.keys.clear();
    super::permission::check(cx, row, args).map_err(|denied| denied.script_error(cx, row).into())
}

/// A replica sends a client to the primary that understands it (`CLIENT CAPA redirect`). While this server
/// hands its role over it is not known yet which one that will be.
fn redirection(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if !cx.session.can_redirect || !cx.engine.upstream.is_replica() {
        return Ok(());
    }
    let writes = may_write(cx, row);
    let reads = flags_of(cx, row).has(Flags::READONLY) || queue_has(cx, row, Flags::READONLY);
    if !writes && (!reads || cx.session.reads_replica) {
        return Ok(());
    }
    if cx.engine.failover.is_on() && cx.engine.pause.in_force(cx.now()).is_some() {
        return Err(NotNow::Paused.into());
    }
    match cx.engine.upstream.primary() {
        Some((host, port)) => Err(Error::Redirect(host, port).into()),
        None => Ok(()),
    }
}

/// The connection of a replica is there for the stream alone.
fn replica_link(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let keyspace = Flags::READONLY.with(Flags::WRITE).with(Flags::MAY_REPLICATE);
    if cx.session.is_replica && flags_of(cx, row).any(keyspace) {
        return Err(Error::text("ERR Replica can't interact with the keyspace").into());
    }
    Ok(())
}

/// CLIENT PAUSE, the last snapshot before a shutdown, and FAILOVER.
fn pause(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    if is_paused(cx, row, args) { Err(NotNow::Paused.into()) } else { Ok(()) }
}

/// Writers wait while the disk is far behind; they are told when it goes on.
fn journal_space(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if cx.engine.journal.is_full() && may_write(cx, row) {
        return Err(NotNow::Held.into());
    }
    Ok(())
}

/// Messages wait while a thread has very many to read.
fn pending_messages(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if cx.engine.shared_by_mailboxes.overdue.load(Relaxed) > 0 && posts_messages(cx, row) {
        return Err(NotNow::Busy.into());
    }
    Ok(())
}

/// Makes reclaimed for what the request may take.
fn memory(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if cx.engine.config.maxmemory() == 0 {
        crate::caching::limit_keys(&cx.db);
        deliver_own_pushes(cx);
        return Ok(());
    }
    let denies = |flags: Flags| flags.has(Flags::DENYOOM);
    let claims = denies(row.command.flags) || queue_has(cx, row, Flags::DENYOOM);
    let reclaimed = evict::reclaim(&mut cx.db, if claims { Claim::Memory } else { Claim::Nothing });
    crate::caching::limit_keys(&cx.db);
    // The client learns before the reply what eviction took from its cache.
    deliver_own_pushes(cx);
    if matches!(reclaimed, Reclaimed::Enough | Reclaimed::InProgress) || !claims {
        return Ok(());
    }
    if reclaimed == Reclaimed::DiskIsBehind {
        cx.engine.tier.throttled.add(1);
        return Err(NotNow::Held.into());
    }
    Err(Error::OutOfMemory.into())
}

/// Writes are refused while there are fewer replicas than `min-replicas-to-write`.
fn replicas(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let writes =
        |cx: &Cx<'_>| flags_of(cx, row).has(Flags::WRITE) || queue_has(cx, row, Flags::WRITE);
    if cx.engine.lacks_replicas() && writes(cx) {
        return Err(Error::text("NOREPLICAS Not enough good replicas to write.").into());
    }
    Ok(())
}

/// Whether this is a replica whose data its primary alone may change.
pub(crate) fn refuses_writes_of_clients(engine: &Engine) -> bool {
    engine.upstream.is_replica() && engine.config.replica_read_only()
}

/// A replica's data is written by its primary alone.
fn read_only_replica(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if !refuses_writes_of_clients(cx.engine) {
        return Ok(());
    }
    let writes = row.command.flags.has(Flags::WRITE) || queue_has(cx, row, Flags::WRITE);
    if writes && !super::one_address::is_definition(cx, row) {
        return Err(Error::ReadOnlyReplica.into());
    }
    Ok(())
}

/// Whether this is a replica that does not know what its primary has, and must not answer with less.
pub(crate) fn has_stale_data(engine: &Engine) -> bool {
    let upstream = &engine.upstream;
    upstream.is_replica() && !upstream.is_link_up() && !engine.config.replica_serve_stale_data()
}

fn stale_data(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let is_allowed = row.command.flags.has(Flags::STALE);
    let queue_is_not = queue_of(cx, row).is_some_and(Multi::may_not_be_stale);
    if has_stale_data(cx.engine) && (!is_allowed || queue_is_not) {
        return Err(Error::MasterDown.into());
    }
    Ok(())
}

fn stale_data_of_script(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if has_stale_data(cx.engine) && !row.command.flags.has(Flags::STALE) {
        return Err(Error::text("ERR Can not execute the command on a stale replica").into());
    }
    Ok(())
}

/// Writes are refused while they could not be made to last, and so is what asks for the server's health.
/// Commands whose effects only go to clients, as PUBLISH, are not.
fn disk(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let Some(error) = persistence_error(cx.engine) else { return Ok(()) };
    let refused = Flags::WRITE.with(Flags::REPORTS_HEALTH);
    if flags_of(cx, row).any(refused) || queue_has(cx, row, Flags::WRITE) {
        return Err(error.into());
    }
    Ok(())
}

/// What keeps writes from being made to last, if that is a reason to refuse them.
fn persistence_error(engine: &Engine) -> Option<Error> {
    if engine.refuses_writes() {
        return Some(Error::Misconfigured);
    }
    engine.append_log.is_broken().then(|| {
        let why = engine.append_log.error();
        Error::format(format!("MISCONF Errors writing to the AOF file: {why}"))
    })
}

/// A RESP2 client with subscriptions could not tell replies from messages.
fn subscription(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let is_limited = cx.session.is_subscribed() && cx.session.protocol == Protocol::Resp2;
    if !is_limited || row.command.flags.has(Flags::WHILE_SUBSCRIBED) {
        return Ok(());
    }
    let name = &row.full_name;
    let text = format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
         RESET are allowed in this context"
    );
    Err(Error::format(text).into())
}

fn loading(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if row.command.flags.has(Flags::ENDS_REPLICA_LOAD) && cx.engine.upstream.is_loading() {
        return Ok(());
    }
    if !cx.engine.loading.is_on() {
        let is_refused = row.command.flags.has(Flags::NO_ASYNC_LOADING);
        return match is_refused && cx.engine.loading.is_beside() {
            true => Err(Error::Loading.into()),
            false => Ok(()),
        };
    }
    let is_allowed = row.command.flags.has(Flags::LOADING);
    let queue_is_not = queue_of(cx, row).is_some_and(Multi::may_not_load);
    if is_allowed && !queue_is_not { Ok(()) } else { Err(Error::Loading.into()) }
}

/// Some commands are refused inside MULTI.
fn nesting(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if cx.session.multi.is_none() || !row.command.flags.has(Flags::NO_MULTI) {
        return Ok(());
    }
    let text = format!("ERR Command '{}' not allowed inside a transaction", row.full_name);
    Err(Error::format(text).into())
}

fn no_script(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if row.command.flags.has(Flags::NOSCRIPT) && !cx.engine.debug.scripts_may_all() {
        return Err(Error::text("ERR This Valkey command is not allowed from script").into());
    }
    Ok(())
}

fn read_only_script(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let is_read_only = cx.script.is_some_and(|rules| rules.is_read_only);
    // What may have effects at replicas counts as a write here, as in the reference.
    let changing = Flags::WRITE.with(Flags::MAY_REPLICATE);
    if is_read_only && row.command.flags.any(changing) {
        let text = "ERR Write commands are not allowed from read-only scripts.";
        return Err(Error::text(text).into());
    }
    Ok(())
}

/// Whether this is a script that has written: it is not stopped half-way by the state of the server.
fn has_begun_to_write(cx: &Cx<'_>) -> bool {
    cx.script.is_some_and(|rules| rules.has_written)
}

/// Unlike a client, a script may ask for the server's health while the disk fails.
fn disk_of_script(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    if has_begun_to_write(cx) || !row.command.flags.has(Flags::WRITE) {
        return Ok(());
    }
    disk(cx, row, args)
}

fn replicas_of_script(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    if has_begun_to_write(cx) { Ok(()) } else { replicas(cx, row, args) }
}

/// A script that has begun to write is not stopped half-way for lack of memory.
fn script_memory(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let is_full = cx.script.is_some_and(|rules| rules.is_out_of_memory) && !has_begun_to_write(cx);
    if is_full && row.command.flags.has(Flags::DENYOOM) {
        return Err(Error::OutOfMemory.into());
    }
    Ok(())
}

fn is_paused(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    let Some(pause) = cx.engine.pause.in_force(cx.now()) else { return false };
    if pause.purpose == Purpose::Failover && is_greeting(row, args) {
        return false;
    }
    // A pause of everything holds back what would end it too, as in Valkey: only time does.
    pause.actions == Actions::All || may_write(cx, row)
}

/// Whether this is what sentinels tell each other by way of the server: they would take one that keeps it
/// waiting for dead.
fn is_greeting(row: &Resolved, args: Args<'_>) -> bool {
    let posts = Flags::PUBSUB.with(Flags::MAY_REPLICATE);
    row.command.flags.has(posts) && args.words().get(1) == Some(&&b"__sentinel__:hello"[..])
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
pub(super) fn may_write(cx: &Cx<'_>, row: &Resolved) -> bool {
    let changing = Flags::WRITE.with(Flags::MAY_REPLICATE);
    flags_of(cx, row).any(changing) || queue_has(cx, row, changing)
}

/// The flags of the request.
fn flags_of(cx: &Cx<'_>, row: &Resolved) -> Flags {
    cx.request_flags.unwrap_or(row.command.flags)
}

/// The queue that this command runs, if it is EXEC.
fn queue_of<'c>(cx: &'c Cx<'_>, row: &Resolved) -> Option<&'c Multi> {
    let multi = cx.session.multi.as_deref();
    multi.filter(|_| row.command.flags.has(Flags::RUNS_QUEUE))
}

/// Whether this is an EXEC of a command with any of these flags.
fn queue_has(cx: &Cx<'_>, row: &Resolved, wanted: Flags) -> bool {
    queue_of(cx, row).is_some_and(|multi| multi.has_any(wanted))
}

#[cfg(test)]
mod tests;
