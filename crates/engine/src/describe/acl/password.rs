//! Passwords, kept as SHA-256 hashes and compared in constant time.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 hash of a password.
#[derive(Clone, Copy)]
pub struct PasswordHash([u8; 32]);

impl PasswordHash {
    /// The hash of a password.
    pub fn of(password: &[u8]) -> PasswordHash {
        PasswordHash(Sha256::digest(password).into())
    }

    /// The hash that these 64 lower-case hexadecimal digits spell.
    pub(super) fn parse(digits: &[u8]) -> Option<PasswordHash> {
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(PasswordHash(bytes))
    }

    /// Its digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn is(&self, other: &PasswordHash) -> Choice {
        self.0.ct_eq(&other.0)
    }
}
