//! `FUNCTION DELETE|DUMP|FLUSH|KILL|LIST|LOAD|RESTORE|STATS`

use super::function_payload;
use super::script::kill_running;
use crate::cluster::define;
use crate::table::wrong_subcommand;
use cluster::shared::Policy as Share;
use engine::membership::Definition;
use engine::routing::{About, Applied, Merge, Routing};
use engine::scripts::{Kind, Libraries, Library, LoadError};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use std::sync::Arc;
use structs::glob;

const SUB: Command = Command { group: Group::Scripting, since: "7.0.0", ..Command::ROW };
const ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
/// Changes come in one order for all threads and the journal.
const CHANGES: Flags = Flags::NOSCRIPT.with(Flags::WRITE).with(Flags::WORLD).with(Flags::AUDITED);

static DELETE: Command = Command {
    name: "delete",
    arity: 3,
    flags: CHANGES,
    complexity: "O(1)",
    summary: "Deletes a library.",
    tips: ALL,
    args: &[Arg::new("library-name", ArgKind::String)],
    routing: Routing::USUAL.applied(Applied::DeleteLibrary),
    run: delete,
    ..SUB
};

static DUMP: Command = Command {
    name: "dump",
    arity: 2,
    flags: Flags::NOSCRIPT,
    complexity: "O(N) for N functions",
    summary: "All libraries as bytes that FUNCTION RESTORE reads.",
    run: dump,
    ..SUB
};

static FLUSH: Command = Command {
    name: "flush",
    arity: -2,
    flags: CHANGES,
    complexity: "O(N) for N functions that are removed",
    summary: "Deletes all libraries.",
    tips: ALL,
    args: &[Arg::one_of("flush-type", &[Arg::token("async", "ASYNC"), Arg::token("sync", "SYNC")])
        .optional()],
    routing: Routing::USUAL.applied(Applied::AtEach),
    run: flush,
    ..SUB
};

static HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..SUB
};

static KILL: Command = Command {
    name: "kill",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
    complexity: "O(1)",
    summary: "Ends the function that runs, if it has not written.",
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    run: |cx, _| kill_running(cx, Kind::Function),
    ..SUB
};

static LIST: Command = Command {
    name: "list",
    arity: -2,
    flags: Flags::NOSCRIPT,
    complexity: "O(N) for N functions",
    summary: "The libraries with their functions.",
    tips: &["nondeterministic_output_order"],
    args: &[
        Arg::new("library-name-pattern", ArgKind::String).after("LIBRARYNAME").optional(),
        Arg::token("withcode", "WITHCODE").optional(),
    ],
    run: list,
    ..SUB
};

static LOAD: Command = Command {
    name: "load",
    arity: -3,
    flags: CHANGES.with(Flags::DENYOOM),
    complexity: "O(N) for N bytes of code",
    summary: "Adds a library, or puts it in the place of an old one.",
    tips: ALL,
    args: &[
        Arg::token("replace", "REPLACE").optional(),
        Arg::new("function-code", ArgKind::String),
    ],
    routing: Routing::USUAL.applied(Applied::LoadLibrary),
    run: load,
    ..SUB
};

static RESTORE: Command = Command {
    name: "restore",
    arity: -3,
    flags: CHANGES.with(Flags::DENYOOM),
    complexity: "O(N) for N functions in the payload",
    summary: "Brings back what FUNCTION DUMP gave.",
    tips: ALL,
    args: &[
        Arg::new("serialized-value", ArgKind::String),
        Arg::one_of(
            "policy",
            &[
                Arg::token("flush", "FLUSH"),
                Arg::token("append", "APPEND"),
                Arg::token("replace", "REPLACE"),
            ],
        )
        .optional(),
    ],
    routing: Routing::USUAL.applied(Applied::AtEach),
    run: restore,
    ..SUB
};

static STATS: Command = Command {
    name: "stats",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
    complexity: "O(1)",
    summary: "Which function runs, and how many there are.",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    routing: Routing::all(Merge::First, About::Server),
    run: stats,
    ..SUB
};

/// `FUNCTION`.
pub static FUNCTION: Command = Command {
    name: "function",
    arity: -2,
    complexity: "That of the subcommand",
    summary: "The commands about libraries of functions.",
    subcommands: &[&DELETE, &DUMP, &FLUSH, &HELP, &KILL, &LIST, &LOAD, &RESTORE, &STATS],
    help: &[
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a new library with the given library name and code.",
        "DELETE <LIBRARY NAME>",
        "    Delete the given library.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    Return general information on all the libraries:",
        "    * Library name",
        "    * The engine used to run the Library",
        "    * Functions list",
        "    * Library code (if WITHCODE is given)",
        "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
        "STATS",
        "    Return information about the current function running:",
        "    * Function name",
        "    * Command used to run the function",
        "    * Duration in MS that the function is running",
        "    If no function is running, return nil",
        "    In addition, returns a list of available engines.",
        "KILL",
        "    Kill the current running function.",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries.",
        "    When called without the optional mode argument, the behavior is determined by the",
        "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
        "    * ASYNC: Asynchronously flush the libraries.",
        "    * SYNC: Synchronously flush the libraries.",
        "DUMP",
        "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
        "    control how to handle existing libraries (default APPEND):",
        "    * FLUSH: delete all existing libraries.",
        "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
        "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
        "      libraries with the new libraries (notice that even on this option there is a chance of failure",
        "      in case of functions name collision with another library).",
    ],
    ..SUB
};

fn load(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = 2..args.len() - 1;
    if let Some(at) = options.clone().find(|&at| !args.is(at, "replace")) {
        let mut text = b"ERR Unknown option given: ".to_vec();
        text.extend_from_slice(args[at]);
        return Err(Error::Bytes(text));
    }
    let replaces = !options.is_empty();
    let made = Arc::new(Library::make(cx, args[args.len() - 1], replaces)?);
    if cx.shares_functions() {
        let policy = if replaces { Share::Replace } else { Share::Add };
        let library = shared(&made)?;
        return define(cx, Definition::LoadLibrary(library, policy));
    }
    let functions = &cx.engine.scripts.functions;
    functions.change(|all| all.add(Arc::clone(&made), replaces))?;
    cx.db.add_dirty(1);
    cx.reply.bulk(made.name.as_bytes());
    Ok(())
}

/// A library as all nodes of a cluster have it.
fn shared(library: &Library) -> Result<cluster::shared::Library, Error> {
    library.to_shared().ok_or(Error::text("ERR A library of a cluster has to be UTF-8 text"))
}

fn delete(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let name = String::from_utf8_lossy(args[2]).into_owned();
    if cx.shares_functions() {
        return define(cx, Definition::DeleteLibrary(name));
    }
    let missing = Error::text("ERR Library not found");
    let functions = &cx.engine.scripts.functions;
    functions.change(|all| if all.remove(&name) { Ok(()) } else { Err(missing) })?;
    cx.db.add_dirty(1);
    cx.reply.ok();
    Ok(())
}

fn flush(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let is_mode = args.is(2, "async") || args.is(2, "sync");
    if args.len() > 3 {
        return Err(wrong_subcommand("FUNCTION", args));
    }
    if args.len() == 3 && !is_mode {
        return Err(Error::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    if cx.shares_functions() {
        return define(cx, Definition::FlushLibraries);
    }
    cx.engine.scripts.functions.flush();
    cx.db.add_dirty(1);
    cx.reply.ok();
    Ok(())
}

fn list(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (mut pattern, mut with_code, mut at) = (None, false, 2);
    while at < args.len() {
        if args.is(at, "withcode") && !with_code {
            with_code = true;
        } else if args.is(at, "libraryname") && pattern.is_none() {
            at += 1;
            let given = args.get(at);
            pattern = Some(given.ok_or(Error::text("ERR library name argument was not given"))?);
        } else {
            let mut text = b"ERR Unknown argument ".to_vec();
            text.extend_from_slice(args[at]);
            return Err(Error::Bytes(text));
        }
        at += 1;
    }
    let all = cx.engine.scripts.functions.all();
    let is_wanted = |library: &&Arc<Library>| {
        let name = library.name.as_bytes();
        pattern.is_none_or(|pattern| glob::matches(pattern, name, glob::Case::Insensitive))
    };
    let wanted: Vec<&Arc<Library>> = all.iter().filter(is_wanted).collect();
    cx.reply.array(wanted.len());
    wanted.iter().for_each(|library| describe(cx, library, with_code));
    Ok(())
}

fn describe(cx: &mut Cx<'_>, library: &Library, with_code: bool) {
    let reply = &mut cx.reply;
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(library.name.as_bytes());
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        let spec = &function.spec;
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(spec.name.as_bytes());
        reply.bulk(b"description");
        reply.bulk_or_null(spec.description.as_deref());
        reply.bulk(b"flags");
        reply.set(spec.flags.names().count());
        spec.flags.names().for_each(|flag| reply.simple(flag));
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.source);
    }
}

fn stats(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let running = cx.engine.scripts.running.longest();
    let (libraries, functions) = cx.engine.scripts.functions.all().counts();
    let reply = &mut cx.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match running.filter(|running| running.kind == Kind::Function) {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&running.name);
            reply.bulk(b"command");
            reply.array(running.words.len());
            running.words.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(running.elapsed_ms(&cx.engine.clock) as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.integer(libraries as i64);
    reply.bulk(b"functions_count");
    reply.integer(functions as i64);
    Ok(())
}

fn dump(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let all = cx.engine.scripts.functions.all();
    let sources: Vec<&[u8]> = all.iter().map(|library| &*library.source).collect();
    let compression = crate::value::compression(&cx.engine.config);
    cx.reply.bulk(&function_payload::dump(&sources, compression));
    Ok(())
}

/// What happens to the libraries that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Flush,
    Append,
    Replace,
}

fn restore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 4 {
        return Err(wrong_subcommand("FUNCTION", args));
    }
    let policy = match args.get(3) {
        None => Policy::Append,
        Some(word) if word.eq_ignore_ascii_case(b"append") => Policy::Append,
        Some(word) if word.eq_ignore_ascii_case(b"replace") => Policy::Replace,
        Some(word) if word.eq_ignore_ascii_case(b"flush") => Policy::Flush,
        Some(_) => {
            return Err(Error::text(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let sources = function_payload::restore(args[2])?;
    let mut made = Vec::new();
    for source in &sources {
        made.push(Arc::new(Library::make(cx, source, true)?));
    }
    if cx.shares_functions() {
        let libraries: Result<Vec<_>, Error> = made.iter().map(|made| shared(made)).collect();
        let policy = match policy {
            Policy::Flush => Share::ReplaceAll,
            Policy::Append => Share::Add,
            Policy::Replace => Share::Replace,
        };
        return define(cx, Definition::RestoreLibraries(libraries?, policy));
    }
    let functions = &cx.engine.scripts.functions;
    // In other words than FUNCTION LOAD, as in the reference.
    let taken = |error| {
        Error::format(match error {
            LoadError::LibraryExists(name) => format!("ERR Library {name} already exists"),
            LoadError::FunctionExists(name) => format!("ERR Function {name} already exists"),
        })
    };
    functions.change(|all| {
        if policy == Policy::Flush {
            *all = Libraries::default();
        }
        let replaces = policy == Policy::Replace;
        let mut made = made.iter();
        made.try_for_each(|library| all.add(Arc::clone(library), replaces)).map_err(taken)
    })?;
    cx.db.add_dirty(1);
    cx.reply.ok();
    Ok(())
}
