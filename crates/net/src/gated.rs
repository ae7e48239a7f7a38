//! Output that must wait at a gate before it is sent.
//!
//! Output is held in pieces, each at a [`Gate`] for a position. There are three gates, identified
//! by number. The crate's user defines the meaning of positions and gates. A piece may be sent when
//! its position has passed and all pieces before it have been sent, so replies keep their order
//! whatever gates they wait at.
//!
//! At the gate `Judged` a position can also be *given up*. A piece that [can be
//! replaced](super::ConnIo::hold_reply) is then *lost*, and the handler supplies its replacement.
//! Other pieces are sent as they are.

use std::ops::Range;
use structs::output::Output;

/// Number of pieces for which a connection keeps memory.
const KEPT_PIECES: usize = 16;

/// A gate, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// Opened by [`Net::release`](super::Net::release). Its caller sends most of the output itself.
    Released = 0,
    /// Opened by [`Net::judge`](super::Net::judge), which can also give up positions.
    Judged = 1,
    /// Opened by the handler. A reactor [asks](super::Handler::told) it for the position.
    Told = 2,
}

impl Gate {
    pub(super) const ALL: [Gate; 3] = [Gate::Released, Gate::Judged, Gate::Told];
}

/// The positions up to which output has passed the gates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Past the gate `Released`.
    pub released: u64,
    /// Past the gate `Judged`.
    pub confirmed: u64,
    /// Past the gate `Judged`, too. Pieces that can be replaced are lost.
    pub given_up: u64,
    /// Past the gate `Told`, as of the reactor's last question.
    pub told: u64,
    /// If this changes, positions at the gate `Judged` change their meaning, and pieces that wait
    /// there are lost.
    pub epoch: u64,
    /// What was confirmed when the epoch before this one ended. Such pieces are not lost.
    pub confirmed_before: u64,
}

impl Passed {
    /// Returns the position up to which output at a gate may be sent.
    pub fn at(&self, gate: Gate) -> u64 {
        match gate {
            Gate::Released => self.released,
            Gate::Judged => self.confirmed.max(self.given_up),
            Gate::Told => self.told,
        }
    }
}

/// A piece of output, in plain bytes. It begins where the previous piece ends, or later.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// The beginning of a reply that may have to be replaced. For other pieces it equals `end`.
    start: usize,
    end: usize,
    gate: Gate,
    position: u64,
    is_lost: bool,
}

/// The part of a connection's output that may be sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// Number of plain bytes.
    pub bytes: usize,
    /// The replies among them to replace, in order.
    pub lost: Vec<Range<usize>>,
}

/// The pieces of one connection's output.
#[derive(Debug, Default)]
pub struct Gated(Vec<Piece>);

impl Gated {
    /// Returns whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes the output up to `end` wait.
    pub fn add(&mut self, end: usize, gate: Gate, position: u64) {
        match self.0.last_mut() {
            Some(last) if last.end == end && last.gate == gate => {
                last.position = last.position.max(position);
            }
            _ => self.0.push(Piece { start: end, end, gate, position, is_lost: false }),
        }
    }

    /// Makes a reply wait that may have to be replaced.
    pub fn add_reply(&mut self, reply: Range<usize>, position: u64) {
        let Range { start, end } = reply;
        self.0.push(Piece { start, end, gate: Gate::Judged, position, is_lost: false });
    }

    /// Puts output of `len` bytes before all other. It may be sent when output at the gate
    /// `Released` may.
    pub fn put_in_front(&mut self, len: usize) {
        self.0.iter_mut().for_each(|piece| {
            piece.start += len;
            piece.end += len;
        });
        let free =
            Piece { start: len, end: len, gate: Gate::Released, position: 0, is_lost: false };
        self.0.insert(0, free);
    }

    /// Takes the output that may be sent from the front. `len` is the length of all output.
    pub fn take_free(&mut self, passed: &Passed, len: usize) -> Free {
        let may_leave = |piece: &&Piece| piece.is_lost || piece.position <= passed.at(piece.gate);
        let due = self.0.iter().take_while(may_leave).count();
        let is_lost = |piece: &Piece| {
            let is_late = piece.gate == Gate::Judged && piece.position > passed.confirmed;
            (piece.is_lost || is_late) && piece.start < piece.end
        };
        let (mut lost, mut bytes) = (Vec::new(), 0);
        for piece in self.0.drain(..due) {
            bytes = piece.end;
            if is_lost(&piece) {
                lost.push(piece.start..piece.end);
            }
        }
        if self.0.is_empty() {
            self.clear();
            bytes = len;
        }
        self.0.iter_mut().for_each(|piece| {
            piece.start -= bytes;
            piece.end -= bytes;
        });
        Free { bytes, lost }
    }

    /// Ends all waits at the gate `Judged`: pieces up to this position may be sent, and those behind
    /// it are lost.
    pub fn end_judged(&mut self, confirmed: u64) {
        for piece in self.0.iter_mut().filter(|piece| piece.gate == Gate::Judged) {
            match piece.position <= confirmed {
                // No position is in front of it.
                true => piece.position = 0,
                false => piece.is_lost = true,
            }
        }
    }

    /// Drops all pieces, because nothing is held any more.
    pub fn clear(&mut self) {
        self.0.clear();
        // Many pieces may gather while a gate is closed for long.
        self.0.shrink_to(KEPT_PIECES);
    }

    /// Returns the last position for which output waits at a gate, if there is any.
    pub fn last_at(&self, gate: Gate) -> Option<u64> {
        self.0.iter().filter(|piece| piece.gate == gate).map(|piece| piece.position).max()
    }
}

/// Replaces each of `replies` by `line`.
pub fn replace(output: &mut Output, replies: &[Range<usize>], line: &[u8]) {
    // From the end, so that each byte is moved once.
    let mut tails = Vec::with_capacity(replies.len());
    for reply in replies.iter().rev() {
        tails.push(output.split_off(reply.end));
        output.truncate(reply.start);
    }
    for mut tail in tails.into_iter().rev() {
        output.extend_from_slice(line);
        output.append(&mut tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Gate::{Judged, Released};

    fn released(released: u64) -> Passed {
        Passed { released, ..Passed::default() }
    }

    fn judged(confirmed: u64, given_up: u64) -> Passed {
        Passed { confirmed, given_up, ..Passed::default() }
    }

    fn free(bytes: usize) -> Free {
        Free { bytes, lost: Vec::new() }
    }

    #[test]
    fn output_leaves_in_order() {
        let mut held = Gated::default();
        held.add(10, Released, 100);
        held.add(15, Released, 90);
        held.add(20, Released, 200);
        assert_eq!(held.take_free(&released(99), 23), free(0));
        assert_eq!(
            held.take_free(&released(100), 23),
            free(15),
            "what passed before waits its turn"
        );
        assert_eq!(held.take_free(&released(199), 8), free(0));
        assert_eq!(held.take_free(&released(200), 8), free(8), "nothing is held: all may leave");
        assert!(held.is_empty());
    }

    #[test]
    fn a_mode_that_changes_keeps_the_order() {
        let mut held = Gated::default();
        held.add_reply(0..5, 10);
        held.add(5, Released, 10);
        held.add(9, Released, 20);
        assert_eq!((held.last_at(Judged), held.last_at(Released)), (Some(10), Some(20)));
        assert_eq!(held.take_free(&released(20), 9), free(0));
        let both = Passed { released: 10, ..judged(10, 0) };
        assert_eq!(held.take_free(&both, 9), free(5));
    }

    #[test]
    fn replies_to_writes_that_are_given_up_are_lost() {
        let mut held = Gated::default();
        held.add_reply(0..5, 10);
        held.add_reply(7..12, 20);
        held.add(14, Judged, 20);
        held.add_reply(14..19, 30);
        let lost = |range| Free { bytes: 14, lost: vec![range] };
        assert_eq!(held.take_free(&judged(10, 20), 19), lost(7..12));
        assert_eq!(held.take_free(&judged(10, 20), 5), free(0));
        assert_eq!(held.take_free(&judged(30, 30), 5), free(5), "confirmed at the last moment");
    }

    #[test]
    fn a_new_epoch_loses_what_waits() {
        let mut held = Gated::default();
        held.add_reply(0..5, 9);
        held.add_reply(5..10, 10);
        held.add(13, Judged, 11);
        held.end_judged(9);
        let passed = Passed { epoch: 1, ..Passed::default() };
        let lost = std::iter::once(5..10).collect();
        assert_eq!(held.take_free(&passed, 13), Free { bytes: 13, lost });
    }

    #[test]
    fn lines_take_the_place_of_replies() {
        let mut output = Output::from(b"+a\r\n+bb\r\n+c\r\n+dd\r\n".to_vec());
        replace(&mut output, &[0..4, 9..13], b"-E\r\n");
        assert_eq!(output.into_bytes(), b"-E\r\n+bb\r\n-E\r\n+dd\r\n");
    }
}
