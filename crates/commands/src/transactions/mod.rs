//! The commands of the group `transactions`, one file each or a tight family.

mod multi;
mod watch;

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] =
    &[&watch::UNWATCH, &watch::WATCH, &multi::DISCARD, &multi::EXEC, &multi::MULTI];
