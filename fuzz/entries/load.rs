//! RDB files: no panic, no memory far beyond the input, and the same items however the file
//! arrives.

#[path = "memory.rs"]
mod memory;

use rdb::file::{Item, ScanStep, Scanner};
use rdb::{Builder, Decoder, Error, Kind, Limits};

/// What reading a file comes to: a line for each item, and how it ended.
#[derive(Debug, PartialEq)]
struct Reading {
    items: Vec<String>,
    end: Result<bool, Error>,
}

/// Reads a file that arrives in steps of so many bytes, and decodes its values.
fn read(file: &[u8], step: usize, piece_bytes: usize) -> Reading {
    let mut items = Vec::new();
    let end = read_into(file, step, piece_bytes, &mut items);
    Reading { items, end }
}

fn read_into(
    file: &[u8],
    step: usize,
    piece_bytes: usize,
    items: &mut Vec<String>,
) -> Result<bool, Error> {
    let mut scanner = Scanner::new(0, file.len() as u64, piece_bytes);
    let (mut start, mut arrived) = (0, 0);
    let mut large: Option<Builder> = None;
    while !scanner.is_done() {
        let (item, bytes) = match scanner.next(&file[start..arrived])? {
            ScanStep::Item(item, bytes) => (item, &file[start..start + bytes]),
            ScanStep::More if arrived == file.len() => return Ok(false),
            ScanStep::More => {
                arrived = (arrived + step).min(file.len());
                continue;
            }
        };
        start += bytes.len();
        assert!(scanner.position() >= start as u64, "it reads ahead, and never back");
        match item {
            Item::Record(record) => {
                let Some(kind) = Kind::from_byte(record.kind) else { panic!("{record:?}") };
                let _ = Decoder::new(&bytes[record.key_at..record.value_at]).string();
                let mut value = Decoder::new(&bytes[record.value_at..]);
                if value.value(kind, &Limits::default()).is_ok() {
                    assert!(value.remaining().is_empty(), "a record was cut wrong");
                }
                items.push(format!("{record:?} {}", bytes.len()));
            }
            Item::Begin(record, count) => {
                let Some(kind) = Kind::from_byte(record.kind) else { panic!("{record:?}") };
                large = Builder::new(kind, count as usize, &Limits::default());
                assert!(large.is_some(), "only collections come in pieces");
            }
            Item::Elements(count) => {
                let mut input = Decoder::new(bytes);
                // After an error nothing more is added, as in a server.
                if let Some(mut builder) = large.take()
                    && builder.add(&mut input, count as usize).is_ok()
                {
                    assert!(input.remaining().is_empty(), "a piece was cut wrong");
                    large = Some(builder);
                }
            }
            Item::End => drop(large.take().map(Builder::finish)),
            Item::Passed => {}
            other => items.push(format!("{other:?}")),
        }
    }
    Ok(true)
}

/// Anything that might be a file.
pub fn check(file: &[u8]) {
    let whole = memory::bounded(file.len(), || read(file, usize::MAX / 2, usize::MAX));
    let bytewise = memory::bounded(file.len(), || read(file, 7, usize::MAX));
    assert_eq!(whole, bytewise);
    memory::bounded(file.len(), || read(file, 7, 16));
}
