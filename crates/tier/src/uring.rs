//! Executes reads and writes with io_uring: one thread, and many operations in progress.
//!
//! The thread owns the ring. Other threads put operations in a queue. If the thread sleeps, they
//! wake it through an event descriptor that the ring reads. One system call submits all queued
//! operations and waits until one ends. So when many reads are wanted, each costs only a part of a
//! system call, and no read needs its own thread.
#![allow(unsafe_code)] // The rings: each block says why memory stays where the kernel looks for it.

use crate::disk::Work;
use crate::files::Spawn;
use crate::queue::{Carrier, Job, Queue};
use io_uring::types::Fd;
use io_uring::{Builder, IoUring, cqueue, opcode, squeue};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use structs::sync::lock;

/// Greatest number of operations in progress.
const MAX_OPERATIONS: usize = 256;
/// Number of entries of the ring: one for each operation, and one for the wake-up.
const ENTRIES: u32 = (MAX_OPERATIONS + 1).next_power_of_two() as u32;
/// Identifies the wake-up. Operations are identified by their places.
const WAKE_UP: u64 = u64::MAX;

pub(crate) struct Ring {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    event: File,
}

#[derive(Default)]
struct Waiting {
    queue: Queue,
    /// Whether the thread sleeps, or will sleep without checking the queue again.
    is_asleep: bool,
}

impl Ring {
    /// Starts the thread.
    ///
    /// # Errors
    /// io_uring is refused, or the thread cannot be started.
    pub fn new(spawn: &Spawn<'_>) -> io::Result<Ring> {
        let shared = Arc::new(Shared { waiting: Mutex::default(), event: event()? });
        let (to_us, from_thread) = channel();
        let for_thread = Arc::clone(&shared);
        // The kernel binds a ring to the thread that creates it.
        let thread = spawn(Box::new(move || serve(for_thread, &to_us)))?;
        let made = from_thread.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        made.map(|()| Ring { shared, thread: Mutex::new(Some(thread)) })
    }
}

impl Shared {
    /// Changes the queue and wakes the thread.
    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let mut waiting = lock(&self.waiting);
        change(&mut waiting.queue);
        let is_asleep = std::mem::take(&mut waiting.is_asleep);
        drop(waiting);
        if is_asleep {
            let wrote = (&self.event).write(&1u64.to_ne_bytes());
            assert!(wrote.is_ok(), "an event descriptor takes a number: {wrote:?}");
        }
    }
}

impl Carrier for Ring {
    fn submit(&self, jobs: Vec<Job>) {
        self.shared.change(|queue| jobs.into_iter().for_each(|job| queue.push(job)));
    }

    fn close(&self) {
        self.shared.change(|queue| queue.is_closed = true);
        if let Some(thread) = lock(&self.thread).take() {
            // A thread that panicked has ended the process.
            let _ = thread.join();
        }
    }
}

fn event() -> io::Result<File> {
    // SAFETY: no memory is passed.
    match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new, and this is its only owner.
        descriptor => Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) })),
    }
}

/// Creates a ring with these flags, or without flags if the kernel does not support them.
///
/// # Errors
/// io_uring is refused.
pub(crate) fn build(entries: u32, flags: impl FnOnce(&mut Builder)) -> io::Result<IoUring> {
    let mut best = IoUring::builder();
    flags(best.dontfork().setup_submit_all());
    best.build(entries).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => IoUring::builder().dontfork().build(entries),
        _ => Err(error),
    })
}

fn serve(shared: Arc<Shared>, made: &Sender<io::Result<()>>) {
    let built = build(ENTRIES, |flags| {
        flags.setup_single_issuer().setup_defer_taskrun();
    });
    let told = made.send(built.as_ref().map(|_| ()).map_err(|error| io::Error::from(error.kind())));
    if let (Ok(ring), Ok(())) = (built, told) {
        Server::new(ring, shared).run();
    }
}

/// A ring and the operations in progress in it.
pub(crate) struct UnderWay {
    ring: IoUring,
    /// The operations by place. The kernel uses their memory.
    jobs: Box<[Option<Job>]>,
    /// Places without an operation.
    free: Vec<usize>,
}

/// A completion.
pub(crate) enum Ended {
    /// The wake-up.
    WakeUp,
    /// An operation with the number of bytes read or written.
    Job(Job, io::Result<usize>),
}

impl UnderWay {
    /// Creates the state for `most` operations in progress. The ring has one more entry.
    pub fn new(ring: IoUring, most: usize) -> UnderWay {
        UnderWay { ring, jobs: (0..most).map(|_| None).collect(), free: (0..most).collect() }
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn is_idle(&self) -> bool {
        self.free.len() == self.jobs.len()
    }

    /// Queues an operation, which the next [`UnderWay::submit`] begins. There must be a free place.
    pub fn start(&mut self, mut job: Job) {
        let place = self.free.pop().expect("there is room");
        let file = Fd(job.file.as_raw_fd());
        let (at, len) = (u64::from(job.operation.offset), job.operation.len as u32);
        let entry = match &mut job.operation.work {
            Work::Read(bytes) => {
                opcode::Read::new(file, bytes.as_mut_ptr(), len).offset(at).build()
            }
            Work::Write(bytes) => opcode::Write::new(file, bytes.as_ptr(), len).offset(at).build(),
        };
        self.jobs[place] = Some(job);
        self.push(entry, place as u64);
    }

    fn push(&mut self, entry: squeue::Entry, name: u64) {
        // SAFETY: the memory of an operation belongs to its job, and that of the event to the
        // server; both stay, and nothing else touches them, until the kernel reports completion.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(name)) };
        assert!(pushed.is_ok(), "the ring has an entry for each operation");
    }

    /// Returns the number of operations that were started but not submitted.
    pub fn unbegun(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Submits started operations, and waits until `wait_for` operations have ended.
    ///
    /// # Panics
    /// The ring fails. No error of a disk causes this.
    pub fn submit(&self, wait_for: usize) {
        match self.ring.submit_and_wait(wait_for) {
            Ok(_) => {}
            // Nothing is lost: operations that were not submitted are submitted by the next call.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) => {}
            Err(error) => panic!("the tier's ring fails: {error}"),
        }
    }

    /// Returns the next completion.
    pub fn next_ended(&mut self) -> Option<Ended> {
        loop {
            let over: cqueue::Entry = self.ring.completion().next()?;
            if over.user_data() == WAKE_UP {
                return Some(Ended::WakeUp);
            }
            let place = over.user_data() as usize;
            let job = self.jobs[place].take().expect("an operation ends once");
            self.free.push(place);
            match over.result() {
                again if matches!(-again, libc::EAGAIN | libc::EINTR) => self.start(job),
                failed @ ..0 => {
                    return Some(Ended::Job(job, Err(io::Error::from_raw_os_error(-failed))));
                }
                bytes => return Some(Ended::Job(job, Ok(bytes as usize))),
            }
        }
    }
}

/// The thread's state.
struct Server {
    under_way: UnderWay,
    shared: Arc<Shared>,
    /// The buffer into which the event descriptor's number is read.
    event: Box<[u8; 8]>,
    is_event_read: bool,
}

impl Server {
    fn new(ring: IoUring, shared: Arc<Shared>) -> Server {
        let under_way = UnderWay::new(ring, MAX_OPERATIONS);
        Server { under_way, shared, event: Box::default(), is_event_read: false }
    }

    /// Runs until the ring is closed and all operations have ended.
    fn run(mut self) {
        while self.begin() {
            if !std::mem::replace(&mut self.is_event_read, true) {
                let len = self.event.len() as u32;
                let to = self.event.as_mut_ptr();
                let event = Fd(self.shared.event.as_raw_fd());
                self.under_way.push(opcode::Read::new(event, to, len).build(), WAKE_UP);
            }
            self.under_way.submit(1);
            self.end();
        }
        self.cancel_event();
    }

    /// Starts operations from the queue. Returns `false` if the queue is closed and nothing is left
    /// to do.
    fn begin(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut waiting = lock(&shared.waiting);
        while self.under_way.has_room()
            && let Some(job) = waiting.queue.pop(true)
        {
            self.under_way.start(job);
        }
        waiting.is_asleep = true;
        !(self.under_way.is_idle() && waiting.queue.is_closed)
    }

    /// Handles completions.
    fn end(&mut self) {
        while let Some(ended) = self.under_way.next_ended() {
            match ended {
                Ended::WakeUp => self.is_event_read = false,
                Ended::Job(job, result) => {
                    if matches!(job.operation.work, Work::Write(_)) {
                        lock(&self.shared.waiting).queue.end_write();
                    }
                    (job.operation.done)(job.operation.work, result);
                }
            }
        }
    }

    /// Completes the read of the event, so that the kernel no longer uses its buffer.
    fn cancel_event(&mut self) {
        // The closing thread has woken this one, or the write below does.
        while self.is_event_read {
            let written = (&self.shared.event).write(&1u64.to_ne_bytes());
            assert!(written.is_ok(), "an event descriptor takes a number: {written:?}");
            self.under_way.submit(1);
            self.end();
        }
    }
}
