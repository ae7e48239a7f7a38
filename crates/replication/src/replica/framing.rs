//! Taking the stream of a primary apart: into entries, each of which is applied as a whole.
//!
//! An entry is a command, or everything from MULTI to EXEC. The framer is given the bytes that are
//! there, from the first that was not [taken](Framer::take) yet; what it has parsed of a
//! transaction whose EXEC is still to come, it does not parse again. It copies nothing: words are
//! places in the input.

use crate::Commands;
use crate::promise::Question;
use crate::stream::{Corrupt, Item, StreamReader};
use crate::wire::epoch_of;
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
    /// A leadership of this epoch begins.
    Epoch(u64),
    /// The primary of a cluster's shard asks its copies for a promise.
    Ask(Question),
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

impl Entry {
    /// Returns the numbers of the entry's commands.
    pub fn commands(&self) -> Range<usize> {
        self.first..self.last
    }
}

/// Entries that were found, which begin with the input.
#[derive(Debug, Default)]
pub struct Entries {
    entries: Vec<Entry>,
    commands: Commands,
}

impl Entries {
    /// Returns the entries in order.
    pub fn all(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    /// Returns the commands of all entries.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Returns the entries, and the commands of all of them.
    pub fn into_parts(self) -> (Vec<Entry>, Commands) {
        (self.entries, self.commands)
    }
}

/// Finds entries; see the module's documentation.
#[derive(Debug)]
pub struct Framer {
    reader: StreamReader,
    /// How much of the input has been parsed.
    at: usize,
    /// What was found; commands of a transaction that goes on come last.
    found: Entries,
    of_command: Vec<Range<usize>>,
}

impl Default for Framer {
    fn default() -> Framer {
        let reader = StreamReader::new(0);
        Framer { reader, at: 0, found: Entries::default(), of_command: Vec::new() }
    }
}

impl Framer {
    /// Parses until there are `most` entries or the input ends, and returns a lower bound of the
    /// bytes that are missing to the next command; 0 if there are enough entries.
    ///
    /// # Errors
    /// The stream makes no sense behind the entries that were found.
    pub fn parse(&mut self, input: &[u8], most: usize) -> Result<usize, Corrupt> {
        while self.found.entries.len() < most {
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

    /// Adds a command of so many bytes.
    fn add(&mut self, input: &[u8], consumed: usize) {
        let begin = self.at;
        self.at += consumed;
        let in_input = |word: &Range<usize>| begin + word.start..begin + word.end;
        let name = &input[in_input(&self.of_command[0])];
        let is_bare = self.of_command.len() == 1;
        // The stream reader has checked that MULTI and EXEC are paired.
        if is_bare && name.eq_ignore_ascii_case(b"multi") {
            return;
        }
        let Entries { entries, commands } = &mut self.found;
        let first = entries.last().map_or(0, |entry| entry.last);
        if is_bare && name.eq_ignore_ascii_case(b"exec") {
            let last = commands.len();
            let kind = EntryKind::Commands { is_transaction: true };
            entries.push(Entry { kind, end: self.at, first, last });
            return;
        }
        let kind = kind_of(&self.of_command, &input[begin..]);
        if let EntryKind::Commands { .. } = kind {
            commands.push(begin, &self.of_command);
        }
        if self.reader.open_transaction().is_none() {
            entries.push(Entry { kind, end: self.at, first, last: commands.len() });
        }
    }

    /// Returns the entries that were found and not taken yet.
    pub fn entries(&self) -> &[Entry] {
        self.found.all()
    }

    /// Gives away the entries that were found; the input begins behind them from now on.
    pub fn take(&mut self) -> Entries {
        let mut taken = std::mem::take(&mut self.found);
        let bytes = taken.bytes();
        let whole = taken.entries.last().map_or(0, |entry| entry.last);
        if whole < taken.commands.len() {
            self.found.commands = taken.commands.split_off(whole, bytes);
        }
        self.at -= bytes;
        taken
    }
}

fn kind_of(words: &[Range<usize>], input: &[u8]) -> EntryKind {
    let is = |at: usize, text: &[u8]| {
        words.get(at).is_some_and(|word| input[word.clone()].eq_ignore_ascii_case(text))
    };
    if is(0, b"ping") {
        let Some(message) = words.get(1).map(|word| &input[word.clone()]) else {
            return EntryKind::Nothing;
        };
        let question = || Question::parse(message).map(EntryKind::Ask);
        epoch_of(message).map(EntryKind::Epoch).or_else(question).unwrap_or(EntryKind::Nothing)
    } else if is(0, b"replconf") {
        if is(1, b"getack") { EntryKind::GetAck } else { EntryKind::Nothing }
    } else {
        EntryKind::Commands { is_transaction: false }
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

    #[test]
    fn an_epoch_begins_with_a_ping_that_names_it() {
        use crate::wire::epoch_entry;
        let others = b"*2\r\n$4\r\nPING\r\n$13\r\ndunlin-epoch:\r\n*2\r\n$4\r\nPING\r\n$1\r\n7\r\n";
        let stream = [&epoch_entry(7), &others[..], &epoch_entry(u64::MAX >> 1)].concat();
        let found = ["epoch 7", "nothing", "nothing", &format!("epoch {}", u64::MAX >> 1)];
        assert_eq!(entries_of(&[&stream], usize::MAX), found);
    }

    /// Returns the entries of a stream that arrives in these pieces, some of which are taken at a
    /// time.
    fn entries_of(pieces: &[&[u8]], most: usize) -> Vec<String> {
        let (mut framer, mut input, mut found) = (Framer::default(), Vec::new(), Vec::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                let missing = framer.parse(&input, most).expect("it makes sense");
                let entries = framer.take();
                for entry in entries.all() {
                    let mut words = Vec::new();
                    let commands: Vec<String> = entry
                        .commands()
                        .map(|command| {
                            entries.commands().words(&input, command, &mut words);
                            String::from_utf8_lossy(&words.join(&b' ')).into_owned()
                        })
                        .collect();
                    found.push(match entry.kind {
                        EntryKind::Commands { .. } => commands.join("; "),
                        EntryKind::Nothing => "nothing".into(),
                        EntryKind::GetAck => "getack".into(),
                        EntryKind::Epoch(epoch) => format!("epoch {epoch}"),
                        EntryKind::Ask(question) => format!("{question:?}"),
                    });
                }
                input.drain(..entries.bytes());
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
            framer.take();
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
