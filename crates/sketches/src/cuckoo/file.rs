//! Filters in files: the payload of `MBbloomCF`, all numbers unsigned.
//!
//! ```text
//!  layers │ buckets │ items │ removed │ bucket size │ moves │ expansion
//!  then each layer: buckets │ the fingerprints (string)
//!  (from version 5: a seed)
//! ```
//!
//! Version 4 is written. Source: the public tests of RedisBloom.

use super::Cuckoo;
use super::dump::Numbers;
use rdb::Error;
use rdb::module::{Reader, Writer};

/// The name in files and in replies of TYPE.
pub const NAME: &str = "MBbloomCF";
/// The version in files.
pub const VERSION: u16 = 4;
/// The versions that are read.
pub const READ_VERSIONS: &[u16] = &[4, 5];

const DAMAGED: Error = Error::Corrupt("a cuckoo filter");
/// The least bytes of a layer in a file.
const LEAST_LAYER: usize = 4;

/// Writes a filter.
pub fn save(filter: &Cuckoo, to: &mut Writer<'_>) {
    to.unsigned(filter.layers.len() as u64);
    to.unsigned(filter.buckets);
    to.unsigned(filter.items);
    to.unsigned(filter.deleted);
    to.unsigned(filter.bucket_size.into());
    to.unsigned(filter.max_iterations.into());
    to.unsigned(filter.expansion.into());
    for layer in &filter.layers {
        to.unsigned(layer.len() as u64 / u64::from(filter.bucket_size));
        to.string(layer);
    }
}

/// Reads a filter.
///
/// # Errors
/// The payload is damaged, of an unknown version or with a seed.
pub fn load(from: &mut Reader<'_, '_>, version: u16) -> Result<Cuckoo, Error> {
    if !READ_VERSIONS.contains(&version) {
        return Err(Error::Corrupt("a cuckoo filter of an unknown version"));
    }
    let numbers = Numbers {
        layers: from.count(LEAST_LAYER)? as u64,
        buckets: from.unsigned()?,
        items: from.unsigned()?,
        deleted: from.unsigned()?,
        bucket_size: from.unsigned()?,
        max_iterations: from.unsigned()?,
        expansion: from.unsigned()?,
    };
    let (mut filter, sizes) = numbers.check(usize::MAX).ok_or(DAMAGED)?;
    for bytes in sizes {
        let buckets = from.unsigned()?;
        let layer = from.string()?;
        if layer.len() != bytes || buckets.checked_mul(numbers.bucket_size) != Some(bytes as u64) {
            return Err(DAMAGED);
        }
        filter.layers.push(layer.into_owned().into_boxed_slice());
    }
    if version >= 5 && from.unsigned()? != 0 {
        return Err(Error::Corrupt("a cuckoo filter with a seed"));
    }
    Ok(filter)
}
