//! What a copy of a cluster says with each acknowledgement: its name, the data that it holds, and
//! the epoch of the last entry that it has.
//!
//! ```text
//!   REPLCONF ACK <offset> [FACK <offset>] COPY <name> DATA <incarnation> EPOCH <epoch>
//! ```
//!
//! It is sent only behind an entry that begins an epoch, which a primary outside of a cluster does
//! not write. A stock primary reads the offsets alone.

use structs::numbers::parse_i64;

/// A copy with the data that it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Voter {
    /// The copy: 40 hexadecimal digits.
    pub id: [u8; 40],
    /// The name of its data.
    pub incarnation: u64,
}

/// What stands with an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    /// Who acknowledges.
    pub voter: Voter,
    /// The epoch of the last entry that it has.
    pub epoch: u64,
}

impl Vote {
    /// Writes the words that follow the offsets.
    pub(crate) fn words(&self) -> [Vec<u8>; 6] {
        [
            b"COPY".to_vec(),
            self.voter.id.to_vec(),
            b"DATA".to_vec(),
            self.voter.incarnation.to_string().into_bytes(),
            b"EPOCH".to_vec(),
            self.epoch.to_string().into_bytes(),
        ]
    }

    /// Reads these words in the order in which they are written; `None` if there are others.
    pub fn parse(pairs: &[[&[u8]; 2]]) -> Option<Vote> {
        let [[copy, id], [data, incarnation], [of, epoch]] = pairs else { return None };
        let is = |word: &[u8], name: &[u8]| word.eq_ignore_ascii_case(name);
        if !is(copy, b"copy") || !is(data, b"data") || !is(of, b"epoch") {
            return None;
        }
        let id: [u8; 40] = (*id).try_into().ok()?;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let incarnation = str::from_utf8(incarnation).ok()?.parse().ok()?;
        let epoch = u64::try_from(parse_i64(epoch)?).ok()?;
        let voter = Voter { id, incarnation };
        id.iter().all(is_digit).then_some(Vote { voter, epoch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_reads_what_a_copy_says() {
        let voter = Voter { id: [b'a'; 40], incarnation: u64::MAX };
        let vote = Vote { voter, epoch: 7 };
        let words = vote.words();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let (pairs, rest) = words.as_chunks::<2>();
        assert!(rest.is_empty());
        assert_eq!(Vote::parse(pairs), Some(vote));
        assert_eq!(Vote::parse(&pairs[..2]), None);
        let all: [(usize, &[u8]); 4] = [(1, b"abc"), (3, b"-1"), (5, b"-1"), (4, b"else")];
        for (at, wrong) in all {
            let mut words = words.clone();
            words[at] = wrong;
            assert_eq!(Vote::parse(words.as_chunks::<2>().0), None, "{at}");
        }
    }
}
