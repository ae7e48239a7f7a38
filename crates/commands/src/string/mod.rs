//! The commands of the group `string`, one file each or a tight family.

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[];
