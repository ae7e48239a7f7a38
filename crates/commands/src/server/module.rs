//! `MODULE HELP|LIST|LOAD|LOADEX|UNLOAD`: Dunlin loads no modules
//!
//! The list names the modules of Redis whose commands are built in, as clients look for them there.
//! Unlike Valkey's it does not name the interpreter of scripts.

use config::ProtectedAction;
use datatypes::Provided;
use engine::routing::{Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};

/// `MODULE`.
pub static MODULE: Command = Command {
    name: "module",
    arity: -2,
    group: Group::Server,
    since: "4.0.0",
    complexity: "That of the subcommand",
    summary: "The commands about modules.",
    subcommands: &[&MODULE_HELP, &MODULE_LIST, &MODULE_LOAD, &MODULE_LOADEX, &MODULE_UNLOAD],
    help: HELP,
    routing: Routing::by(Way::OneServer),
    ..Command::ROW
};

/// `MODULE HELP`.
pub static MODULE_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Server,
    since: "5.0.0",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `MODULE LIST`.
pub static MODULE_LIST: Command = Command {
    name: "list",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT),
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(N) for N modules",
    summary: "The modules whose commands are built in.",
    tips: &["nondeterministic_output_order"],
    run: list,
    ..Command::ROW
};

/// `MODULE LOAD`.
pub static MODULE_LOAD: Command = Command {
    name: "load",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Server,
    since: "4.0.0",
    summary: "Refuses to load a module.",
    args: &[
        Arg::new("path", ArgKind::String),
        Arg::new("arg", ArgKind::String).optional().multiple(),
    ],
    run: load,
    ..Command::ROW
};

/// `MODULE LOADEX`.
pub static MODULE_LOADEX: Command = Command {
    name: "loadex",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Server,
    since: "7.0.0",
    summary: "Refuses to load a module with options.",
    args: &[
        Arg::new("path", ArgKind::String),
        Arg::block(
            "configs",
            &[Arg::new("name", ArgKind::String), Arg::new("value", ArgKind::String)],
        )
        .after("CONFIG")
        .optional()
        .multiple()
        .multiple_token(),
        Arg::new("args", ArgKind::String).after("ARGS").optional().multiple(),
    ],
    run: load,
    ..Command::ROW
};

/// `MODULE UNLOAD`.
pub static MODULE_UNLOAD: Command = Command {
    name: "unload",
    arity: 3,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Server,
    since: "4.0.0",
    summary: "Refuses to unload a module.",
    args: &[Arg::new("name", ArgKind::String)],
    run: unload,
    ..Command::ROW
};

const HELP: &[&str] = &[
    "LIST",
    "    Return a list of loaded modules.",
    "LOAD <path> [<arg> ...]",
    "    Load a module library from <path>, passing to it any optional arguments.",
    "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
    "    Load a module library from <path>, while passing it module configurations and optional arguments.",
    "UNLOAD <name>",
    "    Unload a module.",
];

fn list(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    write_list(cx);
    Ok(())
}

/// Writes the modules whose commands are built in, as MODULE LIST and HELLO do.
pub(crate) fn write_list(cx: &mut Cx<'_>) {
    cx.reply.array(datatypes::MODULES.len());
    for module in datatypes::MODULES {
        cx.reply.map(4);
        cx.reply.bulk(b"name");
        cx.reply.bulk(module.name.as_bytes());
        cx.reply.bulk(b"ver");
        cx.reply.integer(module.version.into());
        cx.reply.bulk(b"path");
        cx.reply.bulk(b"");
        cx.reply.bulk(b"args");
        cx.reply.array(0);
    }
}

/// Writes the section of INFO.
pub(super) fn section(_cx: &Cx<'_>, out: &mut String) {
    for Provided { name, version, .. } in datatypes::MODULES {
        let facts =
            format!("name={name},ver={version},api=1,filters=0,usedby=[],using=[],options=[]");
        super::info::line(out, "module", facts);
    }
}

/// Returns the module that a file is known to contain.
fn provided(path: &[u8]) -> Option<&'static Provided> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    let is_it = |file: &&str| name.eq_ignore_ascii_case(file.as_bytes());
    datatypes::MODULES.iter().find(|module| module.files.iter().any(is_it))
}

fn load(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    ensure_allowed(cx)?;
    if let Some(Provided { name, .. }) = provided(args[2]) {
        return Err(Error::format(format!(
            "ERR Error loading the extension: the commands of {name} are built in."
        )));
    }
    Err(Error::text("ERR Error loading the extension: this server has no loadable modules."))
}

fn unload(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    ensure_allowed(cx)?;
    Err(Error::text("ERR Error unloading module: no such module with that name"))
}

fn ensure_allowed(cx: &Cx<'_>) -> Outcome {
    let is_allowed = match cx.engine.config.enable_module_command() {
        ProtectedAction::Yes => true,
        ProtectedAction::Local => cx.session.is_local,
        ProtectedAction::No => false,
    };
    if is_allowed {
        return Ok(());
    }
    Err(Error::text(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.",
    ))
}
