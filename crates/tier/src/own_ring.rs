//! A thread's own ring for its reads.
//!
//! A thread that serves clients sleeps until its event descriptor is written to. Its ring writes to
//! that descriptor when a read ends, so no other thread has to be woken on the way to the disk or
//! back. The thread submits its reads once a turn, and collects completed reads once a turn.
//! Writes, and reads that exceed the ring's capacity, use the shared ring ([`crate::uring`]).
//!
//! A thread that waits for its own read in the middle of a turn drives the ring itself
//! (`Disk::poll`).

use crate::disk::Work;
use crate::queue::Job;
use crate::uring::{self, Ended, UnderWay};
use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;

/// Greatest number of reads in progress.
const MAX_READS: usize = 128;
/// Number of pending reads that are submitted without waiting for the end of the turn.
const MAX_UNBEGUN: usize = 32;

struct OwnRing(UnderWay);

thread_local! {
    static OWN: RefCell<Option<OwnRing>> = const { RefCell::new(None) };
}

/// Gives the calling thread its own ring. The event descriptor is written to when a read ends. It
/// stays open as long as the thread lives.
///
/// # Errors
/// io_uring is refused.
pub fn begin(event: RawFd) -> io::Result<()> {
    let ring = uring::build(MAX_READS.next_power_of_two() as u32, |flags| {
        flags.setup_coop_taskrun();
    })?;
    ring.submitter().register_eventfd(event)?;
    OWN.set(Some(OwnRing(UnderWay::new(ring, MAX_READS))));
    Ok(())
}

/// Takes reads from these jobs, as far as the calling thread has a ring with free places. Returns
/// the other jobs.
pub(crate) fn take(jobs: Vec<Job>) -> Vec<Job> {
    OWN.with_borrow_mut(|own| {
        let Some(OwnRing(under_way)) = own else { return jobs };
        let mut others = Vec::new();
        for job in jobs {
            if matches!(job.operation.work, Work::Read(_)) && under_way.has_room() {
                under_way.start(job);
            } else {
                others.push(job);
            }
        }
        if under_way.unbegun() >= MAX_UNBEGUN {
            under_way.submit(0);
        }
        others
    })
}

/// Submits the calling thread's pending reads. Called at the end of its turn.
#[inline]
pub fn flush() {
    OWN.with_borrow_mut(|own| {
        if let Some(OwnRing(under_way)) = own
            && under_way.unbegun() > 0
        {
            under_way.submit(0);
        }
    });
}

/// Completes the calling thread's reads that have ended. Called at the beginning of its turn.
#[inline]
pub fn reap() {
    if has_reads() {
        tell(0);
    }
}

/// Waits for one of the calling thread's reads and completes it. Returns `false` if none is in
/// progress.
pub(crate) fn wait() -> bool {
    let is_waiting = has_reads();
    if is_waiting {
        tell(1);
    }
    is_waiting
}

#[inline]
fn has_reads() -> bool {
    OWN.with_borrow(|own| own.as_ref().is_some_and(|OwnRing(under_way)| !under_way.is_idle()))
}

/// Completes reads that have ended. Their callbacks may request more reads, so the ring is not
/// borrowed meanwhile.
#[cold]
fn tell(wait_for: usize) {
    let mut ended = Vec::new();
    OWN.with_borrow_mut(|own| {
        if let Some(own) = own {
            if wait_for > 0 {
                own.0.submit(wait_for);
            }
            own.take_ended(&mut ended);
        }
    });
    for (job, result) in ended {
        (job.operation.done)(job.operation.work, result);
    }
}

impl OwnRing {
    fn take_ended(&mut self, ended: &mut Vec<(Job, io::Result<usize>)>) {
        while let Some(one) = self.0.next_ended() {
            if let Ended::Job(job, result) = one {
                ended.push((job, result));
            }
        }
    }
}

impl Drop for OwnRing {
    fn drop(&mut self) {
        // The kernel writes to the memory of reads in progress, so wait for them.
        let mut ended = Vec::new();
        while !self.0.is_idle() {
            self.0.submit(1);
            self.take_ended(&mut ended);
        }
    }
}
