//! The queue of operations that wait for a thread. Every back-end uses it.
//!
//! Reads go first, because clients wait for them. Only a few writes run at a time: four keep a disk
//! as busy as more do, and a read that comes after many waits in the device for all of them.

use crate::disk::{Operation, Work};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

/// Greatest number of writes in progress.
pub(crate) const MAX_WRITES: usize = 4;

/// An operation and its file.
pub(crate) struct Job {
    pub file: Arc<File>,
    pub operation: Operation,
}

/// A back-end that executes operations.
pub(crate) trait Carrier: Send + Sync {
    /// Begins operations without waiting for them.
    fn submit(&self, jobs: Vec<Job>);
    /// Completes all operations that have begun.
    fn close(&self);
}

#[derive(Default)]
pub(crate) struct Queue {
    reads: VecDeque<Job>,
    writes: VecDeque<Job>,
    writing: usize,
    /// Whether no more operations will come.
    pub is_closed: bool,
}

impl Queue {
    pub fn push(&mut self, job: Job) {
        match job.operation.work {
            Work::Read(_) => self.reads.push_back(job),
            Work::Write(_) => self.writes.push_back(job),
        }
    }

    /// Returns the next operation that may begin. The caller reports the end of a write with
    /// [`Queue::end_write`].
    pub fn pop(&mut self, prefers_writes: bool) -> Option<Job> {
        let write = |queue: &mut Queue| {
            let job = if queue.writing < MAX_WRITES { queue.writes.pop_front() } else { None };
            queue.writing += usize::from(job.is_some());
            job
        };
        if prefers_writes {
            write(self).or_else(|| self.reads.pop_front())
        } else {
            self.reads.pop_front().or_else(|| write(self))
        }
    }

    /// Records the end of a write. Returns whether another one waits.
    pub fn end_write(&mut self) -> bool {
        self.writing -= 1;
        !self.writes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use structs::aligned::AlignedBytes;

    fn job(work: Work) -> Job {
        let file = Arc::new(File::open("/dev/null").expect("it is always there"));
        let operation =
            Operation { segment: 0, offset: 0, len: 0, work, done: Box::new(|_, _| {}) };
        Job { file, operation }
    }

    #[test]
    fn reads_go_first_and_few_writes_at_a_time() {
        let mut queue = Queue::default();
        for _ in 0..MAX_WRITES + 1 {
            queue.push(job(Work::Write(Arc::new(AlignedBytes::new(0)))));
        }
        queue.push(job(Work::Read(AlignedBytes::new(0))));
        let is_read = |job: Option<Job>| job.map(|job| matches!(job.operation.work, Work::Read(_)));
        assert_eq!(is_read(queue.pop(true)), Some(false));
        assert_eq!(is_read(queue.pop(false)), Some(true));
        for _ in 1..MAX_WRITES {
            assert_eq!(is_read(queue.pop(false)), Some(false));
        }
        assert!(queue.pop(true).is_none(), "enough are under way");
        assert!(queue.end_write());
        assert_eq!(is_read(queue.pop(false)), Some(false));
        assert!(!queue.end_write());
    }
}
