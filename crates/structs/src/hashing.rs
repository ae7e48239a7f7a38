//! The one hash function of the process: 64 bits over a key or an element.
//!
//! rapidhash with secrets drawn from the operating system at the first use, so that a client
//! cannot prepare keys that collide (hash flooding), or from a text that the operator keeps
//! secret ([`seed_with`]). Every table of the process shares the
//! secrets: a key is hashed once, when its command is parsed, and the value travels with it.
//!
//! How the 64 bits are spent is fixed here, because three users must not overlap:
//!
//! ```text
//!   63                              16 15              0
//!  ┌──────────────────────────────────┬─────────────────┐
//!  │ position in the table (48 bits)  │ stripe (16 bits)│
//!  └──────────────────────────────────┴─────────────────┘
//!                          23 ─ 16: fingerprint (the position's lowest byte, which no table
//!                                   of fewer than 2^40 buckets looks at)
//!                          13 ─ 0:  in cluster mode the key's hash slot (`keyspace::Key`)
//! ```

use rapidhash::v3::{RapidSecrets, rapidhash_v3, rapidhash_v3_nano_inline};
use std::sync::OnceLock;

static SECRETS: OnceLock<RapidSecrets> = OnceLock::new();

fn secrets() -> &'static RapidSecrets {
    SECRETS.get_or_init(|| RapidSecrets::seed(crate::hashing::os_random()))
}

/// Draws the secrets from this text, so that processes with the same text hash alike.
///
/// # Panics
/// If anything was hashed before.
pub fn seed_with(text: &[u8]) {
    let secrets = RapidSecrets::seed(rapidhash_v3(text));
    assert!(SECRETS.set(secrets).is_ok(), "the seed comes before the first hash");
}

/// A number from the operating system's generator, by way of the standard library's keyed hasher.
pub fn os_random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(0x6475_6e6c_696e);
    hasher.finish()
}

/// Hashes `bytes` with the process's secrets.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    rapidhash_v3_nano_inline::<true, false>(bytes, secrets())
}

/// The fingerprint byte of a hash: never 0, which marks an empty slot.
#[inline]
pub fn fingerprint(hash: u64) -> u8 {
    let byte = (hash >> 16) as u8;
    byte + u8::from(byte == 0)
}

/// The part of a hash that orders a table, with the stripe bits cleared.
#[inline]
pub fn position(hash: u64) -> u64 {
    hash & !0xffff
}
