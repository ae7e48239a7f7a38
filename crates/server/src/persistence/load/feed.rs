//! The bytes of a file on their way to the scanner, and from there to the workers.

use std::io::{self, Read};
use structs::crc64::crc64;

/// Bytes that are read at a time and passed to a worker together. Small enough for a core's cache.
pub const BATCH_BYTES: usize = 256 << 10;

/// A buffer between the file and the scanner.
pub struct Feed<'r> {
    input: &'r mut dyn Read,
    buf: Vec<u8>,
    /// Number of bytes in the buffer.
    filled: usize,
    /// Number of these that the scanner has taken.
    taken: usize,
    /// Number of taken bytes that are part of the checksum.
    summed: usize,
    checksum: Option<u64>,
    /// Offset in the container at which the buffer begins.
    offset: u64,
}

impl<'r> Feed<'r> {
    /// Creates a feed. `input` begins at byte `offset` of its container. `sums`: the checksum is
    /// wanted.
    pub fn new(input: &'r mut dyn Read, offset: u64, sums: bool) -> Self {
        let checksum = sums.then_some(0);
        let buf = vec![0; BATCH_BYTES];
        Self { input, buf, filled: 0, taken: 0, summed: 0, checksum, offset }
    }

    /// Returns the offset in the container at which the buffer begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of bytes of the buffer that have been taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Returns the bytes that have been read and not yet taken.
    pub fn rest(&self) -> &[u8] {
        &self.buf[self.taken..self.filled]
    }

    /// Returns the bytes between two places in the buffer.
    pub fn bytes(&self, from: usize, to: usize) -> &[u8] {
        &self.buf[from..to]
    }

    /// Takes `bytes` bytes.
    pub fn take(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// Reads more, into a larger buffer if this one is full. Returns the number of bytes, 0 at the
    /// end of the input.
    pub fn read(&mut self) -> io::Result<usize> {
        if self.filled == self.buf.len() {
            self.buf.resize(self.buf.len() * 2, 0);
        }
        let start = self.filled;
        while self.filled < self.buf.len() {
            match self.input.read(&mut self.buf[self.filled..]) {
                Ok(0) => break,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.filled - start)
    }

    /// Returns the checksum of all taken bytes, or `None` if it is not wanted.
    pub fn checksum(&mut self) -> Option<u64> {
        let checksum = self.checksum.as_mut()?;
        *checksum = crc64(*checksum, &self.buf[self.summed..self.taken]);
        self.summed = self.taken;
        Some(*checksum)
    }

    /// Drops the taken bytes and continues in the same buffer.
    pub fn forget_taken(&mut self) {
        self.checksum();
        self.buf.copy_within(self.taken..self.filled, 0);
        self.moved();
    }

    /// Returns the buffer with the taken bytes, and continues in another one, for which `spare` may
    /// be used.
    pub fn give_taken(&mut self, spare: Option<Vec<u8>>) -> Vec<u8> {
        self.checksum();
        let rest = self.filled - self.taken;
        let mut next = spare.unwrap_or_default();
        // Occasionally a buffer is huge. It must not make all later ones huge.
        next.truncate(BATCH_BYTES.max(rest));
        next.resize(BATCH_BYTES.max(rest), 0);
        next[..rest].copy_from_slice(&self.buf[self.taken..self.filled]);
        let given = std::mem::replace(&mut self.buf, next);
        self.moved();
        given
    }

    fn moved(&mut self) {
        self.offset += self.taken as u64;
        self.filled -= self.taken;
        (self.taken, self.summed) = (0, 0);
    }
}
