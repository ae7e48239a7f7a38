//! The end of a log that does not end with a whole command: torn off by a crash, or damaged?
//!
//! What a crash leaves is the beginning of what would have been there, and may be cut off. Behind a
//! length or an EXEC that is not what was written, on the other hand, there may be any amount of
//! sound history, which must not be cut off with it. So an end is damaged if there is a command in
//! an unfinished transaction that does not exist, or if whole commands stand inside what claims to be
//! a single word. (A value that is itself a piece of such a log looks the same. That it is asked
//! about is the lesser evil.)

use engine::table::CommandTable;
use replication::{Item, StreamReader};
use std::fmt;
use std::ops::Range;

/// What is wrong with the end of a log.
#[derive(Debug, PartialEq, Eq)]
pub enum Damage {
    /// There is no such command.
    Unknown {
        /// Its first word.
        command: Vec<u8>,
        /// Where it begins.
        offset: u64,
    },
    /// A command that does not end contains others.
    Swallows {
        /// Where it begins.
        offset: u64,
        /// Where the first command inside begins.
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

/// Looks at all that is left of a log behind the last place at which it is whole, where `reader`
/// stands. `None`: a crash may have left it so.
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
            // The reader has met this already, and has said so.
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

/// Where a whole command begins inside of what begins with an incomplete one.
fn command_inside(table: &CommandTable, input: &[u8]) -> Option<usize> {
    let mut words = Vec::new();
    let lines = input.windows(3).enumerate().filter(|(_, bytes)| bytes == b"\r\n*");
    for (at, _) in lines {
        let begin = at + 2;
        // Only this command is looked at, whatever it is.
        if let Ok(Item::Command { .. }) = StreamReader::inside().next(&input[begin..], &mut words)
            && is_known(table, &input[begin..], &words)
        {
            return Some(begin);
        }
    }
    None
}
