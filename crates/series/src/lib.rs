//! Time series: samples of a time and a number, compressed, with rules that make coarser series.
//!
//! | module | what it is |
//! |---|---|
//! | [`bits`] | strings of bits |
//! | [`packed`] | samples as differences |
//! | [`chunk`] | a run of samples, compressed or not |
//! | [`series`](mod@series) | a value: its chunks, settings, labels and rules |
//! | [`aggregate`] | what buckets of samples are reduced to |
//! | [`range`] | reading: filters, buckets, limits |
//! | [`file`](mod@file) | the payload in RDB files |
//! | [`redis_file`] | that of Redis's module, which is read |
//! | [`types`] | what the type is for files and the keyspace |
//!
//! Times are milliseconds from 0 to 2^63 - 1. The crate knows no command, no clock and no key but
//! the names that rules refer to. See `docs/internals/series.md`.

pub mod aggregate;
mod bits;
pub mod buckets;
mod chunk;
mod file;
mod packed;
pub mod range;
mod redis_file;
mod series;
pub mod types;

pub use file::{NAME, VERSION, load};
pub use redis_file::REDIS_VERSION;
pub use series::{
    AddError, Added, ChunkFigures, Counted, Encoding, Ignore, Policy, Rule, Series, Settings,
};

/// A time in milliseconds and a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Milliseconds, at most 2^63 - 1.
    pub time: u64,
    /// The number. It may be NaN, never infinite.
    pub value: f64,
}
