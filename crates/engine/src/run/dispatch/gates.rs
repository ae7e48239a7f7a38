//! The gates decide which command may run for a caller at this moment. Each gate is a function that
//! returns a refusal or nothing. A caller lists the gates that it applies, in Redis's order,
//! because clients see which gate refuses first.
//!
//! - A client's request passes [`CLIENT`].
//! - A command that MULTI queues passes them when it is queued. EXEC checks on behalf of its whole
//!   queue ([`queue_has`]).
//! - A command that a script calls passes [`SCRIPT`]. The script itself has passed [`CLIENT`].
//! - Commands replayed from an append-only file pass none. They passed the gates when they first
//!   ran.

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

/// Why a gate refuses a request.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The request is answered with an error.
    Error(Error),
    /// The request has to be tried again.
    NotNow(NotNow),
    /// Another node of the cluster answers the request.
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

/// A gate. It may reclaim memory for the request, but runs no part of it.
pub(super) type Gate = fn(&mut Cx<'_>, &Resolved, Args<'_>) -> Result<(), Refusal>;

/// The gates of a client's request.
pub(super) const CLIENT: [Gate; 19] = [
    authentication,
    protection,
    permission,
    overload,
    rate,
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

/// The gates of a request that its user is not plainly allowed, if nothing else is special.
pub(super) const RESTRICTED: [Gate; 2] = [protection, permission_in_full];

/// The gates of a request that runs while a script keeps the world stopped.
pub(super) const OUTSIDE: [Gate; 4] = [authentication, protection, permission, nesting];

/// The gates of a forwarded request, besides those of [`CLIENT`] up to the one that forwards it.
pub(super) const FORWARDED: [Gate; 2] = [subscription, nesting];

/// The gates that a request passes again when a background thread begins it. It has waited since it
/// passed [`CLIENT`], and this server may have become a replica or begun to load meanwhile.
pub(super) const IN_BACKGROUND: [Gate; 3] = [read_only_replica, stale_data, loading];

/// The gates that come before the BUSY error while a script keeps the world stopped.
pub(super) const LOADING: [Gate; 2] = [authentication, loading];

/// The gates of a command that a script calls.
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

/// The same for a log that is replayed. Its writes have happened, so the server's present state
/// must not refuse them.
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

/// Checks whether a script may run this command, by the rules in `Cx::script`.
///
/// # Errors
/// The error for the script.
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

/// Refuses DEBUG to clients for which the configuration does not enable it.
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

/// Returns whether the client may send commands at all.
pub(super) fn is_authenticated(cx: &Cx<'_>) -> bool {
    cx.session.is_authenticated() || cx.engine.acl.is_open()
}

fn authentication(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if is_authenticated(cx) || row.command.flags.has(Flags::NO_AUTH) {
        return Ok(());
    }
    Err(Error::NoAuth.into())
}

/// Checks the permissions of the client's user.
fn permission(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    super::permission::check(cx, row, args).map_err(|denied| denied.error(cx, row).into())
}

/// Does the same for a request that is not plainly allowed.
fn permission_in_full(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    let checked = super::permission::check_in_full(cx, row, args);
    checked.map_err(|denied| denied.error(cx, row).into())
}

fn script_permission(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    // The keys found before belong to the script itself or to its previous command.
    cx.keys.clear();
    super::permission::check_of_script(cx, row, args).map_err(Refusal::from)
}

/// Refuses requests of the least important clients while this thread is overloaded. A transaction
/// that has begun goes on.
fn overload(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if !cx.thread.turns.is_overloaded() {
        return Ok(());
    }
    let is_exempt = row.command.flags.any(Flags::NO_AUTH.with(Flags::ALLOW_BUSY));
    let session = &*cx.session;
    if is_exempt || session.multi().is_some() || session.is_link || session.is_insider {
        return Ok(());
    }
    let shedding = &cx.engine.shedding;
    if !(shedding.refuses_reads() || may_write(cx, row)) || !is_least_important(cx) {
        return Ok(());
    }
    cx.engine.stats.shed_requests.add(1);
    Err(Error::text("TRYAGAIN The server is overloaded: send the request again later").into())
}

/// Returns whether the client is one of those that are refused first. The session keeps that until
/// the rules, its user or its names change.
fn is_least_important(cx: &mut Cx<'_>) -> bool {
    let (shedding, session) = (&cx.engine.shedding, &mut *cx.session);
    let generation = shedding.generation();
    if let Some((known, is_least)) = session.is_least_important
        && known == generation
    {
        return is_least;
    }
    let names = session.client.names();
    let user = session.user.name().as_bytes();
    let is_least = shedding.is_least_important(user, &names.name, &names.lib_name);
    drop(names);
    session.is_least_important = Some((generation, is_least));
    is_least
}

/// Makes a request wait if its user or its address has had its share. Links of other nodes carry
/// what was counted there.
fn rate(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let is_exempt = row.command.flags.any(Flags::NO_AUTH);
    if is_exempt || cx.session.is_link || cx.session.is_insider || cx.session.is_replica() {
        return Ok(());
    }
    if cx.engine.rate_limits.is_open(cx.session) {
        return Ok(());
    }
    cx.engine.stats.limited_requests.add(1);
    Err(NotNow::Limited.into())
}

/// Redirects a client that understands it (`CLIENT CAPA redirect`) from a replica to the primary.
/// During a failover the next primary is not known yet, so the client waits.
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

/// Refuses access to the keyspace on a replica's connection, which carries the stream only.
fn replica_link(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let keyspace = Flags::READONLY.with(Flags::WRITE).with(Flags::MAY_REPLICATE);
    if cx.session.is_replica() && flags_of(cx, row).any(keyspace) {
        return Err(Error::text("ERR Replica can't interact with the keyspace").into());
    }
    Ok(())
}

/// Holds requests back during CLIENT PAUSE, the last snapshot before a shutdown, and FAILOVER.
fn pause(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    if is_paused(cx, row, args) { Err(NotNow::Paused.into()) } else { Ok(()) }
}

/// Makes writers wait while the append-only file is far behind. They are notified when they can go
/// on.
fn journal_space(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if cx.engine.is_log_behind() && may_write(cx, row) {
        return Err(NotNow::Held.into());
    }
    Ok(())
}

/// Makes requests that send messages wait while a thread has very many messages to read.
fn pending_messages(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if cx.engine.shared_by_mailboxes.overdue.any() && posts_messages(cx, row) {
        return Err(NotNow::Busy.into());
    }
    Ok(())
}

/// Reclaims the memory that the request may take.
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
    // The client gets the invalidations of evicted keys before the reply.
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

/// Refuses writes while there are fewer replicas than `min-replicas-to-write`.
fn replicas(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let writes =
        |cx: &Cx<'_>| flags_of(cx, row).has(Flags::WRITE) || queue_has(cx, row, Flags::WRITE);
    if cx.engine.lacks_replicas() && writes(cx) {
        return Err(Error::text("NOREPLICAS Not enough good replicas to write.").into());
    }
    Ok(())
}

/// Returns whether this is a replica whose data only its primary may change.
pub(crate) fn refuses_writes_of_clients(engine: &Engine) -> bool {
    engine.upstream.is_replica() && engine.config.replica_read_only()
}

/// Refuses writes of clients on a read-only replica.
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

/// Returns whether this is a replica with a broken link that must not serve stale data.
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

/// Refuses writes while persistence fails, and commands that ask for the server's health. Commands
/// whose effects only reach clients, like PUBLISH, are allowed.
fn disk(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    let Some(error) = persistence_error(cx.engine) else { return Ok(()) };
    let refused = Flags::WRITE.with(Flags::REPORTS_HEALTH);
    if flags_of(cx, row).any(refused) || queue_has(cx, row, Flags::WRITE) {
        return Err(error.into());
    }
    Ok(())
}

/// Returns the persistence error for which writes are refused, if there is one.
fn persistence_error(engine: &Engine) -> Option<Error> {
    if engine.refuses_writes() {
        return Some(Error::Misconfigured);
    }
    engine.append_log.is_broken().then(|| {
        let why = engine.append_log.error();
        Error::format(format!("MISCONF Errors writing to the AOF file: {why}"))
    })
}

/// Limits a subscribed RESP2 client, which could not tell replies from messages.
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

/// Refuses some commands inside MULTI.
fn nesting(cx: &mut Cx<'_>, row: &Resolved, _: Args<'_>) -> Result<(), Refusal> {
    if cx.session.multi().is_none() || !row.command.flags.has(Flags::NO_MULTI) {
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
    // Commands that may be replicated count as writes here, as in Redis.
    let changing = Flags::WRITE.with(Flags::MAY_REPLICATE);
    if is_read_only && row.command.flags.any(changing) {
        let text = "ERR Write commands are not allowed from read-only scripts.";
        return Err(Error::text(text).into());
    }
    Ok(())
}

/// Returns whether this is a script that has written. It is not stopped half-way by a change of the
/// server's state.
fn has_begun_to_write(cx: &Cx<'_>) -> bool {
    cx.script.is_some_and(|rules| rules.has_written)
}

/// Refuses writes of a script while persistence fails. Unlike a client, a script may ask for the
/// server's health then.
fn disk_of_script(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    if has_begun_to_write(cx) || !row.command.flags.has(Flags::WRITE) {
        return Ok(());
    }
    disk(cx, row, args)
}

fn replicas_of_script(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    if has_begun_to_write(cx) { Ok(()) } else { replicas(cx, row, args) }
}

/// Refuses commands that need memory if memory was full when the script began, unless the script
/// has written.
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
    // A pause of all commands also delays the command that would end it, as in Valkey. Only its
    // timeout ends it, or an operator.
    pause.actions == Actions::All && !cx.thread.is_for_operators || may_write(cx, row)
}

/// Returns whether this is the hello message of a sentinel. Sentinels would take a server that
/// delays it for dead.
fn is_greeting(row: &Resolved, args: Args<'_>) -> bool {
    let posts = Flags::PUBSUB.with(Flags::MAY_REPLICATE);
    row.command.flags.has(posts) && args.words().get(1) == Some(&&b"__sentinel__:hello"[..])
}

/// Returns whether a request may send messages to any number of clients.
#[cold]
fn posts_messages(cx: &Cx<'_>, row: &Resolved) -> bool {
    let engine = cx.engine;
    engine.monitors.any()
        || row.command.flags.has(Flags::PUBSUB)
        || queue_has(cx, row, Flags::PUBSUB)
        || (engine.has_global_interest() && may_write(cx, row))
}

/// Returns whether a request may change keys. EXEC may if a queued command may.
pub(super) fn may_write(cx: &Cx<'_>, row: &Resolved) -> bool {
    let changing = Flags::WRITE.with(Flags::MAY_REPLICATE);
    flags_of(cx, row).any(changing) || queue_has(cx, row, changing)
}

/// Returns whether a request writes keys by what its row says, or for EXEC a queued one. A script
/// that does not say whether it writes does not count: what it runs is looked at by itself.
pub(super) fn writes_keys(cx: &Cx<'_>, row: &Resolved) -> bool {
    flags_of(cx, row).has(Flags::WRITE) || queue_has(cx, row, Flags::WRITE)
}

/// Returns the flags of the request.
fn flags_of(cx: &Cx<'_>, row: &Resolved) -> Flags {
    cx.request_flags.unwrap_or(row.command.flags)
}

/// Returns the queue that this command runs, if it is EXEC.
fn queue_of<'c>(cx: &'c Cx<'_>, row: &Resolved) -> Option<&'c Multi> {
    let multi = cx.session.multi();
    multi.filter(|_| row.command.flags.has(Flags::RUNS_QUEUE))
}

/// Returns whether this is an EXEC whose queue has a command with any of these flags.
fn queue_has(cx: &Cx<'_>, row: &Resolved, wanted: Flags) -> bool {
    queue_of(cx, row).is_some_and(|multi| multi.has_any(wanted))
}

#[cfg(test)]
mod tests;
