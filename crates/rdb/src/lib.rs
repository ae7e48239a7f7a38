//! The RDB format: values as DUMP payloads carry them and RDB files store them.
//!
//! A DUMP payload is
//!
//! ```text
//!  | type (1) | value … | RDB version (2, little-endian) | CRC-64 of all before (8, little-endian) |
//! ```
//!
//! Written is version 11, the newest that Redis since 7.2 and every Valkey load: lists as
//! quicklists of listpacks, small hashes, sets and sorted sets as listpacks or intsets (the bytes
//! they already are in memory), big ones element by element. Where fields of a hash expire it is
//! version 80, which Valkey 9 brought. Read is every encoding these types
//! ever had, back to the first release.
//!
//! Input is hostile by assumption: everything is checked down to the last entry of a packed
//! encoding, nothing panics, and no length in the input is believed before the bytes for it are
//! there. Memory stays within a small multiple of the input, or of what its compressed strings
//! expand to (at most 88 times their size).
//!
//! - [`dump`] and [`restore`]: whole payloads.
//! - [`fill`]: requests that make a value too large for a payload.
//! - [`Encoder`] and [`Decoder`]: the parts they are made of; [`file`] has those of files.

mod decode;
mod encode;
mod error;
pub mod file;
mod fill;
mod kind;
pub mod module;
mod object;
mod payload;

pub use decode::{Builder, Decoder, Length};
pub use encode::{Compression, Encoder, NODE_PACKED, NODE_PLAIN};
pub use error::Error;
pub use fill::{expire_at, fill};
pub use kind::Kind;
pub use object::{Limits, Object, ObjectRef};
pub use payload::{dump, restore, restore_unverified, verify, verify_relaxed};

/// The RDB version that is written.
pub const VERSION: u16 = 11;

/// The name of the metadata in front of a stream that has which messages of producers the stream
/// has got already. Servers that do not know it pass over it.
pub const IDEMPOTENCY: &str = "dunlin-idempotency";

/// The version of Redis 7.4 and 8, in which hashes whose fields expire have another form than
/// Valkey's.
pub const REDIS_TIMED_VERSION: u16 = 12;

/// The version that is written where there is something that only Valkey 9 and later load: hashes
/// with fields that expire. It is the first of Valkey's own.
pub const VALKEY_VERSION: u16 = 80;

/// The newest RDB version that is read. Redis's own versions from 12 on and Valkey's from 80 on add
/// types but change none, so the others are readable whatever the version says.
pub const NEWEST_VERSION: u16 = 81;
