//! The append-only file's reader and its manifest: no panic, no memory far beyond the input, the
//! same commands however the file arrives, and a manifest that is read says the same when it is
//! written.

#[path = "memory.rs"]
mod memory;

use replication::{FileEnd, Item, Manifest, StreamPlace, StreamReader};

/// Lines of a manifest are not longer; what is read may have to be written with more quotes.
const LONGEST_LINE: usize = 1024;

#[derive(Debug, PartialEq)]
enum Seen {
    Command(Vec<Vec<u8>>),
    Time(i64),
    Place(Option<StreamPlace>),
    Comment,
    /// Where the remains of a batch begin.
    Torn(u64),
    /// Offset and words of the complaint.
    Corrupt(u64, String),
}

/// Reads a stream that arrives in steps of so many bytes; what was seen, and up to where it is
/// valid.
fn read(mut reader: StreamReader, stream: &[u8], step: usize) -> (Vec<Seen>, u64) {
    let (mut words, mut seen) = (Vec::new(), Vec::new());
    let (mut start, mut arrived) = (0, 0);
    loop {
        let input = &stream[start..arrived];
        let consumed = match reader.next(input, &mut words) {
            Ok(Item::Command { consumed }) => {
                assert!(!words.is_empty(), "a command without a name");
                let words = words.iter().map(|word| input[word.clone()].to_vec());
                seen.push(Seen::Command(words.collect()));
                consumed
            }
            Ok(Item::Timestamp { seconds, consumed }) => {
                seen.push(Seen::Time(seconds));
                consumed
            }
            Ok(Item::Place { place, consumed }) => {
                seen.push(Seen::Place(place));
                consumed
            }
            Ok(Item::Comment { consumed }) => {
                seen.push(Seen::Comment);
                consumed
            }
            Ok(Item::Incomplete { missing }) => {
                assert!(missing > 0 || input.is_empty(), "something is missing, but nothing");
                if arrived == stream.len() {
                    break;
                }
                arrived = arrived.saturating_add(missing.max(step)).min(stream.len());
                continue;
            }
            Ok(Item::Torn) => {
                seen.push(Seen::Torn(reader.offset()));
                break;
            }
            Err(corrupt) => {
                assert!(corrupt.offset >= reader.valid(), "the complaint is about what was valid");
                assert!(corrupt.offset <= stream.len() as u64, "or about none");
                seen.push(Seen::Corrupt(corrupt.offset, corrupt.problem));
                break;
            }
        };
        assert!((1..=input.len()).contains(&consumed), "{consumed} bytes consumed");
        start += consumed;
        assert_eq!(reader.offset(), start as u64);
        assert!(reader.valid() <= reader.offset());
    }
    (seen, reader.valid())
}

/// Anything that might be an increment or a manifest.
pub fn check(input: &[u8]) {
    for has_preallocated in [false, true] {
        let at = input.len() as u64;
        let reader = || StreamReader::of_file(0, FileEnd { at, has_preallocated });
        let whole = memory::bounded(input.len(), || read(reader(), input, usize::MAX));
        assert_eq!(memory::bounded(input.len(), || read(reader(), input, 1)), whole);
        assert_eq!(memory::bounded(input.len(), || read(reader(), input, 61)), whole);
        // Up to there it is whole: nothing is missing, and nothing is left.
        let (seen, valid) = &whole;
        let (again, all) = read(StreamReader::new(0), &input[..*valid as usize], usize::MAX);
        assert_eq!(all, *valid);
        assert!(again.len() <= seen.len() && again[..] == seen[..again.len()]);
    }
    let Ok(manifest) = memory::bounded(input.len(), || Manifest::parse(input)) else { return };
    let text = manifest.format();
    if text.split(|&byte| byte == b'\n').all(|line| line.len() < LONGEST_LINE) && !text.is_empty() {
        assert_eq!(Manifest::parse(&text).as_ref(), Ok(&manifest), "{}", text.escape_ascii());
    }
}
