//! The commands of the group `set`, one file each or a tight family.

mod algebra;
mod members;
mod random;

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &algebra::SINTERCARD,
    &algebra::SDIFFSTORE,
    &algebra::SUNIONSTORE,
    &algebra::SINTERSTORE,
    &algebra::SDIFF,
    &algebra::SUNION,
    &algebra::SINTER,
    &random::SRANDMEMBER,
    &random::SPOP,
    &members::SMOVE,
    &members::SMEMBERS,
    &members::SMISMEMBER,
    &members::SISMEMBER,
    &members::SCARD,
    &members::SREM,
    &members::SADD,
];
