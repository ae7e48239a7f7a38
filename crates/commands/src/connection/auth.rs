//! `AUTH [username] password`

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
    if args.len() > 3 {
        return Err(Error::Syntax);
    }
    if args.len() == 2 {
        if cx.engine.config.requirepass().is_empty() {
            return Err(Error::text(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        authenticate(cx, b"default", args[1])?;
    } else {
        authenticate(cx, args[1], args[2])?;
    }
    cx.reply.ok();
    Ok(())
}

/// Checks credentials and lets the client in. Only the default user exists so far.
pub(crate) fn authenticate(cx: &mut Cx<'_>, user: &[u8], password: &[u8]) -> Outcome {
    let required = cx.engine.config.requirepass();
    let is_right = user == b"default" && (required.is_empty() || same(&required, password));
    if !is_right {
        cx.engine.stats.acl_denied_auth.add(1);
        return Err(Error::text("WRONGPASS invalid username-password pair or user is disabled."));
    }
    cx.session.authenticated = true;
    Ok(())
}

/// Compares in a time that does not tell how much of a guess was right.
fn same(secret: &[u8], guess: &[u8]) -> bool {
    let mut difference = secret.len() ^ guess.len();
    for (index, byte) in guess.iter().enumerate() {
        difference |= usize::from(byte ^ secret.get(index).copied().unwrap_or(0));
    }
    difference == 0
}
