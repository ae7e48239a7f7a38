//! Reading the stream of commands that an append-only file holds.
//!
//! The reader takes pieces of the file and finds commands, annotations (`#TS:` and the time,
//! `#REPL:` and the place in the replication stream, heads of batches, preallocated space, and any
//! other line that begins with `#`) and transactions in them. It knows no command but MULTI and
//! EXEC. It copies nothing: words are places in the piece. Every complaint carries the offset in
//! the file, and [`StreamReader::valid`] says up to where the file makes sense by itself: the end
//! of the last whole command that is not inside an unfinished transaction.

use crate::preallocation::{self, BLOCK, BatchHead, Found};
use journal::{HistoryId, JournalPos};
use std::fmt;
use std::ops::Range;

/// Bytes of the longest annotation, which is what Redis reads as one.
const LONGEST_LINE: usize = 1023;
/// Words a command may have, and bytes of a word: beyond them a number is garbage.
const MAX_WORDS: u64 = 1 << 31;
const MAX_BYTES: u64 = 1 << 40;
/// What Redis and Valkey write first to a log that they go on with, the longest of it.
const OTHERS_BEGIN: &[u8] = b"*2\r\n$6\r\nSELECT\r\n";

/// What comes next in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A command; its words are in the list that the caller gave.
    Command {
        /// Bytes of the input that it took.
        consumed: usize,
    },
    /// `#TS:`: what follows was written at this time (seconds since the epoch) or later.
    Timestamp {
        /// The time.
        seconds: i64,
        /// Bytes of the input that it took.
        consumed: usize,
    },
    /// `#REPL:`: where in the replication stream the commands that follow stand.
    Place {
        /// The place; `None`: what follows is not of the stream.
        place: Option<StreamPlace>,
        /// Bytes of the input that it took.
        consumed: usize,
    },
    /// Another annotation, or preallocated space. If it is the head of a batch, the batch is whole.
    Comment {
        /// Bytes of the input that it took.
        consumed: usize,
    },
    /// The input ends before what begins there does.
    Incomplete {
        /// A lower bound of the bytes that are missing; 0 if the input is empty.
        missing: usize,
    },
    /// The rest of the file is what a lost power has left of a batch that was written in place.
    Torn,
}

/// A place in the replication stream, as an annotation of an append-only file names it. Between it
/// and the next one, the bytes of commands are those of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPlace {
    /// The history.
    pub id: HistoryId,
    /// The position in it.
    pub position: JournalPos,
}

/// The annotation in front of commands that have no place in the replication stream.
pub const NO_PLACE: &[u8] = b"#REPL:\r\n";

impl StreamPlace {
    /// Returns the annotation's line.
    pub fn line(&self) -> String {
        format!("#REPL:{} {}\r\n", self.id, self.position.0)
    }

    /// Reads an annotation without its end; `None` if it is another one.
    fn parse(line: &[u8]) -> Option<StreamPlace> {
        let text = line.strip_prefix(b"#REPL:")?;
        let space = text.iter().position(|&byte| byte == b' ')?;
        let (id, position) = (&text[..space], &text[space + 1..]);
        let position = u64::try_from(structs::numbers::parse_i64(position)?).ok()?;
        Some(StreamPlace { id: HistoryId::parse(id)?, position: JournalPos(position) })
    }

    /// Returns the place behind so many bytes of commands.
    #[must_use]
    pub fn behind(self, bytes: usize) -> StreamPlace {
        StreamPlace { position: JournalPos(self.position.0.saturating_add(bytes as u64)), ..self }
    }
}

/// The stream is not one of commands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Corrupt {
    /// Where in the file.
    pub offset: u64,
    /// What is wrong there.
    pub problem: String,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.problem, self.offset)
    }
}

impl std::error::Error for Corrupt {}

/// Follows a stream; see the module's documentation.
#[derive(Clone, Debug)]
pub struct StreamReader {
    offset: u64,
    valid: u64,
    multi_at: Option<u64>,
    file: Option<FileEnd>,
    /// Where the head and the end of the last batch are.
    batch: (u64, u64),
    /// Where the preallocated space begins that the stream is in.
    preallocated_at: Option<u64>,
    /// Preallocated space has been passed.
    has_gap: bool,
}

/// Where the data of a file ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileEnd {
    /// The offset.
    pub at: u64,
    /// Whether [preallocated space](preallocation) is behind it.
    pub has_preallocated: bool,
}

/// What a header says, or why it says nothing.
enum Header {
    Number(u64, usize),
    Incomplete,
    Corrupt(usize, String),
}

impl StreamReader {
    /// Returns a reader for a stream that begins at this offset of its file.
    pub fn new(offset: u64) -> StreamReader {
        StreamReader {
            offset,
            valid: offset,
            multi_at: None,
            file: None,
            batch: (0, 0),
            preallocated_at: None,
            has_gap: false,
        }
    }

    /// Returns a reader for what begins at this offset of a file and goes on to its end: batches
    /// are compared with their checksums.
    pub fn of_file(offset: u64, end: FileEnd) -> StreamReader {
        StreamReader { file: Some(end), ..StreamReader::new(offset) }
    }

    /// Returns a reader for a single command that may stand inside a transaction, EXEC itself
    /// included.
    pub fn inside() -> StreamReader {
        StreamReader { multi_at: Some(0), ..StreamReader::new(0) }
    }

    /// Returns where the next item begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns up to where the file makes sense.
    pub fn valid(&self) -> u64 {
        self.valid
    }

    /// Returns where the transaction began that the stream is in.
    pub fn open_transaction(&self) -> Option<u64> {
        self.multi_at
    }

    /// Returns where the batch begins that the stream is in. A part of a batch makes no sense.
    pub fn in_batch(&self) -> Option<u64> {
        (self.offset < self.batch.1).then_some(self.batch.0)
    }

    /// Returns whether others have gone on behind preallocated space: nothing can be written in
    /// place there any more.
    pub fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// Looks at the input, which goes on where the last item ended. The caller is to present at
    /// least what was missing; the whole rest of the file if there is no more.
    ///
    /// # Errors
    /// The stream is corrupt. The reader stays where it is.
    pub fn next(&mut self, input: &[u8], words: &mut Vec<Range<usize>>) -> Result<Item, Corrupt> {
        words.clear();
        let Some(&first) = input.first() else { return Ok(Item::Incomplete { missing: 0 }) };
        if let Some(end) = self.file
            && (first == b'#' || self.preallocated_at.is_some())
            && let Some(outcome) = self.preallocated(input, end)
        {
            return outcome;
        }
        if first == b'#' {
            return self.annotation(input);
        }
        let (count, mut at) = match self.header(input, 0, b'*', MAX_WORDS) {
            Header::Number(0, _) => {
                return Err(self.corrupt(0, "Expected a command of at least one word".into()));
            }
            Header::Number(count, end) => (count, end),
            Header::Incomplete => return Ok(Item::Incomplete { missing: 1 }),
            Header::Corrupt(at, problem) => return Err(self.corrupt(at, problem)),
        };
        for _ in 0..count {
            let len = match self.header(input, at, b'$', MAX_BYTES) {
                Header::Number(len, end) => {
                    at = end;
                    len as usize
                }
                Header::Incomplete => return Ok(Item::Incomplete { missing: 1 }),
                Header::Corrupt(at, problem) => return Err(self.corrupt(at, problem)),
            };
            let end = at + len;
            if input.len() < end + 2 {
                return Ok(Item::Incomplete { missing: end + 2 - input.len() });
            }
            if &input[end..end + 2] != b"\r\n" {
                let problem =
                    format!("Expected \\r\\n, got: {:02x}{:02x}", input[end], input[end + 1]);
                return Err(self.corrupt(end, problem));
            }
            words.push(at..end);
            at = end + 2;
        }
        self.end_command(&input[words[0].clone()])?;
        self.advance(at);
        Ok(Item::Command { consumed: at })
    }

    /// Keeps track of transactions.
    fn end_command(&mut self, name: &[u8]) -> Result<(), Corrupt> {
        if name.len() == 5 && name.eq_ignore_ascii_case(b"multi") {
            if self.multi_at.is_some() {
                return Err(self.corrupt(0, "Unexpected MULTI".into()));
            }
            self.multi_at = Some(self.offset);
        } else if name.len() == 4
            && name.eq_ignore_ascii_case(b"exec")
            && self.multi_at.take().is_none()
        {
            return Err(self.corrupt(0, "Unexpected EXEC".into()));
        }
        Ok(())
    }

    fn advance(&mut self, consumed: usize) {
        self.offset += consumed as u64;
        if self.multi_at.is_none() {
            self.valid = self.offset;
        }
    }

    fn corrupt(&self, at: usize, problem: String) -> Corrupt {
        Corrupt { offset: self.offset + at as u64, problem }
    }

    fn annotation(&mut self, input: &[u8]) -> Result<Item, Corrupt> {
        let window = &input[..input.len().min(LONGEST_LINE)];
        let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
            if input.len() >= LONGEST_LINE {
                return Err(self.corrupt(0, "Annotation without an end".into()));
            }
            return Ok(Item::Incomplete { missing: 1 });
        };
        let line = input[..end].trim_ascii_end();
        let consumed = end + 1;
        if let Some(end) = self.file
            && let Some(head) = BatchHead::parse(line)
        {
            let head = head.map_err(|problem| self.corrupt(0, problem.to_owned()))?;
            return self.batch(head, consumed, &input[consumed..], end);
        }
        self.advance(consumed);
        if line == NO_PLACE.trim_ascii_end() {
            return Ok(Item::Place { place: None, consumed });
        }
        if let Some(place) = StreamPlace::parse(line) {
            return Ok(Item::Place { place: Some(place), consumed });
        }
        Ok(match line.strip_prefix(b"#TS:").and_then(structs::numbers::parse_i64) {
            Some(seconds) => Item::Timestamp { seconds, consumed },
            None => Item::Comment { consumed },
        })
    }

    /// Reads preallocated space in front of data, or what is behind it. Returns `None` if there is
    /// none here, or if another server has gone on behind it.
    fn preallocated(&mut self, input: &[u8], end: FileEnd) -> Option<Result<Item, Corrupt>> {
        let line_len = preallocation::left_in_sector(self.offset);
        let line = &input[..input.len().min(line_len)];
        if preallocation::is_preallocated(self.offset, line) && line[0] == b'#' {
            if line.len() < line_len && input.len() < self.left(end) {
                return Some(Ok(Item::Incomplete { missing: line_len - line.len() }));
            }
            if let Some(item) = self.lost_filler(input, end) {
                return Some(Ok(item));
            }
            // The file makes sense up to where it begins, until it is known what is behind it.
            self.preallocated_at.get_or_insert(self.offset);
            self.offset += line.len() as u64;
            return Some(Ok(Item::Comment { consumed: line.len() }));
        }
        let preallocated_at = self.preallocated_at?;
        let left = self.left(end);
        if input.len() < left.min(OTHERS_BEGIN.len()) {
            return Some(Ok(Item::Incomplete {
                missing: left.min(OTHERS_BEGIN.len()) - input.len(),
            }));
        }
        // Appending to a file with preallocated space begins where its last block ends.
        let is_block = self.offset.is_multiple_of(BLOCK as u64);
        if is_block && !end.has_preallocated && begins_as_others_do(input) {
            self.preallocated_at = None;
            self.has_gap = true;
            return None;
        }
        // Otherwise preallocated space is only left where something was to be written and nothing
        // was forced to the disk after it: what is behind it belongs to a single batch whose head
        // is missing.
        let most = (preallocation::LARGEST_HEAD + preallocation::LARGEST_BATCH) as u64;
        let is_one_batch = end.at <= preallocated_at + most;
        Some(match input.get(..left) {
            None if is_one_batch => Ok(Item::Incomplete { missing: left - input.len() }),
            Some(rest) if is_one_batch && !preallocation::has_whole_batch(rest) => Ok(Item::Torn),
            _ => {
                let problem = "Unexpected room in front of data".into();
                Err(Corrupt { offset: preallocated_at, problem })
            }
        })
    }

    /// Returns the number of bytes of data that the file still has.
    fn left(&self, end: FileEnd) -> usize {
        usize::try_from(end.at.saturating_sub(self.offset)).unwrap_or(usize::MAX)
    }

    /// Reads preallocated space where the filler of a whole batch belongs: the filler's sector
    /// never came to the disk, and nothing is missing with it. Returns `None` if it is something
    /// else.
    fn lost_filler(&mut self, input: &[u8], end: FileEnd) -> Option<Item> {
        let left = self.left(end);
        let filler = preallocation::filler_at(self.offset).filter(|&filler| filler < left)?;
        let mut wanted = left.min(filler + preallocation::LARGEST_MARK);
        if input.len() >= wanted {
            wanted = left.min(filler + preallocation::batch_len(&input[filler..])?);
        }
        let Some(known) = input.get(filler..wanted) else {
            return Some(Item::Incomplete { missing: wanted - input.len() });
        };
        preallocation::begins_with_whole_batch(known).then(|| {
            self.advance(filler);
            Item::Comment { consumed: filler }
        })
    }

    /// Reads what is behind a head of so many bytes.
    fn batch(
        &mut self,
        head: BatchHead,
        consumed: usize,
        rest: &[u8],
        end: FileEnd,
    ) -> Result<Item, Corrupt> {
        let begin = self.offset + consumed as u64;
        let left = self.left(end) - consumed;
        let len = head.len.min(left);
        let Some(batch) = rest.get(..len) else {
            return Ok(Item::Incomplete { missing: len - rest.len() });
        };
        match head.look_at(begin, batch, left == len) {
            Found::Whole => {}
            Found::Torn => return Ok(Item::Torn),
            Found::Damaged => {
                let problem = "The checksum of the batch is not that of its bytes".into();
                return Err(self.corrupt(0, problem));
            }
        }
        self.batch = (self.offset, begin + len as u64);
        self.advance(consumed);
        Ok(Item::Comment { consumed })
    }

    /// Reads `*3` or `$3` and the end of the line.
    #[inline]
    fn header(&self, input: &[u8], at: usize, kind: u8, most: u64) -> Header {
        let Some(&found) = input.get(at) else { return Header::Incomplete };
        if found != kind {
            let (wanted, found) = (kind as char, found.escape_ascii());
            return Header::Corrupt(at, format!("Expected prefix '{wanted}', got: '{found}'"));
        }
        let (mut number, mut next) = (0u64, at + 1);
        loop {
            match input.get(next) {
                None => return Header::Incomplete,
                Some(byte @ b'0'..=b'9') => {
                    number = number * 10 + u64::from(byte - b'0');
                    if number > most {
                        return Header::Corrupt(at, "Number out of range".into());
                    }
                }
                Some(b'\r') if next > at + 1 => break,
                Some(byte) => {
                    let problem = format!("Expected a number, got: '{}'", byte.escape_ascii());
                    return Header::Corrupt(next, problem);
                }
            }
            next += 1;
        }
        match input.get(next + 1) {
            None => Header::Incomplete,
            Some(b'\n') => Header::Number(number, next + 2),
            Some(byte) => {
                Header::Corrupt(next, format!("Expected \\r\\n, got: {:02x}{byte:02x}", b'\r'))
            }
        }
    }
}

fn begins_as_others_do(input: &[u8]) -> bool {
    [OTHERS_BEGIN, b"*1\r\n$5\r\nMULTI\r\n", b"#TS:"].iter().any(|first| input.starts_with(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preallocation::SECTOR;
    use proptest::prelude::*;

    const STREAM: &[u8] =
        b"#TS:1700000000\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*1\r\n$5\r\nMULTI\r\n\
        *3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n$4\r\nexec\r\n*1\r\n$4\r\nPING\r\n";

    /// Reads to the end; what was found, and the reader.
    fn read(bytes: &[u8]) -> (Vec<String>, StreamReader, Result<(), Corrupt>) {
        read_with(StreamReader::new(0), bytes)
    }

    fn read_with(
        mut reader: StreamReader,
        bytes: &[u8],
    ) -> (Vec<String>, StreamReader, Result<(), Corrupt>) {
        let (mut words, mut found) = (Vec::new(), Vec::new());
        let mut at = 0;
        loop {
            let used = match reader.next(&bytes[at..], &mut words) {
                Ok(Item::Command { consumed }) => {
                    let word = |range: &Range<usize>| {
                        String::from_utf8_lossy(&bytes[at..][range.clone()]).into_owned()
                    };
                    found.push(words.iter().map(word).collect::<Vec<_>>().join(" "));
                    consumed
                }
                Ok(Item::Timestamp { seconds, consumed }) => {
                    found.push(format!("at {seconds}"));
                    consumed
                }
                Ok(Item::Place { place, consumed }) => {
                    let position = place.map(|place| place.position.0.to_string());
                    found.push(format!("place {}", position.unwrap_or_default()));
                    consumed
                }
                Ok(Item::Comment { consumed }) => consumed,
                Ok(Item::Torn) => {
                    found.push("torn".into());
                    return (found, reader, Ok(()));
                }
                Ok(Item::Incomplete { .. }) => return (found, reader, Ok(())),
                Err(corrupt) => return (found, reader, Err(corrupt)),
            };
            at += used;
            assert_eq!(reader.offset(), at as u64);
        }
    }

    #[test]
    fn a_stream_is_read() {
        let (found, reader, end) = read(STREAM);
        assert_eq!(found, ["at 1700000000", "SELECT 0", "MULTI", "SET k ", "exec", "PING"]);
        assert_eq!((reader.valid(), end), (STREAM.len() as u64, Ok(())));
    }

    #[test]
    fn places_in_the_replication_stream_are_read() {
        let place = StreamPlace { id: HistoryId::random(), position: JournalPos(77) };
        let bytes = [place.line().as_bytes(), b"*1\r\n$4\r\nPING\r\n"].concat();
        assert_eq!(read(&bytes).0, ["place 77", "PING"]);
        assert_eq!(StreamPlace::parse(place.line().trim_end().as_bytes()), Some(place));
        assert_eq!(place.behind(14).position, JournalPos(91));
        // What cannot be one is a comment.
        assert_eq!(read(&[NO_PLACE, b"*1\r\n$4\r\nPING\r\n"].concat()).0, ["place ", "PING"]);
        for line in ["#REPL:", "#REPL:x 7", "#REPL: 7", "#REPL:77"] {
            assert_eq!(StreamPlace::parse(line.as_bytes()), None, "{line}");
        }
        let id = place.id;
        assert_eq!(StreamPlace::parse(format!("#REPL:{id} -1").as_bytes()), None);
        assert_eq!(StreamPlace::parse(format!("#REPL:{id} 1 2").as_bytes()), None);
    }

    #[test]
    fn a_stream_that_is_cut_is_valid_up_to_its_last_whole_transaction() {
        let ends = [0, 16, 39, 94, 108];
        assert_eq!(ends[4], STREAM.len() as u64);
        for cut in 0..=STREAM.len() {
            let (_, reader, end) = read(&STREAM[..cut]);
            assert_eq!(end, Ok(()), "a prefix is not corrupt");
            let last = ends.iter().rev().find(|&&end| end <= cut as u64).unwrap();
            assert_eq!(reader.valid(), *last, "cut at {cut}");
        }
    }

    #[test]
    fn complaints_name_the_offset() {
        let complaint = |bytes: &[u8]| read(bytes).2.unwrap_err();
        let good = b"*1\r\n$4\r\nPING\r\n";
        let after = |bad: &[u8]| complaint(&[good, bad].concat());
        assert_eq!(after(b"x").to_string(), "Expected prefix '*', got: 'x' at offset 14");
        assert_eq!(after(b"*x").to_string(), "Expected a number, got: 'x' at offset 15");
        assert_eq!(after(b"*-1\r\n").offset, 15);
        assert_eq!(after(b"*0\r\n").offset, 14);
        assert_eq!(after(b"*1\r\n:3").offset, 18);
        assert_eq!(
            after(b"*1\r\n$1\r\nab\r\n").to_string(),
            "Expected \\r\\n, got: 620d at offset 23"
        );
        assert_eq!(after(b"*99999999999\r\n").problem, "Number out of range");
        assert_eq!(after(b"*1\r\n$4\r\nEXEC\r\n").problem, "Unexpected EXEC");
        let multi = b"*1\r\n$5\r\nMULTI\r\n";
        assert_eq!(complaint(&[multi, &multi[..]].concat()).offset, 15);
    }

    /// Returns a file whose batches, written in place, are the stream, a longer command and the
    /// stream again; and where the batches begin and end, heads included.
    fn file_of_batches() -> (Vec<u8>, Vec<Range<usize>>) {
        let long = format!("*2\r\n$4\r\nECHO\r\n$2000\r\n{}\r\n", "v".repeat(2000));
        let (mut file, mut places) = (Vec::new(), Vec::new());
        for batch in [STREAM, long.as_bytes(), STREAM] {
            places.push(append_batch(&mut file, batch));
        }
        append_preallocated(&mut file);
        (file, places)
    }

    fn append_batch(file: &mut Vec<u8>, batch: &[u8]) -> Range<usize> {
        let begin = file.len();
        let head = preallocation::head_len(begin as u64, batch.len());
        file.resize(begin + head, 0);
        preallocation::write_head(begin as u64, batch, &mut file[begin..]);
        file.extend_from_slice(batch);
        begin..file.len()
    }

    fn append_preallocated(file: &mut Vec<u8>) {
        let end = file.len();
        file.resize(end.next_multiple_of(SECTOR) + 2 * SECTOR, 0);
        preallocation::write_preallocation(end as u64, &mut file[end..]);
    }

    fn read_file(file: &[u8]) -> (Vec<String>, StreamReader, Result<(), Corrupt>) {
        let at = preallocation::data_before_preallocation(file);
        let end = FileEnd { at: at as u64, has_preallocated: at < file.len() };
        read_with(StreamReader::of_file(0, end), &file[..at])
    }

    #[test]
    fn batches_are_read_and_the_last_one_may_be_torn() {
        let (file, places) = file_of_batches();
        let (all, reader, end) = read_file(&file);
        assert_eq!((all.len(), reader.valid(), end), (13, places[2].end as u64, Ok(())));
        // Without the last batch, any of the sectors of the long one may be missing.
        let long = places[1].clone();
        let mut file = file[..long.end.next_multiple_of(SECTOR)].to_vec();
        preallocation::write_preallocation(long.end as u64, &mut file[long.end..]);
        let sectors = long.start / SECTOR..file.len() / SECTOR;
        for missing in 1..1u32 << sectors.len() {
            let mut torn = file.clone();
            for sector in sectors.clone().filter(|at| missing >> (at - sectors.start) & 1 == 1) {
                let from = (sector * SECTOR).max(long.start);
                let to = (sector + 1) * SECTOR;
                preallocation::write_preallocation(from as u64, &mut torn[from..to]);
            }
            let (found, reader, end) = read_file(&torn);
            assert_eq!(end, Ok(()), "{missing:b}");
            assert_eq!(reader.valid(), long.start as u64, "{missing:b}");
            assert!(
                found.iter().filter(|item| *item != "torn").eq(&all[..6]),
                "{missing:b}: {found:?}"
            );
        }
    }

    #[test]
    fn others_go_on_behind_room() {
        let (mut file, places) = file_of_batches();
        let end = file.len();
        file.resize(end.next_multiple_of(BLOCK), 0);
        preallocation::write_preallocation(end as u64, &mut file[end..]);
        let theirs = file.len();
        for first in [&b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"[..], &STREAM[39..], STREAM] {
            file.truncate(theirs);
            file.extend_from_slice(first);
            let (_, reader, end) = read_file(&file);
            assert_eq!((reader.valid(), end), (file.len() as u64, Ok(())));
            assert!(reader.has_gap());
            // Not at the end of a block, or with preallocated space behind: the rest of a batch.
            let mut torn = file.clone();
            torn.drain(theirs - SECTOR..theirs);
            let (found, reader, end) = read_file(&torn);
            assert_eq!((found.last().map(String::as_str), end), (Some("torn"), Ok(())));
            assert_eq!(reader.valid(), places[2].end as u64);
            append_preallocated(&mut file);
            let (found, reader, _) = read_file(&file);
            assert_eq!(found.last().map(String::as_str), Some("torn"));
            assert_eq!(reader.valid(), places[2].end as u64);
        }
    }

    #[test]
    fn a_filler_may_be_missing() {
        let echo = |len: usize| format!("*2\r\n$4\r\nECHO\r\n${len}\r\n{}\r\n", "v".repeat(len));
        let mut seen = 0;
        for len in 380..460 {
            let mut file = Vec::new();
            let first = append_batch(&mut file, echo(len).as_bytes());
            let Some(filler) = preallocation::filler_at(first.end as u64) else { continue };
            seen += 1;
            for more in 0..2 {
                append_batch(&mut file, echo(3).as_bytes());
                let mut lost = file.clone();
                append_preallocated(&mut lost);
                let filler = first.end..first.end + filler;
                preallocation::write_preallocation(first.end as u64, &mut lost[filler]);
                let (found, reader, end) = read_file(&lost);
                assert_eq!((found.len(), end), (2 + more, Ok(())), "{len}");
                assert_eq!(reader.valid(), file.len() as u64);
                // Data that ends in such space has nothing behind it, even if a reader takes the
                // space for data.
                let cut = &lost[..first.end + 1];
                let end = FileEnd { at: cut.len() as u64, has_preallocated: false };
                let (_, reader, result) = read_with(StreamReader::of_file(0, end), cut);
                assert_eq!((reader.valid(), result), (first.end as u64, Ok(())));
            }
        }
        assert!(seen > 30, "{seen}");
    }

    #[test]
    fn a_batch_that_was_followed_by_another_is_damaged() {
        let (file, places) = file_of_batches();
        let mut damaged = file.clone();
        damaged[places[1].end - 100] ^= 1;
        let (_, reader, end) = read_file(&damaged);
        let end = end.expect_err("a checksum is wrong");
        let begin = places[1].start as u64;
        assert_eq!((end.offset, reader.valid()), (begin, begin), "{end}");
        let mut gap = vec![b'x'; 2 << 20];
        gap[..file.len()].copy_from_slice(&file);
        assert_eq!(read_file(&gap).2.map_err(|end| end.offset), Err(places[2].end as u64));
        // A sector that a disk has forgotten, with the head of the long batch in it.
        let mut forgotten = file.clone();
        let sector = places[1].start..(places[1].start / SECTOR + 1) * SECTOR;
        preallocation::write_preallocation(sector.start as u64, &mut forgotten[sector]);
        let end = read_file(&forgotten).2.expect_err("the last batch is whole");
        assert_eq!(end.offset, places[1].start as u64);
        // A length that is too long must not take the next batch along.
        let mut long = file.clone();
        long[places[0].start + b"#BATCH:000".len()] = b'2';
        let end = read_file(&long).2.expect_err("there are whole batches");
        assert_eq!(end.offset, 0);
        // The file was extended, or cut by hand.
        let cut = read_file(&file[..places[2].end - 5]);
        assert_eq!((cut.0.len(), cut.1.valid(), cut.2), (8, places[2].start as u64, Ok(())));
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_waited_for(bytes: Vec<u8>, at in 0..108usize, with: u8) {
            let _ = read(&bytes);
            let mut flipped = STREAM.to_vec();
            flipped[at] = with;
            let (_, reader, _) = read(&flipped);
            prop_assert!(reader.valid() <= STREAM.len() as u64);
        }
    }
}
