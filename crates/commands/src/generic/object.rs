//! `OBJECT ENCODING|FREQ|IDLETIME|REFCOUNT key`

use config::MaxmemoryPolicy;
use engine::{Arg, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use keyspace::access;

/// `OBJECT ENCODING`.
pub static OBJECT_ENCODING: Command = Command {
    name: "encoding",
    arity: 3,
    flags: Flags::READONLY.with(Flags::NO_VALUES),
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    group: Group::Generic,
    since: "2.2.3",
    complexity: "O(1)",
    summary: "How the server keeps a value in memory.",
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: object_encoding,
    ..Command::ROW
};

/// `OBJECT FREQ`.
pub static OBJECT_FREQ: Command = Command {
    name: "freq",
    arity: 3,
    flags: Flags::READONLY.with(Flags::NO_VALUES),
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    group: Group::Generic,
    since: "4.0.0",
    complexity: "O(1)",
    summary: "How often a key is used, on a logarithmic scale.",
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: object_freq,
    ..Command::ROW
};

/// `OBJECT HELP`.
pub static OBJECT_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Generic,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `OBJECT IDLETIME`.
pub static OBJECT_IDLETIME: Command = Command {
    name: "idletime",
    arity: 3,
    flags: Flags::READONLY.with(Flags::NO_VALUES),
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    group: Group::Generic,
    since: "2.2.3",
    complexity: "O(1)",
    summary: "Seconds since a key was last used.",
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: object_idletime,
    ..Command::ROW
};

/// `OBJECT REFCOUNT`.
pub static OBJECT_REFCOUNT: Command = Command {
    name: "refcount",
    arity: 3,
    flags: Flags::READONLY.with(Flags::NO_VALUES),
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    group: Group::Generic,
    since: "2.2.3",
    complexity: "O(1)",
    summary: "How many references to a value there are.",
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: object_refcount,
    ..Command::ROW
};

/// `OBJECT`.
pub static OBJECT: Command = Command {
    name: "object",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Generic,
    since: "2.2.3",
    complexity: "That of the subcommand",
    summary: "The commands that look at how a value is kept.",
    subcommands: &[
        &OBJECT_ENCODING,
        &OBJECT_FREQ,
        &OBJECT_HELP,
        &OBJECT_IDLETIME,
        &OBJECT_REFCOUNT,
    ],
    help: &[
        "ENCODING <key>",
        "    Return the kind of internal representation used in order to store the value",
        "    associated with a <key>.",
        "FREQ <key>",
        "    Return the access frequency index of the <key>. The returned integer is",
        "    proportional to the logarithm of the recent access frequency of the key.",
        "IDLETIME <key>",
        "    Return the idle time of the <key>, that is the approximated number of",
        "    seconds elapsed since the last access to the key.",
        "REFCOUNT <key>",
        "    Return the number of references of the value associated with the specified",
        "    <key>.",
    ],
    ..Command::ROW
};

fn is_lfu(cx: &Cx<'_>) -> bool {
    matches!(
        cx.engine.config.maxmemory_policy(),
        MaxmemoryPolicy::AllkeysLfu | MaxmemoryPolicy::VolatileLfu
    )
}

fn object_encoding(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    match cx.db.lookup_no_notify(args.key(2)) {
        Some(entry) => cx.reply.bulk(entry.encoding().as_bytes()),
        None => cx.reply.null(),
    }
    Ok(())
}

fn object_refcount(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    match cx.db.lookup_no_notify(args.key(2)) {
        Some(_) => cx.reply.integer(1),
        None => cx.reply.null(),
    }
    Ok(())
}

fn object_idletime(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let now = cx.now().0;
    let (is_lfu, policy) = (is_lfu(cx), cx.db.access_policy());
    match cx.db.lookup_no_notify(args.key(2)) {
        None => cx.reply.null(),
        Some(_) if is_lfu => {
            return Err(Error::text(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
                 when switching between policies at runtime LRU and LFU data will take some time \
                 to adjust.",
            ));
        }
        Some(entry) => {
            cx.reply.integer(i64::from(access::idle_seconds(policy, entry.access(), now)));
        }
    }
    Ok(())
}

fn object_freq(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let now = cx.now().0;
    let (is_lfu, policy) = (is_lfu(cx), cx.db.access_policy());
    match cx.db.lookup_no_notify(args.key(2)) {
        None => cx.reply.null(),
        Some(_) if !is_lfu => {
            return Err(Error::text(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
                 note that when switching between policies at runtime LRU and LFU data will take \
                 some time to adjust.",
            ));
        }
        Some(entry) => {
            cx.reply.integer(i64::from(access::frequency(policy, entry.access(), now)));
        }
    }
    Ok(())
}
