//! Names of fields that many hashes have in the same order, kept once for all of them.
//!
//! A small hash that lies in the block of its key may have the number of a list of names in the
//! place of the names ([`crate::inline`]):
//!
//! ```text
//!   | id u16 | value │ value │ …          LISTS[id] ─▶ | name │ name │ …
//! ```
//!
//! Names that are met often enough get a list ([`Names::of`]). [`Names`] is a counted reference to
//! one. Each thread counts in a row of its own what it took and what it gave up, so counting moves
//! no cache line between cores. [`collect`] sums the rows up and frees the lists that are not used.
//! The rules by which it knows that are in `docs/internals/shared-fields.md`.
#![allow(unsafe_code)] // Reads lists by their number, and frees them.

use crate::hashing::hash;
use crate::own_line::OwnLine;
use crate::size_class::block_size;
use crate::sync::lock;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, fence};

/// Lists whose hashes lie in one cache line. A list is in the group that its hash says.
const WAYS: usize = 8;
const GROUPS: usize = 128;
/// Lists at most.
pub const MAX_LISTS: usize = GROUPS * WAYS;

/// Threads with a row of their own, and one row that all others share.
const ROWS: usize = if cfg!(miri) { 4 } else { 256 };
const SHARED_ROW: usize = 0;

/// Places in which a thread counts how often it has met names.
const SEEN: usize = 512;
/// The bits of such a place that count; the others are those of the hash.
const COUNT_MASK: u64 = 15;
/// How often a thread meets names before it makes a list of them.
const REPEATS: u64 = 8;
/// Fewer bytes of names are not worth a look into another block.
const MIN_BYTES: usize = 8;

/// The hashes of a group's lists; 0 where there is none that may be taken.
#[repr(align(64))]
struct Group([AtomicU64; WAYS]);

/// Where a list is; null if there is none. Changes only under [`CHANGING`].
struct List {
    at: AtomicPtr<u8>,
    len: AtomicUsize,
}

/// How often a thread has taken and given up a list.
struct Count {
    taken: AtomicU64,
    released: AtomicU64,
}

/// What one thread writes.
struct Row {
    counts: [Count; MAX_LISTS],
    /// The hash of names, whose lowest bits count how often they were met.
    seen: [AtomicU64; SEEN],
}

impl List {
    const fn none() -> List {
        List { at: AtomicPtr::new(null_mut()), len: AtomicUsize::new(0) }
    }
}

impl Row {
    const fn new() -> Row {
        const fn zero() -> AtomicU64 {
            AtomicU64::new(0)
        }
        Row {
            counts: [const { Count { taken: zero(), released: zero() } }; MAX_LISTS],
            seen: [const { zero() }; SEEN],
        }
    }
}

static IS_ENABLED: AtomicBool = AtomicBool::new(true);
static HASHES: [Group; GROUPS] = [const { Group([const { AtomicU64::new(0) }; WAYS]) }; GROUPS];
static LISTS: [List; MAX_LISTS] = [const { List::none() }; MAX_LISTS];
static ROW: [OwnLine<Row>; ROWS] = [const { OwnLine::new(Row::new()) }; ROWS];
/// Rows that have ever been used.
static ROWS_IN_USE: AtomicUsize = AtomicUsize::new(SHARED_ROW + 1);
/// Rows of threads that have ended.
static FREE_ROWS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Held while lists are made and freed.
static CHANGING: Mutex<()> = Mutex::new(());

thread_local! {
    static OWN_ROW: OwnRow = OwnRow::take();
}

/// The number of a thread's row, which the next thread gets when it has ended.
struct OwnRow(usize);

impl OwnRow {
    #[cold]
    fn take() -> OwnRow {
        let mut free = lock(&FREE_ROWS);
        let next = ROWS_IN_USE.load(Relaxed);
        let row = free.pop().unwrap_or(if next < ROWS { next } else { SHARED_ROW });
        if row == next {
            ROWS_IN_USE.store(next + 1, Release);
        }
        OwnRow(row)
    }
}

impl Drop for OwnRow {
    fn drop(&mut self) {
        if self.0 != SHARED_ROW {
            lock(&FREE_ROWS).push(self.0);
        }
    }
}

/// Returns the row of the calling thread.
fn own_row() -> usize {
    // A thread that is ending may have given its row up.
    OWN_ROW.try_with(|row| row.0).unwrap_or(SHARED_ROW)
}

/// Adds one to a counter of the calling thread's row.
fn count(counter: impl FnOnce(&Row) -> &AtomicU64) {
    let row = own_row();
    let counter = counter(&ROW[row]);
    if row == SHARED_ROW {
        counter.fetch_add(1, AcqRel);
    } else {
        counter.store(counter.load(Relaxed).wrapping_add(1), Release);
    }
}

/// Returns a figure of all rows.
fn sum(of_row: impl Fn(&Row) -> &AtomicU64) -> u64 {
    let rows = &ROW[..ROWS_IN_USE.load(Acquire)];
    rows.iter().fold(0, |sum, row| sum.wrapping_add(of_row(row).load(Acquire)))
}

/// Returns how many references to a list there are. The figure may be too great, and it is never
/// 0 while there is one that others can not give up meanwhile.
fn references(id: usize) -> u64 {
    // In this order: each reference is taken before it is given up.
    let released = sum(|row| &row.counts[id].released);
    fence(SeqCst);
    sum(|row| &row.counts[id].taken).wrapping_sub(released)
}

fn hash_of(id: usize) -> &'static AtomicU64 {
    &HASHES[id / WAYS].0[id % WAYS]
}

/// A counted reference to a list of names.
pub struct Names(u16);

impl Names {
    /// Returns the list of these names, which are entries of a listpack without their backlens. If
    /// there is none, it is made when they have been met a few times.
    pub(crate) fn of(names: &[u8]) -> Option<Names> {
        if names.len() < MIN_BYTES || !is_enabled() {
            return None;
        }
        let hash = hash(names).max(1);
        let group = hash as usize % GROUPS;
        let way = HASHES[group].0.iter().position(|list| list.load(Relaxed) == hash);
        match way {
            Some(way) => {
                let list = Names::take(group * WAYS + way, hash)?;
                (list.bytes() == names).then_some(list)
            }
            None if ROW[own_row()].is_frequent(hash) => make(names, hash),
            None => None,
        }
    }

    /// Takes a list, if it still has this hash.
    fn take(id: usize, hash: u64) -> Option<Names> {
        count(|row| &row.counts[id].taken);
        let list = Names(id as u16);
        fence(SeqCst);
        (hash_of(id).load(Acquire) == hash).then_some(list)
    }

    /// Returns the names, as [`Names::of`] was given them.
    pub(crate) fn bytes(&self) -> &[u8] {
        let list = &LISTS[usize::from(self.0)];
        // SAFETY: the list is there as long as there is a reference to it.
        unsafe { std::slice::from_raw_parts(list.at.load(Relaxed), list.len.load(Relaxed)) }
    }

    /// Returns where the names begin.
    #[inline]
    pub(crate) fn start(&self) -> *const u8 {
        let at = LISTS[usize::from(self.0)].at.load(Relaxed);
        assert!(!at.is_null(), "a hash has names that are not there");
        at
    }

    /// Returns the number of the list. The reference is now that of the number's owner.
    pub(crate) fn into_id(self) -> u16 {
        std::mem::ManuallyDrop::new(self).0
    }

    /// Returns the reference that the number's owner has.
    ///
    /// # Safety
    /// The number must come from [`Names::into_id`], and must not be used any more when the result
    /// has been dropped.
    #[inline]
    pub(crate) unsafe fn from_id(id: u16) -> Names {
        Names(id)
    }
}

impl Clone for Names {
    fn clone(&self) -> Names {
        count(|row| &row.counts[usize::from(self.0)].taken);
        Names(self.0)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        count(|row| &row.counts[usize::from(self.0)].released);
    }
}

impl Row {
    /// Notes that the thread has met names with this hash. Returns whether that was often enough.
    fn is_frequent(&self, hash: u64) -> bool {
        let place = &self.seen[(hash >> 32) as usize % SEEN];
        let (tag, before) = (hash & !COUNT_MASK, place.load(Relaxed));
        let times = before & COUNT_MASK;
        let is_same = before & !COUNT_MASK == tag && times > 0;
        if is_same && times + 1 == REPEATS {
            place.store(0, Relaxed);
            return true;
        }
        // Names that are met once do not put out those that come again and again.
        let after = if is_same {
            before + 1
        } else if times > 1 {
            before - 1
        } else {
            tag | 1
        };
        place.store(after, Relaxed);
        false
    }
}

/// Makes a list. Returns `None` if its group is full, or lists are being made or freed just now.
#[cold]
fn make(names: &[u8], hash: u64) -> Option<Names> {
    let _changing = CHANGING.try_lock().ok()?;
    let group = hash as usize % GROUPS;
    let hashes = &HASHES[group].0;
    if hashes.iter().any(|list| list.load(Relaxed) == hash) {
        return None;
    }
    let way = hashes.iter().position(|list| list.load(Relaxed) == 0)?;
    let id = group * WAYS + way;
    let list = &LISTS[id];
    list.len.store(names.len(), Relaxed);
    list.at.store(Box::into_raw(Box::<[u8]>::from(names)).cast(), Relaxed);
    count(|row| &row.counts[id].taken);
    hash_of(id).store(hash, Release);
    Some(Names(id as u16))
}

/// Frees the lists to which there is no reference.
pub fn collect() {
    let _changing = lock(&CHANGING);
    for (id, list) in LISTS.iter().enumerate() {
        let at = list.at.load(Relaxed);
        if at.is_null() || references(id) != 0 {
            continue;
        }
        let hash = hash_of(id).swap(0, SeqCst);
        fence(SeqCst);
        if references(id) != 0 {
            hash_of(id).store(hash, Release);
            continue;
        }
        let len = list.len.swap(0, Relaxed);
        list.at.store(null_mut(), Relaxed);
        // SAFETY: there is no reference, and none can be taken since the hash is not there.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(at, len)) });
    }
}

/// What there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Lists.
    pub lists: usize,
    /// Bytes of their blocks.
    pub bytes: usize,
    /// Hashes that have a list.
    pub hashes: u64,
}

/// Returns what there is at about this moment.
pub fn figures() -> Figures {
    let mut figures = Figures::default();
    for (id, list) in LISTS.iter().enumerate() {
        let len = list.len.load(Relaxed);
        if len > 0 {
            figures.lists += 1;
            figures.bytes += block_size(len);
            figures.hashes += references(id);
        }
    }
    figures
}

/// Sets whether hashes get lists from now on. Hashes that have one keep it.
pub fn set_enabled(is_enabled: bool) {
    IS_ENABLED.store(is_enabled, Relaxed);
}

/// Returns whether hashes get lists.
pub(crate) fn is_enabled() -> bool {
    IS_ENABLED.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Meets names until they have a list.
    fn met(names: &[u8]) -> Names {
        // Another test may be making a list.
        (0..1 << 20).find_map(|_| Names::of(names)).expect("there is room for a list")
    }

    #[test]
    fn names_that_come_again_get_one_list_until_it_is_not_used() {
        let (names, other) = (b"\x86field1\x86field2", b"\x86field1\x86field3");
        for _ in 1..REPEATS {
            assert!(Names::of(names).is_none());
        }
        let (first, second) = (met(names), met(names));
        assert_eq!((first.0, first.bytes()), (second.0, &names[..]));
        let different = met(other);
        assert_ne!(different.0, first.0);
        assert_eq!(different.bytes(), other);
        let id = usize::from(first.0);
        assert_eq!(references(id), 2);
        // SAFETY: the number is used once.
        let third = unsafe { Names::from_id(Names::clone(&first).into_id()) };
        drop((first, second));
        collect();
        assert_eq!((references(id), third.bytes()), (1, &names[..]));
        drop(third);
        collect();
        assert_eq!(hash_of(id).load(Relaxed), 0);
        assert!(LISTS[id].at.load(Relaxed).is_null());
    }

    #[test]
    fn short_names_and_those_that_do_not_come_again_have_no_list() {
        for number in 0..200u32 {
            let names = [&b"\x8conly-once"[..], &number.to_le_bytes()].concat();
            assert!(Names::of(&names).is_none());
        }
        for _ in 0..100 {
            assert!(Names::of(b"\x81a\x81b").is_none());
        }
    }

    #[test]
    fn a_full_group_takes_no_more() {
        let mut lists = Vec::new();
        let of_group = |number: u64| {
            let names = [b"\x90full-group".as_slice(), &number.to_le_bytes()].concat();
            (hash(&names) as usize % GROUPS == 77).then_some(names)
        };
        let tries = if cfg!(miri) { REPEATS + 2 } else { 1000 };
        for names in (0..).filter_map(of_group).take(WAYS + 2) {
            lists.extend((0..tries).find_map(|_| Names::of(&names)));
        }
        assert!(!lists.is_empty() && lists.len() <= WAYS);
        assert!(lists.iter().all(|list| list.bytes().starts_with(b"\x90full-group")));
    }

    /// Threads take lists, hand them to each other and drop them, while one frees those that are
    /// not used: what is used keeps its names.
    #[test]
    fn a_list_is_not_freed_while_a_thread_has_it() {
        let rounds = if cfg!(miri) { 40 } else { 30_000 };
        let names = |number: usize| format!("\u{90}of-threads:{number}").into_bytes();
        let run = |from: mpsc::Receiver<(usize, Names)>, to: mpsc::SyncSender<(usize, Names)>| {
            for round in 0..rounds {
                let number = round / 20 % 3;
                if let Some(list) = Names::of(&names(number)) {
                    // The first goes before its copy arrives, or after.
                    let _ = to.try_send((number, Names::clone(&list)));
                    assert_eq!(list.bytes(), names(number));
                }
                if round % 3 == 0
                    && let Ok((number, list)) = from.try_recv()
                {
                    assert_eq!(list.bytes(), names(number));
                }
            }
        };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (to_second, second) = mpsc::sync_channel(8);
            let (to_first, first) = mpsc::sync_channel(8);
            let threads = [
                scope.spawn(move || run(first, to_second)),
                scope.spawn(move || run(second, to_first)),
            ];
            let collector = scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    collect();
                    std::thread::yield_now();
                }
            });
            for thread in threads {
                thread.join().expect("it has checked its names");
            }
            is_over.store(true, Relaxed);
            collector.join().expect("it frees lists");
        });
        collect();
        let left = |list: &&List| !list.at.load(Relaxed).is_null();
        let is_of_threads = |id: usize| {
            // SAFETY: the number is not used further.
            let list = std::mem::ManuallyDrop::new(unsafe { Names::from_id(id as u16) });
            list.bytes().starts_with("\u{90}of-threads".as_bytes())
        };
        let _held = lock(&CHANGING);
        assert!((0..MAX_LISTS).filter(|&id| left(&&LISTS[id])).all(|id| !is_of_threads(id)));
    }
}
