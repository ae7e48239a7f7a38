//! A long word on its way into a block of its own.
//!
//! The block grows with what has arrived, to eight times that, so that a peer that announces much
//! and sends little costs little: pages that nothing was written to are not there, but the system
//! may give whole huge pages to blocks that lie side by side. Once a megabyte has come the block is
//! made as long as was announced, so that no more than that is ever copied. What was not written to
//! does not count as memory in use.

use super::sys;
use std::io;
use std::os::fd::RawFd;
use structs::heap_string::{self, HeapString};
use structs::memory;

/// The room of a block of which next to nothing has arrived.
const MIN_ROOM: usize = 4 << 10;
/// From here on the block is as long as the word.
const MAX_COPIED: usize = 1 << 20;
/// Room for each byte that has arrived.
const GROWTH: usize = 8;

/// The room to have for a word of `len` bytes of which so many have arrived.
fn room_for(arrived: usize, len: usize) -> usize {
    let room = (arrived.saturating_mul(GROWTH)).max(MIN_ROOM);
    // A string that grows takes a quarter of its block more at least, which must not be more than
    // the word. A block may be larger than what it was asked for.
    let block = heap_string::block_for(room);
    if arrived >= MAX_COPIED || block + block / 4 >= len { len } else { room }
}

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
    /// A word of `len` bytes of which these have arrived; `None` if there is no memory for it. The
    /// block has room for all of it at once if it is no longer than `proven`.
    pub fn begin(arrived: &[u8], len: usize, proven: usize) -> Option<Box<Filling>> {
        let room = if len <= proven { len } else { room_for(arrived.len(), len) };
        // Before the block is there: no thread that looks meanwhile may take it for used, and evict
        // for it.
        let unused = heap_string::block_for(room);
        memory::discount(unused);
        let Some(block) = HeapString::try_with_capacity(room) else {
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
        let arrived = self.arrived();
        let (own, beyond) = bytes.split_at(bytes.len().min(self.len - arrived));
        self.make_room(arrived + own.len());
        if let Some(block) = &mut self.block {
            block.extend(own);
        }
        self.use_up(own.len());
        beyond
    }

    /// Sees to room for so many bytes of the word.
    fn make_room(&mut self, needed: usize) {
        if let Some(block) = &mut self.block
            && heap_string::block_for(needed) > block.allocated_bytes()
        {
            let room = room_for(needed, self.len);
            let grown = heap_string::block_for(room) - block.allocated_bytes();
            memory::discount(grown);
            self.unused += grown;
            block.reserve(room);
            debug_assert_eq!(block.allocated_bytes(), heap_string::block_for(room));
        }
    }

    /// Receives at most `most` bytes of the word from a socket into its block, and what comes
    /// behind the word into `behind`.
    pub fn receive(
        &mut self,
        fd: RawFd,
        most: usize,
        behind: &mut [u8],
    ) -> io::Result<sys::Received> {
        let missing = self.len - self.arrived();
        let most = most.min(missing);
        self.make_room(self.arrived() + most.min(1));
        let Some(block) = &mut self.block else { return Err(io::ErrorKind::InvalidInput.into()) };
        let behind = if most == missing { behind } else { &mut [] };
        let received = sys::recv_into(fd, block, most, behind)?;
        self.use_up(received.own);
        Ok(received)
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
        // Freeing the block takes all of it out of the count, so that the rest comes back
        // afterwards.
        drop(self.block.take());
        self.use_up(self.unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_grows_with_what_arrives() {
        for len in [65_536, 100_000, 1 << 20, 5_000_000, 50_000_000] {
            let mut filling = Filling::begin(b"abc", len, 0).expect("memory");
            let mut arrived = 3;
            while !filling.is_complete() {
                let piece = vec![b'x'; (len - arrived).min(16 << 10)];
                assert!(filling.take_in(&piece).is_empty());
                arrived += piece.len();
                let block = filling.block.as_ref().expect("it is not finished").allocated_bytes();
                // Blocks come in sizes.
                let most = (arrived * GROWTH * 2).min(heap_string::block_for(len));
                assert!(
                    arrived >= MAX_COPIED || block <= most + 2 * MIN_ROOM,
                    "{block} bytes for {arrived} of {len}"
                );
            }
            let word = filling.finish().expect("it is complete");
            assert_eq!(word.allocated_bytes(), heap_string::block_for(len));
            assert_eq!(
                (word.len(), word.as_slice()[3], word.as_slice()[len - 1]),
                (len, b'x', b'x')
            );
        }
    }

    #[test]
    fn the_block_is_never_longer_than_the_word_needs() {
        // As much in the first piece as makes the first block of every size.
        for len in (65_536..140_000).step_by(509) {
            for first in (512..len / 8).step_by(211) {
                let first = vec![b'x'; first];
                let mut filling = Filling::begin(&first, len, 0).expect("memory");
                filling.take_in(&vec![b'x'; len - first.len()]);
                let word = filling.finish().expect("it is complete");
                assert_eq!(word.allocated_bytes(), heap_string::block_for(len), "{len}");
            }
        }
    }

    #[test]
    fn a_word_takes_what_is_its_own() {
        let mut filling = Filling::begin(b"ab", 100_000, 0).expect("memory");
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
