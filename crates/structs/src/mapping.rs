//! Memory for large arrays, taken from the kernel page by page.
//!
//! A thousand stripes' tables each grow through a dozen sizes. An allocator with size classes
//! keeps the places they leave for arrays of the same class, which never come: measured at 4
//! million keys, a third as much again as the arrays themselves. A mapping is as long as the array,
//! to the page, and goes back to the kernel when the array does.
//!
//! Rejected: for every large block (a process has only some 65 000 mappings; stripes are few),
//! one array of fixed-size chunks (a second dependent load in every lookup).
#![allow(unsafe_code)]

use std::ffi::c_long;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The smallest page of any processor we run on; where pages are larger a little is wasted.
pub(crate) const PAGE: usize = 4096;

static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Bytes mapped at present, which the allocator knows nothing of.
pub fn mapped_bytes() -> usize {
    MAPPED.load(Relaxed)
}

/// Maps `bytes`, all zero, which get their pages as they are touched; `None` if the kernel refuses.
pub(crate) fn map_zeroed(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new anonymous mapping overlaps nothing.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    MAPPED.fetch_add(bytes, Relaxed);
    NonNull::new(at.cast())
}

/// Gives a part of a mapping its pages, in one go; for what is soon written, but may be read
/// before.
///
/// A page that is read first is taken twice: the kernel lends its page of zeros, and on the first
/// write has to tell every processor that runs a thread of ours that the loan is over, and waits
/// until all have heard of it.
///
/// # Safety
/// The range lies in what [`map_zeroed`] returned; it begins and ends with a page, or the mapping.
pub(crate) unsafe fn populate(at: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's contract; nothing that has been written changes.
    unsafe {
        // Without it (before Linux 5.14, or short of memory) the pages come as they are touched.
        libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE);
    }
}

/// What the kernel can back by one entry of its tables.
const HUGE_PAGE: usize = 2 << 20;

/// Has the kernel back the whole huge pages in a block by such, where it leaves that to programs.
/// They come cleared in a sixth of the time of as many small ones, and are written to with fewer
/// walks of the page tables.
///
/// # Safety
/// The block is allocated and the caller's.
pub(crate) unsafe fn advise_huge_pages(at: NonNull<u8>, bytes: usize) {
    let begin = at.addr().get().next_multiple_of(HUGE_PAGE);
    let end = (at.addr().get() + bytes) / HUGE_PAGE * HUGE_PAGE;
    if begin < end {
        // SAFETY: whole pages of the caller's block, whose content does not change. A kernel that
        // has no huge pages refuses, and small ones come.
        unsafe {
            let begin = at.as_ptr().with_addr(begin);
            libc::madvise(begin.cast(), end - begin.addr(), libc::MADV_HUGEPAGE);
        }
    }
}

/// Takes the pages out of mappings that are about to be given back. With one call for many, all
/// processors are told once and not once for each.
///
/// # Safety
/// Each came from [`map_zeroed`], with its bytes, and is not used any more.
pub(crate) unsafe fn empty(mappings: impl Iterator<Item = (NonNull<u8>, usize)>) {
    /// What one call takes.
    const MAX_RANGES: usize = 1024;
    // SAFETY: takes plain numbers.
    static SELF: LazyLock<c_long> =
        LazyLock::new(|| unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) });
    let range = |(at, len): (NonNull<u8>, usize)| libc::iovec {
        iov_base: at.as_ptr().cast(),
        iov_len: len,
    };
    let ranges: Vec<libc::iovec> = mappings.map(range).collect();
    for some in ranges.chunks(MAX_RANGES) {
        // SAFETY: the caller's contract. Where the kernel cannot (before Linux 6.13), the pages go
        // with their mapping.
        unsafe {
            let (start, count) = (some.as_ptr(), some.len());
            libc::syscall(libc::SYS_process_madvise, *SELF, start, count, libc::MADV_DONTNEED, 0);
        }
    }
}

/// Gives a mapping back.
///
/// # Safety
/// `at` came from [`map_zeroed`] with the same `bytes`, and is not used any more.
pub(crate) unsafe fn unmap(at: NonNull<u8>, bytes: usize) {
    MAPPED.fetch_sub(bytes, Relaxed);
    // SAFETY: the caller's contract.
    unsafe {
        if libc::munmap(at.as_ptr().cast(), bytes) != 0 {
            // Cutting a hole may need one mapping more than the process may have: then at least
            // the pages go back, and the addresses stay taken.
            libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_DONTNEED);
        }
    }
}

/// Bytes in a mapping of their own: for what is mostly never touched, and costs only what is.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain bytes, owned.
unsafe impl Send for Mapped {}
// SAFETY: plain bytes; `&self` gives out only `&[u8]`.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// `len` bytes, all zero; `None` if the kernel refuses.
    pub fn zeroed(len: usize) -> Option<Mapped> {
        map_zeroed(len).map(|start| Mapped { start, len })
    }
}

impl Deref for Mapped {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped with this length, initialised by the kernel, and owned.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Mapped {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `zeroed` with this length; the slices have borrowed `self`.
        unsafe { unmap(self.start, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_memory_is_zero_and_counted() {
        let bytes = 3 * PAGE;
        let at = map_zeroed(bytes).unwrap();
        // Other tests map too, so only a lower bound is known.
        assert!(mapped_bytes() >= bytes);
        // SAFETY: mapped above, and unmapped once.
        unsafe {
            at.write(7);
            populate(at, 2 * PAGE);
            let mapped = std::slice::from_raw_parts(at.as_ptr(), bytes);
            assert_eq!(mapped[0], 7);
            assert!(mapped[1..].iter().all(|&byte| byte == 0));
            empty([(at, bytes)].into_iter());
            unmap(at, bytes);
        }
    }

    #[test]
    fn mapped_bytes_can_be_written() {
        let mut bytes = Mapped::zeroed(PAGE + 1).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes[PAGE] = 7;
        assert_eq!(bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>(), 7);
    }
}
