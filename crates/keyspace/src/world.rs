//! The lock that stops the world: a big-reader lock.
//!
//! A thread that works on the keyspace is a reader. It *enters* once for a batch of commands, at
//! the cost of two stores to its own cache line. A command that needs everything (FLUSHALL, a
//! transaction with KEYS, the instant at which a snapshot begins) *stops* the world: it sets a
//! flag, makes it visible to every core (membarrier), and waits until no reader is inside. The
//! readers pay nothing for the fence. The stopping thread pays for all.
//!
//! The counters of the readers have a second purpose. Memory that other threads may still be
//! reading without a lock (the arrays that a table has outgrown, which prefetching reads) is freed
//! once every reader has left its batch: [`World::grace`].
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::sync::{Mutex, MutexGuard, TryLockError};
use structs::backoff::wait_until;
use structs::reactor::check_wait;
use structs::sync::lock;

/// Greatest number of threads that can ever register.
const MAX_READERS: usize = if cfg!(miri) { 16 } else { 4096 };

#[repr(align(128))]
struct Turns {
    /// Odd while its thread is inside.
    turns: AtomicU64,
}

/// The lock.
pub struct World {
    readers: Box<[Turns]>,
    registered: AtomicUsize,
    /// 1 while a thread stops or has stopped the world.
    stopping: AtomicU32,
    stopper: Mutex<()>,
    /// Whether readers have to execute fences themselves, because the kernel has no membarrier.
    readers_fence: AtomicBool,
}

/// A thread's registration.
pub struct Reader<'w> {
    world: &'w World,
    index: usize,
}

/// Proof that the world is stopped. Dropping it resumes the world.
pub struct Stopped<'w> {
    world: &'w World,
    _stopper: MutexGuard<'w, ()>,
}

/// A moment, for [`World::grace`].
pub struct Grace {
    turns: Vec<u64>,
}

const MEMBARRIER_PRIVATE_EXPEDITED: i32 = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

fn membarrier(command: i32) -> bool {
    if cfg!(miri) {
        // Miri does not support the call. Readers then execute fences themselves, as on an old
        // kernel.
        return false;
    }
    // SAFETY: membarrier takes plain numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

impl Default for World {
    fn default() -> Self {
        World::new()
    }
}

impl World {
    /// Creates a world without readers.
    pub fn new() -> World {
        let fence_by_kernel = membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED);
        World {
            readers: (0..MAX_READERS).map(|_| Turns { turns: AtomicU64::new(0) }).collect(),
            registered: AtomicUsize::new(0),
            stopping: AtomicU32::new(0),
            stopper: Mutex::new(()),
            readers_fence: AtomicBool::new(!fence_by_kernel),
        }
    }

    /// Registers the calling thread, for the rest of the process.
    pub fn register(&self) -> Reader<'_> {
        let index = self.registered.fetch_add(1, AcqRel);
        assert!(index < MAX_READERS, "more than {MAX_READERS} threads work on the keyspace");
        Reader { world: self, index }
    }

    /// Stops the world. The caller must not be inside. Waits while another thread has stopped it.
    pub fn stop(&self) -> Stopped<'_> {
        check_wait("the world to stop");
        match self.wait_for_readers(lock(&self.stopper), || (), || false) {
            Ok(stopped) => stopped,
            Err(_) => unreachable!("it does not give up"),
        }
    }

    /// Does the same, but returns `None` if another thread stops the world, or if `gives_up`
    /// returns true before all readers are outside.
    pub fn try_stop(&self, gives_up: impl Fn() -> bool) -> Option<Stopped<'_>> {
        self.wait_for_readers(self.try_lock()?, || (), gives_up).ok()
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        match self.stopper.try_lock() {
            Ok(stopper) => Some(stopper),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Stops the world after `leave` has taken the caller out of it. The world is resumed if
    /// `gives_up` returns true before all readers are outside.
    fn wait_for_readers<'w>(
        &'w self,
        stopper: MutexGuard<'w, ()>,
        leave: impl FnOnce(),
        gives_up: impl Fn() -> bool,
    ) -> Result<Stopped<'w>, MutexGuard<'w, ()>> {
        self.stopping.store(1, SeqCst);
        leave();
        if !self.readers_fence.load(Relaxed) {
            membarrier(MEMBARRIER_PRIVATE_EXPEDITED);
        }
        fence(SeqCst);
        for reader in &self.readers[..self.registered.load(Acquire).min(MAX_READERS)] {
            // A reader that was seen outside may enter to read `stopping`. That does not count as
            // inside.
            let mut is_outside = false;
            wait_until(|| {
                is_outside = reader.turns.load(Acquire) & 1 == 0;
                is_outside || gives_up()
            });
            if !is_outside {
                self.stopping.store(0, SeqCst);
                return Err(stopper);
            }
        }
        Ok(Stopped { world: self, _stopper: stopper })
    }

    /// Records the position of every reader.
    pub fn grace(&self) -> Grace {
        let registered = self.registered.load(Acquire).min(MAX_READERS);
        Grace { turns: self.readers[..registered].iter().map(|s| s.turns.load(SeqCst)).collect() }
    }

    /// Returns whether every reader that was inside at that moment has left since.
    pub fn has_passed(&self, grace: &Grace) -> bool {
        grace
            .turns
            .iter()
            .zip(&self.readers)
            .all(|(&then, reader)| then & 1 == 0 || reader.turns.load(Acquire) != then)
    }
}

impl<'w> Reader<'w> {
    /// Begins a batch. Waits while the world is stopped.
    #[inline]
    pub fn enter(&self) {
        check_wait("the world to go on");
        self.enter_unless(|| false);
    }

    /// Does the same, but returns `false` if `gives_up` returns true while the world is stopped.
    #[inline]
    pub fn enter_unless(&self, gives_up: impl Fn() -> bool) -> bool {
        let turns = &self.world.readers[self.index].turns;
        loop {
            let now = turns.load(Relaxed);
            debug_assert!(now & 1 == 0, "entered twice");
            turns.store(now + 1, Release);
            if self.world.readers_fence.load(Relaxed) {
                fence(SeqCst);
            } else {
                std::sync::atomic::compiler_fence(SeqCst);
            }
            if self.world.stopping.load(Acquire) == 0 {
                return true;
            }
            turns.store(now + 2, Release);
            wait_until(|| self.world.stopping.load(Acquire) == 0 || gives_up());
            if self.world.stopping.load(Acquire) != 0 && gives_up() {
                return false;
            }
        }
    }

    /// Leaves the world and stops it. Returns `None` if another thread is about to stop it. The
    /// caller is then still inside, and has to end its batch soon, because that thread waits for
    /// it. Also returns `None` if `gives_up` says, while other threads are inside, that one of them
    /// may stay there for long.
    pub fn try_stop(&self, gives_up: impl Fn() -> bool) -> Option<Stopped<'w>> {
        let stopper = self.world.try_lock()?;
        match self.world.wait_for_readers(stopper, || self.leave(), gives_up) {
            Ok(stopped) => Some(stopped),
            Err(_stopper) => {
                // No other thread can have begun to stop the world.
                let turns = &self.world.readers[self.index].turns;
                turns.store(turns.load(Relaxed) + 1, Release);
                None
            }
        }
    }

    /// Ends the batch.
    #[inline]
    pub fn leave(&self) {
        let turns = &self.world.readers[self.index].turns;
        let now = turns.load(Relaxed);
        debug_assert!(now & 1 == 1, "left without having entered");
        turns.store(now + 1, Release);
    }

    /// Returns whether a thread waits for the world to stop. A long batch should end early then.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.world.stopping.load(Relaxed) != 0
    }

    /// Returns the world with which this thread is registered.
    pub fn world(&self) -> &World {
        self.world
    }
}

impl Stopped<'_> {
    /// Resumes the world, with the caller inside. Does not wait, even if other threads want to stop
    /// the world next.
    pub fn resume(self, reader: &Reader<'_>) {
        let turns = &self.world.readers[reader.index].turns;
        let now = turns.load(Relaxed);
        debug_assert!(now & 1 == 0, "entered twice");
        turns.store(now + 1, Release);
        drop(self);
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.world.stopping.store(0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    const STOPS: u64 = if cfg!(miri) { 4 } else { 300 };

    struct Shared(UnsafeCell<[u64; 4]>);
    // SAFETY: the test guards it with the world.
    unsafe impl Sync for Shared {}

    #[test]
    fn a_stopper_is_alone() {
        let world = World::new();
        let shared = Shared(UnsafeCell::new([0; 4]));
        let shared = &shared;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let world = &world;
                scope.spawn(move || {
                    let reader = world.register();
                    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
                        reader.enter();
                        // SAFETY: readers only read, and writers are alone.
                        let [a, b, c, d] = unsafe { *shared.0.get() };
                        reader.leave();
                        assert!(a == b && b == c && c == d);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..STOPS {
                    let _stopped = world.stop();
                    // SAFETY: the world stands still.
                    for number in unsafe { &mut *shared.0.get() } {
                        *number += 1;
                    }
                }
            });
        });
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { *shared.0.get() }, [STOPS; 4]);
    }

    #[test]
    fn a_stopper_that_resumes_is_inside_before_the_next_one_stops() {
        let world = World::new();
        let counter = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let reader = world.register();
                    reader.enter();
                    let mut stops = 0;
                    while stops < STOPS {
                        let Some(stopped) = reader.try_stop(|| false) else {
                            reader.leave();
                            reader.enter();
                            continue;
                        };
                        let before = counter.load(Relaxed);
                        std::thread::yield_now();
                        // No lock and no exchange: the world stands still.
                        counter.store(before + 1, Relaxed);
                        stops += 1;
                        stopped.resume(&reader);
                        assert_eq!(world.readers[reader.index].turns.load(Relaxed) & 1, 1);
                    }
                    reader.leave();
                });
            }
        });
        assert_eq!(counter.load(Relaxed), 3 * STOPS);
    }

    #[test]
    fn a_stopped_world_is_given_up() {
        let world = World::new();
        let reader = world.register();
        let stopped = world.stop();
        assert!(!reader.enter_unless(|| true));
        reader_is_outside(&reader);
        drop(stopped);
        assert!(reader.enter_unless(|| true));
        let other = world.register();
        other.enter();
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| drop(world.stop()));
            while !other.is_wanted() {
                std::thread::yield_now();
            }
            assert!(other.try_stop(|| false).is_none(), "another thread is about to");
            other.leave();
            reader.leave();
            stopping.join().expect("it stops");
        });
    }

    #[test]
    fn a_stopper_that_gives_up_is_inside_and_the_world_goes_on() {
        let world = World::new();
        let (endless, reader) = (world.register(), world.register());
        endless.enter();
        reader.enter();
        assert!(reader.try_stop(|| true).is_none());
        assert!(!reader.is_wanted());
        reader.leave();
        assert!(reader.enter_unless(|| true), "the world goes on");
        endless.leave();
        let stopped = reader.try_stop(|| true).expect("no other is inside");
        stopped.resume(&reader);
        reader.leave();
    }

    fn reader_is_outside(reader: &Reader<'_>) {
        assert_eq!(reader.world.readers[reader.index].turns.load(Relaxed) & 1, 0);
    }

    #[test]
    fn grace_passes_when_readers_have_left() {
        let world = World::new();
        let (a, b) = (world.register(), world.register());
        a.enter();
        let grace = world.grace();
        assert!(!world.has_passed(&grace));
        b.enter();
        a.leave();
        assert!(world.has_passed(&grace));
        b.leave();
    }
}
