//! Sparse registers: runs of equal ones.

use super::{Corrupted, HEADER, REGISTERS};

/// The largest value that a run can have.
const MAX_VALUE: u8 = 32;
const MAX_VALUE_RUN: usize = 4;
const MAX_SHORT_ZEROS: usize = 64;
/// Runs of values that are looked at after a change, to join those that are equal.
const MAX_JOINS: usize = 5;

/// So many registers of this value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Zero, or what the registers hold.
    pub value: u8,
    /// How many there are.
    pub len: usize,
    /// Bytes that the run takes.
    pub(super) size: usize,
}

/// The runs of encoded registers. A run that is cut off ends them early: they do not take all
/// bytes.
pub fn runs(mut encoded: &[u8]) -> impl Iterator<Item = Run> {
    std::iter::from_fn(move || {
        let run = first_run(encoded)?;
        encoded = &encoded[run.size..];
        Some(run)
    })
}

fn first_run(encoded: &[u8]) -> Option<Run> {
    let first = *encoded.first()?;
    Some(match first >> 6 {
        0 => Run { value: 0, len: usize::from(first & 0x3f) + 1, size: 1 },
        1 => {
            let low = usize::from(*encoded.get(1)?);
            Run { value: 0, len: (usize::from(first & 0x3f) << 8 | low) + 1, size: 2 }
        }
        _ => Run { value: (first >> 2 & 31) + 1, len: usize::from(first & 3) + 1, size: 1 },
    })
}

/// Appends a run of zeros, if there are any.
pub(super) fn push_zeros(out: &mut Vec<u8>, len: usize) {
    match len {
        0 => {}
        1..=MAX_SHORT_ZEROS => out.push((len - 1) as u8),
        _ => out.extend_from_slice(&(0x4000 | (len - 1) as u16).to_be_bytes()),
    }
}

fn value_run(value: u8, len: usize) -> u8 {
    0x80 | (value - 1) << 2 | (len - 1) as u8
}

fn push_values(out: &mut Vec<u8>, value: u8, len: usize) {
    if len > 0 {
        out.push(value_run(value, len));
    }
}

/// What became of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Raised {
    /// It was as high already.
    Unchanged,
    /// It is higher now.
    Changed,
    /// The value or the bytes would be too many for this encoding.
    TooBig,
}

/// Raises a register of a value with its header; the result is at most `max_bytes` long, unless the
/// value was longer before.
///
/// # Errors
/// The runs do not cover the register.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    index: usize,
    value: u8,
    max_bytes: usize,
) -> Result<Raised, Corrupted> {
    if value > MAX_VALUE {
        return Ok(Raised::TooBig);
    }
    let (mut at, mut first, mut before) = (HEADER, 0, HEADER);
    let run = loop {
        let run = first_run(&bytes[at..]).ok_or(Corrupted)?;
        if index < first + run.len {
            break run;
        }
        before = at;
        at += run.size;
        first += run.len;
    };
    if run.value >= value {
        return Ok(Raised::Unchanged);
    }
    let mut new = Vec::with_capacity(5);
    push_run(&mut new, run.value, index - first);
    new.push(value_run(value, 1));
    push_run(&mut new, run.value, first + run.len - 1 - index);
    // A run of one is replaced in place, whatever the limit.
    if run.len > 1 && new.len() > run.size && bytes.len() + new.len() - run.size > max_bytes {
        return Ok(Raised::TooBig);
    }
    bytes.splice(at..at + run.size, new);
    join_equal(bytes, before);
    Ok(Raised::Changed)
}

fn push_run(out: &mut Vec<u8>, value: u8, len: usize) {
    match value {
        0 => push_zeros(out, len),
        value => push_values(out, value, len),
    }
}

/// Joins neighboring runs of one value, in the few runs from `at` on.
fn join_equal(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..MAX_JOINS {
        let Some(run) = bytes.get(at..).and_then(first_run) else { return };
        let next = bytes.get(at + run.size..).and_then(first_run);
        let joined = next
            .filter(|next| run.value > 0 && next.value == run.value)
            .map(|next| next.len + run.len)
            .filter(|&len| len <= MAX_VALUE_RUN);
        match joined {
            // The run may be joined with the one after it as well.
            Some(len) => {
                bytes[at] = value_run(run.value, len);
                bytes.remove(at + 1);
            }
            None => at += run.size,
        }
    }
}

/// The runs as `PFDEBUG DECODE` spells them.
pub fn describe(encoded: &[u8]) -> Result<String, Corrupted> {
    let (mut text, mut covered, mut at) = (String::new(), 0, 0);
    for run in runs(encoded) {
        covered += run.len;
        at += run.size;
        let piece = match (run.value, run.size) {
            (0, 1) => format!("z:{} ", run.len),
            (0, _) => format!("Z:{} ", run.len),
            (value, _) => format!("v:{value},{} ", run.len),
        };
        text.push_str(&piece);
    }
    text.truncate(text.trim_end().len());
    if covered == REGISTERS && at == encoded.len() { Ok(text) } else { Err(Corrupted) }
}
