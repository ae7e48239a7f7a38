//! The ids of histories. A position alone says nothing: two servers at the same position may have
//! different data. Together with the id of its history it names one state.
//!
//! A server that was a replica and becomes a primary begins a new history. Up to the position of
//! the promotion it is the history of its old primary, so the old id is kept as the *second* id,
//! valid up to there. Replicas of the old primary can then go on without a full synchronisation.

use crate::JournalPos;
use std::fmt;

/// 40 hexadecimal digits that name a history (`replid`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HistoryId([u8; 40]);

impl HistoryId {
    /// Returns a new id.
    pub fn random() -> HistoryId {
        let mut id = [0; 40];
        for digits in id.chunks_exact_mut(8) {
            let part = format!("{:08x}", structs::hashing::os_random() as u32);
            digits.copy_from_slice(part.as_bytes());
        }
        HistoryId(id)
    }

    /// Reads an id. Returns `None` if the text has another length or other characters.
    pub fn parse(text: &[u8]) -> Option<HistoryId> {
        let id: [u8; 40] = text.try_into().ok()?;
        id.iter().all(u8::is_ascii_alphanumeric).then_some(HistoryId(id))
    }

    /// Returns the 40 characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an id is made of ASCII characters only")
    }
}

impl fmt::Display for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The ids under which this server's positions are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct History {
    /// The present id (`master_replid`).
    pub id: HistoryId,
    /// An earlier id and the last position at which the two histories are the same
    /// (`master_replid2`, `second_repl_offset`).
    pub second: Option<(HistoryId, JournalPos)>,
}

impl History {
    /// Returns a history without a second id.
    pub fn new() -> History {
        History { id: HistoryId::random(), second: None }
    }

    /// Returns whether this history passed the state that the history `id` has at `position`. It
    /// must have reached that position.
    pub fn contains(&self, id: &HistoryId, position: JournalPos) -> bool {
        let in_second = |(second, last): (HistoryId, JournalPos)| second == *id && position <= last;
        self.id == *id || self.second.is_some_and(in_second)
    }

    /// Returns the history that branches off here under a new id.
    #[must_use]
    pub fn branch(&self, at: JournalPos) -> History {
        History { id: HistoryId::random(), second: Some((self.id, at)) }
    }
}

impl Default for History {
    fn default() -> History {
        History::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_forty_characters() {
        let id = HistoryId::random();
        assert_eq!(HistoryId::parse(id.as_str().as_bytes()), Some(id));
        assert_ne!(HistoryId::random(), id);
        assert_eq!(HistoryId::parse(b"?"), None);
        assert_eq!(HistoryId::parse(&[b' '; 40]), None);
    }

    #[test]
    fn a_second_id_is_valid_up_to_its_last_position() {
        let old = History::new();
        let new = old.branch(JournalPos(100));
        assert!(new.contains(&old.id, JournalPos(100)) && new.contains(&new.id, JournalPos(101)));
        assert!(!new.contains(&old.id, JournalPos(101)));
        assert!(!old.contains(&new.id, JournalPos(1)));
        // Only one earlier id is remembered.
        assert!(!new.branch(JournalPos(200)).contains(&old.id, JournalPos(100)));
    }
}
