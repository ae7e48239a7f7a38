//! Passwords at etcd, and so in its snapshots, are sealed with a key that the machines of a cluster
//! share: it is derived from the authority's key, which each machine has in `tls/ca.key`. A machine
//! without that file cannot read them, so they are sealed only when all machines of the cluster
//! have it ([`crate::site::Machine::opens_sealed`]). Values in clear are read as they are, and are
//! written anew by and by.
//!
//! A sealed text is `sealed1:` and in base64 a nonce of 12 bytes, which is drawn for each writing,
//! and what AES-256-GCM makes of the text. Fields are marked by `#[serde(with = "crate::sealed")]`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize as _, Deserializer, Serializer, de, ser};
use sha2::{Digest as _, Sha256};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a sealed text begins with.
const MARK: &str = "sealed1:";

static KEY: OnceLock<Key> = OnceLock::new();

/// Texts are sealed: all machines can open them.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// A text in clear was read.
    static HAS_CLEAR: Cell<bool> = const { Cell::new(false) };
}

/// Why a text cannot be sealed or opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsealable(&'static str);

impl std::fmt::Display for Unsealable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Text of the reason for a machine that lacks the file.
pub const NO_KEY: &str = "a password is sealed with the cluster's key, which this machine does not have: start its \
    node with --token-file and the file tls/join-token of another machine";

/// Text of the reason for a machine whose file is another cluster's.
pub const OTHER_KEY: &str = "a password is sealed with the key of another cluster than this \
    machine's: start its node with --token-file and the token, or the secret, that the other \
    machines have";

/// The key.
struct Key(LessSafeKey);

impl Key {
    /// Derives it from the secret that machines share.
    fn derive(secret: &[u8]) -> Result<Key, Unsealable> {
        let mut hash = Sha256::new_with_prefix("dunlin passwords at etcd\0");
        hash.update(secret);
        let key = UnboundKey::new(&AES_256_GCM, &hash.finalize());
        key.map(|key| Key(LessSafeKey::new(key))).map_err(|_| Unsealable("the key is too short"))
    }

    fn seal(&self, text: &str) -> Result<String, Unsealable> {
        let failed = |_| Unsealable("the system gives no random numbers");
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut bytes = text.as_bytes().to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(unique, Aad::empty(), &mut bytes).map_err(failed)?;
        Ok(format!("{MARK}{}", STANDARD_NO_PAD.encode([&nonce[..], &bytes].concat())))
    }

    fn open(&self, sealed: &str) -> Result<String, Unsealable> {
        let wrong = || Unsealable(OTHER_KEY);
        let mut bytes = STANDARD_NO_PAD.decode(sealed).map_err(|_| wrong())?;
        let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN).ok_or_else(wrong)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| wrong())?;
        let text = self.0.open_in_place(nonce, Aad::empty(), text).map_err(|_| wrong())?;
        String::from_utf8(text.to_vec()).map_err(|_| wrong())
    }
}

/// Takes the secret that machines share. Called once, before anything is read.
///
/// # Errors
/// It is no key.
pub fn set_secret(secret: &[u8]) -> Result<(), Unsealable> {
    let key = Key::derive(secret)?;
    KEY.get_or_init(|| key);
    Ok(())
}

/// Returns whether this machine can open what is sealed.
pub fn has_key() -> bool {
    KEY.get().is_some()
}

/// From now on texts are sealed, or not.
pub fn set_active(is_active: bool) {
    IS_ACTIVE.store(is_active && has_key(), Ordering::Relaxed);
}

/// Returns whether a text in clear that is to be sealed was read by this thread since this was
/// called last.
pub fn take_clear() -> bool {
    HAS_CLEAR.replace(false) && IS_ACTIVE.load(Ordering::Relaxed)
}

/// Writes a text, sealed if it can be.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match KEY.get().filter(|_| !text.is_empty() && IS_ACTIVE.load(Ordering::Relaxed)) {
        Some(key) => serializer.serialize_str(&key.seal(text).map_err(ser::Error::custom)?),
        None => serializer.serialize_str(text),
    }
}

/// Reads a text, sealed or not.
///
/// # Errors
/// It is no text, or cannot be opened.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.strip_prefix(MARK) {
        Some(sealed) => {
            let key = KEY.get().ok_or(Unsealable(NO_KEY)).map_err(de::Error::custom)?;
            key.open(sealed).map_err(de::Error::custom)
        }
        None => {
            HAS_CLEAR.set(HAS_CLEAR.get() || !text.is_empty());
            Ok(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_with_the_same_key_alone() {
        let [one, same, other] =
            ["a", "a", "b"].map(|secret| Key::derive(secret.as_bytes()).unwrap());
        let sealed = one.seal("secret").unwrap();
        assert_ne!(sealed, one.seal("secret").unwrap(), "each writing has a nonce of its own");
        let sealed = sealed.strip_prefix(MARK).unwrap();
        assert_eq!(same.open(sealed).unwrap(), "secret");
        assert!(other.open(sealed).is_err());
        for wrong in ["", "AAAA", &sealed[..sealed.len() - 2], &sealed[2..], "-"] {
            assert!(one.open(wrong).is_err(), "{wrong}");
        }
    }
}
