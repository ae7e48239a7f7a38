//! What a machine that loses its power leaves of a server's files.
//!
//! A killed process leaves everything it has written, for that is the kernel's. A machine that
//! stops leaves what was forced to the disk, and of the rest whatever the kernel happened to have
//! written. Here a library between the server and the C library (`power_loss.c`) notes every change
//! of its files; [`Disk`] reads that trace up to any instant and makes up what could be found
//! afterwards, at the worst that file systems and disks leave:
//!
//! - Of a file, all changes are there that were made before an fsync of it began that has ended.
//! - Its size is what the first so many of the later changes made it, the last write perhaps in
//!   part. The bytes that a file has grown by are on the disk before its size is, and with them the
//!   sector that they begin in, as it was then.
//! - Otherwise sectors are overwritten in place, in no order: each holds what is sure, or what any
//!   later change made of it, whatever the size is and the other sectors hold. It holds all of
//!   that, which is the one thing that disks promise.
//! - What was cut off is gone; if the cut is lost, it is there as it was before, since the file
//!   went on in other blocks. Only the block of the cut stays the file's, with zeros behind the end
//!   at first.
//! - Of a folder, all entries are there as they were made, renamed and removed before such an fsync
//!   of the folder, and the first so many of the later ones. An fsync of a file is none of its
//!   name.
//!
//! A record of the trace is a line: `create INODE PATH`, `write INODE OFFSET BYTES` (the bytes
//! follow), `resize INODE BYTES`, `rename OLD NEW`, `unlink PATH`, `mkdir PATH`, and `begin-` and
//! `end-` of an fsync, `-file THREAD INODE` or `-folder THREAD PATH`.

use crate::rng::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The library's source.
pub const LIBRARY: &str = include_str!("power_loss.c");

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;
/// What a file system gives to a file and takes back.
const BLOCK_BYTES: usize = 4096;

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

    /// How many changes are found after the power was lost; of a file, in its size.
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

/// The words of the record at a place, and where what follows its line is. `None` at the end, where
/// a record may be incomplete.
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
        // Nothing or everything is found as often as something: a server may stumble over each.
        let percent = *rng.pick(&[0, 50, 100]);
        let (safe, later) = history.changes.split_at(history.safe);
        let mut loss = Loss::of(safe, self.trace);
        for (number, change) in (history.safe..).zip(later) {
            let before = loss.file.len();
            change.apply(self.trace, &mut loss.file);
            let sure_from = if number < survivors {
                let is_last = number + 1 == survivors;
                let is_whole = !is_last || matches!(change, Change::Resize(_)) || rng.chance(50);
                loss.resize(before, is_whole, rng)
            } else {
                loss.cut(before);
                usize::MAX
            };
            for sector in change.sectors(before) {
                if sector.end > sure_from || rng.chance(percent) {
                    loss.force(sector);
                }
            }
        }
        loss.disk
    }
}

impl Change {
    fn apply(&self, trace: &[u8], file: &mut Vec<u8>) {
        match self {
            Change::Resize(size) => file.resize(*size, 0),
            Change::Write { at, bytes } => {
                let end = at + bytes.len();
                file.resize(file.len().max(end), 0);
                file[*at..end].copy_from_slice(&trace[bytes.clone()]);
            }
        }
    }

    /// Where the sectors lie that are written if a file of `size` bytes is changed. What a cut
    /// leaves of its last block is emptied; room that no bytes come with needs none on the disk.
    fn sectors(&self, size: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let bytes = match self {
            Change::Resize(new) => *new..size,
            Change::Write { at, bytes } => *at..at + bytes.len(),
        };
        let first =
            if bytes.is_empty() { bytes.end } else { bytes.start / SECTOR_BYTES * SECTOR_BYTES };
        (first..bytes.end).step_by(SECTOR_BYTES).map(|start| start..start + SECTOR_BYTES)
    }
}

/// A file while the power is lost.
struct Loss {
    /// As the server sees it.
    file: Vec<u8>,
    /// As it is found.
    disk: Vec<u8>,
    /// Where the blocks begin that a change whose size is lost has cut off.
    kept: usize,
}

impl Loss {
    fn of(safe: &[Change], trace: &[u8]) -> Loss {
        let mut file = Vec::new();
        safe.iter().for_each(|change| change.apply(trace, &mut file));
        Loss { disk: file.clone(), file, kept: usize::MAX }
    }

    /// The size is found, or some of what it has grown by. Returns where the bytes begin that are
    /// there if the size is.
    fn resize(&mut self, before: usize, is_whole: bool, rng: &mut Rng) -> usize {
        let grown = self.file.len().saturating_sub(before);
        let lost = if is_whole { 0 } else { rng.below(grown + 1) };
        self.disk.resize(self.file.len() - lost, 0);
        if grown > 0 { before } else { usize::MAX }
    }

    /// The size is not found: if it cut blocks off, nothing more is written to them.
    fn cut(&mut self, before: usize) {
        if self.file.len() < before {
            self.kept = self.kept.min(self.file.len().next_multiple_of(BLOCK_BYTES));
        }
    }

    /// A sector reaches the disk. Behind a lost end it is empty.
    fn force(&mut self, sector: Range<usize>) {
        let end = sector.end.min(self.disk.len()).min(self.kept);
        for at in sector.start..end {
            self.disk[at] = self.file.get(at).copied().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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

    /// The records of a file `/r/a`.
    struct Trace(Vec<u8>);

    impl Trace {
        /// A file of so many bytes `o`, for good.
        fn safe(size: usize) -> Trace {
            let trace = Trace(b"create 7 /r/a\nbegin-folder 1 /r\nend-folder 1 /r\n".to_vec());
            trace.write(0, size, b'o').line("begin-file 1 7").line("end-file 1 7")
        }

        fn line(mut self, line: &str) -> Trace {
            self.0.extend(line.bytes().chain([b'\n']));
            self
        }

        fn write(self, at: usize, len: usize, byte: u8) -> Trace {
            let mut trace = self.line(&format!("write 7 {at} {len}"));
            trace.0.extend(vec![byte; len]);
            trace
        }

        fn contents(&self) -> BTreeSet<Vec<u8>> {
            let disk = Disk::new(&self.0, self.0.len(), Path::new("/r"));
            (0..2000).map(|seed| disk.content(0, &mut Rng::new(seed))).collect()
        }

        /// All that can be found in the file: which bytes, and how many of them, one after the
        /// other.
        fn found(&self) -> BTreeSet<String> {
            self.contents().iter().map(|content| runs(content)).collect()
        }
    }

    fn runs(content: &[u8]) -> String {
        let runs = content.chunk_by(|one, next| one == next);
        let words = runs.map(|run| format!("{}{}", (run[0].max(b'0')) as char, run.len()));
        words.collect::<Vec<_>>().join(" ")
    }

    fn set(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|&one| one.to_owned()).collect()
    }

    /// What sectors hold if each holds any of these bytes.
    fn any_of(sectors: &[&[u8]]) -> BTreeSet<String> {
        let mut contents = vec![Vec::new()];
        for choices in sectors {
            let with = |content: &Vec<u8>, byte: u8| [content.as_slice(), &[byte; 512]].concat();
            contents = contents
                .iter()
                .flat_map(|content| choices.iter().map(move |&byte| with(content, byte)))
                .collect();
        }
        contents.iter().map(|content| runs(content)).collect()
    }

    #[test]
    fn an_overwrite_is_torn_at_any_sector() {
        let trace = Trace::safe(1536).write(0, 1536, b'n');
        assert_eq!(trace.found(), any_of(&[b"on", b"on", b"on"]));
        let trace = trace.line("begin-file 1 7").line("end-file 1 7");
        assert_eq!(trace.found(), set(&["n1536"]));
        // A part of a sector is a whole sector for the disk.
        let trace = Trace::safe(1536).write(500, 1000, b'n');
        let found = ["o1536", "o500 n12 o1024", "o512 n512 o512", "o1024 n476 o36"];
        let both = ["o500 n524 o512", "o500 n12 o512 n476 o36", "o512 n988 o36", "o500 n1000 o36"];
        assert_eq!(trace.found(), set(&[found, both].concat()));
    }

    #[test]
    fn overwrites_reach_the_disk_in_any_order() {
        let trace = Trace::safe(1024).write(0, 1024, b'a').write(0, 1024, b'b');
        assert_eq!(trace.found(), any_of(&[b"oab", b"oab"]));
        let trace = Trace::safe(1024).write(0, 512, b'a').write(512, 512, b'b');
        assert_eq!(trace.found(), any_of(&[b"oa", b"ob"]));
        // Only what was there when the fsync began is sure.
        let trace = Trace::safe(1024).write(0, 1024, b'a').line("begin-file 1 7");
        let trace = trace.write(0, 1024, b'b').line("end-file 1 7");
        assert_eq!(trace.found(), any_of(&[b"ab", b"ab"]));
    }

    #[test]
    fn a_file_is_extended_after_its_bytes() {
        // What lies before the old end may be there without the size, but not the size without it.
        let trace = Trace::safe(1024).write(512, 514, b'n');
        let old_first = ["o1024", "o1024 n1", "o1024 n2"];
        let new_first = ["o512 n512", "o512 n513", "o512 n514"];
        assert_eq!(trace.found(), set(&[old_first, new_first].concat()));
        // Here both are in one sector.
        let trace = Trace::safe(1000).write(600, 402, b'n');
        assert_eq!(trace.found(), set(&["o1000", "o600 n400", "o600 n401", "o600 n402"]));
        let trace = Trace::safe(300).write(0, 300, b'n').line("resize 7 302");
        assert_eq!(trace.found(), set(&["o300", "n300", "o300 02", "n300 02"]));
        // Room that was written ahead is overwritten like the rest of the file, once it is there.
        let trace = Trace::safe(512).line("resize 7 1536").write(512, 1024, b'n');
        let mut found = any_of(&[b"o", b"0n", b"0n"]);
        found.extend(set(&["o512"]));
        assert_eq!(trace.found(), found);
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let trace = Trace::safe(1024).write(0, 1024, b'n').line("resize 7 512");
        // The cut block is the file's as before, so that its end can be emptied before the size
        // changes.
        let mut found = any_of(&[b"on", b"on0"]);
        found.extend(any_of(&[b"on"]));
        assert_eq!(trace.found(), found);
        let trace = Trace::safe(1024).line("resize 7 512").line("resize 7 1536");
        assert_eq!(trace.found(), set(&["o1024", "o512 0512", "o512", "o512 01024"]));
        // Behind a cut the file goes on in other blocks.
        let trace = Trace::safe(8192).line("resize 7 4096").write(4096, 2, b'n');
        assert_eq!(trace.found(), set(&["o8192", "o4096", "o4096 n1", "o4096 n2"]));
    }

    #[test]
    fn batches_that_are_written_in_place_need_checksums() {
        let room = Trace::safe(0).line("resize 7 4096").line("begin-file 1 7").line("end-file 1 7");
        let logs = room.write(0, 1024, b'a').write(1024, 1024, b'b').contents();
        // What is loaded: the batches of a log up to the first that is not there.
        let loaded = |is_there: fn(&[u8]) -> bool| {
            let batches =
                logs.iter().flat_map(|log| log.chunks(1024).take_while(|it| is_there(it)));
            batches.map(runs).collect::<BTreeSet<_>>()
        };
        let (whole, torn) =
            (["a1024", "b1024"], ["a512 0512", "b512 0512", "0512 a512", "0512 b512"]);
        assert_eq!(loaded(|batch| batch[0] != 0), set(&[&whole[..], &torn[..2]].concat()));
        // Its end proves no more than its beginning, for it need not be written last.
        assert_eq!(loaded(|batch| batch[1023] != 0), set(&[&whole[..], &torn[2..]].concat()));
        assert_eq!(loaded(|batch| batch.iter().all(|&byte| byte != 0)), set(&whole));
    }
}
