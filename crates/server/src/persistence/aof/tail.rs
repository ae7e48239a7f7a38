//! Examines the end of a log that does not end with a whole command. It was torn off by a crash, or
//! is damaged.
//!
//! A crash leaves the beginning of the data that would have been written. That may be cut off.
//! After a damaged length or EXEC, on the other hand, there may be any amount of sound history,
//! which must not be cut off. So an end is damaged if an unfinished transaction has a command that
//! does not exist, or if whole commands stand inside an apparent single word. (A value that is
//! itself a piece of such a log looks the same. Asking the operator about it is the lesser evil.)

use engine::table::CommandTable;
use replication::{Item, StreamReader};
use std::fmt;
use std::ops::Range;

/// What is wrong with the end of a log.
#[derive(Debug, PartialEq, Eq)]
pub enum Damage {
    /// A command does not exist.
    Unknown {
        /// Its first word.
        command: Vec<u8>,
        /// The offset at which it begins.
        offset: u64,
    },
    /// An unfinished command contains other commands.
    Swallows {
        /// The offset at which it begins.
        offset: u64,
        /// The offset at which the first command inside begins.
        inner: u64,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Unknown { command, offset } => write!(
                f,
                "'{}' at offset {offset}, in a transaction that does not end, is no command, or not \
                 with so many words",
                command.escape_ascii()
            ),
            Damage::Swallows { offset, inner } => write!(
                f,
                "The command at offset {offset} does not end, although another one begins at \
                 offset {inner}"
            ),
        }
    }
}

/// Examines the rest of a log after its last whole command, where `reader` stands. Returns `None`
/// if a crash may have left it.
pub fn damage(table: &CommandTable, reader: &StreamReader, tail: &[u8]) -> Option<Damage> {
    let mut reader = reader.clone();
    let (mut at, mut words) = (0, Vec::new());
    loop {
        let offset = reader.offset();
        match reader.next(&tail[at..], &mut words) {
            Ok(Item::Command { consumed }) => {
                if !is_known(table, &tail[at..], &words) {
                    let command = words.first().map_or(&[][..], |word| &tail[at..][word.clone()]);
                    return Some(Damage::Unknown { command: command.to_vec(), offset });
                }
                at += consumed;
            }
            Ok(
                Item::Timestamp { consumed, .. }
                | Item::Place { consumed, .. }
                | Item::Comment { consumed },
            ) => at += consumed,
            // The reader has met and reported this before.
            Ok(Item::Torn) | Err(_) => return None,
            Ok(Item::Incomplete { .. }) => {
                let inner = command_inside(table, &tail[at..])?;
                return Some(Damage::Swallows { offset, inner: offset + inner as u64 });
            }
        }
    }
}

fn is_known(table: &CommandTable, input: &[u8], words: &[Range<usize>]) -> bool {
    let words: Vec<&[u8]> = words.iter().map(|word| &input[word.clone()]).collect();
    table.resolve_logged(&words).is_ok()
}

/// Returns the offset of a whole command inside of an incomplete one.
fn command_inside(table: &CommandTable, input: &[u8]) -> Option<usize> {
    let mut words = Vec::new();
    let lines = input.windows(3).enumerate().filter(|(_, bytes)| bytes == b"\r\n*");
    for (at, _) in lines {
        let begin = at + 2;
        // Only this command is parsed.
        if let Ok(Item::Command { .. }) = StreamReader::inside().next(&input[begin..], &mut words)
            && is_known(table, &input[begin..], &words)
        {
            return Some(begin);
        }
    }
    None
}
