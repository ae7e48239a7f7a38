//! The interpreters' allocator: the process's own, counted.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::cell::Cell;
use std::ffi::c_void;

/// Bytes in use by one interpreter; its address is the allocator's data.
#[derive(Default)]
pub(crate) struct Used {
    bytes: Cell<usize>,
}

impl Used {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("Lua asks for no more than the address space")
}

/// Lua's allocator. It never fails: a process without memory ends.
///
/// # Safety
/// `data` must point to a structure that begins with a [`Used`] and outlives the interpreter.
pub(crate) unsafe extern "C-unwind" fn allocate(
    data: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: promised by the caller; the interpreter belongs to one thread.
    let used = unsafe { &*data.cast::<Used>() };
    let old = if block.is_null() { 0 } else { old };
    used.bytes.set(used.bytes.get() + new - old);
    // SAFETY: Lua says truly how large the block is that we have given.
    let moved = unsafe {
        match (old, new) {
            (0, 0) => return std::ptr::null_mut(),
            (_, 0) => {
                dealloc(block.cast(), layout(old));
                return std::ptr::null_mut();
            }
            (0, _) => alloc(layout(new)),
            _ => realloc(block.cast(), layout(old), new),
        }
    };
    if moved.is_null() {
        handle_alloc_error(layout(new));
    }
    moved.cast()
}
