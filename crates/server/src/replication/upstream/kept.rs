//! Keeps the stream that arrives while a snapshot arrives over another connection. The bytes are
//! stored in pieces of a fixed size, so they take little more memory than their number.

use std::collections::VecDeque;
use std::io::{self, Read};

/// Bytes of each piece but the last.
const PIECE: usize = 1 << 20;

/// The kept bytes. The module's documentation describes them.
#[derive(Default)]
pub struct Kept {
    pieces: VecDeque<Vec<u8>>,
    /// Number of bytes of the first piece that were read.
    begin: usize,
    len: usize,
}

impl Kept {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        while !bytes.is_empty() {
            if self.pieces.back().is_none_or(|last| last.len() == PIECE) {
                self.pieces.push_back(Vec::with_capacity(PIECE));
            }
            let last = self.pieces.back_mut().expect("there is one now");
            let (now, rest) = bytes.split_at(bytes.len().min(PIECE - last.len()));
            last.extend_from_slice(now);
            bytes = rest;
        }
    }
}

impl Read for Kept {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(first) = self.pieces.front() else { return Ok(0) };
        let rest = &first[self.begin..];
        let now = rest.len().min(into.len());
        into[..now].copy_from_slice(&rest[..now]);
        self.begin += now;
        self.len -= now;
        if self.begin == first.len() {
            self.pieces.pop_front();
            self.begin = 0;
        }
        Ok(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_comes_back_in_order() {
        let bytes: Vec<u8> = (0..3 * PIECE + 5).map(|at| (at % 251) as u8).collect();
        let mut kept = Kept::default();
        bytes.chunks(70_001).for_each(|piece| kept.push(piece));
        assert_eq!(kept.len(), bytes.len());
        let mut begin = vec![0; PIECE + 3];
        kept.read_exact(&mut begin).expect("it is there");
        kept.push(b"more");
        let mut rest = Vec::new();
        kept.read_to_end(&mut rest).expect("it is there");
        assert!([begin, rest].concat() == [&bytes[..], b"more"].concat());
        assert_eq!(kept.len(), 0);
    }
}
