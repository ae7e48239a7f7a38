//! What a machine that loses its power leaves of a server's files.
//!
//! A killed process leaves everything it has written, for that is the kernel's. A machine that stops
//! leaves what was forced to the disk, and of the rest whatever the kernel happened to have written.
//! Here a library between the server and the C library (`power_loss.c`) notes every change of its
//! files; [`Disk`] reads that trace up to any instant and makes up what could be found afterwards, at
//! the worst that POSIX allows:
//!
//! - of a file, all changes that were made before an fsync of it began that has ended, and of the later
//!   ones the first so many, the last of them perhaps in part;
//! - of a folder, all entries as they were made, renamed and removed before such an fsync of the
//!   folder, and the first so many of the later ones. An fsync of a file is none of its name.
//!
//! A record of the trace is a line: `create INODE PATH`, `write INODE OFFSET BYTES` (the bytes follow),
//! `resize INODE BYTES`, `rename OLD NEW`, `unlink PATH`, `mkdir PATH`, and `begin-` and `end-` of an
//! fsync, `-file THREAD INODE` or `-folder THREAD PATH`.

use crate::rng::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The library's source.
pub const LIBRARY: &str = include_str!("power_loss.c");

/// A change of a file; bytes are a range of the trace.
enum Change {
    Write { at: usize, bytes: Range<usize> },
    Resize(usize),
}

/// A change of a folder's entries, with names in it. A file is its number.
enum Entry {
    File(String, usize),
    Folder(String),
    Rename(String, String),
    Remove(String),
}

/// Changes in their order, and how many of the first are on the disk for good.
struct History<T> {
    changes: Vec<T>,
    safe: usize,
    /// How many there were when each thread's fsync began.
    begun: BTreeMap<String, usize>,
}

impl<T> History<T> {
    fn new() -> History<T> {
        History { changes: Vec::new(), safe: 0, begun: BTreeMap::new() }
    }

    fn begin_sync(&mut self, thread: &str) {
        self.begun.insert(thread.to_owned(), self.changes.len());
    }

    fn end_sync(&mut self, thread: &str) {
        let begun = self.begun.remove(thread).expect("an fsync begins before it ends");
        self.safe = self.safe.max(begun);
    }

    /// How many changes are found after the power was lost.
    fn survivors(&self, rng: &mut Rng) -> usize {
        let unsafe_ones = self.changes.len() - self.safe;
        match rng.below(3) {
            0 => self.safe,
            1 => self.changes.len(),
            _ => self.safe + rng.below(unsafe_ones + 1),
        }
    }
}

/// The files of a server, as they were made.
pub struct Disk<'t> {
    trace: &'t [u8],
    files: Vec<History<Change>>,
    /// The number of the file that has an inode now.
    by_inode: BTreeMap<String, usize>,
    /// By path, below `root`.
    folders: BTreeMap<String, History<Entry>>,
    root: String,
}

/// Where the records of a trace end: the instants at which the power can be lost; and whether the
/// record is about names, which is where things go wrong.
pub fn instants(trace: &[u8]) -> Vec<(usize, bool)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((words, payload)) = record(trace, at) {
        at = payload.end;
        found.push((at, !matches!(words[0], "write" | "begin-file" | "end-file" | "resize")));
    }
    found
}

/// The words of the record at a place, and where what follows its line is. `None` at the end, where a
/// record may be incomplete.
fn record(trace: &[u8], at: usize) -> Option<(Vec<&str>, Range<usize>)> {
    let len = trace[at..].iter().position(|&byte| byte == b'\n')?;
    let line = std::str::from_utf8(&trace[at..at + len]).expect("the trace has lines of text");
    let words: Vec<&str> = line.split(' ').collect();
    let start = at + len + 1;
    let bytes = if words[0] == "write" { number(words[3]) } else { 0 };
    (start + bytes <= trace.len()).then_some((words, start..start + bytes))
}

fn number(word: &str) -> usize {
    word.parse().expect("the trace has whole numbers")
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').expect("paths in the trace are absolute")
}

impl<'t> Disk<'t> {
    /// The files below `root`, an empty folder at first, as the trace up to `end` has made them.
    pub fn new(trace: &'t [u8], end: usize, root: &Path) -> Disk<'t> {
        let root = root.to_str().expect("a test's folder has a plain name").to_owned();
        let folders = BTreeMap::from([(root.clone(), History::new())]);
        let mut disk = Disk { trace, files: Vec::new(), by_inode: BTreeMap::new(), folders, root };
        let mut at = 0;
        while at < end
            && let Some((words, payload)) = record(trace, at)
        {
            at = payload.end;
            disk.apply(&words, payload);
        }
        disk
    }

    fn file(&mut self, inode: &str) -> &mut History<Change> {
        &mut self.files[self.by_inode[inode]]
    }

    fn folder(&mut self, path: &str) -> &mut History<Entry> {
        self.folders.get_mut(path).expect("a folder is made before it is used")
    }

    fn apply(&mut self, words: &[&str], bytes: Range<usize>) {
        match *words {
            ["create", inode, path] => {
                let (folder, name) = split(path);
                let file = self.files.len();
                self.files.push(History::new());
                self.by_inode.insert(inode.to_owned(), file);
                self.folder(folder).changes.push(Entry::File(name.to_owned(), file));
            }
            ["write", inode, at, _] => {
                let change = Change::Write { at: number(at), bytes };
                self.file(inode).changes.push(change);
            }
            ["resize", inode, size] => {
                self.file(inode).changes.push(Change::Resize(number(size)));
            }
            ["rename", from, to] => {
                let ((folder, old), (new_folder, new)) = (split(from), split(to));
                assert!(folder == new_folder, "a file went from {from} to {to}");
                let entry = Entry::Rename(old.to_owned(), new.to_owned());
                self.folder(folder).changes.push(entry);
            }
            ["unlink", path] => {
                let (folder, name) = split(path);
                self.folder(folder).changes.push(Entry::Remove(name.to_owned()));
            }
            ["mkdir", path] => {
                let (folder, name) = split(path);
                self.folder(folder).changes.push(Entry::Folder(name.to_owned()));
                self.folders.insert(path.to_owned(), History::new());
            }
            ["begin-file", thread, inode] => self.file(inode).begin_sync(thread),
            ["end-file", thread, inode] => self.file(inode).end_sync(thread),
            ["begin-folder", thread, path] => self.folder(path).begin_sync(thread),
            ["end-folder", thread, path] => self.folder(path).end_sync(thread),
            _ => panic!("no such record: {words:?}"),
        }
    }

    /// Writes what could be found after the power was lost into an empty folder.
    pub fn leave(&self, rng: &mut Rng, target: &Path) -> io::Result<()> {
        self.leave_folder(&self.root, rng, target)
    }

    fn leave_folder(&self, path: &str, rng: &mut Rng, target: &Path) -> io::Result<()> {
        let history = &self.folders[path];
        let mut entries: BTreeMap<&str, Option<usize>> = BTreeMap::new();
        for change in &history.changes[..history.survivors(rng)] {
            match change {
                Entry::File(name, file) => drop(entries.insert(name, Some(*file))),
                Entry::Folder(name) => drop(entries.insert(name, None)),
                Entry::Remove(name) => drop(entries.remove(name.as_str())),
                Entry::Rename(old, new) => {
                    let entry = entries.remove(old.as_str()).expect("what is renamed is there");
                    entries.insert(new, entry);
                }
            }
        }
        for (name, file) in entries {
            match file {
                Some(file) => fs::write(target.join(name), self.content(file, rng))?,
                None => {
                    fs::create_dir(target.join(name))?;
                    self.leave_folder(&format!("{path}/{name}"), rng, &target.join(name))?;
                }
            }
        }
        Ok(())
    }

    fn content(&self, file: usize, rng: &mut Rng) -> Vec<u8> {
        let history = &self.files[file];
        let survivors = history.survivors(rng);
        let mut content = Vec::new();
        for (number, change) in history.changes[..survivors].iter().enumerate() {
            match change {
                Change::Resize(size) => content.resize(*size, 0),
                Change::Write { at, bytes } => {
                    let mut bytes = bytes.clone();
                    let is_last = number + 1 == survivors && number >= history.safe;
                    if is_last && rng.chance(50) {
                        bytes.end = bytes.start + rng.below(bytes.len() + 1);
                    }
                    content.resize(content.len().max(at + bytes.len()), 0);
                    content[*at..at + bytes.len()].copy_from_slice(&self.trace[bytes]);
                }
            }
        }
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &[u8] = b"mkdir /r/d\nbegin-folder 1 /r\nend-folder 1 /r\ncreate 7 /r/d/a\n\
        write 7 0 3\nonebegin-file 1 7\nwrite 7 3 3\ntwoend-file 1 7\nrename /r/d/a /r/d/b\n\
        begin-folder 2 /r/d\nend-folder 2 /r/d\nunlink /r/d/b\ncreate 7 /r/d/b\nwrite 7 0 4\nlast";

    /// All that can be found in the file `/r/d/b` when the power is lost after so many records.
    fn found(records: usize) -> Vec<Option<String>> {
        let folder = std::env::temp_dir().join(format!("power-{}-{records}", std::process::id()));
        let end = instants(TRACE)[records - 1].0;
        let disk = Disk::new(TRACE, end, Path::new("/r"));
        let mut all: Vec<_> = (0..300)
            .map(|seed| {
                fs::create_dir(&folder).expect("a new folder");
                disk.leave(&mut Rng::new(seed), &folder).expect("it can be written");
                let content = fs::read_to_string(folder.join("d/b")).ok();
                fs::remove_dir_all(&folder).expect("the folder goes");
                content
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|&text| Some(text.to_owned())).collect()
    }

    #[test]
    fn only_what_was_forced_is_sure() {
        // Renamed, but the folder is not forced: perhaps the name is not there; and only what was
        // there when the fsync began is sure.
        let mut wanted = vec![None];
        wanted.extend(some(&["one", "onet", "onetw", "onetwo"]));
        assert_eq!(found(9), wanted);
        assert_eq!(found(11), wanted[1..]);
        // The inode serves another file.
        assert_eq!(found(12), wanted);
        let last = found(14);
        for text in ["", "l", "la", "las", "last", "one", "onetwo"] {
            assert!(last.contains(&Some(text.to_owned())), "{text}: {last:?}");
        }
    }
}
