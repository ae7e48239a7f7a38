//! Operations that wait for a thread, whatever back-end it serves.
//!
//! Reads go first, since clients wait for them. Few writes are under way at a time: four keep a disk busy
//! as well as more do, and a read that comes behind many waits for all of them in the device.

use crate::disk::{Operation, Work};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

/// Writes under way at a time.
pub(crate) const MAX_WRITES: usize = 4;

/// An operation and its file.
pub(crate) struct Job {
    pub file: Arc<File>,
    pub operation: Operation,
}

/// How operations are carried out.
pub(crate) trait Carrier: Send + Sync {
    /// Begins operations, without waiting for any.
    fn submit(&self, jobs: Vec<Job>);
    /// Ends all that were begun.
    fn close(&self);
}

#[derive(Default)]
pub(crate) struct Queue {
    reads: VecDeque<Job>,
    writes: VecDeque<Job>,
    writing: usize,
    /// Nothing more comes.
    pub is_closed: bool,
}

impl Queue {
    pub fn push(&mut self, job: Job) {
        match job.operation.work {
            Work::Read(_) => self.reads.push_back(job),
            Work::Write(_) => self.writes.push_back(job),
        }
    }

    /// The next operation that may begin. Of a write the end has to be [noted](Queue::end_write).
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

    /// A write is over. Whether another one waits.
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
