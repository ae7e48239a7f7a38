//! Checks whether a client's user may send a request. Reports and logs denials.

use crate::acl::log::Refused;
use crate::acl::{Denial, Request};
use crate::args::Args;
use crate::command::{Flags, ScriptName};
use crate::cx::Cx;
use crate::error::Error;
use crate::table::Resolved;
use keyspace::DbIndex;
use std::sync::Arc;

/// A request that the client's user may not send.
#[derive(Debug)]
pub struct Denied(Denial);

/// Returns whether the user is known to be allowed the request without looking for its keys.
/// `false` requires a full check.
#[inline]
pub(super) fn is_plainly_allowed(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    let user = cx.session.user.current(&cx.engine.acl);
    user.may_do_everything() || user.allows_one_key(row, args.words())
}

/// Checks the user's permissions. A denial is counted and logged.
///
/// # Errors
/// What is denied.
pub(super) fn check(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Denied> {
    if !cx.engine.acl.is_restricting() || is_plainly_allowed(cx, row, args) {
        return Ok(());
    }
    check_in_full(cx, row, args)
}

/// Checks as [`check`] does, for a request that is not plainly allowed.
///
/// # Errors
/// What is denied.
pub(super) fn check_in_full(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Denied> {
    ask(cx, row, args).map_err(|(denial, word)| {
        note(cx, row, args, denial, word);
        Denied(denial)
    })
}

/// Returns whether the user may send this request and read any key besides.
///
/// A denial is neither counted nor logged.
pub fn may_read_any_key(cx: &mut Cx<'_>, args: Args<'_>) -> bool {
    for_client(cx, |cx| reads_any_key(cx, args))
}

/// Returns whether the user may read a key that the request does not name.
///
/// A denial is neither counted nor logged.
pub fn may_read(cx: &mut Cx<'_>, key: &[u8]) -> bool {
    if !cx.engine.acl.is_restricting() {
        return true;
    }
    for_client(cx, |cx| {
        let user = cx.session.user.current(&cx.engine.acl);
        user.may_do_everything() || user.may_read(key, cx.db.index)
    })
}

/// Checks the user for whom a link's request is, instead of the link's own: the node that sends the
/// request has checked the request itself, but not what runs inside it.
#[inline]
fn for_client<T>(cx: &mut Cx<'_>, check: impl FnOnce(&mut Cx<'_>) -> T) -> T {
    let Some(user) = cx.session.acts_for.take() else { return check(cx) };
    let own = std::mem::replace(&mut cx.session.user, user);
    let result = check(cx);
    cx.session.acts_for = Some(std::mem::replace(&mut cx.session.user, own));
    result
}

fn reads_any_key(cx: &mut Cx<'_>, args: Args<'_>) -> bool {
    if !cx.engine.acl.is_restricting() {
        return true;
    }
    let user = cx.session.user.current(&cx.engine.acl);
    if user.may_do_everything() {
        return true;
    }
    let (user, row) = (Arc::clone(user), cx.resolved);
    cx.find_keys(row, args);
    let (db, databases) = (selected_database(cx), cx.engine.keyspace.databases());
    user.lets_read_any_key(&Request { row, words: args.words(), keys: &cx.keys, db, databases })
}

/// Checks as [`check`] does, for a command that a script runs.
///
/// # Errors
/// What to tell the script.
pub(super) fn check_of_script(
    cx: &mut Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
) -> Result<(), Error> {
    for_client(cx, |cx| check(cx, row, args).map_err(|denied| denied.script_error(cx, row)))
}

/// Returns whether a script may run this command. Nothing is counted or logged.
pub fn is_permitted(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    cx.keys.clear();
    let is_permitted =
        for_client(cx, |cx| is_plainly_allowed(cx, row, args) || ask(cx, row, args).is_ok());
    cx.keys.clear();
    is_permitted
}

/// Returns the database that a request finds selected after the commands queued before it.
fn selected_database(cx: &Cx<'_>) -> DbIndex {
    cx.session.multi().and_then(|multi| multi.selected()).unwrap_or(cx.db.index)
}

/// Checks a request that is not plainly allowed. Returns what is denied and the index of the word
/// that names it.
fn ask(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), (Denial, usize)> {
    // The keys of EXEC are those of its queue, and its commands were checked when they were queued.
    // A script may check a request with too few words. A command's own key finder must not see such
    // a request.
    let command = row.command;
    let can_be_found = command.find_keys.is_none() || command.accepts(args.len());
    let has_keys = !command.flags.has(Flags::RUNS_QUEUE) && can_be_found;
    let keys = if !has_keys {
        &[][..]
    } else {
        cx.find_keys(row, args);
        &cx.keys[..]
    };
    let (db, databases) = (selected_database(cx), cx.engine.keyspace.databases());
    let user = cx.session.user.current(&cx.engine.acl);
    user.check(&Request { row, words: args.words(), keys, db, databases })
}

/// Checks as [`check`] does, for a command that EXEC runs.
///
/// # Errors
/// The reply: the rules have changed since the command was queued.
pub fn check_queued(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Error> {
    cx.keys.clear();
    if may_have_been_digest(cx, row, args) {
        return Ok(());
    }
    for_client(cx, |cx| check(cx, row, args)).map_err(|Denied(denial)| {
        let reason = match denial {
            Denial::Command => "no permission to execute the command or subcommand",
            Denial::Key => "no permission to touch the specified keys",
            Denial::Channel => {
                "no permission to access one of the channels used as argument to the command"
            }
            Denial::Database => "no permission to access database",
        };
        Error::format(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
             EXEC call. This command is no longer allowed for the following reason: {reason}"
        ))
    })
}

/// Returns whether a link's EVAL may have been EVALSHA when its client queued it, which the user
/// may send: nodes send the script's text in a transaction. They have checked what the client sent.
fn may_have_been_digest(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    if cx.session.acts_for.is_none() || row.command.script != Some(ScriptName::Source) {
        return false;
    }
    let by_digest = cx.engine.table.named_by(row, ScriptName::Digest);
    by_digest.is_some_and(|by_digest| is_permitted(cx, by_digest, args))
}

#[cold]
fn note(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>, denial: Denial, word: usize) {
    let stats = &cx.engine.stats;
    match denial {
        Denial::Command => stats.acl_denied_command.add(1),
        Denial::Key => stats.acl_denied_key.add(1),
        Denial::Channel => stats.acl_denied_channel.add(1),
        Denial::Database => stats.acl_denied_database.add(1),
    }
    let object = match denial {
        Denial::Command => row.full_name.as_bytes().to_vec(),
        // No word names the selected database or all databases.
        Denial::Database if word == 0 => row.full_name.as_bytes().to_vec(),
        _ => args.get(word).unwrap_or_default().to_vec(),
    };
    let why = denial.text(cx.session.user.name(), row);
    super::auditing::note_denial(cx, row, args, &object, &why);
    let context = match () {
        () if cx.script.is_some() => "lua",
        () if cx.session.multi().is_some() || cx.in_transaction => "multi",
        () => "toplevel",
    };
    let user = cx.session.user.name().as_bytes().to_vec();
    // The client's own command is the one that runs the script, or EXEC.
    if cx.script.is_none() {
        let runs_queue = |row: &&Resolved| row.command.flags.has(Flags::RUNS_QUEUE);
        let mut exec = cx.engine.table.all().iter().filter(runs_queue);
        let exec = if cx.in_transaction { exec.next() } else { None };
        cx.session.last_command = exec.unwrap_or(row).index + 1;
    }
    let refused = Refused::new(denial.name(), context, object, user, cx.now());
    if !cx.session.is_guest {
        cx.session.publish(cx.now().0);
    }
    cx.engine.note_refusal(&cx.session.client, refused);
}

impl Denied {
    /// Returns the error for the client.
    pub(super) fn error(&self, cx: &Cx<'_>, row: &Resolved) -> Error {
        Error::format(format!("NOPERM {}", self.text(cx, row)))
    }

    /// Returns the error for a script.
    pub(super) fn script_error(&self, cx: &Cx<'_>, row: &Resolved) -> Error {
        Error::format(format!("ERR ACL failure in script: {}", self.text(cx, row)))
    }

    fn text(&self, cx: &Cx<'_>, row: &Resolved) -> String {
        self.0.text(cx.session.user.name(), row)
    }
}
