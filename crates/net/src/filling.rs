//! A long word on its way into a block of its own.
//!
//! The block is as long as was announced, so nothing of the word is copied again; but a peer that
//! announces 512 MB has not made us take them: pages of it that nothing was written to are not there,
//! and do not count as memory in use.

use structs::heap_string::{self, HeapString};
use structs::memory;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Filling {
    /// None once it is finished.
    block: Option<HeapString>,
    len: usize,
    /// Bytes of the block that are not counted as used.
    unused: usize,
}

impl Filling {
    /// A word of `len` bytes of which these have arrived; `None` if there is no memory for it.
    pub fn begin(arrived: &[u8], len: usize) -> Option<Box<Filling>> {
        // Before the block is there: no thread that looks meanwhile may take it for used, and evict for it.
        let unused = heap_string::block_for(len);
        memory::discount(unused);
        let Some(block) = HeapString::try_with_capacity(len) else {
            memory::count(unused);
            return None;
        };
        debug_assert_eq!(block.allocated_bytes(), unused, "the block is another one");
        let mut filling = Box::new(Filling { block: Some(block), len, unused });
        let beyond = filling.take_in(arrived);
        debug_assert!(beyond.is_empty(), "more of a word has arrived than it has");
        Some(filling)
    }

    /// Bytes that have arrived.
    pub fn arrived(&self) -> usize {
        self.block.as_ref().map_or(0, HeapString::len)
    }

    /// Bytes of the word.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_complete(&self) -> bool {
        self.arrived() == self.len
    }

    /// Adds what belongs to the word, and returns what does not.
    pub fn take_in<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (own, beyond) = bytes.split_at(bytes.len().min(self.len - self.arrived()));
        if let Some(block) = &mut self.block {
            block.extend(own);
        }
        self.use_up(own.len());
        beyond
    }

    fn use_up(&mut self, bytes: usize) {
        let used = bytes.min(self.unused);
        self.unused -= used;
        memory::count(used);
    }

    /// The complete word.
    pub fn finish(mut self) -> Option<HeapString> {
        self.block.take()
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        // Freeing the block takes all of it out of the count, so that the rest comes back afterwards.
        drop(self.block.take());
        self.use_up(self.unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_takes_what_is_its_own() {
        let mut filling = Filling::begin(b"ab", 100_000).expect("memory");
        assert!(!filling.is_complete());
        assert_eq!(filling.take_in(&[b'x'; 99_997]), b"");
        assert_eq!((filling.arrived(), filling.len()), (99_999, 100_000));
        assert_eq!(filling.take_in(b"y\r\n"), b"\r\n");
        assert!(filling.is_complete());
        assert_eq!(filling.take_in(b"*1"), b"*1");
        let word = filling.finish().expect("it is complete");
        assert_eq!((word.len(), word.as_slice()[99_999]), (100_000, b'y'));
    }
}
