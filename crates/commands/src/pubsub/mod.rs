//! The commands of the group `pubsub`, one file each or a tight family.

mod introspection;
mod publish;
mod subscribe;

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &introspection::PUBSUB,
    &publish::SPUBLISH,
    &publish::PUBLISH,
    &subscribe::SUNSUBSCRIBE,
    &subscribe::SSUBSCRIBE,
    &subscribe::PUNSUBSCRIBE,
    &subscribe::PSUBSCRIBE,
    &subscribe::UNSUBSCRIBE,
    &subscribe::SUBSCRIBE,
];
