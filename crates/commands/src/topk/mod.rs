//! The commands of the group `topk`: the most frequent items.

mod add;
mod list;
mod reserve;

use engine::{Class, Command, Error, Event, event};

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &reserve::TOPK_RESERVE,
    &add::TOPK_ADD,
    &add::TOPK_INCRBY,
    &list::TOPK_QUERY,
    &list::TOPK_COUNT,
    &list::TOPK_LIST,
    &list::TOPK_INFO,
];

const RESERVED: Event = event(Class::MODULE, "topk.reserve");
const ADDED: Event = event(Class::MODULE, "topk.add");

const NO_KEY: Error = Error::text("TopK: key does not exist");
