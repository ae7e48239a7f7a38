//! `CLIENT UNBLOCK client-id [TIMEOUT|ERROR]`: ends another connection's wait

use engine::mailbox::Message;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use std::sync::atomic::Ordering::Relaxed;

/// `CLIENT UNBLOCK`.
pub static CLIENT_UNBLOCK: Command = Command {
    name: "unblock",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "5.0.0",
    complexity: "O(log N) where N is the number of client connections",
    summary: "Unblocks a client blocked by a blocking command from a different \
        connection.",
    args: &[
        Arg::new("client-id", ArgKind::Integer),
        Arg::one_of(
            "unblock-type",
            &[Arg::token("timeout", "TIMEOUT"), Arg::token("error", "ERROR")],
        )
        .optional(),
    ],
    run: client_unblock,
    ..Command::ROW
};

fn client_unblock(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    // Words after the reason are passed over, as in Redis.
    let with_error = match args.len() {
        3 => false,
        _ if args.is(3, "timeout") => false,
        _ if args.is(3, "error") => true,
        _ => {
            return Err(Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let id = args.integer(2)?;
    let client = u64::try_from(id).ok().and_then(|id| cx.engine.clients.get(id));
    let is_blocked = client.as_ref().is_some_and(|client| {
        client.live.flags.load(Relaxed) & engine::clients::flag::BLOCKED != 0
    });
    if let Some(client) = client.filter(|_| is_blocked) {
        cx.engine.mailboxes[client.thread].post(Message::Unblock(client.id, with_error));
    }
    cx.reply.integer(i64::from(is_blocked));
    Ok(())
}
