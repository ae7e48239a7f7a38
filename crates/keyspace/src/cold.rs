//! Cold entries: the key is in RAM, the value somewhere else.
//!
//! Cold is a property of an entry and no type: a cold entry keeps its type, expiry and access bits.
//! In the place of its value it has where that is, and what can be told without reading it:
//!
//! ```text
//!  word │ klen u8 │ size u8 │ version u8 │ shape u8 │ location 8 B │ [expiry i64] │ key
//!  word │ 0       │ size u8 │ version u8 │ shape u8 │ location 8 B │ klen u32 │ [expiry] │ key
//! ```
//!
//! A key of 16 bytes takes a block of 32 bytes, and about 13 in the table. The second form is that
//! of keys longer than 255 bytes.
//!
//! The version tells two cold values of one key apart. It counts all values of a stripe that went
//! cold, modulo 256; a value that was read is installed only if both version and location are
//! what they were when it was asked for. A store that reuses a location waits for the reads of the
//! old value first, so the version only has to tell apart what happened during one read.
//!
//! A value that is put back may keep its record as a *copy* ([`crate::Entry::copy`]), so that it can
//! leave again without being written. Every change of the value gives the copy up.
//!
//! Where values go is the business of a [`ColdStore`], of which a process has one at most. It learns
//! from the entry itself, when this is dropped, that a value is not needed any more: no way to
//! delete, overwrite or flush a key has to think of it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Where a value is; only its [`ColdStore`] knows what it means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ColdLocation(pub u64);

/// A cold value of an entry, as far as it has to stay the same while it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdRef {
    /// Where it is.
    pub location: ColdLocation,
    /// See the module's documentation.
    pub version: u8,
}

/// A value could not be read: the command that needs it fails, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColdError(pub String);

/// Receives the values that were asked for, in their order.
pub type Fetched = Box<dyn FnOnce(Vec<Result<Vec<u8>, ColdError>>) + Send>;

/// Where the values of cold entries are.
pub trait ColdStore: Send + Sync {
    /// Reads values. `done` is called once, on any thread, maybe before this returns.
    fn fetch(&self, wanted: Vec<ColdLocation>, done: Fetched);
    /// The bytes that a value takes there.
    fn size(&self, location: ColdLocation) -> usize;
    /// Waits for a value. Here and in [`ColdStore::fetch`] an entry refers to it, or it is pinned.
    ///
    /// # Errors
    /// The value could not be read, or is damaged.
    fn read(&self, location: ColdLocation) -> Result<Vec<u8>, ColdError>;
    /// No entry refers to the value any more. Called under a stripe's lock or on a background
    /// thread: it must not wait.
    fn release(&self, location: ColdLocation);
    /// The value belongs to a key with this hash now. A store that moves values needs to know: it finds
    /// an entry by hash and location ([`crate::StripeData::move_cold`]).
    fn renamed(&self, location: ColdLocation, hash: u64) {
        let _ = (location, hash);
    }
    /// A snapshot wants to have the value read together with those that lie beside it. Whether the store
    /// does that: then it names the value to the snapshot as long as the mark is there
    /// ([`crate::StripeData::take_marked`]). Called under the stripe's lock, as all about marks.
    fn mark(&self, location: ColdLocation) -> bool {
        let _ = location;
        false
    }
    /// Clears a mark; whether there was one.
    fn unmark(&self, location: ColdLocation) -> bool {
        let _ = location;
        false
    }
    /// Whether there is a mark.
    fn is_marked(&self, location: ColdLocation) -> bool {
        let _ = location;
        false
    }
    /// Keeps a value readable whose entry may go, until [`ColdStore::unpin`] or the end of the snapshot.
    fn pin(&self, location: ColdLocation) {
        let _ = location;
    }
    /// The pinned value has been read.
    fn unpin(&self, location: ColdLocation) {
        let _ = location;
    }
}

static STORE: OnceLock<Box<dyn ColdStore>> = OnceLock::new();
static ENTRIES: AtomicUsize = AtomicUsize::new(0);
static COPIES: AtomicUsize = AtomicUsize::new(0);

/// Says where the values of cold entries are; once in a process, before the first goes cold. Says
/// whether it was the first to do so.
pub fn set_store(store: Box<dyn ColdStore>) -> bool {
    STORE.set(store).is_ok()
}

/// Where the values of cold entries are.
pub fn store() -> Option<&'static dyn ColdStore> {
    STORE.get().map(|store| &**store)
}

/// Number of cold entries, in all keyspaces of the process.
#[inline]
pub fn entries() -> usize {
    ENTRIES.load(Relaxed)
}

/// An entry has become cold.
pub(crate) fn count() {
    ENTRIES.fetch_add(1, Relaxed);
}

/// Number of entries whose value is in RAM and has a copy, in all keyspaces of the process.
pub fn copies() -> usize {
    COPIES.load(Relaxed)
}

/// A cold entry has gone, and its location has another owner.
pub(crate) fn uncount() {
    ENTRIES.fetch_sub(1, Relaxed);
}

/// A value was put back and keeps its copy.
pub(crate) fn count_copy() {
    COPIES.fetch_add(1, Relaxed);
}

/// A value has left RAM for its copy.
pub(crate) fn uncount_copy() {
    COPIES.fetch_sub(1, Relaxed);
}

/// A copy is not needed any more.
#[cold]
pub(crate) fn release_copy(location: ColdLocation) {
    if let Some(store) = store() {
        store.release(location);
    }
    uncount_copy();
}

/// A cold entry has got another key.
#[cold]
pub(crate) fn renamed(location: ColdLocation, hash: u64) {
    if let Some(store) = store() {
        store.renamed(location, hash);
    }
}

/// A cold entry is dropped.
#[cold]
pub(crate) fn release(location: ColdLocation) {
    if let Some(store) = store() {
        store.release(location);
    }
    ENTRIES.fetch_sub(1, Relaxed);
}

/// What is known of a cold value without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Summary {
    /// A rounded size ([`rounded`]).
    pub size: u8,
    /// The encoding's number (3 bits), and the number of elements as a power of two (5 bits).
    pub shape: u8,
}

/// Every name that OBJECT ENCODING knows of values that can be cold.
const ENCODINGS: [&str; 8] =
    ["raw", "embstr", "listpack", "quicklist", "intset", "hashtable", "skiplist", "stream"];

impl Summary {
    pub fn new(bytes: usize, encoding: &str, elements: usize) -> Summary {
        let number = ENCODINGS.iter().position(|&name| name == encoding);
        let number = number.expect("the table has all encodings but that of numbers") as u8;
        let log = elements.max(1).ilog2().min(31) as u8;
        Summary { size: rounded(bytes), shape: number << 5 | log }
    }

    pub fn encoding(self) -> &'static str {
        ENCODINGS[(self.shape >> 5) as usize]
    }

    pub fn elements(self) -> usize {
        1 << (self.shape & 31)
    }

    pub fn bytes(self) -> usize {
        bytes_of(self.size)
    }
}

/// A size as a floating-point number of eight bits: three of mantissa, at most an eighth too small.
fn rounded(bytes: usize) -> u8 {
    if bytes < 8 {
        return bytes as u8;
    }
    let exponent = bytes.ilog2();
    let code = ((exponent - 2) << 3) as usize | bytes >> (exponent - 3) & 7;
    code.min(255) as u8
}

fn bytes_of(size: u8) -> usize {
    match (size >> 3, usize::from(size & 7)) {
        (0, bytes) => bytes,
        (exponent, mantissa) => (8 + mantissa) << (exponent - 1),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex};
    use structs::sync::lock;

    /// A store in memory. There is one for all tests of the process, so locations are never reused.
    static VALUES: LazyLock<Mutex<HashMap<u64, Vec<u8>>>> = LazyLock::new(Mutex::default);

    struct Memory;

    impl ColdStore for Memory {
        fn fetch(&self, wanted: Vec<ColdLocation>, done: Fetched) {
            done(wanted.into_iter().map(|location| self.read(location)).collect());
        }
        fn size(&self, location: ColdLocation) -> usize {
            lock(&VALUES).get(&location.0).map_or(0, Vec::len)
        }
        fn read(&self, location: ColdLocation) -> Result<Vec<u8>, ColdError> {
            let value = lock(&VALUES).get(&location.0).cloned();
            value.ok_or_else(|| ColdError("it was released".into()))
        }
        fn release(&self, location: ColdLocation) {
            assert!(lock(&VALUES).remove(&location.0).is_some(), "released twice");
        }
    }

    /// Keeps a value in the store of the tests.
    pub(crate) fn keep(bytes: &[u8]) -> ColdLocation {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        set_store(Box::new(Memory));
        let location = NEXT.fetch_add(1, Relaxed) as u64;
        lock(&VALUES).insert(location, bytes.to_vec());
        ColdLocation(location)
    }

    #[test]
    fn sizes_are_an_eighth_too_small_at_most() {
        for bytes in (0..100_000).chain([1 << 20, (1 << 33) + 5, 12_345_678_901]) {
            let shown = bytes_of(rounded(bytes));
            assert!(shown <= bytes && bytes - shown <= bytes / 8, "{bytes} as {shown}");
        }
        assert_eq!(rounded(usize::MAX), 255);
    }
}
