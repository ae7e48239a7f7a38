//! Cold entries: the key is in RAM, the value somewhere else.
//!
//! Being cold is a property of an entry, not a type. A cold entry keeps its type, expiry and access
//! bits. In the place of its value it has the value's location, and a summary that can be used
//! without reading the value:
//!
//! ```text
//!  word │ klen u8 │ size u8 │ version u8 │ shape u8 │ location 8 B │ [expiry i64] │ key
//!  word │ 0       │ size u8 │ version u8 │ shape u8 │ location 8 B │ klen u32 │ [expiry] │ key
//! ```
//!
//! A key of 16 bytes takes a block of 32 bytes, and about 13 bytes in the table. The second form is
//! for keys longer than 255 bytes.
//!
//! The version distinguishes two cold values of one key. It counts all values of a stripe that
//! became cold, modulo 256. A value that was read is installed only if version and location are the
//! same as when it was requested. A store that reuses a location first waits for reads of the old
//! value, so the version only has to distinguish values during one read.
//!
//! A value that is read back may keep its record as a *copy* ([`crate::Entry::copy`]), so that it
//! can leave RAM again without being written. Every change of the value gives up the copy.
//!
//! A [`ColdStore`] keeps the values. A process has one at most. When an entry is dropped, it tells
//! the store that its value is not needed any more, so deleting, overwriting and flushing need no
//! extra code.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Where a value is. Only its [`ColdStore`] can interpret this.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ColdLocation(pub u64);

/// A cold value of an entry: the part that must stay the same while it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdRef {
    /// The value's location.
    pub location: ColdLocation,
    /// The version. The module's documentation describes it.
    pub version: u8,
}

/// A value could not be read. Only the command that needs it fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColdError(pub String);

/// Receives the requested values in order.
pub type Fetched = Box<dyn FnOnce(Vec<Result<Vec<u8>, ColdError>>) + Send>;

/// The storage of cold values.
pub trait ColdStore: Send + Sync {
    /// Reads values. `done` is called once, on any thread, possibly before this returns.
    fn fetch(&self, wanted: Vec<ColdLocation>, done: Fetched);
    /// Returns the bytes that a value takes in the store.
    fn size(&self, location: ColdLocation) -> usize;
    /// Waits for a value. Here and in [`ColdStore::fetch`], an entry refers to the value or it is
    /// pinned.
    ///
    /// # Errors
    /// The value cannot be read or is damaged.
    fn read(&self, location: ColdLocation) -> Result<Vec<u8>, ColdError>;
    /// Releases a value to which no entry refers any more. Called under a stripe's lock or on a
    /// background thread, so it must not wait.
    fn release(&self, location: ColdLocation);
    /// Records that the value now belongs to a key with this hash. A store that moves values finds
    /// an entry by hash and location ([`crate::StripeData::move_cold`]).
    fn renamed(&self, location: ColdLocation, hash: u64) {
        let _ = (location, hash);
    }
    /// Marks a value for a snapshot, which wants to read it together with its neighbours. Returns
    /// whether the store supports that. Then the store passes the value to the snapshot as long as
    /// the mark is set ([`crate::StripeData::take_marked`]). All functions about marks are called
    /// under the stripe's lock.
    fn mark(&self, location: ColdLocation) -> bool {
        let _ = location;
        false
    }
    /// Clears a mark. Returns whether there was one.
    fn unmark(&self, location: ColdLocation) -> bool {
        let _ = location;
        false
    }
    /// Returns whether there is a mark.
    fn is_marked(&self, location: ColdLocation) -> bool {
        let _ = location;
        false
    }
    /// Keeps a value readable although its entry may be removed, until [`ColdStore::unpin`] or the
    /// end of the snapshot.
    fn pin(&self, location: ColdLocation) {
        let _ = location;
    }
    /// Unpins a value that has been read.
    fn unpin(&self, location: ColdLocation) {
        let _ = location;
    }
}

static STORE: OnceLock<Box<dyn ColdStore>> = OnceLock::new();
static ENTRIES: AtomicUsize = AtomicUsize::new(0);
static COPIES: AtomicUsize = AtomicUsize::new(0);

/// Sets the store of cold values. Called once in a process, before the first value becomes cold.
/// Returns whether this was the first call.
pub fn set_store(store: Box<dyn ColdStore>) -> bool {
    STORE.set(store).is_ok()
}

/// Returns the store of cold values.
pub fn store() -> Option<&'static dyn ColdStore> {
    STORE.get().map(|store| &**store)
}

/// Returns the number of cold entries in all keyspaces of the process.
#[inline]
pub fn entries() -> usize {
    ENTRIES.load(Relaxed)
}

/// Counts an entry that has become cold.
pub(crate) fn count() {
    ENTRIES.fetch_add(1, Relaxed);
}

/// Returns the number of entries in all keyspaces of the process whose value is in RAM and has a
/// copy.
pub fn copies() -> usize {
    COPIES.load(Relaxed)
}

/// Uncounts a cold entry that was dropped after its location got another owner.
pub(crate) fn uncount() {
    ENTRIES.fetch_sub(1, Relaxed);
}

/// Counts a value that was read back and keeps its copy.
pub(crate) fn count_copy() {
    COPIES.fetch_add(1, Relaxed);
}

/// Uncounts a value that has left RAM and has its copy as the cold value.
pub(crate) fn uncount_copy() {
    COPIES.fetch_sub(1, Relaxed);
}

/// Releases a copy that is not needed any more.
#[cold]
pub(crate) fn release_copy(location: ColdLocation) {
    if let Some(store) = store() {
        store.release(location);
    }
    uncount_copy();
}

/// Tells the store that a cold entry has a new key.
#[cold]
pub(crate) fn renamed(location: ColdLocation, hash: u64) {
    if let Some(store) = store() {
        store.renamed(location, hash);
    }
}

/// Releases the value of a cold entry that is dropped.
#[cold]
pub(crate) fn release(location: ColdLocation) {
    if let Some(store) = store() {
        store.release(location);
    }
    ENTRIES.fetch_sub(1, Relaxed);
}

/// Facts about a cold value that are known without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Summary {
    /// A rounded size ([`rounded`]).
    pub size: u8,
    /// The encoding's number (3 bits), and the number of elements as a power of two (5 bits). For a
    /// module type: the type's place in the table of types, as the encoding is always the first.
    pub shape: u8,
}

/// All names of OBJECT ENCODING for values that can be cold.
const ENCODINGS: [&str; 8] =
    ["raw", "embstr", "listpack", "quicklist", "intset", "hashtable", "skiplist", "stream"];

impl Summary {
    pub fn new(bytes: usize, encoding: &str, elements: usize) -> Summary {
        let number = ENCODINGS.iter().position(|&name| name == encoding);
        let number = number.expect("the table has all encodings but that of numbers") as u8;
        let log = elements.max(1).ilog2().min(31) as u8;
        Summary { size: rounded(bytes), shape: number << 5 | log }
    }

    /// Returns the facts about a value of a module type.
    pub fn of_module(bytes: usize, row: &'static rdb::module::Type) -> Summary {
        Summary { size: rounded(bytes), shape: datatypes::place(row) as u8 }
    }

    /// Returns the name of the module type of such a value.
    pub fn module_name(self) -> &'static str {
        datatypes::ALL[usize::from(self.shape)].name
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

/// Rounds a size to a floating-point number of eight bits, three of which are the mantissa. The
/// result is at most an eighth too small.
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

    /// A store in memory. All tests of the process share it, so locations are never reused.
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

    /// Stores a value in the store of the tests.
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
