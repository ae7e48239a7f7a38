//! The commands of the group `zset`, one file each or a tight family.

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[];
