//! `COMMAND [COUNT | DOCS | GETKEYS | GETKEYSANDFLAGS | INFO | LIST]`: what clients and proxies ask
//! about commands. All of it is derived from the rows; how a row is shown is in `command_info` and
//! `command_docs`.

use super::{command_docs, command_info};
use datatypes::Provided;
use engine::acl::category::Category;
use engine::routing::{Local, Routing, Way};
use engine::table::Resolved;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Engine, Error, Flags, Group, KeyFlags, Outcome, RequestKeys,
    keys,
};
use structs::glob::{self, Case};

/// `COMMAND COUNT`.
pub static COMMAND_COUNT: Command = Command {
    name: "count",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    categories: &["connection"],
    since: "2.8.13",
    complexity: "O(1)",
    summary: "How many commands there are.",
    run: command_count,
    ..Command::ROW
};

/// `COMMAND DOCS`.
pub static COMMAND_DOCS: Command = Command {
    name: "docs",
    arity: -2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    categories: &["connection"],
    since: "7.0.0",
    complexity: "O(N) for N names",
    summary: "What commands are for and how they are written.",
    tips: &["nondeterministic_output_order"],
    args: &[Arg::new("command-name", ArgKind::String).optional().multiple()],
    run: command_docs,
    ..Command::ROW
};

/// `COMMAND GETKEYS`.
pub static COMMAND_GETKEYS: Command = Command {
    name: "getkeys",
    arity: -3,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Server,
    categories: &["connection"],
    since: "2.8.13",
    complexity: "O(N) for a request of N words",
    summary: "Which arguments of a request are keys.",
    args: &[
        Arg::new("command", ArgKind::String),
        Arg::new("arg", ArgKind::String).optional().multiple(),
    ],
    run: command_getkeys,
    ..Command::ROW
};

/// `COMMAND GETKEYSANDFLAGS`.
pub static COMMAND_GETKEYSANDFLAGS: Command = Command {
    name: "getkeysandflags",
    arity: -3,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Server,
    categories: &["connection"],
    since: "7.0.0",
    complexity: "O(N) for a request of N words",
    summary: "Which arguments of a request are keys, and what becomes of them.",
    args: &[
        Arg::new("command", ArgKind::String),
        Arg::new("arg", ArgKind::String).optional().multiple(),
    ],
    run: command_getkeysandflags,
    ..Command::ROW
};

/// `COMMAND HELP`.
pub static COMMAND_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    categories: &["connection"],
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `COMMAND INFO`.
pub static COMMAND_INFO: Command = Command {
    name: "info",
    arity: -2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    categories: &["connection"],
    since: "2.8.13",
    complexity: "O(N) for N names",
    summary: "How commands are to be called, as clients need it.",
    history: &[("7.0.0", "Without names it tells all commands.")],
    tips: &["nondeterministic_output_order"],
    args: &[Arg::new("command-name", ArgKind::String).optional().multiple()],
    run: command_info,
    ..Command::ROW
};

/// `COMMAND LIST`.
pub static COMMAND_LIST: Command = Command {
    name: "list",
    arity: -2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    categories: &["connection"],
    since: "7.0.0",
    complexity: "O(N) for N commands",
    summary: "The names of commands, all or some.",
    tips: &["nondeterministic_output_order"],
    args: &[Arg::one_of(
        "filterby",
        &[
            Arg::new("module-name", ArgKind::String).after("MODULE"),
            Arg::new("category", ArgKind::String).after("ACLCAT"),
            Arg::new("pattern", ArgKind::Pattern).after("PATTERN"),
        ],
    )
    .after("FILTERBY")
    .optional()],
    run: command_list,
    ..Command::ROW
};

/// `COMMAND`.
pub static COMMAND: Command = Command {
    name: "command",
    arity: -1,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    categories: &["connection"],
    since: "2.8.13",
    complexity: "O(N) for N commands",
    summary: "How all commands are to be called, as clients need it.",
    tips: &["nondeterministic_output_order"],
    subcommands: &[
        &COMMAND_COUNT,
        &COMMAND_DOCS,
        &COMMAND_GETKEYS,
        &COMMAND_GETKEYSANDFLAGS,
        &COMMAND_HELP,
        &COMMAND_INFO,
        &COMMAND_LIST,
    ],
    help: &[
        "(no subcommand)",
        "    Return details about all commands.",
        "COUNT",
        "    Return the total number of commands in this server.",
        "LIST",
        "    Return a list of all commands in this server.",
        "INFO [<command-name> ...]",
        "    Return details about multiple commands.",
        "    If no command names are given, documentation details for all",
        "    commands are returned.",
        "DOCS [<command-name> ...]",
        "    Return documentation details about multiple commands.",
        "    If no command names are given, documentation details for all",
        "    commands are returned.",
        "GETKEYS <full-command>",
        "    Return the keys from a full command.",
        "GETKEYSANDFLAGS <full-command>",
        "    Return the keys and the access flags from a full command.",
    ],
    routing: Routing::by(Way::Local(Local::Command)),
    run: command,
    ..Command::ROW
};

fn command(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    all_infos(cx);
    Ok(())
}

fn command_info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 2 {
        all_infos(cx);
        return Ok(());
    }
    cx.reply.array(args.len() - 2);
    for name in args.from(2) {
        match cx.engine.table.by_full_name(name) {
            Some(row) => command_info::write(&mut cx.reply, cx.engine.table, row),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

fn all_infos(cx: &mut Cx<'_>) {
    let table = cx.engine.table;
    cx.reply.array(table.reachable().count());
    table.reachable().for_each(|row| command_info::write(&mut cx.reply, table, row));
}

fn command_count(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.reply.integer(cx.engine.table.reachable().count() as i64);
    Ok(())
}

fn command_docs(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let table = cx.engine.table;
    let rows: Vec<&Resolved> = if args.len() == 2 {
        table.reachable().collect()
    } else {
        args.from(2).iter().filter_map(|name| table.by_full_name(name)).collect()
    };
    cx.reply.map(rows.len());
    rows.iter().for_each(|row| command_docs::write(&mut cx.reply, table, row));
    Ok(())
}

/// COMMAND LIST's `FILTERBY`.
enum Filter<'a> {
    None,
    Category(Option<Category>),
    Pattern(&'a [u8]),
    /// The commands of a module, if its commands are built in.
    Module(Option<&'static Provided>),
}

impl<'a> Filter<'a> {
    /// There is one at most.
    fn parse(args: Args<'a>) -> Result<Filter<'a>, Error> {
        match args.len() {
            2 => Ok(Filter::None),
            5 if args.is(2, "filterby") && args.is(3, "module") => {
                let mut modules = datatypes::MODULES.iter();
                Ok(Filter::Module(modules.find(|module| module.name.as_bytes() == args[4])))
            }
            5 if args.is(2, "filterby") && args.is(3, "aclcat") => {
                Ok(Filter::Category(Category::named(args[4])))
            }
            5 if args.is(2, "filterby") && args.is(3, "pattern") => Ok(Filter::Pattern(args[4])),
            _ => Err(Error::Syntax),
        }
    }

    fn passes(&self, row: &Resolved) -> bool {
        match self {
            Filter::None => true,
            Filter::Category(category) => category.is_some_and(|c| c.has(row)),
            Filter::Pattern(pattern) => {
                glob::matches(pattern, row.full_name.as_bytes(), Case::Insensitive)
            }
            Filter::Module(module) => {
                let of_row = row.command.categories;
                module.is_some_and(|it| it.categories.iter().any(|name| of_row.contains(name)))
            }
        }
    }
}

fn command_list(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let filter = Filter::parse(args)?;
    let table = cx.engine.table;
    let with_subcommands =
        table.reachable().flat_map(|row| std::iter::once(row).chain(table.subcommands(row)));
    let rows: Vec<&Resolved> = with_subcommands.filter(|row| filter.passes(row)).collect();
    cx.reply.array(rows.len());
    rows.iter().for_each(|row| cx.reply.bulk(row.full_name.as_bytes()));
    Ok(())
}

fn command_getkeys(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let request = args.from(2);
    let keys = keys_of(cx.engine, request)?;
    cx.reply.array(keys.len());
    keys.iter().for_each(|&(index, _)| cx.reply.bulk(request[index]));
    Ok(())
}

fn command_getkeysandflags(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let request = args.from(2);
    let keys = keys_of(cx.engine, request)?;
    cx.reply.array(keys.len());
    for (index, flags) in keys {
        cx.reply.array(2);
        cx.reply.bulk(request[index]);
        command_info::write_key_flags(&mut cx.reply, flags);
    }
    Ok(())
}

/// The words of a request that are keys, with what becomes of them.
fn keys_of(engine: &Engine, request: &[&[u8]]) -> Result<Vec<(usize, KeyFlags)>, Error> {
    let row = engine.table.lookup(request).ok_or(Error::text("ERR Invalid command specified"))?;
    if !keys::has_keys(row.command) {
        return Err(Error::text("ERR The command has no key arguments"));
    }
    if !row.command.accepts(request.len()) {
        return Err(Error::text("ERR Invalid number of arguments specified for command"));
    }
    let found = RequestKeys::of(&engine.keyspace, row.command, request);
    if found.check().is_err() || found.is_empty() {
        if !row.command.flags.has(Flags::NO_MANDATORY_KEYS) {
            return Err(keys::InvalidKeys.into());
        }
        return Ok(Vec::new());
    }
    Ok(found.iter().map(|key| (key.word(), key.flags)).collect())
}
