//! `XGROUP CREATE|CREATECONSUMER|DELCONSUMER|DESTROY|HELP|SETID`

use super::{ids, no_such_group};
use crate::table::wrong_subcommand;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Event, Flags, Group, Key, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::stream::{Stream, StreamId, UNKNOWN_READS};

/// `XGROUP`.
pub static XGROUP: Command = Command {
    name: "xgroup",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Stream,
    since: "5.0.0",
    complexity: "That of the subcommand",
    summary: "The commands about groups of consumers.",
    subcommands: &[
        &XGROUP_CREATE,
        &XGROUP_CREATECONSUMER,
        &XGROUP_DELCONSUMER,
        &XGROUP_DESTROY,
        &XGROUP_HELP,
        &XGROUP_SETID,
    ],
    help: HELP,
    ..Command::ROW
};

/// `XGROUP CREATE`.
pub static XGROUP_CREATE: Command = Command {
    name: "create",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::at(2, KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Makes a group.",
    history: &[("7.0.0", "Takes `entries_read`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        Arg::one_of("id-selector", &[Arg::new("id", ArgKind::String), Arg::token("new-id", "$")]),
        Arg::token("mkstream", "MKSTREAM").optional(),
        Arg::new("entriesread", ArgKind::Integer)
            .after("ENTRIESREAD")
            .shown_as("entries-read")
            .optional(),
    ],
    run: xgroup_create,
    ..Command::ROW
};

/// `XGROUP CREATECONSUMER`.
pub static XGROUP_CREATECONSUMER: Command = Command {
    name: "createconsumer",
    arity: 5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::at(2, KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Stream,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "Adds a consumer to a group.",
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        Arg::new("consumer", ArgKind::String),
    ],
    run: xgroup_createconsumer,
    ..Command::ROW
};

/// `XGROUP DELCONSUMER`.
pub static XGROUP_DELCONSUMER: Command = Command {
    name: "delconsumer",
    arity: 5,
    flags: Flags::WRITE,
    keys: &[KeySpec::at(2, KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Takes a consumer out of a group, with what it had to do.",
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        Arg::new("consumer", ArgKind::String),
    ],
    run: xgroup_delconsumer,
    ..Command::ROW
};

/// `XGROUP DESTROY`.
pub static XGROUP_DESTROY: Command = Command {
    name: "destroy",
    arity: 4,
    flags: Flags::WRITE,
    keys: &[KeySpec::at(2, KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(N) for a group with N pending entries",
    summary: "Deletes a group.",
    args: &[Arg::key("key", 0), Arg::new("group", ArgKind::String)],
    run: xgroup_destroy,
    ..Command::ROW
};

/// `XGROUP HELP`.
pub static XGROUP_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `XGROUP SETID`.
pub static XGROUP_SETID: Command = Command {
    name: "setid",
    arity: -5,
    flags: Flags::WRITE,
    keys: &[KeySpec::at(2, KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Says from where on a group reads.",
    history: &[("7.0.0", "Takes `entries_read`.")],
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        Arg::one_of("id-selector", &[Arg::new("id", ArgKind::String), Arg::token("new-id", "$")]),
        Arg::new("entriesread", ArgKind::Integer)
            .after("ENTRIESREAD")
            .shown_as("entries-read")
            .optional(),
    ],
    run: xgroup_setid,
    ..Command::ROW
};

/// What HELP says.
const HELP: &[&str] = &[
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
];

/// `MKSTREAM` and `ENTRIESREAD`, from word 5 on.
fn parse(args: Args<'_>, may_make: bool) -> Result<(bool, i64), Error> {
    let (mut makes, mut reads) = (false, UNKNOWN_READS);
    let mut at = 5;
    while at < args.len() {
        if may_make && args.is(at, "mkstream") {
            makes = true;
        } else if args.is(at, "entriesread") && at + 1 < args.len() {
            at += 1;
            reads = args.integer(at)?;
            if reads < UNKNOWN_READS {
                return Err(Error::text("ERR value for ENTRIESREAD must be positive or -1"));
            }
        } else {
            return Err(wrong_subcommand("XGROUP", args));
        }
        at += 1;
    }
    Ok((makes, reads))
}

/// There is no key, and nothing makes it.
const NO_KEY: Error = Error::text(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
     the MKSTREAM option to create an empty stream automatically.",
);

fn stream<'c>(cx: &'c mut Cx<'_>, key: Key<'_>) -> Result<&'c mut Stream, Error> {
    cx.db.write::<Stream>(key)?.ok_or(NO_KEY)
}

fn group<'c>(cx: &'c mut Cx<'_>, args: Args<'_>) -> Result<&'c mut structs::stream::Group, Error> {
    let group = stream(cx, args.key(2))?.group_mut(args[3]);
    group.ok_or_else(|| no_such_group(args[2], args[3]))
}

/// Reports a change of groups, which leaves the entries as they are.
fn report(cx: &mut Cx<'_>, key: Key<'_>, name: &'static str) {
    let event: Event = event(Class::STREAM, name);
    cx.db.add_dirty(1);
    cx.db.notify(key, event);
}

fn xgroup_create(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (makes, reads) = parse(args, true)?;
    let key = args.key(2);
    let found = cx.db.write::<Stream>(key)?.map(|stream| stream.counters().last_id);
    if found.is_none() && !makes {
        return Err(NO_KEY);
    }
    // MKSTREAM, ENTRIESREAD and its number, each once.
    if args.len() > 8 {
        return Err(wrong_subcommand("XGROUP", args));
    }
    let start = match args[4] {
        b"$" => found.unwrap_or(StreamId::MIN),
        word => ids::strict(word, 0)?,
    };
    if found.is_none() {
        cx.db.write_or_create::<Stream>(key)?;
        cx.db.changed_silently(key);
    }
    let is_new = stream(cx, key)?.create_group(args[3], start, reads);
    if !is_new {
        return Err(Error::text("BUSYGROUP Consumer Group name already exists"));
    }
    report(cx, key, "xgroup-create");
    cx.reply.ok();
    Ok(())
}

fn xgroup_setid(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (_, reads) = parse(args, false)?;
    let key = args.key(2);
    let last = stream(cx, key)?.counters().last_id;
    group(cx, args)?;
    let id = match args[4] {
        b"$" => last,
        word => ids::any(word, 0)?,
    };
    let group = group(cx, args)?;
    (group.last_id, group.entries_read) = (id, reads);
    report(cx, key, "xgroup-setid");
    cx.reply.ok();
    Ok(())
}

fn xgroup_destroy(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(2);
    let group = stream(cx, key)?.destroy_group(args[3]);
    cx.reply.integer(i64::from(group.is_some()));
    if let Some(group) = group {
        // Clients that wait for its entries are told.
        cx.db.changed(key, event(Class::STREAM, "xgroup-destroy"));
        discard(cx, group);
    }
    Ok(())
}

/// Frees a group, in the background if that takes long.
fn discard(cx: &mut Cx<'_>, group: std::sync::Arc<structs::stream::Group>) {
    let remains = Stream::of_group(group);
    cx.db.discard(keyspace::Entry::new_object(b"", remains, None, 0));
}

fn xgroup_createconsumer(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let now = cx.now().0;
    let is_new = group(cx, args)?.create_consumer(args[4], now).is_some();
    if is_new {
        report(cx, args.key(2), "xgroup-createconsumer");
    }
    cx.reply.integer(i64::from(is_new));
    Ok(())
}

fn xgroup_delconsumer(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let pending = group(cx, args)?.delete_consumer(args[4]);
    if pending.is_some() {
        report(cx, args.key(2), "xgroup-delconsumer");
    }
    cx.reply.integer(pending.unwrap_or(0) as i64);
    Ok(())
}
