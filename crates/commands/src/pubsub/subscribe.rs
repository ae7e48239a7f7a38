//! `SUBSCRIBE`, `UNSUBSCRIBE`, `PSUBSCRIBE`, `PUNSUBSCRIBE`, `SSUBSCRIBE`, `SUNSUBSCRIBE`
//!
//! Each name is answered with a message of its own.

use engine::dispatch;
use engine::pubsub::Space;
use engine::routing::{self, Routing, Way};
use engine::session::Subscriptions;
use engine::{Arg, ArgKind, Args, Channels, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome};
use std::collections::BTreeSet;
use std::sync::Arc;

const FLAGS: Flags = Flags::PUBSUB
    .with(Flags::NOSCRIPT)
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::WHILE_SUBSCRIBED)
    .with(Flags::ANSWERS_BY_PUSH);

/// `SUBSCRIBE`.
pub static SUBSCRIBE: Command = Command {
    name: "subscribe",
    arity: -2,
    flags: FLAGS,
    group: Group::Pubsub,
    since: "2.0.0",
    complexity: "O(N) for N channels",
    summary: "Begins to listen to channels.",
    args: &[Arg::new("channel", ArgKind::String).multiple()],
    channels: Channels::All,
    routing: Routing::by(Way::Session(routing::Session::Subscribe)),
    run: subscribe,
    ..Command::ROW
};

/// `UNSUBSCRIBE`.
pub static UNSUBSCRIBE: Command = Command {
    name: "unsubscribe",
    arity: -1,
    flags: FLAGS,
    group: Group::Pubsub,
    since: "2.0.0",
    complexity: "O(N) for N channels",
    summary: "Stops listening to channels.",
    args: &[Arg::new("channel", ArgKind::String).optional().multiple()],
    routing: Routing::by(Way::Session(routing::Session::Unsubscribe)),
    run: unsubscribe,
    ..Command::ROW
};

/// `PSUBSCRIBE`.
pub static PSUBSCRIBE: Command = Command {
    name: "psubscribe",
    arity: -2,
    flags: FLAGS,
    group: Group::Pubsub,
    since: "2.0.0",
    complexity: "O(N) for N patterns",
    summary: "Begins to listen to all channels that match patterns.",
    args: &[Arg::new("pattern", ArgKind::Pattern).multiple()],
    channels: Channels::Patterns,
    routing: Routing::by(Way::Session(routing::Session::Subscribe)),
    run: psubscribe,
    ..Command::ROW
};

/// `PUNSUBSCRIBE`.
pub static PUNSUBSCRIBE: Command = Command {
    name: "punsubscribe",
    arity: -1,
    flags: FLAGS,
    group: Group::Pubsub,
    since: "2.0.0",
    complexity: "O(N) for N patterns",
    summary: "Stops listening to patterns.",
    args: &[Arg::new("pattern", ArgKind::Pattern).optional().multiple()],
    routing: Routing::by(Way::Session(routing::Session::Unsubscribe)),
    run: punsubscribe,
    ..Command::ROW
};

/// `SSUBSCRIBE`.
pub static SSUBSCRIBE: Command = Command {
    name: "ssubscribe",
    arity: -2,
    flags: FLAGS,
    keys: &[KeySpec::rest(1, 1, KeyFlags::NOT_KEY)],
    group: Group::Pubsub,
    since: "7.0.0",
    complexity: "O(N) for N shard channels",
    summary: "Begins to listen to shard channels.",
    args: &[Arg::new("shardchannel", ArgKind::String).multiple()],
    channels: Channels::All,
    routing: Routing::by(Way::Session(routing::Session::Subscribe)),
    run: ssubscribe,
    ..Command::ROW
};

/// `SUNSUBSCRIBE`.
pub static SUNSUBSCRIBE: Command = Command {
    name: "sunsubscribe",
    arity: -1,
    flags: FLAGS,
    keys: &[KeySpec::rest(1, 1, KeyFlags::NOT_KEY)],
    group: Group::Pubsub,
    since: "7.0.0",
    complexity: "O(N) for N shard channels",
    summary: "Stops listening to shard channels.",
    args: &[Arg::new("shardchannel", ArgKind::String).optional().multiple()],
    routing: Routing::by(Way::Session(routing::Session::Unsubscribe)),
    run: sunsubscribe,
    ..Command::ROW
};

type Names = BTreeSet<Box<[u8]>>;

fn names(subscriptions: &mut Subscriptions, space: Space) -> &mut Names {
    match space {
        Space::Channels | Space::Events => &mut subscriptions.channels,
        Space::Patterns | Space::EventPatterns => &mut subscriptions.patterns,
        Space::ShardChannels => &mut subscriptions.shard_channels,
    }
}

/// The count that a message states: shard channels are counted apart.
fn count(cx: &Cx<'_>, space: Space) -> i64 {
    let subscriptions = cx.session.subscriptions();
    match space {
        Space::ShardChannels => subscriptions.shard_channels.len() as i64,
        _ => (subscriptions.channels.len() + subscriptions.patterns.len()) as i64,
    }
}

fn add(cx: &mut Cx<'_>, args: Args<'_>, space: Space, kind: &str) -> Outcome {
    cx.tell_listeners();
    for name in args.from(1) {
        let subscribe = |all: &mut Subscriptions| names(all, space).insert(Box::from(*name));
        if cx.session.change_subscriptions(subscribe) {
            cx.session.count_subscription(name);
            let listener = Arc::clone(&cx.session.client);
            let of_client = if cx.session.is_link { space.of_node() } else { space };
            cx.engine.pubsub.subscribe(of_client, name, listener);
            // There nothing has asked the other nodes.
            if cx.in_transaction {
                cx.hear_elsewhere(space, name);
            }
        }
        answer(cx, space, kind, Some(name));
    }
    Ok(())
}

fn remove(cx: &mut Cx<'_>, args: Args<'_>, space: Space, kind: &str) -> Outcome {
    cx.tell_listeners();
    let given: Vec<Box<[u8]>> = if args.len() > 1 {
        args.from(1).iter().map(|&name| Box::from(name)).collect()
    } else {
        cx.session.change_subscriptions(|all| names(all, space).iter().cloned().collect())
    };
    if given.is_empty() {
        answer(cx, space, kind, None);
    }
    let mut has_left = false;
    for name in &given {
        if cx.session.change_subscriptions(|all| names(all, space).contains(name)) {
            cx.engine.pubsub.unsubscribe(space, name, cx.session.id());
            has_left = true;
        }
    }
    if has_left {
        dispatch::deliver_last_pushes(cx);
    }
    for name in &given {
        if cx.session.change_subscriptions(|all| names(all, space).remove(name)) {
            cx.session.discount_subscription(name);
        }
        answer(cx, space, kind, Some(name));
    }
    Ok(())
}

fn answer(cx: &mut Cx<'_>, space: Space, kind: &str, name: Option<&[u8]>) {
    let count = count(cx, space);
    cx.reply.push(3);
    cx.reply.bulk(kind.as_bytes());
    cx.reply.bulk_or_null(name);
    cx.reply.integer(count);
}

fn subscribe(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    add(cx, args, Space::Channels, "subscribe")
}
fn unsubscribe(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    remove(cx, args, Space::Channels, "unsubscribe")
}
fn psubscribe(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    add(cx, args, Space::Patterns, "psubscribe")
}
fn punsubscribe(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    remove(cx, args, Space::Patterns, "punsubscribe")
}
fn ssubscribe(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    add(cx, args, Space::ShardChannels, "ssubscribe")
}
fn sunsubscribe(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    remove(cx, args, Space::ShardChannels, "sunsubscribe")
}
