//! The commands of the group `hash`, one file each or a tight family.

mod all_fields;
mod get_fields;
mod hdel;
mod hincrby;
mod hrandfield;
mod set_fields;

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &hrandfield::HRANDFIELD,
    &hincrby::HINCRBYFLOAT,
    &hincrby::HINCRBY,
    &hdel::HDEL,
    &all_fields::HVALS,
    &all_fields::HKEYS,
    &all_fields::HGETALL,
    &get_fields::HLEN,
    &get_fields::HSTRLEN,
    &get_fields::HEXISTS,
    &get_fields::HMGET,
    &get_fields::HGET,
    &set_fields::HSETNX,
    &set_fields::HMSET,
    &set_fields::HSET,
];
