//! IDs as clients write them, and in replies.

use engine::Error;
use resp::Reply;
use structs::stream::StreamId;

/// An ID that is none.
const INVALID: Error = Error::text("ERR Invalid stream ID specified as stream command argument");

/// Reads `ms-seq` or `ms`.
pub(super) fn strict(word: &[u8], missing_seq: u64) -> Result<StreamId, Error> {
    StreamId::parse(word, missing_seq).ok_or(INVALID)
}

/// The same, or `-` and `+` for the lowest and the highest there can be.
pub(super) fn any(word: &[u8], missing_seq: u64) -> Result<StreamId, Error> {
    match word {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => strict(word, missing_seq),
    }
}

/// Reads the start of an interval; `(` excludes the ID behind it.
pub(super) fn start(word: &[u8]) -> Result<StreamId, Error> {
    match word {
        [b'(', rest @ ..] if !rest.is_empty() => {
            strict(rest, 0)?.next().ok_or(Error::text("ERR invalid start ID for the interval"))
        }
        _ => any(word, 0),
    }
}

/// Reads the end of an interval.
pub(super) fn end(word: &[u8]) -> Result<StreamId, Error> {
    match word {
        [b'(', rest @ ..] if !rest.is_empty() => strict(rest, u64::MAX)?
            .previous()
            .ok_or(Error::text("ERR invalid end ID for the interval")),
        _ => any(word, u64::MAX),
    }
}

/// Reads the IDs that are all that is left of a request.
pub(super) fn all(words: &[&[u8]]) -> Result<Vec<StreamId>, Error> {
    words.iter().map(|word| strict(word, 0)).collect()
}

/// Writes an ID.
pub(super) fn write(reply: &mut Reply<'_>, id: StreamId) {
    id.with_text(|text| reply.bulk(text));
}
