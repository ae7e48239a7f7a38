//! A value that is too big to be taken in one go.
//!
//! It is streamed piece by piece, each under the stripe's lock. Between two pieces nothing changes
//! it unnoticed: whoever is about to change its entry comes to the stripe's hook first, which takes
//! all that is left of it ([`BigValue::finish`]). The engine makes ordinary writers wait instead,
//! until the stream is through.

use super::record::{Form, MOST_BYTES, Writer, parts_of};
use crate::entry::{Entry, Kind};
use structs::hash::{Hash, HashContents};
use structs::list::List;
use structs::set::{Set, SetContents};
use structs::zset::{Zset, ZsetContents};

/// How far the stream has come.
enum Progress {
    /// Nothing was taken.
    Waiting,
    /// So many bytes of a string, a listpack or an intset.
    Bytes(usize),
    /// So many chunks of a list, and bytes of the next one.
    Chunks(usize, usize),
    /// A table, up to this cursor.
    Elements(u64),
    /// Everything.
    Finished,
}

/// See the module's documentation.
pub(crate) struct BigValue {
    pub key: Box<[u8]>,
    pub hash: u64,
    progress: Progress,
    /// What [`BigValue::finish`] took.
    rest: Vec<u8>,
}

/// Elements of a table that are taken at a stretch.
const STRETCH: usize = 128;

impl BigValue {
    pub fn new(entry: &Entry, hash: u64) -> BigValue {
        BigValue { key: entry.key().into(), hash, progress: Progress::Waiting, rest: Vec::new() }
    }

    /// Whether nothing of the entry is needed any more.
    pub fn is_finished(&self) -> bool {
        matches!(self.progress, Progress::Finished)
    }

    /// What [`BigValue::finish`] has taken; the last piece of the stream.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Takes all that is left, because the entry is about to change; how many bytes that is.
    pub fn finish(&mut self, entry: &Entry) -> usize {
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
            Progress::Elements(cursor) => elements(entry, cursor, out, most),
            other => other,
        };
    }
}

/// The head, and where the elements begin.
fn begin(entry: &Entry, out: &mut Vec<u8>) -> Progress {
    let mut to = Writer(out);
    let count = entry.elements();
    let form = match entry.kind() {
        Kind::List => {
            let chunks = entry.object::<List>().map_or(0, List::chunk_count);
            to.head(entry, Form::List, chunks);
            return Progress::Chunks(0, 0);
        }
        Kind::Set => match entry.object::<Set>().map(Set::contents) {
            Some(SetContents::Table(_)) => {
                to.head(entry, Form::Set, count);
                return Progress::Elements(0);
            }
            Some(SetContents::Intset(_)) => Form::SetIntset,
            _ => Form::SetListpack,
        },
        Kind::Hash => match entry.object::<Hash>().map(Hash::contents) {
            Some(HashContents::Table(_)) => {
                to.head(entry, Form::Hash, count);
                return Progress::Elements(0);
            }
            _ => Form::HashListpack,
        },
        Kind::Zset => match entry.object::<Zset>().map(Zset::contents) {
            Some(ZsetContents::Sorted(_)) => {
                to.head(entry, Form::Zset, count);
                return Progress::Elements(0);
            }
            _ => Form::ZsetListpack,
        },
        _ => Form::String,
    };
    to.head(entry, form, 1);
    to.long(blob(entry).map_or(0, <[u8]>::len));
    Progress::Bytes(0)
}

/// The bytes of a value that is one block.
fn blob(entry: &Entry) -> Option<&[u8]> {
    match entry.kind() {
        Kind::Set => match entry.object::<Set>()?.contents() {
            SetContents::Intset(bytes) | SetContents::Listpack(bytes) => Some(bytes),
            SetContents::Table(_) => None,
        },
        Kind::Hash => match entry.object::<Hash>()?.contents() {
            HashContents::Listpack(bytes) => Some(bytes),
            HashContents::Table(_) => None,
        },
        Kind::Zset => match entry.object::<Zset>()?.contents() {
            ZsetContents::Listpack(bytes) => Some(bytes),
            ZsetContents::Sorted(_) => None,
        },
        _ => match entry.string()? {
            crate::entry::StringRef::Bytes(bytes) => Some(bytes),
            crate::entry::StringRef::Integer(_) => None,
        },
    }
}

/// Appends bytes from `at` on, as far as there is room; where the next part begins.
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
    let Some(list) = entry.object::<List>() else { return Progress::Finished };
    while let Some(chunk) = list.chunk(index) {
        if out.len() >= most {
            return Progress::Chunks(index, at);
        }
        let (is_packed, bytes) = parts_of(chunk);
        if at == 0 {
            Writer(out).chunk(is_packed);
            if bytes.len() <= MOST_BYTES {
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

fn elements(entry: &Entry, mut cursor: u64, out: &mut Vec<u8>, most: usize) -> Progress {
    loop {
        let mut to = Writer(out);
        cursor = match entry.kind() {
            Kind::Set => entry.object::<Set>().map_or(0, |set| {
                set.scan(cursor, STRETCH, |member| member.with_bytes(|bytes| to.bytes(bytes)))
            }),
            Kind::Hash => entry.object::<Hash>().map_or(0, |hash| {
                hash.scan(cursor, STRETCH, |field, value| {
                    field.with_bytes(|bytes| to.bytes(bytes));
                    value.with_bytes(|bytes| to.bytes(bytes));
                })
            }),
            _ => entry.object::<Zset>().map_or(0, |zset| {
                zset.scan(cursor, STRETCH, |member, score| {
                    member.with_bytes(|bytes| to.bytes(bytes));
                    to.score(score);
                })
            }),
        };
        if cursor == 0 {
            return Progress::Finished;
        }
        if out.len() >= most {
            return Progress::Elements(cursor);
        }
    }
}
