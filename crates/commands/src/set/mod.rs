//! The commands of the group `set`, one file each or a tight family.

mod algebra;
mod cardinality;
mod members;
mod random;

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &cardinality::SDIFFCARD,
    &cardinality::SUNIONCARD,
    &cardinality::SINTERCARD,
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
