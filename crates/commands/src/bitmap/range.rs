//! The range argument of BITCOUNT and BITPOS: `start [end [BYTE|BIT]]`.

use engine::{Args, Error};
use std::ops::Range;

/// A range as it was written; negative numbers count from the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct BitRange {
    pub start: i64,
    /// Inclusive; the last byte if left out.
    pub end: Option<i64>,
    counts_bits: bool,
}

impl BitRange {
    /// Reads the words from `at` on; without any the range is everything.
    pub fn parse(args: Args<'_>, at: usize) -> Result<BitRange, Error> {
        let words = args.len() - at;
        if words > 3 {
            return Err(Error::Syntax);
        }
        let start = if words > 0 { args.integer(at)? } else { 0 };
        let counts_bits = words == 3 && args.is(at + 2, "bit");
        if words == 3 && !counts_bits && !args.is(at + 2, "byte") {
            return Err(Error::Syntax);
        }
        let end = if words > 1 { Some(args.integer(at + 1)?) } else { None };
        Ok(BitRange { start, end, counts_bits })
    }

    /// Whether both numbers count from the end, the first from further on.
    pub fn is_backward(&self) -> bool {
        self.start < 0 && self.end.is_some_and(|end| end < 0 && self.start > end)
    }

    /// The bits of a string of `len` bytes that are meant; `None` if there are none.
    pub fn bits(&self, len: usize) -> Option<Range<usize>> {
        let unit = if self.counts_bits { 1 } else { 8 };
        let units = (len * 8 / unit) as i64;
        let from_start =
            |index: i64| if index < 0 { index.saturating_add(units).max(0) } else { index };
        let start = from_start(self.start);
        let end = from_start(self.end.unwrap_or(units - 1)).min(units - 1);
        (start <= end).then(|| start as usize * unit..(end as usize + 1) * unit)
    }
}
