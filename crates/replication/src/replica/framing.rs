//! Taking the stream of a primary apart: into entries, each of which is applied as a whole.
//!
//! An entry is a command, or everything from MULTI to EXEC. The framer is given the bytes that are there,
//! from the first that was not [taken](Framer::take) yet; what it has parsed of a transaction whose EXEC
//! is still to come, it does not parse again. It copies nothing: words are places in the input.

use crate::stream::{Corrupt, Item, StreamReader};
use std::ops::Range;

/// What is to be done with an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// Its commands are repeated; as one, if they are a transaction.
    Commands {
        /// They stand between MULTI and EXEC.
        is_transaction: bool,
    },
    /// Nothing: it keeps the link alive, or is for others.
    Nothing,
    /// The primary wants to know what the replica has; not counting this.
    GetAck,
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// See there.
    pub kind: EntryKind,
    /// Behind its last byte, in the input.
    pub end: usize,
    first: usize,
    last: usize,
}

/// Finds entries; see the module's documentation.
#[derive(Debug)]
pub struct Framer {
    reader: StreamReader,
    /// How much of the input has been parsed.
    at: usize,
    words: Vec<Range<usize>>,
    /// For each command the number of words up to its end.
    commands: Vec<usize>,
    entries: Vec<Entry>,
    of_command: Vec<Range<usize>>,
}

impl Default for Framer {
    fn default() -> Framer {
        Framer {
            reader: StreamReader::new(0),
            at: 0,
            words: Vec::new(),
            commands: Vec::new(),
            entries: Vec::new(),
            of_command: Vec::new(),
        }
    }
}

impl Framer {
    /// Parses until there are `most` entries or the input ends, and returns a lower bound of the bytes
    /// that are missing to the next command; 0 if there are enough entries.
    ///
    /// # Errors
    /// The stream makes no sense behind the entries that were found.
    pub fn parse(&mut self, input: &[u8], most: usize) -> Result<usize, Corrupt> {
        while self.entries.len() < most {
            match self.reader.next(&input[self.at..], &mut self.of_command)? {
                Item::Command { consumed } => self.add(input, consumed),
                Item::Incomplete { missing } => return Ok(missing.max(1)),
                Item::Timestamp { .. } | Item::Place { .. } | Item::Comment { .. } | Item::Torn => {
                    let problem = "Expected a command, got an annotation".to_owned();
                    return Err(Corrupt { offset: self.reader.offset(), problem });
                }
            }
        }
        Ok(0)
    }

    /// A command was found, of so many bytes.
    fn add(&mut self, input: &[u8], consumed: usize) {
        let begin = self.at;
        self.at += consumed;
        let in_input = |word: &Range<usize>| begin + word.start..begin + word.end;
        let name = &input[in_input(&self.of_command[0])];
        let is_bare = self.of_command.len() == 1;
        // The reader has seen to it that each has its place.
        if is_bare && name.eq_ignore_ascii_case(b"multi") {
            return;
        }
        let first = self.entries.last().map_or(0, |entry| entry.last);
        if is_bare && name.eq_ignore_ascii_case(b"exec") {
            let last = self.commands.len();
            let kind = EntryKind::Commands { is_transaction: true };
            self.entries.push(Entry { kind, end: self.at, first, last });
            return;
        }
        let kind = self.kind_of(input, begin);
        if kind != EntryKind::Nothing && kind != EntryKind::GetAck {
            self.words.extend(self.of_command.iter().map(in_input));
            self.commands.push(self.words.len());
        }
        if self.reader.open_transaction().is_none() {
            self.entries.push(Entry { kind, end: self.at, first, last: self.commands.len() });
        }
    }

    fn kind_of(&self, input: &[u8], begin: usize) -> EntryKind {
        let word = |at: usize| {
            self.of_command.get(at).map(|word| &input[begin + word.start..begin + word.end])
        };
        let is =
            |at: usize, text: &[u8]| word(at).is_some_and(|word| word.eq_ignore_ascii_case(text));
        if is(0, b"ping") {
            EntryKind::Nothing
        } else if is(0, b"replconf") {
            if is(1, b"getack") { EntryKind::GetAck } else { EntryKind::Nothing }
        } else {
            EntryKind::Commands { is_transaction: false }
        }
    }

    /// The entries that were found and not taken yet.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The number of commands in an entry.
    pub fn len_of(&self, entry: &Entry) -> usize {
        entry.last - entry.first
    }

    /// The words of an entry's command.
    pub fn words<'i>(
        &self,
        input: &'i [u8],
        entry: &Entry,
        command: usize,
        into: &mut Vec<&'i [u8]>,
    ) {
        let number = entry.first + command;
        let first = number.checked_sub(1).map_or(0, |before| self.commands[before]);
        into.clear();
        into.extend(
            self.words[first..self.commands[number]].iter().map(|word| &input[word.clone()]),
        );
    }

    /// Forgets the entries up to these bytes, which end one; the input begins behind them from now on.
    pub fn take(&mut self, bytes: usize) {
        let taken = self.entries.iter().take_while(|entry| entry.end <= bytes).count();
        let Some(last) = taken.checked_sub(1).map(|last| self.entries[last]) else { return };
        let words = last.last.checked_sub(1).map_or(0, |command| self.commands[command]);
        self.words.drain(..words);
        self.words.iter_mut().for_each(|word| *word = word.start - bytes..word.end - bytes);
        self.commands.drain(..last.last);
        self.commands.iter_mut().for_each(|end| *end -= words);
        self.entries.drain(..taken);
        for entry in &mut self.entries {
            entry.end -= bytes;
            entry.first -= last.last;
            entry.last -= last.last;
        }
        self.at -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*1\r\n$4\r\nPING\r\n\
        *1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nDEL\r\n$1\r\nb\r\n\
        *1\r\n$4\r\nEXEC\r\n*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n";
    const FOUND: [&str; 5] = ["SELECT 3", "nothing", "DEL a; DEL b", "getack", "INCR n"];

    /// The entries of a stream that arrives in these pieces, some of which are taken at a time.
    fn entries_of(pieces: &[&[u8]], most: usize) -> Vec<String> {
        let (mut framer, mut input, mut found) = (Framer::default(), Vec::new(), Vec::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                let missing = framer.parse(&input, most).expect("it makes sense");
                let mut end = 0;
                for entry in framer.entries() {
                    let mut words = Vec::new();
                    let commands: Vec<String> = (0..framer.len_of(entry))
                        .map(|command| {
                            framer.words(&input, entry, command, &mut words);
                            String::from_utf8_lossy(&words.join(&b' ')).into_owned()
                        })
                        .collect();
                    found.push(match entry.kind {
                        EntryKind::Commands { .. } => commands.join("; "),
                        EntryKind::Nothing => "nothing".into(),
                        EntryKind::GetAck => "getack".into(),
                    });
                    end = entry.end;
                }
                framer.take(end);
                input.drain(..end);
                if missing > 0 {
                    break;
                }
            }
        }
        assert!(input.is_empty(), "all is taken");
        found
    }

    #[test]
    fn a_transaction_is_one_entry_wherever_the_stream_is_cut() {
        for cut in 0..STREAM.len() {
            let (first, second) = STREAM.split_at(cut);
            assert_eq!(entries_of(&[first, second], 64), FOUND, "cut at {cut}");
            assert_eq!(entries_of(&[first, second], 1), FOUND, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        for bad in ["+OK\r\n", "*0\r\n", "*1\r\n$-1\r\n", "#TS:1\r\n", "*1\r\n$4\r\nEXEC\r\n"] {
            assert!(Framer::default().parse(bad.as_bytes(), 9).is_err(), "{bad}");
        }
        let (mut framer, bad) = (Framer::default(), b"*1\r\n$4\r\nPING\r\nx");
        assert!(framer.parse(bad, 9).is_err());
        assert_eq!(framer.entries().len(), 1, "what came before counts");
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_make_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framer = Framer::default();
            let _ = framer.parse(&bytes, 5);
            let end = framer.entries().last().map_or(0, |entry| entry.end);
            framer.take(end);
        }

        #[test]
        fn pieces_of_any_size_give_the_same(cuts in proptest::collection::vec(0..STREAM.len(), 0..9)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &STREAM[pair[0]..pair[1]]).collect();
            prop_assert_eq!(entries_of(&pieces, 2), FOUND);
        }
    }
}
