//! The ledger: every acknowledged write of a run, so that an audit can tell later what a server
//! lost.
//!
//! Each key has one writer, so its versions have an order. A value names its writer and its
//! version:
//!
//! ```text
//! RUN:VERSION:CLIENT:SEQUENCE:xxxx…      RUN tells runs apart, VERSION counts the key's writes,
//!                                        SEQUENCE the client's
//! ```
//!
//! The file is text. Its first line says how to find the keys; each further line is one
//! acknowledgement, `KEY VERSION CLIENT SEQUENCE MICROSECONDS`, the key as a number.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use structs::sync::lock;

/// What the first line begins with; the number is the format's.
pub const HEADER: &str = "dunlin-bench-ledger 1";

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key's number.
    pub key: u64,
    /// Counts the key's writes, from 1.
    pub version: u64,
    /// The connection.
    pub client: u64,
    /// Counts the connection's writes, from 1.
    pub sequence: u64,
}

/// A connection's versions and writes under way.
#[derive(Debug, Default)]
pub struct Versions {
    run: u64,
    client: u64,
    sequence: u64,
    latest: HashMap<u64, u64>,
    under_way: VecDeque<Entry>,
}

impl Versions {
    /// For one connection of a run.
    pub fn new(run: u64, client: u64) -> Versions {
        Versions { run, client, ..Versions::default() }
    }

    /// Appends the next value of `key`, at least `size` bytes long, and notes it as under way.
    pub fn write(&mut self, out: &mut Vec<u8>, key: u64, size: usize) {
        let version = self.latest.entry(key).or_insert(0);
        *version += 1;
        self.sequence += 1;
        let entry = Entry { key, version: *version, client: self.client, sequence: self.sequence };
        let start = out.len();
        out.extend_from_slice(entry.value(self.run).as_bytes());
        let length = (out.len() - start).max(size);
        out.resize(start + length, b'x');
        self.under_way.push_back(entry);
    }

    /// The oldest write under way has its reply.
    pub fn answered(&mut self) -> Option<Entry> {
        self.under_way.pop_front()
    }

    /// The connection is gone, and what was under way may or may not have happened.
    pub fn forget_under_way(&mut self) {
        self.under_way.clear();
    }
}

impl Entry {
    /// What a value that this write stored begins with.
    pub fn value(&self, run: u64) -> String {
        format!("{run:x}:{}:{}:{}:", self.version, self.client, self.sequence)
    }

    /// The version and so on of a value, if it is of this run.
    pub fn of_value(key: u64, value: &[u8], run: u64) -> Option<Entry> {
        let text = String::from_utf8_lossy(&value[..value.len().min(100)]).into_owned();
        let mut parts = text.split(':');
        if u64::from_str_radix(parts.next()?, 16).ok()? != run {
            return None;
        }
        let mut number = || parts.next()?.parse().ok();
        Some(Entry { key, version: number()?, client: number()?, sequence: number()? })
    }

    /// A line of the file, and when the acknowledgement came.
    pub fn of_line(line: &str) -> Option<(Entry, u64)> {
        let mut parts = line.split(' ');
        let mut number = || parts.next()?.parse().ok();
        let entry =
            Entry { key: number()?, version: number()?, client: number()?, sequence: number()? };
        Some((entry, number()?))
    }
}

/// The file, shared by the threads of a run.
#[derive(Debug)]
pub struct Ledger {
    file: Mutex<File>,
    /// Tells this run's values from others.
    pub run: u64,
}

impl Ledger {
    /// Begins a file; one that is there is replaced.
    pub fn create(path: &Path, run: u64, prefix: &[u8], padded: bool) -> io::Result<Ledger> {
        let mut file = File::create(path)?;
        let digits = if padded { 12 } else { 0 };
        let prefix: String = prefix.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "{HEADER} run={run:x} prefix={prefix} digits={digits}")?;
        Ok(Ledger { file: Mutex::new(file), run })
    }

    /// Appends lines that a thread has collected, and empties them. What is written survives the
    /// generator's own end.
    pub fn append(&self, lines: &mut Vec<u8>) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        lock(&self.file).write_all(lines)?;
        lines.clear();
        Ok(())
    }
}

/// Appends the line of an acknowledged write.
pub fn note(lines: &mut Vec<u8>, entry: &Entry, at_us: u64) {
    use crate::workload::digits::append_number;
    for number in [entry.key, entry.version, entry.client, entry.sequence] {
        append_number(lines, number);
        lines.push(b' ');
    }
    append_number(lines, at_us);
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_lines_are_read_as_they_were_written() {
        let mut versions = Versions::new(0xabc, 4);
        let mut out = Vec::new();
        versions.write(&mut out, 9, 0);
        out.clear();
        versions.write(&mut out, 9, 64);
        assert_eq!(out.len(), 64);
        let entry = Entry { key: 9, version: 2, client: 4, sequence: 2 };
        assert_eq!(Entry::of_value(9, &out, 0xabc), Some(entry));
        assert_eq!(Entry::of_value(9, &out, 0xabd), None);
        assert_eq!(Entry::of_value(9, b"something else", 0xabc), None);
        assert_eq!(versions.answered().unwrap().version, 1);
        assert_eq!(versions.answered(), Some(entry));
        let mut lines = Vec::new();
        note(&mut lines, &entry, 77);
        assert_eq!(
            Entry::of_line(std::str::from_utf8(&lines).unwrap().trim_end()),
            Some((entry, 77))
        );
        assert_eq!(Entry::of_line("9 2 4"), None, "a line cut short");
    }
}
