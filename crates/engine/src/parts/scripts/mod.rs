//! What is known of scripts and functions, and what their runs share.
//!
//! A script runs under the locks of the keys that it declares, or with the world stopped. Which of
//! the two is learnt from its runs; one that was mistaken is undone and begins again. The page
//! `docs/internals/scripts.md` says why this is atomic and cannot deadlock.

mod attempt;
mod cache;
#[cfg(test)]
mod crossing;
mod figures;
pub mod functions;
mod learned;
mod local;
mod running;

pub use attempt::ScriptRules;
pub(crate) use attempt::{Attempt, RunsOn, Target, Verdict};
pub use cache::{Cache, LastUse, Script};
pub use figures::{KeyFigures, LockedFigures};
pub use functions::{Function, Functions, Libraries, Library, LoadError};
pub use learned::Learned;
pub(crate) use learned::Shape;
pub(crate) use local::new_interpreter;
pub use local::{Local, VALKEY_VERSION};
pub use running::{Answer, Ended, Kill, Kind, Running, RunningScript, answer_at_end};

use script::Sha;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// What all threads share about scripts.
#[derive(Default)]
pub struct Scripts {
    /// Scripts of EVAL.
    pub cache: Cache,
    /// Libraries of functions.
    pub functions: Functions,
    /// Scripts that have run for a while.
    pub running: Running,
    /// One script at a time may change what it could not undo, while it does not hold everything.
    turn: AtomicBool,
    /// The script that has it waits for a stripe.
    turn_waits: AtomicBool,
    /// The figures of the stripes that scripts on background threads have locked.
    pub figures: LockedFigures,
    /// Runs with the world stopped, and runs that were undone.
    pub stopped_world: AtomicU64,
    /// See above.
    pub restarted: AtomicU64,
}

impl Scripts {
    /// Takes the turn, if it is free.
    pub(crate) fn take_turn(&self) -> bool {
        self.turn.compare_exchange(false, true, SeqCst, SeqCst).is_ok()
    }

    /// Gives it back.
    pub(crate) fn end_turn(&self) {
        self.turn.store(false, SeqCst);
    }

    /// Says that the script that has the turn waits, or no longer does. Others that can be undone
    /// make way.
    pub(crate) fn set_turn_waits(&self, waits: bool) {
        self.turn_waits.store(waits, SeqCst);
    }

    /// Whether it waits.
    pub(crate) fn turn_waits(&self) -> bool {
        self.turn_waits.load(SeqCst)
    }

    /// Whether a script has it.
    pub(crate) fn is_turn_taken(&self) -> bool {
        self.turn.load(SeqCst)
    }
}

/// The digest that a word spells.
pub fn parse_sha(word: &[u8]) -> Option<Sha> {
    let mut sha = [0; 20];
    if word.len() != 40 {
        return None;
    }
    for (byte, digits) in sha.iter_mut().zip(word.chunks(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
    }
    Some(sha)
}
