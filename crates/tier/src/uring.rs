//! Reads and writes through io_uring: one thread, and many operations under way.
//!
//! The thread owns the ring. Others put operations in a queue and, if the thread sleeps, wake it through an
//! event descriptor that the ring reads. One system call begins all that has come and waits until
//! something ends. So a read costs a part of a system call when many are wanted, and no thread of its own.
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

/// Operations under way at most.
const MAX_OPERATIONS: usize = 256;
/// Requests that fit the ring: those, and the wake-up.
const ENTRIES: u32 = (MAX_OPERATIONS + 1).next_power_of_two() as u32;
/// Stands for the wake-up, where an operation has its place.
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
    /// The thread sleeps, or will without looking at the queue again.
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
        // The kernel ties a ring to the thread that makes it.
        let thread = spawn(Box::new(move || serve(for_thread, &to_us)))?;
        let made = from_thread.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        made.map(|()| Ring { shared, thread: Mutex::new(Some(thread)) })
    }
}

impl Shared {
    /// Changes what waits, and wakes the thread.
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

/// A ring with these flags, or with none where this kernel does not have them.
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

/// A ring and the operations that are under way in it.
pub(crate) struct UnderWay {
    ring: IoUring,
    /// Each at its place; their memory is the kernel's.
    jobs: Box<[Option<Job>]>,
    /// Places without an operation.
    free: Vec<usize>,
}

/// What has ended.
pub(crate) enum Ended {
    /// The wake-up.
    WakeUp,
    /// An operation: how many bytes were read or written.
    Job(Job, io::Result<usize>),
}

impl UnderWay {
    /// For so many operations at a time; the ring has room for one more.
    pub fn new(ring: IoUring, most: usize) -> UnderWay {
        UnderWay { ring, jobs: (0..most).map(|_| None).collect(), free: (0..most).collect() }
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn is_idle(&self) -> bool {
        self.free.len() == self.jobs.len()
    }

    /// Has the kernel begin an operation with the next call; there is room.
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
        // SAFETY: the memory of an operation belongs to its job, and that of the event to the server; both
        // stay, and nothing else touches them, until the kernel says that it has done with them.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(name)) };
        assert!(pushed.is_ok(), "the ring has an entry for each operation");
    }

    /// Operations that were started and that the kernel does not know of.
    pub fn unbegun(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Begins what was started, and waits until so many have ended.
    ///
    /// # Panics
    /// The ring fails, which it does for no reason that a disk could give.
    pub fn submit(&self, wait_for: usize) {
        match self.ring.submit_and_wait(wait_for) {
            Ok(_) => {}
            // Nothing is lost: what was not begun is begun with the next call.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) => {}
            Err(error) => panic!("the tier's ring fails: {error}"),
        }
    }

    /// The next that has ended.
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
    /// What the event descriptor's number is read into.
    event: Box<[u8; 8]>,
    is_event_read: bool,
}

impl Server {
    fn new(ring: IoUring, shared: Arc<Shared>) -> Server {
        let under_way = UnderWay::new(ring, MAX_OPERATIONS);
        Server { under_way, shared, event: Box::default(), is_event_read: false }
    }

    /// Until the ring is closed and all is over.
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

    /// Takes what may begin from the queue; `false` if nothing is left to do for ever.
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

    /// Tells of what is over.
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

    /// Has the kernel let go of the memory that the event's number is read into.
    fn cancel_event(&mut self) {
        // One who closes has woken the thread, or wakes it now.
        while self.is_event_read {
            let written = (&self.shared.event).write(&1u64.to_ne_bytes());
            assert!(written.is_ok(), "an event descriptor takes a number: {written:?}");
            self.under_way.submit(1);
            self.end();
        }
    }
}
