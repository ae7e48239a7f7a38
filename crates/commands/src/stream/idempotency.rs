//! Messages that are added once: `IDMP producer id` and `IDMPAUTO producer` of XADD.

use engine::{Args, Error};
use std::borrow::Cow;
use twox_hash::XxHash3_128;

/// The producer of a message, and its ID.
#[derive(Clone, Debug)]
pub(super) struct Message<'a> {
    pub producer: &'a [u8],
    pub id: Cow<'a, [u8]>,
    /// The word IDMP or IDMPAUTO.
    at: usize,
}

/// A producer and an ID of a message have at least one byte.
pub(super) const EMPTY: Error =
    Error::text("ERR the producer and the ID of a message must not be empty");

impl<'a> Message<'a> {
    /// What the words from `at` on say, if they are one of the options; without the ID that
    /// IDMPAUTO makes.
    pub fn parse(args: Args<'a>, at: usize) -> Result<Option<Message<'a>>, Error> {
        let is_auto = args.is(at, "idmpauto");
        if !is_auto && !args.is(at, "idmp") {
            return Ok(None);
        }
        if at + if is_auto { 1 } else { 2 } >= args.len() {
            return Err(Error::Syntax);
        }
        let id: &[u8] = if is_auto { b"" } else { args[at + 2] };
        let message = Message { producer: args[at + 1], id: Cow::Borrowed(id), at };
        if message.producer.is_empty() || (!is_auto && id.is_empty()) {
            return Err(EMPTY);
        }
        Ok(Some(message))
    }

    /// Whether the ID is made of what is added.
    pub fn is_auto(&self) -> bool {
        self.id.is_empty() || matches!(self.id, Cow::Owned(_))
    }

    /// Words behind the option's first.
    pub fn len(&self) -> usize {
        if self.is_auto() { 1 } else { 2 }
    }

    /// Makes the ID that IDMPAUTO stands for: equal names and values in an equal order have an
    /// equal one.
    pub fn make_id(&mut self, words: &[&[u8]]) {
        if self.is_auto() {
            let mut all = Vec::new();
            for word in words {
                all.extend_from_slice(&(word.len() as u64).to_le_bytes());
                all.extend_from_slice(word);
            }
            self.id = Cow::Owned(XxHash3_128::oneshot(&all).to_be_bytes().to_vec());
        }
    }

    /// What the journal has for a word of the request in place of it: IDMP with the ID that was
    /// made.
    pub fn in_journal(&self, at: usize) -> Option<Vec<&[u8]>> {
        match at.checked_sub(self.at) {
            Some(0) if self.is_auto() => Some(vec![b"IDMP"]),
            Some(1) if self.is_auto() => Some(vec![self.producer, &self.id]),
            _ => None,
        }
    }
}
