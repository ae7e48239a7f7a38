//! Vectors in requests: `FP32 blob` or `VALUES count number…`.

use engine::{Arg, ArgKind, Args, Error};
use structs::numbers::{parse_f64, parse_i64};
use vectors::{MAX_DIM, VectorSet};

pub(super) const INVALID: Error = Error::text("ERR invalid vector specification");

/// The forms, for COMMAND DOCS.
pub(super) const BLOB: Arg = Arg::new("blob", ArgKind::String).after("FP32");
pub(super) const VALUES: Arg = Arg::block(
    "values",
    &[
        Arg::new("num", ArgKind::Integer).after("VALUES"),
        Arg::new("vector", ArgKind::Double).multiple(),
    ],
);

/// Reads the vector that begins at a word. Returns its numbers and the word behind it.
pub(super) fn read(args: Args<'_>, at: usize) -> Result<(Vec<f32>, usize), Error> {
    let (numbers, end) = if args.is(at, "fp32") {
        let blob = args.get(at + 1).ok_or(INVALID)?;
        let (chunks, rest) = blob.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(INVALID);
        }
        (chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>(), at + 2)
    } else if args.is(at, "values") {
        let count = args.get(at + 1).and_then(parse_i64).ok_or(INVALID)?;
        let count = usize::try_from(count).map_err(|_| INVALID)?;
        let words = args.from(at + 2).get(..count).ok_or(INVALID)?;
        let number = |word: &&[u8]| parse_f64(word).map(|number| number as f32);
        let numbers = words.iter().map(number).collect::<Option<Vec<f32>>>().ok_or(INVALID)?;
        (numbers, at + 2 + count)
    } else {
        return Err(INVALID);
    };
    let is_sound =
        (1..=MAX_DIM).contains(&numbers.len()) && numbers.iter().all(|number| number.is_finite());
    if is_sound { Ok((numbers, end)) } else { Err(INVALID) }
}

/// Returns the word behind the vector that begins at a word, whose numbers are not read. `None`: it
/// has fewer than it says.
pub(super) fn end(args: Args<'_>, at: usize) -> Option<usize> {
    if !args.is(at, "values") {
        return Some(at + 2);
    }
    let count = args.get(at + 1).and_then(parse_i64).and_then(|it| usize::try_from(it).ok())?;
    count.checked_add(at + 2).filter(|&end| end <= args.len())
}

/// Returns the error for numbers of other dimensions than a set has.
pub(super) fn mismatch(got: usize, has: usize) -> Error {
    Error::format(format!("ERR Vector dimension mismatch - got {got} but set has {has}"))
}

/// Checks the dimensions of a query: those of the set, or those that its projection takes.
pub(super) fn check(set: &VectorSet, numbers: &[f32]) -> Result<(), Error> {
    if numbers.len() == set.dim() || Some(numbers.len()) == set.input_dim() {
        return Ok(());
    }
    Err(mismatch(numbers.len(), set.dim()))
}
