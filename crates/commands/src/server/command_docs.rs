//! A row as COMMAND DOCS shows it.

use super::command_info::write_set;
use engine::table::{CommandTable, Resolved};
use engine::{Arg, ArgKind, Flags, Group};
use resp::Reply;

/// Writes the name of a command and its documentation, its subcommands included.
pub(super) fn write(reply: &mut Reply<'_>, table: &CommandTable, row: &Resolved) {
    let command = row.command;
    reply.bulk(row.full_name.as_bytes());
    let mut map = Map::begin(reply);
    map.text("summary", command.summary);
    map.text("since", command.since);
    map.text("group", group_name(command.group));
    map.text("complexity", command.complexity);
    let is_deprecated = command.deprecated.is_some().then_some("deprecated");
    let is_internal = command.flags.has(Flags::SYSCMD).then_some("syscmd");
    if is_deprecated.or(is_internal).is_some() {
        map.key("doc_flags");
        write_set(map.reply, is_deprecated.into_iter().chain(is_internal));
    }
    if let Some((since, instead)) = command.deprecated {
        map.text("deprecated_since", since);
        map.text("replaced_by", instead);
    }
    if !command.history.is_empty() {
        map.key("history");
        map.reply.set(command.history.len());
        for (version, change) in command.history {
            map.reply.array(2);
            map.reply.bulk(version.as_bytes());
            map.reply.bulk(change.as_bytes());
        }
    }
    if !command.args.is_empty() {
        map.key("arguments");
        write_args(map.reply, command.args);
    }
    if !command.subcommands.is_empty() {
        map.key("subcommands");
        map.reply.map(command.subcommands.len());
        table.subcommands(row).for_each(|sub| write(map.reply, table, sub));
    }
    map.end();
}

fn write_args(reply: &mut Reply<'_>, args: &[Arg]) {
    reply.array(args.len());
    for arg in args {
        let mut map = Map::begin(reply);
        map.text("name", arg.name);
        map.text("type", kind_name(arg.kind));
        if !matches!(arg.kind, ArgKind::OneOf | ArgKind::Block) {
            map.text("display_text", if arg.display.is_empty() { arg.name } else { arg.display });
        }
        if let Some(spec) = arg.key_spec {
            map.key("key_spec_index");
            map.reply.integer(spec as i64);
        }
        if arg.kind == ArgKind::PureToken {
            // MIGRATE has one that is empty.
            map.key("token");
            map.reply.bulk(arg.token.as_bytes());
        } else {
            map.text("token", arg.token);
        }
        map.text("summary", arg.summary);
        map.text("since", arg.since);
        map.text("deprecated_since", arg.deprecated);
        let flags = [
            arg.optional.then_some("optional"),
            arg.multiple.then_some("multiple"),
            arg.multiple_token.then_some("multiple_token"),
        ];
        if flags.iter().any(Option::is_some) {
            map.key("flags");
            write_set(map.reply, flags.into_iter().flatten());
        }
        if !arg.args.is_empty() {
            map.key("arguments");
            write_args(map.reply, arg.args);
        }
        map.end();
    }
}

/// A map that is written pair by pair.
struct Map<'r, 'b> {
    reply: &'r mut Reply<'b>,
    place: resp::Deferred,
    pairs: usize,
}

impl<'r, 'b> Map<'r, 'b> {
    fn begin(reply: &'r mut Reply<'b>) -> Map<'r, 'b> {
        let place = reply.deferred();
        Map { reply, place, pairs: 0 }
    }

    /// A key, whose value is written next.
    fn key(&mut self, name: &str) {
        self.reply.bulk(name.as_bytes());
        self.pairs += 1;
    }

    /// A text, unless it is empty.
    fn text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.key(name);
            self.reply.bulk(text.as_bytes());
        }
    }

    fn end(self) {
        self.reply.finish_map(self.place, self.pairs);
    }
}

/// The name of a group of commands.
pub(crate) fn group_name(group: Group) -> &'static str {
    match group {
        Group::Bitmap => "bitmap",
        Group::Cluster => "cluster",
        Group::Connection => "connection",
        Group::Generic => "generic",
        Group::Geo => "geo",
        Group::Hash => "hash",
        Group::Hyperloglog => "hyperloglog",
        Group::List => "list",
        Group::Module => "module",
        Group::Pubsub => "pubsub",
        Group::Scripting => "scripting",
        Group::Server => "server",
        Group::Set => "set",
        Group::SortedSet => "sorted-set",
        Group::Stream => "stream",
        Group::String => "string",
        Group::Transactions => "transactions",
    }
}

fn kind_name(kind: ArgKind) -> &'static str {
    match kind {
        ArgKind::String => "string",
        ArgKind::Integer => "integer",
        ArgKind::Double => "double",
        ArgKind::Key => "key",
        ArgKind::Pattern => "pattern",
        ArgKind::UnixTime => "unix-time",
        ArgKind::PureToken => "pure-token",
        ArgKind::OneOf => "oneof",
        ArgKind::Block => "block",
    }
}
