//! The locks of the standard library, for a process that ends when any of its threads panics.
//!
//! Such a process never finds a lock poisoned (`panic = "abort"`, in every profile), so these take
//! the guard whatever the lock says.

use crate::reactor::check_wait;
use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Duration;

/// [`Mutex::lock`]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`RwLock::read`]
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// [`RwLock::write`]
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// [`Condvar::wait_timeout_while`]; what is lost is whether the time was over.
pub fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
    still: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    check_wait("a condition");
    let result = condition.wait_timeout_while(guard, timeout, still);
    result.unwrap_or_else(PoisonError::into_inner).0
}

/// [`Condvar::wait`]
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    check_wait("a condition");
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
