//! `MGET key [key …]`, `MSET key value [key value …]`, `MSETNX key value [key value …]`

use engine::db::SetExpiry;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
    events, write_string,
};

/// `MGET`.
pub static MGET: Command = Command {
    name: "mget",
    arity: -2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::rest(1, 1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::String,
    since: "1.0.0",
    complexity: "O(N) for N keys",
    effort: Effort::Words(2),
    summary: "The values of several strings.",
    tips: &["request_policy:multi_shard"],
    args: &[Arg::key("key", 0).multiple()],
    run: mget,
    ..Command::ROW
};

/// `MSET`.
pub static MSET: Command = Command {
    name: "mset",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::rest(1, 2, KeyFlags::OW.with(KeyFlags::UPDATE))],
    group: Group::String,
    since: "1.0.1",
    complexity: "O(N) for N keys",
    effort: Effort::Words(3),
    summary: "Sets several strings at once.",
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    args: &[
        Arg::block("data", &[Arg::key("key", 0), Arg::new("value", ArgKind::String)]).multiple()
    ],
    run: mset,
    ..Command::ROW
};

/// `MSETNX`.
pub static MSETNX: Command = Command {
    name: "msetnx",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::rest(1, 2, KeyFlags::OW.with(KeyFlags::INSERT))],
    group: Group::String,
    since: "1.0.1",
    complexity: "O(N) for N keys",
    effort: Effort::Words(3),
    summary: "Sets several strings at once if none of the keys is there.",
    args: &[
        Arg::block("data", &[Arg::key("key", 0), Arg::new("value", ArgKind::String)]).multiple()
    ],
    run: msetnx,
    ..Command::ROW
};

fn mget(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    cx.reply.array(args.len() - 1);
    for index in 1..args.len() {
        let string = cx.db.lookup_read(args.key(index)).and_then(|entry| entry.string());
        write_string(&mut cx.reply, string);
        if cx.is_over_output_limit() || !cx.db.is_wanted() {
            break;
        }
    }
    Ok(())
}

fn set_all(cx: &mut Cx<'_>, args: Args<'_>) {
    cx.db.for_each_key(args, 1, 2, |db, index, key| {
        db.set_string(key, args[index + 1], SetExpiry::Clear);
        db.changed(key, events::SET);
    });
}

fn mset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    check_pairs(args, "mset")?;
    set_all(cx, args);
    cx.reply.ok();
    Ok(())
}

fn msetnx(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    check_pairs(args, "msetnx")?;
    let is_free =
        (1..args.len()).step_by(2).all(|index| cx.db.lookup_no_stats(args.key(index)).is_none());
    if is_free {
        set_all(cx, args);
    }
    cx.reply.integer(i64::from(is_free));
    Ok(())
}

fn check_pairs(args: Args<'_>, name: &'static str) -> Outcome {
    if args.len().is_multiple_of(2) { Err(Error::Arity(name.into())) } else { Ok(()) }
}
