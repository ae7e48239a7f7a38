//! An entry of the journal while a command writes it: effects, encoded in the form in which the
//! stream carries them.
//!
//! Effects are written as RESP at once, into one buffer that the thread reuses for every entry: a
//! write costs no allocation, whatever the number of its words.

use keyspace::DbIndex;
use resp::bulk::{push_bulk, push_header};
use std::cell::Cell;
use structs::numbers::{INT_MAX_LEN, format_i64, format_u64};

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// A buffer that has grown beyond this is freed.
const KEEP_BYTES: usize = 256 << 10;

thread_local! {
    /// The thread's buffer, while no entry has it.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The effects of one write, as commands.
///
/// ```text
///   ┌──────────────┬─────────┬────────┬─────────┬ ─ ─ ─ ─ ─ ┐
///   │ room for     │ command │ SELECT │ command │ EXEC, if
///   │ MULTI        │         │        │         │ there are several
///   └──────────────┴─────────┴────────┴─────────┴ ─ ─ ─ ─ ─ ┘
/// ```
#[derive(Default, Debug)]
pub struct Entry {
    bytes: Vec<u8>,
    commands: u32,
    first: DbIndex,
    last: DbIndex,
}

/// Appends `SELECT db` as it stands in the stream.
pub fn push_select(out: &mut Vec<u8>, db: DbIndex) {
    let mut digits = [0; INT_MAX_LEN];
    push_header(out, b'*', 2);
    push_bulk(out, b"SELECT");
    push_bulk(out, format_u64(&mut digits, u64::from(db.0)));
}

impl Entry {
    /// Returns whether the entry has no command.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Returns how many bytes the entry has in the stream.
    pub fn stream_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.bytes.len() - MULTI.len() }
    }

    /// Returns the database that the first command needs.
    #[inline]
    pub fn first_db(&self) -> DbIndex {
        self.first
    }

    /// Returns the database that is selected behind the last command.
    #[inline]
    pub fn last_db(&self) -> DbIndex {
        self.last
    }

    /// Begins a command of so many words, which runs in this database.
    #[inline]
    pub fn begin(&mut self, db: DbIndex, words: usize) {
        if self.commands == 0 {
            if self.bytes.is_empty() {
                self.take_buffer();
            }
            // What follows is the last entry.
            self.bytes.truncate(MULTI.len());
            self.first = db;
        } else if self.last != db {
            push_select(&mut self.bytes, db);
        }
        self.last = db;
        self.commands += 1;
        push_header(&mut self.bytes, b'*', words);
    }

    /// Takes the thread's buffer and puts MULTI at its beginning.
    #[cold]
    fn take_buffer(&mut self) {
        self.bytes = SPARE.take();
        self.bytes.clear();
        self.bytes.extend_from_slice(MULTI);
    }

    /// Writes the next word of the command that was begun.
    #[inline]
    pub fn word(&mut self, word: &[u8]) {
        push_bulk(&mut self.bytes, word);
    }

    /// Writes a whole command.
    #[inline]
    pub fn command(&mut self, db: DbIndex, words: &[&[u8]]) {
        self.begin(db, words.len());
        words.iter().for_each(|word| self.word(word));
    }

    /// Returns the entry as it is to stand in the stream. If `is_atomic`, several commands become a
    /// transaction.
    pub(crate) fn seal(&mut self, is_atomic: bool) -> &[u8] {
        if self.commands > 1 && is_atomic {
            self.bytes.extend_from_slice(EXEC);
            &self.bytes
        } else {
            &self.bytes[MULTI.len()..]
        }
    }

    /// Empties it.
    #[inline]
    pub fn clear(&mut self) {
        self.commands = 0;
        if self.bytes.capacity() > KEEP_BYTES {
            self.bytes = Vec::new();
        }
    }
}

impl Drop for Entry {
    #[inline]
    fn drop(&mut self) {
        if self.bytes.capacity() > 0 {
            SPARE.set(std::mem::take(&mut self.bytes));
        }
    }
}

/// What a command says its effect is.
pub struct Effect<'e> {
    entry: &'e mut Entry,
    db: DbIndex,
}

impl<'e> Effect<'e> {
    /// Makes a writer of the effect of a command in this database. It writes to `entry`.
    pub fn new(entry: &'e mut Entry, db: DbIndex) -> Effect<'e> {
        Effect { entry, db }
    }

    /// A whole command.
    pub fn command(&mut self, words: &[&[u8]]) {
        self.entry.command(self.db, words);
    }

    /// Begins a command of so many words.
    pub fn begin(&mut self, words: usize) {
        self.entry.begin(self.db, words);
    }

    /// The next word of the command that was begun.
    pub fn word(&mut self, word: &[u8]) {
        self.entry.word(word);
    }

    /// Writes the next word, a number.
    pub fn integer(&mut self, number: i64) {
        let mut digits = [0; INT_MAX_LEN];
        self.entry.word(format_i64(&mut digits, number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(entry: &mut Entry, is_atomic: bool) -> String {
        String::from_utf8_lossy(entry.seal(is_atomic)).replace("\r\n", " ")
    }

    #[test]
    fn one_command_stands_alone() {
        let mut entry = Entry::default();
        entry.command(DbIndex(3), &[b"SET", b"k", b"twelve bytes"]);
        assert_eq!(text(&mut entry, true), "*3 $3 SET $1 k $12 twelve bytes ");
        assert_eq!((entry.first_db(), entry.last_db()), (DbIndex(3), DbIndex(3)));
        entry.clear();
        assert!(entry.is_empty());
    }

    #[test]
    fn several_are_a_transaction_that_selects_for_itself() {
        let mut entry = Entry::default();
        entry.command(DbIndex(0), &[b"DEL", b"a"]);
        entry.command(DbIndex(12), &[b"DEL", b"b"]);
        assert_eq!((entry.first_db(), entry.last_db()), (DbIndex(0), DbIndex(12)));
        let loose = "*2 $3 DEL $1 a *2 $6 SELECT $2 12 *2 $3 DEL $1 b ";
        assert_eq!(text(&mut entry, false), loose);
        assert_eq!(text(&mut entry, true), format!("*1 $5 MULTI {loose}*1 $4 EXEC "));
    }
}
