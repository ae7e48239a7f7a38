//! The commands of the group `connection`, one file each or a tight family.

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[];
