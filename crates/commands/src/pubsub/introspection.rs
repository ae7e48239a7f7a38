//! `PUBSUB CHANNELS|NUMSUB|NUMPAT|SHARDCHANNELS|SHARDNUMSUB`

use crate::table::wrong_subcommand;
use engine::pubsub::Space;
use engine::routing::{About, Merge, Routing};
use engine::{Arg, ArgKind, Args, Command, Cx, Flags, Group, Outcome};

/// `PUBSUB CHANNELS`.
pub static PUBSUB_CHANNELS: Command = Command {
    name: "channels",
    arity: -2,
    flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Pubsub,
    since: "2.8.0",
    complexity: "O(N) for N channels with subscribers",
    summary: "The channels that have subscribers.",
    args: &[Arg::new("pattern", ArgKind::Pattern).optional()],
    routing: Routing::all(Merge::Union, About::Clients),
    run: pubsub_channels,
    ..Command::ROW
};

/// `PUBSUB HELP`.
pub static PUBSUB_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Pubsub,
    categories: &["-pubsub"],
    since: "6.2.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `PUBSUB NUMPAT`.
pub static PUBSUB_NUMPAT: Command = Command {
    name: "numpat",
    arity: 2,
    flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Pubsub,
    since: "2.8.0",
    complexity: "O(1)",
    summary: "How many patterns have subscribers.",
    routing: Routing::all(Merge::Max, About::Clients),
    run: pubsub_numpat,
    ..Command::ROW
};

/// `PUBSUB NUMSUB`.
pub static PUBSUB_NUMSUB: Command = Command {
    name: "numsub",
    arity: -2,
    flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Pubsub,
    since: "2.8.0",
    complexity: "O(N) for N channels that are named",
    summary: "How many subscribers channels have.",
    args: &[Arg::new("channel", ArgKind::String).optional().multiple()],
    routing: Routing::all(Merge::SumPairs, About::Clients),
    run: pubsub_numsub,
    ..Command::ROW
};

/// `PUBSUB SHARDCHANNELS`.
pub static PUBSUB_SHARDCHANNELS: Command = Command {
    name: "shardchannels",
    arity: -2,
    flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Pubsub,
    since: "7.0.0",
    complexity: "O(N) for N shard channels with subscribers",
    summary: "The shard channels that have subscribers.",
    args: &[Arg::new("pattern", ArgKind::Pattern).optional()],
    routing: Routing::all(Merge::Union, About::Clients),
    run: pubsub_shardchannels,
    ..Command::ROW
};

/// `PUBSUB SHARDNUMSUB`.
pub static PUBSUB_SHARDNUMSUB: Command = Command {
    name: "shardnumsub",
    arity: -2,
    flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Pubsub,
    since: "7.0.0",
    complexity: "O(N) for N shard channels that are named",
    summary: "How many subscribers shard channels have.",
    args: &[Arg::new("shardchannel", ArgKind::String).optional().multiple()],
    routing: Routing::all(Merge::SumPairs, About::Clients),
    run: pubsub_shardnumsub,
    ..Command::ROW
};

/// `PUBSUB`.
pub static PUBSUB: Command = Command {
    name: "pubsub",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Pubsub,
    since: "2.8.0",
    complexity: "That of the subcommand",
    summary: "The commands that look at subscriptions.",
    subcommands: &[
        &PUBSUB_CHANNELS,
        &PUBSUB_HELP,
        &PUBSUB_NUMPAT,
        &PUBSUB_NUMSUB,
        &PUBSUB_SHARDCHANNELS,
        &PUBSUB_SHARDNUMSUB,
    ],
    help: &[
        "CHANNELS [<pattern>]",
        "    Return the currently active channels matching a <pattern> (default: '*').",
        "NUMPAT",
        "    Return number of subscriptions to patterns.",
        "NUMSUB [<channel> ...]",
        "    Return the number of subscribers for the specified channels, excluding",
        "    pattern subscriptions(default: no channels).",
        "SHARDCHANNELS [<pattern>]",
        "    Return the currently active shard level channels matching a <pattern> (default: '*').",
        "SHARDNUMSUB [<shardchannel> ...]",
        "    Return the number of subscribers for the specified shard level channel(s)",
    ],
    ..Command::ROW
};

fn pubsub_channels(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    active(cx, args, Space::Channels)
}
fn pubsub_shardchannels(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    active(cx, args, Space::ShardChannels)
}
fn active(cx: &mut Cx<'_>, args: Args<'_>, space: Space) -> Outcome {
    if args.len() > 3 {
        return Err(wrong_subcommand("PUBSUB", args));
    }
    let mut channels = cx.engine.pubsub.active(space, args.get(2));
    channels.sort();
    cx.reply.array(channels.len());
    channels.iter().for_each(|channel| cx.reply.bulk(channel));
    Ok(())
}

fn pubsub_numsub(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    listeners(cx, args, Space::Channels)
}
fn pubsub_shardnumsub(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    listeners(cx, args, Space::ShardChannels)
}
fn listeners(cx: &mut Cx<'_>, args: Args<'_>, space: Space) -> Outcome {
    cx.reply.array(args.from(2).len() * 2);
    for name in args.from(2) {
        cx.reply.bulk(name);
        cx.reply.integer(cx.engine.pubsub.listeners(space, name) as i64);
    }
    Ok(())
}

fn pubsub_numpat(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.reply.integer(cx.engine.pubsub.count(Space::Patterns) as i64);
    Ok(())
}
