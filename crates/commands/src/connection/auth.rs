//! `AUTH [username] password`

use engine::acl::DEFAULT_USER;
use engine::acl::log::Refused;
use engine::routing::{Local, Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};

/// `AUTH`.
pub static AUTH: Command = Command {
    name: "auth",
    arity: -2,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::NO_AUTH)
        .with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "1.0.0",
    complexity: "O(N) for a user with N passwords",
    summary: "Logs in with a password, as a user or as the default one.",
    history: &[("6.0.0", "Takes a user's name before the password.")],
    args: &[
        Arg::new("username", ArgKind::String).optional().since("6.0.0"),
        Arg::new("password", ArgKind::String),
    ],
    secrets: Some(|words, found| (1..words.len()).for_each(found)),
    routing: Routing::by(Way::Local(Local::Auth)),
    run: auth,
    ..Command::ROW
};

fn auth(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    match *args.words() {
        [_, password] => {
            if cx.engine.acl.needs_no_password() {
                return Err(Error::text(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            authenticate(cx, args, DEFAULT_USER.as_bytes(), password)?;
        }
        [_, user, password] => authenticate(cx, args, user, password)?,
        _ => return Err(Error::Syntax),
    }
    cx.reply.ok();
    Ok(())
}

/// The error for credentials that are not accepted.
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Checks credentials and lets the client in, or logs that it was refused.
pub(crate) fn authenticate(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    user: &[u8],
    password: &[u8],
) -> Outcome {
    if let Some(user) = cx.engine.acl.authenticate(user, password) {
        cx.session.log_in(user);
        return Ok(());
    }
    cx.engine.stats.acl_denied_auth.add(1);
    let context = if cx.in_transaction { "multi" } else { "toplevel" };
    let refused = Refused::new("auth", context, args[0].to_vec(), user.to_vec(), cx.now());
    cx.session.publish(cx.now().0);
    cx.engine.note_failed_login(&cx.session.client, refused, WRONG_PASSWORD);
    Err(Error::text(WRONG_PASSWORD))
}
