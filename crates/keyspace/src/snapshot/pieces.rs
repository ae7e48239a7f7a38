//! Tokens that writers of a big value have taken and the snapshot has not written yet, in pieces.
//!
//! If the disk is slow, they become many megabytes, which are added to under the stripe's lock. A
//! vector that doubles would copy all of them under the lock, into memory that the system has to
//! provide first. This would delay all clients of the value by some ten milliseconds. Instead, a
//! full piece stays in its place and is passed on without a copy.

use std::collections::VecDeque;

/// A piece with this many bytes is full.
const FULL: usize = 64 << 10;
/// Additional capacity for the last token.
const SLACK: usize = 8 << 10;

/// The pieces. The module's documentation describes them.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    full: VecDeque<Vec<u8>>,
    current: Vec<u8>,
    /// Memory for the next piece.
    spare: Vec<u8>,
    bytes: usize,
}

impl Pieces {
    /// Appends what `write` writes. Returns the number of bytes.
    pub fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        if self.current.len() >= FULL {
            let mut next = std::mem::take(&mut self.spare);
            if next.capacity() == 0 {
                next.reserve_exact(FULL + SLACK);
            }
            self.full.push_back(std::mem::replace(&mut self.current, next));
        }
        let before = self.current.len();
        write(&mut self.current);
        let added = self.current.len() - before;
        self.bytes += added;
        added
    }

    /// Returns the bytes of all pieces.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns whether there is more than the piece that is being filled.
    pub fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Appends the oldest piece to `out`. Returns the number of bytes.
    pub fn take(&mut self, out: &mut Vec<u8>) -> usize {
        let mut oldest = self.full.pop_front().unwrap_or_else(|| std::mem::take(&mut self.current));
        let taken = oldest.len();
        self.bytes -= taken;
        if out.is_empty() {
            std::mem::swap(out, &mut oldest);
        } else {
            out.extend_from_slice(&oldest);
            oldest.clear();
        }
        // Reuse the memory: it is warm, and the next piece is filled under a lock.
        if self.current.capacity() == 0 {
            self.current = oldest;
        } else if self.spare.capacity() == 0 {
            self.spare = oldest;
        }
        taken
    }

    /// Returns everything in one piece.
    pub fn take_all(&mut self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.bytes);
        for piece in self.full.drain(..) {
            all.extend_from_slice(&piece);
        }
        all.append(&mut self.current);
        self.bytes = 0;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_or_moved_about() {
        let (mut pieces, mut given, mut taken) = (Pieces::default(), Vec::new(), Vec::new());
        let mut out = Vec::with_capacity(4 * FULL);
        for round in 0..5000usize {
            let token = round.to_le_bytes().repeat(1 + round % 50);
            assert_eq!(pieces.add(|to| to.extend_from_slice(&token)), token.len());
            given.extend_from_slice(&token);
            assert!(pieces.current.capacity() <= 4 * FULL, "a full piece does not grow");
            if round % 700 == 0 {
                out.clear();
                assert_eq!(pieces.take(&mut out), out.len());
                taken.extend_from_slice(&out);
            }
            assert_eq!(pieces.len(), given.len() - taken.len());
        }
        assert!(pieces.has_full());
        while pieces.len() > FULL {
            // Append to existing bytes, too.
            pieces.take(&mut taken);
        }
        taken.extend(pieces.take_all());
        assert!(taken == given);
        assert!(pieces.is_empty() && !pieces.has_full());
        assert_eq!(pieces.take(&mut out), 0);
    }
}
