//! `CLIENT UNBLOCK client-id [TIMEOUT|ERROR]`: ends another connection's wait

use engine::mailbox::Message;
use engine::session::Fate;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use std::borrow::Cow;

/// `CLIENT UNBLOCK`.
pub static CLIENT_UNBLOCK: Command = Command {
    name: "unblock",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "5.0.0",
    complexity: "O(log N) where N is the number of client connections",
    summary: "Ends the waiting of another client.",
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

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

fn client_unblock(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    // Words after the reason are passed over, as in Redis.
    let error = match args.len() {
        3 => None,
        _ if args.is(3, "timeout") => None,
        _ if args.is(3, "error") => Some(UNBLOCKED),
        _ => {
            return Err(Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let id = args.integer(2)?;
    let client = u64::try_from(id).ok().and_then(|id| cx.engine.clients().get(id));
    let token = client.as_ref().and_then(|client| client.call_off_wait(cx.engine.stats()));
    if let (Some(client), Some(token)) = (client, token) {
        let error = error.map(Cow::Borrowed);
        let message = Message::Unblock { client: client.id, token, error, fate: Fate::Open };
        cx.engine.mailboxes()[client.thread].post(message);
    }
    cx.reply.integer(i64::from(token.is_some()));
    Ok(())
}
