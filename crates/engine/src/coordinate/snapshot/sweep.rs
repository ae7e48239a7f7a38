//! Reads the cold values that a snapshot has marked, segment by segment, in the order in which they
//! lie there.
//!
//! When all tables have been walked, every marked value is still as it was at the snapshot's
//! moment, because an entry loses its mark before it changes. So key and expiry come from the entry
//! in RAM. The value comes from a window of the segment that was read at once.

use super::thaw::entry_of;
use crate::engine::Engine;
use crate::flash::cold_location;
use keyspace::snapshot::record::{Token, Tokens};
use keyspace::snapshot::write_whole;
use keyspace::{DbIndex, Entry, Key, StripeData};
use std::io;

/// Bytes of tokens that are collected before they are passed on. One value may be longer.
const BATCH: usize = 256 << 10;
/// Memory of a sweep in bytes: a window and a batch.
pub(crate) const SWEEP_BYTES: usize = (1 << 20) + BATCH;

/// One thread's part of the sweep.
#[derive(Default)]
pub(crate) struct Sweep {
    segment: Option<tier::Sweep>,
    batch: Vec<(DbIndex, Vec<u8>)>,
    bytes: usize,
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SweepStep {
    /// There may be more.
    GoesOn,
    /// [`Sweep::take`] has a full batch.
    IsFull,
    /// All remaining segments are read by other threads.
    Nothing,
}

impl Sweep {
    /// Reads the next value. `with_stripe` locks a stripe. `is_over` returns whether the snapshot
    /// has ended.
    ///
    /// # Errors
    /// A value cannot be read, so the snapshot fails.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        with_stripe: impl FnOnce(usize, &mut dyn FnMut(&mut StripeData)),
        is_over: impl Fn() -> bool,
    ) -> io::Result<SweepStep> {
        let Some(tier) = engine.tier.get() else { return Ok(SweepStep::Nothing) };
        if self.segment.is_none() {
            self.segment = tier.sweep();
        }
        let Some(segment) = &mut self.segment else { return Ok(SweepStep::Nothing) };
        let swept = segment.next_marked().map_err(|error| io::Error::other(error.to_string()))?;
        let Some(swept) = swept else {
            self.segment = None;
            return Ok(if self.batch.is_empty() { SweepStep::GoesOn } else { SweepStep::IsFull });
        };
        let (hash, location) = (swept.hash, cold_location(swept.location));
        let (mut taken, mut is_lost) = (None, false);
        with_stripe(engine.keyspace.stripe_of(Key { bytes: b"", hash }), &mut |data| {
            taken = data.take_marked(hash, location);
            // If the mark is gone, a writer or the cleaner has taken the entry first.
            is_lost = taken.is_none() && tier.is_marked(swept.location) && !is_over();
        });
        if is_lost {
            return Err(io::Error::other("a value on flash belongs to no key"));
        }
        let Some(chunk) = taken else { return Ok(SweepStep::GoesOn) };
        if let Some(Token::Cold(head)) = Tokens::new(&chunk.bytes).next() {
            let entry = entry_of(engine, &head, Ok(swept.payload))?;
            self.add(chunk.db, &entry);
        }
        Ok(if self.bytes >= BATCH { SweepStep::IsFull } else { SweepStep::GoesOn })
    }

    fn add(&mut self, db: DbIndex, entry: &Entry) {
        let at = self.batch.iter().position(|(of, _)| *of == db).unwrap_or_else(|| {
            self.batch.push((db, Vec::new()));
            self.batch.len() - 1
        });
        let tokens = &mut self.batch[at].1;
        let before = tokens.len();
        write_whole(tokens, entry);
        self.bytes += tokens.len() - before;
    }

    /// Returns the tokens of whole entries that have been collected, for each database.
    pub(crate) fn take(&mut self) -> Vec<(DbIndex, Vec<u8>)> {
        self.bytes = 0;
        std::mem::take(&mut self.batch)
    }
}
