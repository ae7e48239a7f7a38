//! The commands of the group `server`, one file each or a tight family.

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[];
