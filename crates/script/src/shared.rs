//! What the functions of one interpreter share: found through the allocator's data.
#![allow(unsafe_code)]

use crate::host::Host;
use crate::lua::Lua;
use crate::memory::Used;
use crate::register::Registration;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

/// See the module's documentation.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Shared {
    /// First: the allocator looks for it there.
    pub used: Used,
    host: Cell<Option<NonNull<dyn Host>>>,
    /// The host has ended the script: no protected call catches an error any more.
    pub is_ending: Cell<bool>,
    /// Functions of ours that call themselves end where the thread's stack reaches this address.
    stack_floor: Cell<usize>,
    /// The state of `math.random`.
    pub random: Cell<u64>,
    /// `redis.setresp(3)` was called.
    pub is_resp3: Cell<bool>,
    /// The functions of a library that is being loaded.
    pub registration: RefCell<Option<Registration>>,
    /// Kept for their allocations.
    words: Cell<Vec<&'static [u8]>>,
    reply: Cell<Vec<u8>>,
}

/// Words beyond which a request's list is not kept.
const KEPT_WORDS: usize = 1024;
/// Bytes beyond which a reply's buffer is not kept.
const KEPT_REPLY: usize = 64 * 1024;

/// Bytes of the thread's stack that a script may use. A thread has twice that at least.
const STACK_BYTES: usize = 1 << 20;

/// Returns an address of the function on top of the thread's stack.
#[inline(always)]
fn stack_place() -> usize {
    let here = 0u8;
    std::hint::black_box(&raw const here) as usize
}

impl Shared {
    /// Whether there is room on the thread's stack for another call.
    pub(crate) fn has_stack(&self) -> bool {
        stack_place() > self.stack_floor.get()
    }

    /// Those of the interpreter that calls.
    pub(crate) fn of<'s>(lua: Lua) -> &'s Shared {
        // SAFETY: the interpreter was made with this as its allocator's data, and it outlives the
        // interpreter and with it every function that runs in it.
        unsafe { &*lua.allocator_data().cast::<Shared>() }
    }

    /// Runs `work` while scripts reach this host.
    pub(crate) fn with_host<R>(&self, host: &mut dyn Host, work: impl FnOnce() -> R) -> R {
        let host: NonNull<dyn Host + '_> = NonNull::from(host);
        // SAFETY: only the lifetime changes; the pointer is taken back before `host` ends.
        let host =
            unsafe { std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host>>(host) };
        self.stack_floor.set(stack_place().saturating_sub(STACK_BYTES));
        let outer = self.host.replace(Some(host));
        let result = work();
        self.host.set(outer);
        result
    }

    /// Lets `work` use the host, if a script runs.
    pub(crate) fn host<R>(&self, work: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        let mut host = self.host.take()?;
        // SAFETY: set by `with_host`, whose caller lends it until it returns; it is taken out of
        // the cell meanwhile, so that there is no second reference.
        let result = work(unsafe { host.as_mut() });
        self.host.set(Some(host));
        Some(result)
    }

    /// Gives `work` an empty list of words.
    pub(crate) fn with_words<'w, R>(&self, work: impl FnOnce(&mut Vec<&'w [u8]>) -> R) -> R {
        let mut words: Vec<&'w [u8]> = self.words.take();
        let result = work(&mut words);
        words.clear();
        if words.capacity() <= KEPT_WORDS {
            // The allocation is kept; there is no element left to convert.
            self.words
                .set(words.into_iter().map(|_| -> &'static [u8] { unreachable!() }).collect());
        }
        result
    }

    /// Gives `work` an empty buffer.
    pub(crate) fn with_reply<R>(&self, work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let mut reply = self.reply.take();
        reply.clear();
        let result = work(&mut reply);
        if reply.capacity() <= KEPT_REPLY {
            self.reply.set(reply);
        }
        result
    }
}
