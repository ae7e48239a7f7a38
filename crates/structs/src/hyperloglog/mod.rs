//! HyperLogLog: an estimate of how many different elements were seen, in at most 12 KB.
//!
//! The bytes are those that Redis keeps in a string, so that they can be copied between servers:
//!
//! ```text
//!  "HYLL" │ encoding u8 │ 3 unused │ cached count u64 (top bit: outdated) │ registers
//!
//!  dense    16384 registers of 6 bits, the lowest bits first: 12 288 bytes
//!  sparse   runs:  00nnnnnn            n + 1 zeros (1 to 64)
//!                  01nnnnnn nnnnnnnn   n + 1 zeros (1 to 16384)
//!                  1vvvvvnn            n + 1 (1 to 4) times v + 1 (1 to 32)
//! ```
//!
//! A register holds the longest run of zeros, plus one, in the hashes of the elements that fall to
//! it. Small sets are sparse; one becomes dense when it would grow beyond a limit or a value beyond
//! 32.

pub mod dense;
mod estimate;
pub mod sparse;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod wide;

pub use estimate::estimate;

use crate::murmur::murmur64a;

/// Registers of a HyperLogLog.
pub const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// Bits of a hash that runs of zeros are counted in.
const RUN_BITS: u32 = 64 - INDEX_BITS;
const HEADER: usize = 16;
const MAGIC: &[u8; 4] = b"HYLL";
const OUTDATED: u64 = 1 << 63;

/// All registers, a byte each.
pub type Registers = [u8; REGISTERS];

/// How the registers are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// Six bits a register.
    Dense = 0,
    /// Runs of equal registers.
    Sparse = 1,
}

/// The string is no HyperLogLog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotHyperLogLog;

/// The header is one, but the registers are damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupted;

/// An empty one, sparse.
pub fn empty() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(Encoding::Sparse as u8);
    bytes.resize(HEADER, 0);
    sparse::push_zeros(&mut bytes, REGISTERS);
    bytes
}

/// How these bytes are encoded.
///
/// # Errors
/// They are something else.
pub fn encoding(bytes: &[u8]) -> Result<Encoding, NotHyperLogLog> {
    if bytes.len() < HEADER || !bytes.starts_with(MAGIC) {
        return Err(NotHyperLogLog);
    }
    match bytes[4] {
        0 if bytes.len() == HEADER + dense::BYTES => Ok(Encoding::Dense),
        1 => Ok(Encoding::Sparse),
        _ => Err(NotHyperLogLog),
    }
}

fn cache(bytes: &[u8]) -> u64 {
    bytes[8..HEADER].try_into().map_or(OUTDATED, u64::from_le_bytes)
}

/// The count that was computed last, if nothing has changed since.
pub fn cached_count(bytes: &[u8]) -> Option<u64> {
    let count = cache(bytes);
    (count & OUTDATED == 0).then_some(count)
}

/// Keeps a count that was computed.
pub fn set_cached_count(bytes: &mut [u8], count: u64) {
    bytes[8..HEADER].copy_from_slice(&count.to_le_bytes());
}

/// Says that the kept count is outdated.
pub fn invalidate(bytes: &mut [u8]) {
    let count = cache(bytes) | OUTDATED;
    set_cached_count(bytes, count);
}

/// The register of an element, and the value that it asks for.
pub fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, 0xadc8_3b19);
    let index = hash as usize & (REGISTERS - 1);
    let run = (hash >> INDEX_BITS | 1 << RUN_BITS).trailing_zeros();
    (index, run as u8 + 1)
}

/// Raises one register of a value, which is known to be a HyperLogLog; says whether it was lower. A
/// sparse one becomes dense rather than longer than `max_sparse` bytes.
///
/// # Errors
/// The registers are damaged.
pub fn raise(
    bytes: &mut Vec<u8>,
    (index, value): (usize, u8),
    max_sparse: usize,
) -> Result<bool, Corrupted> {
    if bytes[4] == Encoding::Dense as u8 {
        return Ok(raise_dense(bytes, (index, value)));
    }
    let is_raised = match sparse::raise(bytes, index, value, max_sparse)? {
        sparse::Raised::Unchanged => false,
        sparse::Raised::Changed => true,
        sparse::Raised::TooBig => {
            to_dense(bytes)?;
            dense::raise(&mut bytes[HEADER..], index, value)
        }
    };
    if is_raised {
        invalidate(bytes);
    }
    Ok(is_raised)
}

/// Raises one register of a dense value; says whether it was lower.
pub fn raise_dense(bytes: &mut [u8], (index, value): (usize, u8)) -> bool {
    let is_raised = dense::raise(&mut bytes[HEADER..], index, value);
    if is_raised {
        invalidate(bytes);
    }
    is_raised
}

/// One register of a dense value.
pub fn dense_register(bytes: &[u8], index: usize) -> u8 {
    dense::get(&bytes[HEADER..], index)
}

/// Makes it dense; says whether it was not.
///
/// # Errors
/// The registers are damaged.
pub fn to_dense(bytes: &mut Vec<u8>) -> Result<bool, Corrupted> {
    if bytes[4] == Encoding::Dense as u8 {
        return Ok(false);
    }
    let mut registers = [0; REGISTERS];
    merge(&mut registers, bytes)?;
    bytes.truncate(HEADER);
    bytes[4] = Encoding::Dense as u8;
    bytes.resize(HEADER + dense::BYTES, 0);
    dense::pack(&registers, &mut bytes[HEADER..]);
    Ok(true)
}

/// The encoded registers of a value, which is known to be a HyperLogLog.
pub fn registers_of(bytes: &[u8]) -> &[u8] {
    &bytes[HEADER..]
}

/// Replaces all registers of a dense value.
pub fn set_dense(bytes: &mut [u8], registers: &Registers) {
    dense::pack(registers, &mut bytes[HEADER..]);
}

/// Raises registers to those of a value, which is known to be a HyperLogLog.
///
/// # Errors
/// Its registers are damaged.
pub fn merge(registers: &mut Registers, bytes: &[u8]) -> Result<(), Corrupted> {
    if bytes[4] == Encoding::Dense as u8 {
        dense::merge(registers, &bytes[HEADER..]);
        return Ok(());
    }
    let (mut index, mut at) = (0, HEADER);
    for run in sparse::runs(&bytes[HEADER..]) {
        let end = index + run.len;
        at += run.size;
        let covered = registers.get_mut(index..end).ok_or(Corrupted)?;
        if run.value > 0 {
            covered.iter_mut().for_each(|register| *register = run.value.max(*register));
        }
        index = end;
    }
    // A run that is cut off is not among them.
    if index == REGISTERS && at == bytes.len() { Ok(()) } else { Err(Corrupted) }
}

#[cfg(test)]
mod tests;
