//! A stack for signal handlers, so that a stack overflow can still be reported.
//!
//! The standard library gives each of its threads 8 KiB for its own overflow message. Unwinding
//! needs more: with AVX-512 the saved registers alone take almost half of that.
#![allow(unsafe_code)] // mmap(2) and sigaltstack(2)

use std::io;
use std::ptr;

/// Room for the saved registers, the report's buffers and the unwinder.
const SIZE: usize = 128 * 1024;

/// The calling thread's signal stack, put back to what it was when dropped. It must be dropped on
/// the thread that made it, which `!Send` (by the raw pointer) ensures.
pub struct AltStack {
    base: *mut libc::c_void,
    size: usize,
    previous: libc::stack_t,
}

impl AltStack {
    /// Gives the calling thread a signal stack of its own.
    pub fn install() -> io::Result<Self> {
        let page = page_size();
        let size = SIZE + page;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing else.
        let base = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the first page of the mapping just made, nothing points to it; it becomes a
        // guard.
        unsafe { libc::mprotect(base, page, libc::PROT_NONE) };
        let stack =
            libc::stack_t { ss_sp: base.wrapping_byte_add(page), ss_flags: 0, ss_size: SIZE };
        let mut previous = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: `stack` is mapped memory that stays mapped until `drop` takes it back.
        if unsafe { libc::sigaltstack(&stack, &mut previous) } != 0 {
            let error = io::Error::last_os_error();
            // SAFETY: the mapping is ours and not in use.
            unsafe { libc::munmap(base, size) };
            return Err(error);
        }
        Ok(Self { base, size, previous })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        // SAFETY: `previous` is what this thread had before; no handler runs on ours now, as we are
        // not in one. After the switch the kernel no longer uses the mapping.
        unsafe {
            libc::sigaltstack(&self.previous, ptr::null_mut());
            libc::munmap(self.base, self.size);
        }
    }
}

/// Bytes in a page of memory.
pub fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> libc::stack_t {
        let mut stack = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: a null new stack only asks.
        assert_eq!(unsafe { libc::sigaltstack(ptr::null(), &mut stack) }, 0);
        stack
    }

    #[test]
    fn the_thread_gets_its_previous_stack_back() {
        let before = current();
        let stack = AltStack::install().unwrap();
        assert_eq!(current().ss_size, SIZE);
        drop(stack);
        assert_eq!(current().ss_sp, before.ss_sp);
    }
}
