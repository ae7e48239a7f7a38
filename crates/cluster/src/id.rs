//! Names: of copies, shards and databases, and of what a copy has in memory.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The name of a copy, shard or database: 20 bytes, written as 40 hexadecimal digits, as Redis
/// Cluster has them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id([u8; 20]);

impl Id {
    /// Makes a name of 20 random bytes.
    pub const fn new(bytes: [u8; 20]) -> Id {
        Id(bytes)
    }

    /// Draws a name; `random` gives 64 random bits at each call.
    pub fn draw(mut random: impl FnMut() -> u64) -> Id {
        let mut bytes = [0; 20];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random().to_le_bytes()[..chunk.len()]);
        }
        Id(bytes)
    }

    /// The number that its first digits are.
    pub const fn number(self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }
}

/// A text that is not 40 hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 40 hexadecimal digits")
    }
}

impl std::error::Error for NotAnId {}

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Id, NotAnId> {
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return Err(NotAnId);
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(NotAnId),
        };
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Ok(Id(bytes))
    }
}

impl TryFrom<String> for Id {
    type Error = NotAnId;

    fn try_from(text: String) -> Result<Id, NotAnId> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.to_string()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Names the data that a copy holds. A copy draws a new one whenever it may have lost something
/// that it had acknowledged: a restart that does not find all of it on disk, the beginning of a
/// full synchronisation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// Counts the leaderships of a database's shards. Each is used once in a database, and the greater
/// one is the later.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Returns the next epoch.
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

/// How far a copy's data goes. The order is the one by which successors are chosen: first the epoch
/// in which the last entry was written, then the offset behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// The epoch of the last entry; a leadership begins with an entry of its own.
    pub epoch: Epoch,
    /// The offset behind the last entry.
    pub offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_forty_digits_in_lower_case() {
        let text = "07c37dfeb235213a872192d90877d0cd55635b91";
        assert_eq!(text.parse::<Id>().map(|id| id.to_string()).as_deref(), Ok(text));
        for wrong in ["", "07", &text.to_uppercase(), &format!("{text}0"), &"é".repeat(20)] {
            assert_eq!(wrong.parse::<Id>(), Err(NotAnId), "{wrong}");
        }
    }

    #[test]
    fn a_later_epoch_wins_over_a_greater_offset() {
        let position = |epoch, offset| Position { epoch: Epoch(epoch), offset };
        assert!(position(2, 1) > position(1, 9) && position(2, 3) > position(2, 2));
    }
}
