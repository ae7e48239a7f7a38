//! Memory for direct I/O, which goes past the page cache and asks for whole blocks.

use std::ops::{Deref, DerefMut};

/// Direct I/O begins and ends at multiples of it, in memory and in files, in bytes. The sectors of
/// all disks divide it.
pub const ALIGNMENT: usize = 4096;

/// Memory that begins at a multiple of [`ALIGNMENT`].
pub struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// So many zeros.
    pub fn new(len: usize) -> AlignedBytes {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "a vector of bytes can be aligned");
        AlignedBytes { bytes, start, len }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
