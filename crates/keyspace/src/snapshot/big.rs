//! A value that is too big to be taken at once.
//!
//! It is streamed piece by piece, each under the stripe's lock. Between two pieces no change goes
//! unnoticed. The table of a hash, set or sorted set is *watched* (`structs/watched.rs`): before an
//! element changes, it is written into the stream with its cell, and writers continue. Any other
//! change is first reported to the stripe's hook, which takes the whole rest
//! ([`BigValue::finish`]). The engine makes ordinary writers wait for the end of the stream
//! instead. If a value shares its parts with copies, a copy is taken apart, and the value itself
//! may change freely.

use super::Shared;
use super::pieces::Pieces;
use super::record::{Form, MAX_BYTES, Writer};
use crate::collection::{Collection, Element, Layout, TakeApart};
use crate::entry::Entry;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard};
use structs::sync::lock;

/// Appends an entry with its value, however big it is. The value is in RAM.
pub fn write_whole(out: &mut Vec<u8>, entry: &Entry) {
    if super::record::write_entry(out, entry).is_err() {
        // No other thread knows this snapshot, so nothing is counted.
        let shared = Arc::new(Shared::new(usize::MAX, Box::new(|| {})));
        let mut big = BigValue::new(entry, 0, &shared);
        while !big.is_finished() {
            if big.is_apart() {
                big.advance_apart(out, MAX_BYTES);
            } else {
                big.advance(entry, out, MAX_BYTES);
            }
        }
    }
}

/// The progress of the stream.
enum Progress {
    /// Nothing was taken.
    Waiting,
    /// A number of bytes of a string, a listpack or an intset.
    Bytes(usize),
    /// A number of chunks of a list, and of bytes of the next one.
    Chunks(usize, usize),
    /// A table that is watched.
    Watched(Arc<Seen>),
    /// A copy, which is taken apart. The value itself is not needed any more.
    Apart(Box<dyn TakeApart>),
    /// Everything.
    Finished,
}

/// A big value. The module's documentation describes it.
pub(crate) struct BigValue {
    pub key: Box<[u8]>,
    pub hash: u64,
    progress: Progress,
    /// The bytes that [`BigValue::finish`] took.
    rest: Vec<u8>,
}

/// Elements that a watch has taken and the snapshot has not written yet.
struct Seen {
    tokens: Mutex<Pieces>,
    shared: Arc<Shared>,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Pieces> {
        lock(&self.tokens)
    }

    fn add(&self, write: impl FnOnce(&mut Writer<'_>)) {
        if self.shared.is_over() {
            return;
        }
        self.shared.spend(self.lock().add(|tokens| write(&mut Writer(tokens))));
    }
}

/// Number of cells of a table that are taken between two checks of their size.
const STRETCH: usize = 16;
/// Number of cells that a table's writers may take between two pieces. While they take at least
/// half of them, the next piece consists of those, and this thread does not lock them out.
const WRITERS_CELLS: usize = 128;

impl BigValue {
    pub fn new(entry: &Entry, hash: u64, shared: &Arc<Shared>) -> BigValue {
        debug_assert!(!entry.is_inline(), "what is small is taken whole");
        let (key, mut rest) = (entry.key().into(), Vec::new());
        let progress = match watch(entry, shared) {
            Some(seen) => Progress::Watched(seen),
            None => apart(entry, &mut rest).unwrap_or(Progress::Waiting),
        };
        BigValue { key, hash, progress, rest }
    }

    /// Returns whether the stream does not need the value any more, so that it may change or be
    /// removed.
    pub fn is_apart(&self) -> bool {
        matches!(self.progress, Progress::Apart(_))
    }

    /// Appends the next piece of about `most` bytes of a value that is [apart](Self::is_apart).
    pub fn advance_apart(&mut self, out: &mut Vec<u8>, most: usize) {
        let most = out.len().saturating_add(most);
        out.append(&mut self.rest);
        let Progress::Apart(parts) = &mut self.progress else { return };
        while out.len() < most {
            if !parts.write_next(&mut Writer(out)) {
                self.progress = Progress::Finished;
                return;
            }
        }
    }

    /// Returns whether its elements may change, because they are written into the stream first.
    pub fn is_watched(&self) -> bool {
        matches!(self.progress, Progress::Watched(_))
    }

    /// Ends the stream early.
    pub fn abandon(&mut self, entry: &Entry) {
        if self.is_watched() {
            unwatch(entry);
        }
        self.progress = Progress::Finished;
    }

    /// Returns whether nothing of the entry is needed any more.
    pub fn is_finished(&self) -> bool {
        matches!(self.progress, Progress::Finished)
    }

    /// Returns whether it belongs to an entry with this hash, from which more has to be taken.
    pub fn needs_entry(&self, hash: u64) -> bool {
        self.hash == hash && !self.is_finished() && !self.is_apart()
    }

    /// Returns the bytes that [`BigValue::finish`] took, which are the last piece of the stream.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Takes the whole rest, because the entry is about to change. Returns the number of bytes that
    /// were not counted before.
    pub fn finish(&mut self, entry: &Entry) -> usize {
        if self.is_apart() {
            return 0;
        }
        if let Progress::Watched(seen) = &self.progress {
            while step(entry) {}
            self.rest = seen.lock().take_all();
            self.progress = Progress::Finished;
            return 0;
        }
        let mut rest = std::mem::take(&mut self.rest);
        while !self.is_finished() {
            self.advance(entry, &mut rest, usize::MAX);
        }
        self.rest = rest;
        self.rest.len()
    }

    /// Appends the next piece of about `most` bytes.
    pub fn advance(&mut self, entry: &Entry, out: &mut Vec<u8>, most: usize) {
        let most = out.len().saturating_add(most);
        if matches!(self.progress, Progress::Waiting) {
            self.progress = begin(entry, out);
        }
        self.progress = match std::mem::replace(&mut self.progress, Progress::Finished) {
            Progress::Bytes(at) => blob(entry).map_or(Progress::Finished, |bytes| {
                let next = part(bytes, at, out, most);
                if next < bytes.len() { Progress::Bytes(next) } else { Progress::Finished }
            }),
            Progress::Chunks(index, at) => chunks(entry, index, at, out, most),
            Progress::Watched(seen) => elements(entry, seen, out, most),
            other => other,
        };
    }
}

/// Writes the head. Returns where the elements begin. A layout of elements is watched from the
/// beginning.
fn begin(entry: &Entry, out: &mut Vec<u8>) -> Progress {
    let mut to = Writer(out);
    let form = match entry.collection_apart().map(Collection::layout) {
        Some(Layout::Chunks(form, count)) => {
            to.head(entry, form, count);
            return Progress::Chunks(0, 0);
        }
        Some(Layout::Shared(..)) => unreachable!("it is taken apart from the beginning"),
        Some(Layout::Block(form, _) | Layout::Elements(form)) => form,
        None => Form::String,
    };
    to.head(entry, form, 1);
    to.long(blob(entry).map_or(0, <[u8]>::len));
    Progress::Bytes(0)
}

/// Returns the bytes of a value that is one block.
fn blob(entry: &Entry) -> Option<&[u8]> {
    match entry.collection_apart().map(Collection::layout) {
        Some(Layout::Block(_, Cow::Borrowed(bytes))) => Some(bytes),
        Some(Layout::Block(_, Cow::Owned(_))) => None,
        Some(Layout::Chunks(..) | Layout::Elements(_) | Layout::Shared(..)) => None,
        None => entry.string()?.text(),
    }
}

/// Appends bytes from `at` on, up to `most` bytes in `out`. Returns where the next part begins.
fn part(bytes: &[u8], at: usize, out: &mut Vec<u8>, most: usize) -> usize {
    let room = most.saturating_sub(out.len()).clamp(1, u32::MAX as usize);
    let end = at.saturating_add(room).min(bytes.len());
    Writer(out).part(&bytes[at..end]);
    end
}

fn chunks(
    entry: &Entry,
    mut index: usize,
    mut at: usize,
    out: &mut Vec<u8>,
    most: usize,
) -> Progress {
    let Some(collection) = entry.collection_apart() else { return Progress::Finished };
    while let Some(chunk) = collection.chunk(index) {
        if out.len() >= most {
            return Progress::Chunks(index, at);
        }
        let bytes = &*chunk.bytes;
        if at == 0 {
            Writer(out).chunk(chunk.is_packed);
            if bytes.len() <= MAX_BYTES {
                Writer(out).bytes(bytes);
                index += 1;
                continue;
            }
            Writer(out).long(bytes.len());
        }
        at = part(bytes, at, out, most);
        if at == bytes.len() {
            (index, at) = (index + 1, 0);
        }
    }
    Progress::Finished
}

/// Begins to watch a table. Its head is written before its elements. Returns `None` if the value is
/// no table.
fn watch(entry: &Entry, shared: &Arc<Shared>) -> Option<Arc<Seen>> {
    let collection = entry.collection_apart()?;
    let Layout::Elements(form) = collection.layout() else { return None };
    let seen = Arc::new(Seen { tokens: Mutex::default(), shared: Arc::clone(shared) });
    let (to, count) = (Arc::clone(&seen), collection.len());
    let take = move |element: Element<'_>| to.add(|to| to.element(form, element));
    collection.watch(Box::new(take)).then_some(())?;
    seen.add(|to| to.head(entry, form, count));
    Some(seen)
}

/// Returns a copy to take apart, with its head in `rest`, or `None` if the value has none.
fn apart(entry: &Entry, rest: &mut Vec<u8>) -> Option<Progress> {
    let collection = entry.collection_apart()?;
    let Layout::Shared(form, count) = collection.layout() else { return None };
    Writer(rest).head(entry, form, count);
    collection.take_apart().map(Progress::Apart)
}

fn step(entry: &Entry) -> bool {
    entry.collection_apart().is_some_and(Collection::step_watch)
}

fn unwatch(entry: &Entry) {
    if let Some(collection) = entry.collection_apart() {
        collection.unwatch();
    }
}

fn allow(entry: &Entry, cells: usize) -> usize {
    entry.collection_apart().map_or(0, |collection| collection.allow_watch(cells))
}

fn elements(entry: &Entry, seen: Arc<Seen>, out: &mut Vec<u8>, most: usize) -> Progress {
    // Clients that wait for the value wait for this thread.
    let is_pressing = seen.shared.is_pressing();
    let unused = allow(entry, if is_pressing { 0 } else { WRITERS_CELLS });
    let is_by_writers = {
        let tokens = seen.lock();
        let by_half = !is_pressing && unused < WRITERS_CELLS / 2 && !tokens.is_empty();
        by_half || tokens.has_full()
    };
    loop {
        let goes_on = is_by_writers || (0..STRETCH).all(|_| step(entry));
        let mut tokens = seen.lock();
        if is_by_writers || !goes_on || out.len() + tokens.len() >= most {
            seen.shared.give_back(tokens.take(out));
            let is_left = !tokens.is_empty();
            drop(tokens);
            return if goes_on || is_left { Progress::Watched(seen) } else { Progress::Finished };
        }
    }
}
