//! The tier's interface to a disk: files of one size, and asynchronous reads and writes.

use std::io;
use std::sync::Arc;
use structs::aligned::AlignedBytes;

/// The kind of an operation, with its buffer. Operations begin at the buffer's first byte.
pub enum Work {
    /// Reads into the buffer.
    Read(AlignedBytes),
    /// Writes the buffer.
    Write(Arc<AlignedBytes>),
}

/// Called at the end of an operation with the number of bytes read or written. A smaller number
/// than requested is no error of the disk. The tier asks again.
pub type Done = Box<dyn FnOnce(Work, io::Result<usize>) + Send>;

/// A read or write. Offset and length are multiples of [`structs::aligned::ALIGNMENT`].
pub struct Operation {
    /// The number of the segment.
    pub segment: u32,
    /// Offset in the segment, in bytes.
    pub offset: u32,
    /// Length in bytes. The buffer has at least as many.
    pub len: usize,
    /// The kind and the buffer.
    pub work: Work,
    /// Called once, on any thread, but only after [`Disk::submit`] has returned.
    pub done: Done,
}

/// The storage of segments.
pub trait Disk: Send + Sync {
    /// Creates a segment of `bytes` bytes and preallocates its space.
    ///
    /// # Errors
    /// Those of the system: mostly, the disk is full.
    fn create(&self, segment: u32, bytes: u64) -> io::Result<()>;
    /// Removes a segment. It is not being read or written.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&self, segment: u32) -> io::Result<()>;
    /// Begins operations. Must not wait for any, because the caller may hold locks.
    fn submit(&self, operations: Vec<Operation>);
    /// Advances operations that only the calling thread can complete. Called by a thread that has
    /// to wait for an operation. Returns whether it did something. A simulated disk and a thread's
    /// own ring do.
    fn poll(&self) -> bool {
        false
    }
}
