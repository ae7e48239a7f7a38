//! The journal as it is sent on: only what is about keys that are taken.

use super::Spoiled;
use super::boundary::Boundary;
use crate::clients::forwarding::push_words;
use crate::command::{Databases, Flags};
use crate::engine::Engine;
use crate::request_keys::RequestKeys;
use keyspace::{DbIndex, Slot};

/// What was read of the journal, and where both sides are in it.
#[derive(Default)]
pub(super) struct Stream {
    /// The beginning of a command.
    tail: Vec<u8>,
    /// The database that is selected in the journal.
    db: DbIndex,
    /// The one that is selected at the other server.
    sent_db: Option<DbIndex>,
}

/// A key that a command names.
struct Named<'w> {
    key: &'w [u8],
    hash: u64,
    slot: Slot,
}

impl Stream {
    /// Adds bytes of the journal.
    pub fn add(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// Selects a database at the other server.
    pub fn select(&mut self, db: DbIndex, out: &mut Vec<u8>) {
        if self.sent_db != Some(db) {
            self.sent_db = Some(db);
            push_words(out, &[b"SELECT", db.0.to_string().as_bytes()]);
        }
    }

    /// Sends on what concerns keys that are taken.
    ///
    /// # Errors
    /// The copy has to begin anew.
    pub fn sort_out(
        &mut self,
        engine: &Engine,
        boundary: &mut Boundary,
        out: &mut Vec<u8>,
    ) -> Result<(), Spoiled> {
        let tail = std::mem::take(&mut self.tail);
        let (mut done, mut words) = (0, Vec::new());
        while let Some(len) = read_command(&tail[done..], &mut words) {
            let raw = &tail[done..done + len];
            self.sort_out_one(engine, boundary, (&words, raw), out)?;
            done += len;
        }
        self.tail = tail;
        self.tail.drain(..done);
        Ok(())
    }

    fn sort_out_one(
        &mut self,
        engine: &Engine,
        boundary: &mut Boundary,
        (words, raw): (&[&[u8]], &[u8]),
        out: &mut Vec<u8>,
    ) -> Result<(), Spoiled> {
        let Ok(row) = engine.table.resolve(words) else { return Ok(()) };
        let command = row.command;
        if let Databases::Chosen = command.databases
            && let Some(db) = words.get(1).and_then(|word| str::from_utf8(word).ok()?.parse().ok())
        {
            self.db = DbIndex(db);
            return Ok(());
        }
        if command.keys.is_empty() {
            return match command.flags.has(Flags::WORLD) && command.flags.has(Flags::WRITE) {
                true => Err(Spoiled("all keys were deleted or exchanged")),
                false => Ok(()),
            };
        }
        let keyspace = &engine.keyspace;
        let found = RequestKeys::of(keyspace, command, words);
        let slot = |hash| keyspace.slot_of(hash).filter(|slot| boundary.has(*slot));
        let named = found.iter().filter_map(|key| {
            let (key, hash) = (key.key(words).bytes, key.hash);
            slot(hash).map(|slot| Named { key, hash, slot })
        });
        let named: Vec<Named<'_>> = named.collect();
        let db = self.db;
        if named.is_empty() {
            return Ok(());
        }
        let reaches_more = found.check().is_err()
            || matches!(command.databases, Databases::Named(_)) && boundary.databases() > 1;
        if reaches_more {
            // Which other keys it reads or writes is not known here.
            let all = (0..boundary.databases()).map(DbIndex);
            all.for_each(|db| untake(boundary, db, &named));
            return Ok(());
        }
        let is_taken = |named: &Named<'_>| boundary.is_taken(db, named.slot, named.hash, named.key);
        if named.len() == found.len() && named.iter().all(is_taken) {
            self.select(db, out);
            out.extend_from_slice(raw);
        } else {
            untake(boundary, db, &named);
        }
        Ok(())
    }
}

fn untake(boundary: &mut Boundary, db: DbIndex, named: &[Named<'_>]) {
    named.iter().for_each(|named| boundary.untake(db, named.slot, named.hash, named.key));
}

/// Reads the words of the first command. Returns its length; `None`: it is not complete. A copy may
/// begin inside a transaction, which [`replication::stream::StreamReader`] refuses.
fn read_command<'b>(bytes: &'b [u8], words: &mut Vec<&'b [u8]>) -> Option<usize> {
    words.clear();
    let (count, mut at) = read_number(bytes, 0, b'*')?;
    for _ in 0..count {
        let (len, begin) = read_number(bytes, at, b'$')?;
        words.push(bytes.get(begin..begin + len)?);
        at = begin + len + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// Reads a number behind a mark. Returns also where it ends.
fn read_number(bytes: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let rest = bytes.get(at..)?;
    debug_assert!(rest.first().is_none_or(|first| *first == mark), "the journal has commands");
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let digits = rest.get(1..end.checked_sub(1)?)?;
    Some((str::from_utf8(digits).ok()?.parse().ok()?, at + end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_wherever_their_bytes_are_cut() {
        let mut bytes = Vec::new();
        push_words(&mut bytes, &[b"SET", b"key", b"a\r\nb"]);
        let len = bytes.len();
        push_words(&mut bytes, &[b"DEL", b""]);
        let mut words = Vec::new();
        for end in 0..len {
            assert_eq!(read_command(&bytes[..end], &mut words), None);
        }
        assert_eq!(read_command(&bytes, &mut words), Some(len));
        assert_eq!(words, [&b"SET"[..], b"key", b"a\r\nb"]);
        assert_eq!(read_command(&bytes[len..], &mut words), Some(bytes.len() - len));
        assert_eq!(words, [&b"DEL"[..], b""]);
    }
}
