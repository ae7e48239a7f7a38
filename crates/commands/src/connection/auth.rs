//! `AUTH [username] password`

use super::list_line::line;
use engine::acl::DEFAULT_USER;
use engine::acl::log::Refused;
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
    complexity: "O(N) where N is the number of passwords defined for the user",
    summary: "Authenticates the connection.",
    history: &[("6.0.0", "Added ACL style (username and password).")],
    args: &[
        Arg::new("username", ArgKind::String).optional().since("6.0.0"),
        Arg::new("password", ArgKind::String),
    ],
    secrets: Some(|words, found| (1..words.len()).for_each(found)),
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

/// Checks credentials and lets the client in, or logs that it was refused.
pub(crate) fn authenticate(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    user: &[u8],
    password: &[u8],
) -> Outcome {
    let acl = &cx.engine.acl;
    if acl.authenticate(user, password) {
        cx.session.authenticated = true;
        cx.session.was_authenticated = true;
        return Ok(());
    }
    cx.engine.stats.acl_denied_auth.add(1);
    let now = cx.now().0;
    cx.session.publish(now);
    let client = line(cx.engine, &cx.session.client, now);
    let refused = Refused {
        id: 0,
        count: 1,
        in_transaction: cx.in_transaction,
        object: args[0].to_vec(),
        user: user.to_vec(),
        client: client.trim_end().to_owned(),
        created_ms: now,
        updated_ms: now,
    };
    acl.log.add(refused, cx.engine.config.acllog_max_len());
    Err(Error::text("WRONGPASS invalid username-password pair or user is disabled."))
}
