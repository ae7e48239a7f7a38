//! `EVAL`, `EVALSHA`, `FCALL` and their `_RO` forms:
//! `… script|sha1|function numkeys [key …] [arg …]`
//!
//! How scripts run beside each other is the engine's affair: `engine::scripting`.

use engine::scripting;
use engine::{Arg, ArgKind, Command, Flags, Group, KeyFlags, KeySpec, ScriptName};

const COMMON: Flags =
    Flags::NOSCRIPT.with(Flags::SKIP_MONITOR).with(Flags::NO_MANDATORY_KEYS).with(Flags::STALE);
const WRITES: Flags = COMMON.with(Flags::MAY_REPLICATE);
const READS: Flags = COMMON.with(Flags::READONLY);

const WRITTEN: KeySpec =
    KeySpec::counted(2, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE));
const READ: KeySpec = KeySpec::counted(2, KeyFlags::RO.with(KeyFlags::ACCESS));
const WRITTEN_NOTE: &str =
    "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE";
const READ_NOTE: &str =
    "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS";

const fn arguments(name: &'static str) -> [Arg; 4] {
    [
        Arg::new(name, ArgKind::String),
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("key", 0).optional().multiple(),
        Arg::new("arg", ArgKind::String).optional().multiple(),
    ]
}

const SCRIPT: Command = Command {
    arity: -3,
    flags: WRITES,
    keys: &[WRITTEN.note(WRITTEN_NOTE)],
    group: Group::Scripting,
    since: "2.6.0",
    complexity: "That of the script",
    args: &arguments("script"),
    script: Some(ScriptName::Source),
    run: scripting::eval,
    ..Command::ROW
};

const DIGEST: Command = Command {
    keys: &[WRITTEN],
    args: &arguments("sha1"),
    script: Some(ScriptName::Digest),
    ..SCRIPT
};

const FUNCTION: Command = Command {
    since: "7.0.0",
    complexity: "That of the function",
    args: &arguments("function"),
    script: Some(ScriptName::Function),
    run: scripting::fcall,
    ..SCRIPT
};

/// `EVAL`.
pub static EVAL: Command = Command { name: "eval", summary: "Runs a Lua script.", ..SCRIPT };

/// `EVAL_RO`.
pub static EVAL_RO: Command = Command {
    name: "eval_ro",
    flags: READS,
    keys: &[READ.note(READ_NOTE)],
    since: "7.0.0",
    summary: "Runs a Lua script that may not write.",
    ..SCRIPT
};

/// `EVALSHA`.
pub static EVALSHA: Command = Command {
    name: "evalsha",
    summary: "Runs a Lua script that the server knows, by its SHA-1.",
    ..DIGEST
};

/// `EVALSHA_RO`.
pub static EVALSHA_RO: Command = Command {
    name: "evalsha_ro",
    flags: READS,
    keys: &[READ],
    since: "7.0.0",
    summary: "Runs a known Lua script that may not write.",
    ..DIGEST
};

/// `FCALL`.
pub static FCALL: Command =
    Command { name: "fcall", summary: "Calls a function of a library.", ..FUNCTION };

/// `FCALL_RO`.
pub static FCALL_RO: Command = Command {
    name: "fcall_ro",
    flags: READS,
    keys: &[READ.note(READ_NOTE)],
    summary: "Calls a function of a library that may not write.",
    ..FUNCTION
};
