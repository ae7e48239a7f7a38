//! What the tier asks of a disk: files of one size, and reads and writes that end some time later.

use std::io;
use std::sync::Arc;
use structs::aligned::AlignedBytes;

/// What is read or written, from its beginning.
pub enum Work {
    /// Bytes are read into it.
    Read(AlignedBytes),
    /// Its bytes are written.
    Write(Arc<AlignedBytes>),
}

/// Told how an operation has ended: how many bytes were read or written. Fewer than were asked for
/// are no error of the disk's; the tier asks again.
pub type Done = Box<dyn FnOnce(Work, io::Result<usize>) + Send>;

/// A read or write. Segment, offset and length are as the tier keeps them; offset and length are
/// multiples of [`structs::aligned::ALIGNMENT`].
pub struct Operation {
    /// The number of the segment.
    pub segment: u32,
    /// Where it begins, in bytes.
    pub offset: u32,
    /// Its length in bytes; the memory has at least as many.
    pub len: usize,
    /// What to do.
    pub work: Work,
    /// Called once, on any thread, but never before [`Disk::submit`] has returned.
    pub done: Done,
}

/// Where segments are.
pub trait Disk: Send + Sync {
    /// Makes a segment of so many bytes, for which room is set aside.
    ///
    /// # Errors
    /// The system's: above all the disk is full.
    fn create(&self, segment: u32, bytes: u64) -> io::Result<()>;
    /// Removes a segment that nothing is read from or written to.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, segment: u32) -> io::Result<()>;
    /// Begins operations. It must not wait for any: the caller may hold locks.
    fn submit(&self, operations: Vec<Operation>);
    /// Called by a thread that has to wait for an operation: a disk that has operations which nobody else ends goes
    /// on with them now, and says whether it did. So do a simulated disk, and the ring of a thread's own.
    fn poll(&self) -> bool {
        false
    }
}
