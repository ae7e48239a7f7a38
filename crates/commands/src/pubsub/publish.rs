//! `PUBLISH channel message`, `SPUBLISH shardchannel message`

use engine::pubsub::Space;
use engine::routing::{Routing, Way};
use engine::{Arg, ArgKind, Args, Channels, Command, Cx, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `PUBLISH`.
pub static PUBLISH: Command = Command {
    name: "publish",
    arity: 3,
    flags: Flags::PUBSUB
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::MAY_REPLICATE),
    group: Group::Pubsub,
    since: "2.0.0",
    complexity: "O(N+M) for N subscribers of the channel and M patterns of all clients",
    summary: "Sends a message to all who listen to a channel.",
    args: &[Arg::new("channel", ArgKind::String), Arg::new("message", ArgKind::String)],
    channels: Channels::First,
    routing: Routing::by(Way::Message),
    run: publish,
    ..Command::ROW
};

/// `SPUBLISH`.
pub static SPUBLISH: Command = Command {
    name: "spublish",
    arity: 3,
    flags: Flags::PUBSUB
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::MAY_REPLICATE),
    keys: &[KeySpec::one(KeyFlags::NOT_KEY)],
    group: Group::Pubsub,
    since: "7.0.0",
    complexity: "O(N) for N subscribers of the channel",
    summary: "Sends a message to all who listen to a shard channel.",
    args: &[Arg::new("shardchannel", ArgKind::String), Arg::new("message", ArgKind::String)],
    channels: Channels::First,
    routing: Routing::by(Way::Message),
    run: spublish,
    ..Command::ROW
};

fn publish(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let count = match cx.tell_other_nodes(args) {
        true => cx.receivers(Space::Channels, args[1]),
        false => cx.publish(Space::Channels, args[1], args[2]),
    };
    forward(cx, args);
    cx.reply.integer(count as i64);
    Ok(())
}

/// Replicas have listeners of their own. A message is no write: without replicas it is not
/// forwarded, nor while the stream has to stand still for a hand-over of the role.
fn forward(cx: &mut Cx<'_>, args: Args<'_>) {
    if cx.engine.replicas.count() > 0 && !cx.engine.failover.is_on() {
        cx.db.propagate_as(|effect| effect.command(args.words()));
    }
}

fn spublish(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    // Where clients see one server they listen at any node. What is published at a replica comes
    // back to it from its primary, as to the other replicas.
    let is_for_others = cx.engine.is_one_address() || cx.engine.upstream.is_replica();
    let count = match is_for_others && cx.tell_other_nodes(args) {
        true => cx.receivers(Space::ShardChannels, args[1]),
        false => cx.publish(Space::ShardChannels, args[1], args[2]),
    };
    forward(cx, args);
    cx.reply.integer(count as i64);
    Ok(())
}
