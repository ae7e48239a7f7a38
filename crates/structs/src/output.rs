//! What is on its way to a client: bytes, and between them parts of long strings, which are
//! referred to instead of copied.
//!
//! ```text
//!  bytes   $5\r\nhello\r\n$40000\r\n|\r\n:1\r\n
//!  parts                           └ at 20: a string of 40000 bytes
//! ```
//!
//! Places are counted in plain bytes. A part stands between the header and the line end of a bulk
//! string, so no place where a reply begins or ends is that of a part.

use crate::heap_string::{COUNTED, HeapString};
use crate::size_class::block_size;
use std::ops::Range;

/// A part of a string.
#[derive(Clone, Debug)]
pub struct Part {
    string: HeapString,
    range: Range<usize>,
}

impl Part {
    /// The bytes of `string` in `range`, if it is long enough to be referred to.
    pub fn of(string: &HeapString, range: Range<usize>) -> Option<Part> {
        let is_long = string.is_counted() && range.len() >= COUNTED;
        debug_assert!(range.end <= string.len());
        is_long.then(|| Part { string: string.clone(), range })
    }

    /// Bytes of the part; never none.
    #[allow(clippy::len_without_is_empty)] // It is long.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.string.as_slice()[self.range.clone()]
    }
}

/// Parts and the places where they stand, in order.
#[derive(Debug, Default)]
struct Parts {
    placed: Vec<(usize, Part)>,
    /// Bytes of all of them.
    bytes: usize,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Output {
    /// The bytes that are no part of a long string.
    plain: Vec<u8>,
    /// None for nearly all.
    parts: Option<Box<Parts>>,
}

impl Output {
    /// Bytes of nothing else.
    pub fn with_capacity(bytes: usize) -> Output {
        Output::from(Vec::with_capacity(bytes))
    }

    /// The plain bytes.
    #[inline]
    pub fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// The plain bytes, to append to.
    #[inline]
    pub fn plain_mut(&mut self) -> &mut Vec<u8> {
        &mut self.plain
    }

    /// Bytes in all, as they are sent.
    #[inline]
    pub fn len(&self) -> usize {
        self.plain.len() + self.parts.as_ref().map_or(0, |parts| parts.bytes)
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty()
    }

    /// Whether it refers to no string.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.parts.is_none()
    }

    /// Bytes that the plain part has taken from the allocator.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.plain.capacity()
    }

    /// Drops everything but the plain part's memory.
    pub fn clear(&mut self) {
        self.plain.clear();
        self.parts = None;
    }

    /// Appends plain bytes.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.plain.extend_from_slice(bytes);
    }

    fn placed(&self) -> &[(usize, Part)] {
        self.parts.as_ref().map_or(&[], |parts| &parts.placed)
    }

    /// Appends a part of a string.
    pub fn push_part(&mut self, part: Part) {
        let parts = self.parts.get_or_insert_default();
        parts.bytes += part.range.len();
        parts.placed.push((self.plain.len(), part));
    }

    /// Bytes for which its client answers: the plain ones, and each string that it refers to; one
    /// that it refers to several times in a row counts once, as in Valkey.
    pub fn charge(&self) -> usize {
        self.plain.len() + self.string_bytes()
    }

    /// The memory that it takes, counted like [`Output::charge`].
    pub fn memory(&self) -> usize {
        block_size(self.plain.capacity()) + self.string_bytes()
    }

    fn string_bytes(&self) -> usize {
        let placed = self.placed();
        let strings = placed.iter().map(|(_, part)| &part.string);
        let before = std::iter::once(None).chain(strings.clone().map(Some));
        let is_new = |(string, before): &(&HeapString, Option<&HeapString>)| {
            before.is_none_or(|before| !before.is_same_block(string))
        };
        strings.zip(before).filter(is_new).map(|(string, _)| string.len()).sum()
    }

    /// The bytes of the string that both end and begin with, which is charged twice if they are
    /// taken singly.
    pub fn joint_bytes(&self, next: &Output) -> usize {
        match (self.placed().last(), next.placed().first()) {
            (Some((_, last)), Some((_, first))) if last.string.is_same_block(&first.string) => {
                first.string.len()
            }
            _ => 0,
        }
    }

    /// Bytes that were written since there were `place` plain ones.
    #[inline]
    pub fn len_since(&self, place: usize) -> usize {
        let plain = self.plain.len() - place;
        if self.is_plain() { plain } else { plain + self.parts_len_since(place) }
    }

    #[cold]
    fn parts_len_since(&self, place: usize) -> usize {
        let parts = self.placed().iter().rev().take_while(|(at, _)| *at >= place);
        parts.map(|(_, part)| part.range.len()).sum()
    }

    /// Drops what was written since there were `place` plain bytes.
    pub fn truncate(&mut self, place: usize) {
        if !self.is_plain() {
            drop(self.split_parts(place));
        }
        self.plain.truncate(place);
    }

    /// Takes the parts from a place on.
    fn split_parts(&mut self, place: usize) -> Option<Box<Parts>> {
        let parts = self.parts.as_mut()?;
        let from = parts.placed.partition_point(|(at, _)| *at < place);
        let placed = parts.placed.split_off(from);
        let bytes = placed.iter().map(|(_, part)| part.range.len()).sum();
        parts.bytes -= bytes;
        if parts.placed.is_empty() {
            self.parts = None;
        }
        (!placed.is_empty()).then(|| Box::new(Parts { placed, bytes }))
    }

    /// Takes what was written since there were `place` plain bytes.
    pub fn split_off(&mut self, place: usize) -> Output {
        let mut parts = self.split_parts(place);
        parts.iter_mut().flat_map(|parts| &mut parts.placed).for_each(|(at, _)| *at -= place);
        Output { plain: self.plain.split_off(place), parts }
    }

    /// Appends all of another.
    pub fn append(&mut self, other: &mut Output) {
        let start = self.plain.len();
        self.plain.append(&mut other.plain);
        if let Some(mut more) = other.parts.take() {
            more.placed.iter_mut().for_each(|(at, _)| *at += start);
            let parts = self.parts.get_or_insert_default();
            parts.bytes += more.bytes;
            parts.placed.append(&mut more.placed);
        }
    }

    /// Moves the last `len` plain bytes to a place in front of what was written since then.
    pub fn move_to(&mut self, place: usize, len: usize) {
        self.plain[place..].rotate_right(len);
        let placed = self.parts.iter_mut().flat_map(|parts| &mut parts.placed);
        placed.filter(|(at, _)| *at >= place).for_each(|(at, _)| *at += len);
    }

    /// Everything in order, without the first `skip` bytes.
    pub fn slices(&self, mut skip: usize) -> impl Iterator<Item = &[u8]> {
        let placed = self.placed();
        let between = (0..=placed.len()).map(move |index| {
            let from = if index == 0 { 0 } else { placed[index - 1].0 };
            let to = placed.get(index).map_or(self.plain.len(), |(at, _)| *at);
            &self.plain[from..to]
        });
        let parts = placed.iter().map(|(_, part)| part.bytes()).chain(std::iter::once(&[][..]));
        let all = between.zip(parts).flat_map(|(plain, part)| [plain, part]);
        all.filter_map(move |slice| {
            let skipped = skip.min(slice.len());
            skip -= skipped;
            (skipped < slice.len()).then(|| &slice[skipped..])
        })
    }

    /// All bytes in one piece, copied if it refers to strings.
    pub fn into_bytes(self) -> Vec<u8> {
        if self.is_plain() {
            return self.plain;
        }
        let mut bytes = Vec::with_capacity(self.len());
        self.slices(0).for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }
}

impl From<Vec<u8>> for Output {
    fn from(plain: Vec<u8>) -> Output {
        Output { plain, parts: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes pieces, those of an even length as parts of strings, as replies have them.
    fn written(pieces: &[usize]) -> (Output, Vec<u8>) {
        let (mut output, mut model) = (Output::default(), Vec::new());
        for (number, &len) in pieces.iter().enumerate() {
            let bytes = vec![number as u8; len];
            let string = HeapString::from_bytes(&bytes);
            output.extend_from_slice(b"<");
            match Part::of(&string, 0..len) {
                Some(part) => output.push_part(part),
                None => output.extend_from_slice(&bytes),
            }
            output.extend_from_slice(b">");
            model.push(b'<');
            model.extend(bytes);
            model.push(b'>');
        }
        (output, model)
    }

    fn pieces() -> impl Strategy<Value = Vec<usize>> {
        let len = prop_oneof![0..100usize, COUNTED - 10..COUNTED + 10];
        proptest::collection::vec(len, 0..6)
    }

    proptest! {
        #[test]
        fn is_the_bytes_that_were_written(first in pieces(), second in pieces(), skip in 0..40_000usize) {
            let (mut output, mut model) = written(&first);
            let place = output.plain().len();
            let (mut more, more_model) = written(&second);
            output.append(&mut more);
            prop_assert!(more.is_empty() && more.is_plain());
            model.extend(&more_model);
            prop_assert_eq!(output.len(), model.len());
            prop_assert_eq!(output.len_since(place), more_model.len());
            let skip = skip.min(model.len());
            prop_assert_eq!(output.slices(skip).collect::<Vec<_>>().concat(), &model[skip..]);
            let tail = output.split_off(place);
            prop_assert_eq!(tail.len(), more_model.len());
            prop_assert_eq!(tail.into_bytes(), more_model.clone());
            model.truncate(model.len() - more_model.len());
            prop_assert_eq!(output.into_bytes(), model);
        }

        #[test]
        fn what_is_truncated_is_gone(first in pieces(), second in pieces()) {
            let (mut output, model) = written(&first);
            let place = output.plain().len();
            output.append(&mut written(&second).0);
            output.truncate(place);
            prop_assert_eq!(output.len(), model.len());
            prop_assert_eq!(output.into_bytes(), model);
        }
    }

    #[test]
    fn a_string_is_charged_once_in_a_row() {
        let string = HeapString::from_bytes(&[1; COUNTED]);
        let mut output = Output::default();
        for _ in 0..3 {
            output.extend_from_slice(b"<");
            output.push_part(Part::of(&string, 0..COUNTED).unwrap());
            output.extend_from_slice(b">");
        }
        assert_eq!(output.charge(), 6 + COUNTED);
        let mut other = Output::default();
        assert_eq!(output.joint_bytes(&other), 0);
        other.push_part(Part::of(&string, 0..COUNTED).unwrap());
        assert_eq!(output.joint_bytes(&other), COUNTED);
        assert!(Part::of(&string, 0..COUNTED - 1).is_none(), "a short part is copied");
    }
}
