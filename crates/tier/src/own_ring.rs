//! A ring of a thread's own for the reads that it wants.
//!
//! A thread that serves clients sleeps until an event descriptor is written to. Its ring writes there when a
//! read ends, so no other thread has to be woken on the way to the disk or back. The thread begins what it has
//! asked for once a turn, and looks once a turn what has come. Writes, and reads beyond what the ring holds, go
//! the common way ([`crate::uring`]).
//!
//! A thread that waits for a read of its own in the middle of a turn drives the ring itself (`Disk::poll`).

use crate::disk::Work;
use crate::queue::Job;
use crate::uring::{self, Ended, UnderWay};
use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;

/// Reads under way at most.
const MAX_READS: usize = 128;
/// As many are begun without waiting for the end of the turn.
const MAX_UNBEGUN: usize = 32;

struct OwnRing(UnderWay);

thread_local! {
    static OWN: RefCell<Option<OwnRing>> = const { RefCell::new(None) };
}

/// From now on the calling thread reads by itself. The event descriptor is written to when a read ends; it
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

/// Begins the reads among these, as far as the calling thread has a ring with room; returns the others.
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

/// Begins what the calling thread has asked for: at the end of its turn.
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

/// Tells of the calling thread's reads that have ended: at the beginning of its turn.
#[inline]
pub fn reap() {
    if has_reads() {
        tell(0);
    }
}

/// Waits for one of the calling thread's reads, and tells of it. `false` if none is under way.
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

/// What is told may ask for more reads, so the ring is free meanwhile.
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
        // The kernel writes to the memory of what is under way.
        let mut ended = Vec::new();
        while !self.0.is_idle() {
            self.0.submit(1);
            self.take_ended(&mut ended);
        }
    }
}
