//! What both payloads are checked by.

use crate::projection::Matrix;
use rdb::Error;
use std::sync::Arc;

pub(crate) const DAMAGED: Error = Error::Corrupt("a vector set");

/// Returns the matrix that a string has.
pub(crate) fn rows_of(bytes: &[u8], dim: usize, input: usize) -> Result<Matrix, Error> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let rows: Arc<[f32]> = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
    let is_sound = rest.is_empty() && Some(rows.len()) == dim.checked_mul(input);
    let is_sound = is_sound && input > 0 && rows.iter().all(|x| x.abs() <= 1.0);
    is_sound.then_some(Matrix::Rows(rows)).ok_or(DAMAGED)
}

/// Returns a number within bounds.
pub(crate) fn bounded(number: u64, least: usize, most: usize) -> Result<usize, Error> {
    let number = usize::try_from(number).map_err(|_| DAMAGED)?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(DAMAGED) }
}
