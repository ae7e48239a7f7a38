//! The commands of the group `scripting`, one file each or a tight family.

mod eval;
mod function;
mod function_payload;
mod script;

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &eval::FCALL_RO,
    &eval::FCALL,
    &eval::EVALSHA_RO,
    &eval::EVALSHA,
    &eval::EVAL_RO,
    &eval::EVAL,
    &function::FUNCTION,
    &script::SCRIPT,
];
