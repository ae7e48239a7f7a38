//! What the audit log is told: commands of rows with [`Flags::AUDITED`], and requests that a user
//! may not send (`docs/internals/audit.md`).

use crate::args::Args;
use crate::clients::suspension::AuditedRequest;
use crate::command::Flags;
use crate::cx::Cx;
use crate::engine::{AuditOutcome, Audited, Engine, Host};
use crate::error::Error;
use crate::session::Session;
use crate::table::Resolved;

/// Records a command that has run. If its reply comes later, records that it has begun, and keeps
/// the request for [`note_end`].
#[cold]
pub(super) fn note(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>, error: Option<&Error>) {
    // The server to which a client sent the command has recorded it.
    if cx.db.repeats_history() || listener(cx.engine).is_none() {
        return;
    }
    let words = args.words();
    if let Some(error) = error {
        return record_refusal(cx.engine, cx.session, row, words, &error.line());
    }
    let Some(suspension) = &mut cx.session.suspension else {
        let target = row.command.audited(words);
        return record(cx.engine, cx.session, row, &target, AuditOutcome::Done);
    };
    let words_kept = words.iter().map(|&word| Box::from(word)).collect();
    suspension.audited = Some(Box::new(AuditedRequest { row, words: words_kept }));
    record(cx.engine, cx.session, row, &row.command.shown(words), AuditOutcome::Begun);
}

/// Records a request that goes to other nodes, as begun: they record what they do, and know this
/// node as their client.
#[cold]
pub(super) fn note_forwarded(cx: &Cx<'_>, row: &Resolved, words: &[&[u8]]) {
    if listener(cx.engine).is_some() {
        record(cx.engine, cx.session, row, &row.command.shown(words), AuditOutcome::Begun);
    }
}

/// Records the end of a command whose reply has come, as RESP.
#[cold]
pub(crate) fn note_end(engine: &Engine, session: &Session, request: &AuditedRequest, reply: &[u8]) {
    let words: Vec<&[u8]> = request.words.iter().map(|word| &**word).collect();
    let row = request.row;
    match reply.strip_prefix(b"-") {
        Some(error) => {
            let line = error.split(|&byte| byte == b'\r').next().unwrap_or_default();
            record_refusal(engine, session, row, &words, line);
        }
        None => record(engine, session, row, &row.command.audited(&words), AuditOutcome::Done),
    }
}

/// Records that a gate refused a request of an audited row. What a user may not do is recorded by
/// [`note_denial`].
#[cold]
pub(super) fn note_refusal(cx: &Cx<'_>, row: &Resolved, error: &Error) {
    let line = error.line();
    if listener(cx.engine).is_some() && !line.starts_with(b"NOPERM") {
        record(cx.engine, cx.session, row, &[], AuditOutcome::Refused(&line));
    }
}

/// Records a request that the user may not send. `object` is what it may not use.
pub(super) fn note_denial(cx: &Cx<'_>, row: &Resolved, args: Args<'_>, object: &[u8], why: &str) {
    if listener(cx.engine).is_none() {
        return;
    }
    let why = format!("NOPERM {why}");
    if row.command.flags.has(Flags::AUDITED) {
        return record_refusal(cx.engine, cx.session, row, args.words(), why.as_bytes());
    }
    let object = [object];
    let is_name = object[0] == row.full_name.as_bytes();
    let target = if is_name { &[][..] } else { &object[..] };
    let action = &*row.full_name;
    tell(cx.engine, cx.session, action, target, AuditOutcome::Refused(why.as_bytes()));
}

/// Records a refusal. An error may quote what was sent, so only its code is kept if that has a
/// secret.
fn record_refusal(
    engine: &Engine,
    session: &Session,
    row: &Resolved,
    words: &[&[u8]],
    line: &[u8],
) {
    let shown = row.command.shown(words);
    let why = match shown == words {
        true => line,
        false => line.split(|&byte| byte == b' ').next().unwrap_or_default(),
    };
    record(engine, session, row, &shown, AuditOutcome::Refused(why));
}

/// Records a request, whose words with the command's name are `shown`.
fn record(
    engine: &Engine,
    session: &Session,
    row: &Resolved,
    shown: &[&[u8]],
    outcome: AuditOutcome<'_>,
) {
    let name_words = 1 + row.full_name.matches('|').count();
    let target = shown.get(name_words..).unwrap_or_default();
    tell(engine, session, &row.full_name, target, outcome);
}

fn tell(
    engine: &Engine,
    session: &Session,
    action: &str,
    target: &[&[u8]],
    outcome: AuditOutcome<'_>,
) {
    let user = session.acts_for.as_ref().unwrap_or(&session.user).name().as_bytes();
    if let Some(host) = listener(engine) {
        host.audit(&Audited { user, client: &session.client, action, target, outcome });
    }
}

/// Returns the host if it keeps an audit log.
fn listener(engine: &Engine) -> Option<&dyn Host> {
    engine.host().filter(|host| host.audits())
}
