//! `JSON.DEBUG MEMORY key [path]`, `JSON.DEBUG HELP`

use super::{document, paths};
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `JSON.DEBUG`.
pub static DEBUG: Command = Command {
    name: "json.debug",
    arity: -2,
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "Depends on the subcommand.",
    summary: "The commands that look into documents.",
    subcommands: &[&DEBUG_HELP, &DEBUG_MEMORY],
    help: &["MEMORY <key> [path]", "    Return the bytes that values take."],
    ..Command::ROW
};

/// `JSON.DEBUG HELP`.
pub static DEBUG_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `JSON.DEBUG MEMORY`.
pub static DEBUG_MEMORY: Command = Command {
    name: "memory",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(N) where N is the size of the values.",
    effort: Effort::Elements(1),
    summary: "The bytes that values of a document take.",
    args: &[Arg::key("key", 0), Arg::new("path", ArgKind::String).optional()],
    run: memory,
    ..Command::ROW
};

fn memory(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let path = paths::path_at(args, 3)?;
    let Some(document) = document(&cx.db, args.key(2))? else {
        if path.is_legacy() {
            cx.reply.integer(0);
        } else {
            cx.reply.array(0);
        }
        return Ok(());
    };
    let locations = paths::locations(&path, document)?;
    let mut sizes = locations.iter().filter_map(|at| document.memory_of(at));
    if path.is_legacy() {
        let size = sizes.next().ok_or_else(|| super::no_match(&path))?;
        cx.reply.integer(size as i64);
        return Ok(());
    }
    let sizes: Vec<usize> = sizes.collect();
    cx.reply.array(sizes.len());
    sizes.into_iter().for_each(|size| cx.reply.integer(size as i64));
    Ok(())
}
