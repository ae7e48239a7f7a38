//! A place for one result that a thread waits for.

use crate::disk::Disk;
use std::sync::{Arc, Condvar, Mutex};
use structs::sync::{lock, wait};

pub(crate) struct OneShot<T> {
    result: Mutex<Option<T>>,
    arrived: Condvar,
}

impl<T> OneShot<T> {
    pub fn new() -> Arc<OneShot<T>> {
        Arc::new(OneShot { result: Mutex::new(None), arrived: Condvar::new() })
    }

    pub fn set(&self, result: T) {
        *lock(&self.result) = Some(result);
        self.arrived.notify_one();
    }

    /// Waits for the result of an operation of this disk and returns it.
    pub fn wait(&self, disk: &dyn Disk) -> T {
        loop {
            let mut result = lock(&self.result);
            if let Some(result) = result.take() {
                return result;
            }
            drop(result);
            if disk.poll() {
                continue;
            }
            result = lock(&self.result);
            while result.is_none() {
                result = wait(&self.arrived, result);
            }
        }
    }
}
