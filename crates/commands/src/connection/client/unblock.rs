//! `CLIENT UNBLOCK client-id [TIMEOUT|ERROR]`: ends another connection's wait

use engine::clients::Client;
use engine::clients::forwarding::{Own, Reach};
use engine::mailbox::Message;
use engine::routing::Merge;
use engine::session::Fate;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use std::borrow::Cow;
use std::sync::Arc;

/// `CLIENT UNBLOCK`.
pub static CLIENT_UNBLOCK: Command = Command {
    name: "unblock",
    arity: -3,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Connection,
    since: "5.0.0",
    complexity: "O(log(N)) for N connections",
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
        _ if cx.session.is_link && args.is(3, "abandon") => return abandon(cx, args),
        _ => {
            return Err(Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let id = args.integer(2)?;
    let known = known_by(cx, id);
    let waiting = known.iter().find_map(|client| Some((client, call_off(cx, client)?)));
    let Some((client, token)) = waiting else {
        let elsewhere = match known.first() {
            None => Some(Reach::Others),
            Some(client) => client.waits_elsewhere().then_some(Reach::Leaders),
        };
        match elsewhere.filter(|_| cx.asks_about_all_clients()) {
            Some(reach) => cx.ask_nodes(reach, (Merge::Max, Own::Count(0)), args),
            None => cx.reply.integer(0),
        }
        return Ok(());
    };
    let error = error.map(Cow::Borrowed);
    let message = Message::Unblock { client: client.id, token, error, fate: Fate::Open };
    cx.engine.mailboxes[client.thread].post(message);
    cx.reply.integer(1);
    Ok(())
}

fn call_off(cx: &Cx<'_>, client: &Client) -> Option<u64> {
    client.call_off_wait(&cx.engine.stats)
}

/// The client with a number. For another node also the link that serves its client here.
fn known_by(cx: &Cx<'_>, id: i64) -> Vec<Arc<Client>> {
    let Ok(id) = u64::try_from(id) else { return Vec::new() };
    match cx.session.is_link {
        true => cx.engine.clients.with_links_of(id),
        false => cx.engine.clients.get(id).into_iter().collect(),
    }
}

/// `CLIENT UNBLOCK id ABANDON [id …]`, from another node: its clients have gone, and their links
/// will be closed. Their commands are served no more.
fn abandon(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut ended = 0;
    for at in (2..args.len()).filter(|&at| at != 3) {
        let known = known_by(cx, args.integer(at)?);
        ended += known.iter().filter(|client| call_off(cx, client).is_some()).count();
    }
    cx.reply.integer(ended as i64);
    Ok(())
}
