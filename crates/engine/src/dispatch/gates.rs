//! The gates: who may run what at this moment. They come in Redis's order, because clients see which
//! one refuses first.

use super::pushes::deliver_own_pushes;
use super::{NotNow, queued, reject};
use crate::args::Args;
use crate::command::{Command, Flags};
use crate::cx::Cx;
use crate::engine::Engine;
use crate::error::Error;
use crate::locks::Busy;
use crate::pause::Actions;
use crate::table::Resolved;
use crate::transaction::Queued;
use config::ProtectedAction;
use keyspace::Millis;
use resp::Protocol;
use std::sync::atomic::Ordering::Relaxed;

/// The gates; `false` if the request is answered already.
pub(super) fn pass_gates(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
) -> Result<bool, NotNow> {
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
pub(super) fn is_protected(cx: &Cx<'_>) -> bool {
    match cx.engine.config.enable_debug_command() {
        ProtectedAction::Yes => false,
        ProtectedAction::Local => !cx.session.is_local,
        ProtectedAction::No => true,
    }
}

pub(super) fn protected_error() -> Error {
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
    let pause = cx.engine.pause.in_force(cx.now())?;
    // A pause of everything holds back what would end it too, as in Valkey: only time does.
    (pause.actions == Actions::All || may_write(cx, row)).then_some(pause.until)
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
    row.command.flags.any(changing) || queue_has(cx, row, changing)
}

/// Whether this is an EXEC of a command with any of these flags.
fn queue_has(cx: &Cx<'_>, row: &Resolved, wanted: Flags) -> bool {
    let has = |queued: &Queued| cx.engine.table.all()[queued.command].command.flags.any(wanted);
    row.command.name == "exec" && queued(cx).iter().any(has)
}
