//! The io_uring back-end: one system call a turn.
//!
//! * Each connection has one *multishot receive*: the kernel puts what arrives in a buffer it takes
//!   from a shared ring of [`Buffers`], and posts a completion, without being asked again.
//! * Sends are queued during the turn and carried out by the same `io_uring_enter` that waits for
//!   the next events. They are marked "do not wait" and "all or nothing is reported": a send that
//!   went out whole posts no completion at all, so the usual case costs nothing afterwards; one
//!   that did not posts what it managed. Either way it is over when the call returns, and its
//!   buffer is free. (The probe makes sure that the kernel does behave so.)
//! * Listeners are watched by an epoll descriptor, which the ring polls. A request of the ring
//!   keeps its file open until the kernel has torn the ring down, tens of milliseconds after the
//!   process is gone (kill -9): the port would go on taking connections when a supervisor starts
//!   the next server. An epoll descriptor keeps no file open.
//! * The ring belongs to its thread (`SINGLE_ISSUER`), and the kernel's part of the work runs when
//!   that thread enters (`DEFER_TASKRUN`), not whenever a packet arrives.
#![allow(unsafe_code)] // The shared rings: each block says why the kernel and we do not collide.

use super::buffers::{self, Buffers, Filled};
use super::coalesce::WaitLimit;
use super::conn::{Token, flag};
use super::sys;
use super::turn::{Batch, Event, Flight, MAX_SENT};
use io_uring::types::{Fd, Napi, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Requests that fit the ring; when it is full, what is queued is submitted early.
const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 4096;

/// `IORING_ENTER_GETEVENTS` and `IORING_ENTER_EXT_ARG` of the kernel's interface.
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;

/// What a completion is about: the high byte of its user data.
mod op {
    pub const RECV: u64 = 1;
    pub const SEND: u64 = 2;
    pub const ACCEPT: u64 = 3;
    pub const WAKER: u64 = 4;
    pub const WRITABLE: u64 = 5;
    pub const HANGUP: u64 = 6;
    /// The cancellation of a receive.
    pub const CANCEL: u64 = 7;
    pub const READABLE: u64 = 9;
    /// Other cancellations: whatever becomes of them is seen at the cancelled request.
    pub const IGNORE: u64 = 8;
}

fn name(op: u64, token: Token) -> u64 {
    op << 56 | token.pack()
}

/// Where the multishot request of a connection stands, and how it is read without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UringState {
    /// There is none.
    Idle,
    Armed,
    /// Cancelled, and not over yet.
    Ending,
    /// The same, and to be armed again when it is.
    Restarting,
    /// The same, and the reactor reads when it is.
    Leaving,
    /// The reactor reads.
    Direct,
    /// The reactor waits for something to read.
    Polling,
}

struct Read {
    fd: RawFd,
    generation: u32,
    state: UringState,
    /// A hang-up poll is armed instead.
    watched: bool,
}

struct Listen {
    key: u32,
    fd: RawFd,
}

/// Listeners that are looked at in one turn.
const READY_LISTENERS: usize = 16;

pub(super) struct Uring {
    ring: IoUring,
    provided: Provided,
    buffers: Buffers,
    reads: Vec<Read>,
    /// Receives of connections that are gone, which have not said that they are over: they keep
    /// their sockets open.
    orphans: HashSet<u64>,
    listens: Vec<Listen>,
    /// Watches the listeners.
    listeners: OwnedFd,
    /// There is a poll of `listeners`.
    is_accepting: bool,
    flights: Vec<Flight>,
    /// Completions on their way to becoming events; empty between calls.
    news: Vec<cqueue::Entry>,
    waker: RawFd,
    /// The kernel can wait for several completions, but not for ever (Linux 6.12).
    can_be_patient: bool,
}

impl Uring {
    /// Sets up a ring for the calling thread, which must be the one that uses it.
    pub fn new(waker: RawFd) -> io::Result<Self> {
        let ring = build()?;
        let provided = Provided::new(&ring)?;
        let mut uring = Self {
            can_be_patient: ring.params().is_feature_min_timeout(),
            ring,
            provided,
            buffers: Buffers::new(),
            reads: Vec::new(),
            orphans: HashSet::new(),
            listens: Vec::new(),
            listeners: sys::epoll()?,
            is_accepting: false,
            flights: Vec::new(),
            news: Vec::new(),
            waker,
        };
        uring.provide_more();
        uring.watch_waker();
        Ok(uring)
    }

    pub fn busy_poll(&self, micros: u32) -> io::Result<()> {
        let mut napi = Napi::new().set_busy_poll_timeout(micros);
        self.ring.submitter().register_napi(&mut napi)
    }

    fn watch_waker(&mut self) {
        let poll = opcode::PollAdd::new(Fd(self.waker), libc::POLLIN as u32).multi(true).build();
        self.push(poll.user_data(op::WAKER << 56));
    }

    fn provide_more(&mut self) -> bool {
        let Some(ids) = self.buffers.grow(self.reads.len()) else { return false };
        for id in ids {
            self.provided.add(id, self.buffers.room(id));
        }
        true
    }

    /// Queues a request, making room first if there is none.
    #[inline]
    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: what the entry points to (a flight's buffer, or nothing) outlives the next
        // `wait`, which is where every send is over; other requests point to nothing.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // A transient shortage (EAGAIN, EBUSY) leaves the queue full and is tried again;
            // completions go to the kernel's overflow list meanwhile, so this makes progress.
            let _ = self.ring.submit();
        }
    }

    /// Cancels the request with this name; nothing is heard if that works.
    fn cancel(&mut self, target: u64) {
        let user_data = if target >> 56 == op::RECV {
            name(op::CANCEL, Token::unpack(target))
        } else {
            op::IGNORE << 56
        };
        let entry = opcode::AsyncCancel::new(target).build();
        self.push(entry.user_data(user_data).flags(squeue::Flags::SKIP_SUCCESS));
    }

    fn arm_read(&mut self, token: Token) {
        let read = &mut self.reads[token.slot as usize];
        read.state = UringState::Armed;
        let entry = opcode::RecvMulti::new(Fd(read.fd), 0).build();
        self.push(entry.user_data(name(op::RECV, token)));
    }

    fn arm_accept(&mut self) {
        if !std::mem::replace(&mut self.is_accepting, true) {
            let poll = opcode::PollAdd::new(Fd(self.listeners.as_raw_fd()), libc::POLLIN as u32);
            self.push(poll.build().user_data(op::ACCEPT << 56));
        }
    }

    pub fn attach(&mut self, token: Token, fd: RawFd) -> io::Result<()> {
        self.enter(token, fd);
        self.arm_read(token);
        Ok(())
    }

    pub fn watch(&mut self, token: Token, fd: RawFd) -> io::Result<()> {
        self.enter(token, fd);
        self.await_writable(token, fd);
        Ok(())
    }

    fn enter(&mut self, token: Token, fd: RawFd) {
        let slot = token.slot as usize;
        if self.reads.len() <= slot {
            let vacant =
                || Read { fd: -1, generation: u32::MAX, state: UringState::Idle, watched: false };
            self.reads.resize_with(slot + 1, vacant);
        }
        self.reads[slot] =
            Read { fd, generation: token.generation, state: UringState::Idle, watched: false };
    }

    pub fn detach(&mut self, token: Token, flags: u32) {
        let Some(read) = self.reads.get_mut(token.slot as usize) else { return };
        if read.generation != token.generation {
            return;
        }
        let (state, watched) = (read.state, read.watched);
        // Completions that are still to come find a generation that is not theirs.
        *read = Read { fd: -1, generation: u32::MAX, state: UringState::Idle, watched: false };
        match state {
            UringState::Idle | UringState::Direct => {}
            UringState::Polling => self.cancel(name(op::READABLE, token)),
            UringState::Armed
            | UringState::Ending
            | UringState::Restarting
            | UringState::Leaving => {
                self.orphans.insert(token.pack());
            }
        }
        if state == UringState::Armed {
            self.cancel(name(op::RECV, token));
        }
        if watched {
            self.cancel(name(op::HANGUP, token));
        }
        if flags & (flag::STUCK | flag::CONNECTING) != 0 {
            self.cancel(name(op::WRITABLE, token));
        }
    }

    pub fn read_off(&mut self, token: Token) {
        let read = &mut self.reads[token.slot as usize];
        match read.state {
            UringState::Armed => {
                read.state = UringState::Ending;
                self.cancel(name(op::RECV, token));
            }
            UringState::Restarting | UringState::Leaving => read.state = UringState::Ending,
            UringState::Direct => read.state = UringState::Idle,
            UringState::Polling => {
                read.state = UringState::Idle;
                self.cancel(name(op::READABLE, token));
            }
            UringState::Idle | UringState::Ending => {}
        }
        let read = &mut self.reads[token.slot as usize];
        if !read.watched {
            read.watched = true;
            let mask = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
            let poll = opcode::PollAdd::new(Fd(read.fd), mask as u32).build();
            self.push(poll.user_data(name(op::HANGUP, token)));
        }
    }

    pub fn read_on(&mut self, token: Token) {
        let read = &mut self.reads[token.slot as usize];
        if read.watched {
            read.watched = false;
            self.cancel(name(op::HANGUP, token));
        }
        let read = &mut self.reads[token.slot as usize];
        match read.state {
            UringState::Idle | UringState::Direct => self.arm_read(token),
            UringState::Polling => {
                self.cancel(name(op::READABLE, token));
                self.arm_read(token);
            }
            UringState::Ending | UringState::Leaving => read.state = UringState::Restarting,
            UringState::Armed | UringState::Restarting => {}
        }
    }

    pub fn direct(&mut self, token: Token) {
        let read = &mut self.reads[token.slot as usize];
        // A request that ends or restarts is one that has just been switched off.
        if read.state == UringState::Armed {
            read.state = UringState::Leaving;
            self.cancel(name(op::RECV, token));
        }
    }

    pub fn is_direct(&self, token: Token) -> bool {
        self.reads[token.slot as usize].state == UringState::Direct
    }

    pub fn await_readable(&mut self, token: Token, _is_drained: bool) {
        let read = &mut self.reads[token.slot as usize];
        if read.state == UringState::Direct {
            read.state = UringState::Polling;
            let poll = opcode::PollAdd::new(Fd(read.fd), libc::POLLIN as u32).build();
            self.push(poll.user_data(name(op::READABLE, token)));
        }
    }

    pub fn await_writable(&mut self, token: Token, fd: RawFd) {
        let poll = opcode::PollAdd::new(Fd(fd), libc::POLLOUT as u32).build();
        self.push(poll.user_data(name(op::WRITABLE, token)));
    }

    #[inline]
    pub fn send(&mut self, fd: RawFd, mut flight: Flight) {
        if !flight.buf.is_plain() {
            // So long that a system call of its own does not matter.
            flight.send_now(fd, MAX_SENT);
            return self.flights.push(flight);
        }
        let len = flight.buf.len().min(MAX_SENT);
        flight.result = len as i32;
        // The buffer's bytes stay where they are when the vector that owns them moves.
        let entry = send_entry(fd, &flight.buf.plain()[..len])
            .user_data(op::SEND << 56 | self.flights.len() as u64);
        self.flights.push(flight);
        self.push(entry);
    }

    pub fn listen(&mut self, key: u32, fd: RawFd) -> io::Result<()> {
        if self.listens.iter().any(|listen| listen.key == key) {
            return Ok(());
        }
        sys::watch(&self.listeners, fd, u64::from(key))?;
        self.listens.push(Listen { key, fd });
        self.arm_accept();
        Ok(())
    }

    pub fn unlisten(&mut self, key: u32) {
        if let Some(at) = self.listens.iter().position(|l| l.key == key) {
            let listen = self.listens.swap_remove(at);
            sys::unwatch(&self.listeners, listen.fd);
        }
    }

    pub fn flights(&mut self) -> &mut Vec<Flight> {
        &mut self.flights
    }

    #[inline]
    pub fn input(&self, buf: Filled) -> &[u8] {
        self.buffers.filled(buf)
    }

    #[inline]
    pub fn recycle(&mut self, buf: Filled) {
        self.provided.add(buf.id, self.buffers.room(buf.id));
    }

    pub fn can_be_patient(&self) -> bool {
        self.can_be_patient
    }

    /// See [`Driver::wait`](super::driver::Driver::wait); without the kernel's help `wait_limit`
    /// must be none.
    pub fn wait(
        &mut self,
        timeout: Duration,
        wait_limit: Option<WaitLimit>,
        batch: &mut Batch,
    ) -> io::Result<()> {
        self.provided.publish();
        let mut want = u32::from(timeout != Duration::ZERO);
        let timespec = Timespec::from(timeout);
        let mut args = SubmitArgs::new().timespec(&timespec);
        if let Some(WaitLimit { events, time }) = wait_limit
            && want > 0
        {
            want = events;
            args = args.min_wait_usec(time.min(timeout).as_micros() as u32);
        }
        loop {
            let queued = self.ring.submission().len() as u32;
            let flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
            // SAFETY: the argument is what `EXT_ARG` announces, and lives through the call.
            let entered = unsafe { self.ring.submitter().enter(queued, want, flags, Some(&args)) };
            match entered {
                Ok(_) => {}
                // Nothing has been lost: a timeout or signal ended the sleep, or the kernel is
                // short of memory or of room for completions, which the next round makes.
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)
                    ) => {}
                Err(e) => return Err(e),
            }
            // Every send must be over before its buffer is given back. What reaping queues anew is
            // for the next wait, after the buffers of this batch have been returned.
            let all_taken = self.ring.submission().is_empty();
            self.reap(batch);
            if all_taken {
                return Ok(());
            }
            want = 0;
        }
    }

    /// Turns completions into events.
    fn reap(&mut self, batch: &mut Batch) {
        // Taken out first, because some completions queue new requests.
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.ring.completion());
        for entry in news.drain(..) {
            self.digest(&entry, batch);
        }
        self.news = news;
    }

    #[inline]
    fn digest(&mut self, entry: &cqueue::Entry, batch: &mut Batch) {
        let (data, result, flags) = (entry.user_data(), entry.result(), entry.flags());
        let token = Token::unpack(data);
        match data >> 56 {
            op::RECV => {
                if result > 0
                    && let Some(id) = cqueue::buffer_select(flags)
                {
                    let buf = Filled { id, len: result as u32 };
                    batch.events.push(Event::Data { token, buf });
                }
                if !cqueue::more(flags) {
                    self.read_ended(token, result, batch);
                }
            }
            op::SEND => {
                // Only a send that failed or fell short tells us.
                if let Some(flight) = self.flights.get_mut((data & 0xffff_ffff) as usize) {
                    flight.result = result;
                }
            }
            op::ACCEPT => self.note_arrivals(batch),
            op::WAKER if !cqueue::more(flags) => self.watch_waker(),
            op::WRITABLE => batch.events.push(Event::Writable { token }),
            // One that was cancelled says nothing of one that was made after it.
            op::READABLE if result != -libc::ECANCELED => self.readable(token, batch),
            op::READABLE => {}
            op::CANCEL => self.cancel_failed(token, result),
            op::HANGUP => {
                let current = self.reads.get_mut(token.slot as usize);
                if let Some(read) = current
                    && read.generation == token.generation
                    && read.watched
                    && result >= 0
                {
                    read.watched = false;
                    let both = result & i32::from(libc::POLLHUP | libc::POLLERR) != 0;
                    batch.events.push(Event::HungUp { token, both });
                }
            }
            _ => {}
        }
    }

    /// A receive could not be cancelled. Usually it had ended and said so; but one that is just
    /// being carried on is not found either, and must not go on for ever.
    #[cold]
    fn cancel_failed(&mut self, token: Token, result: i32) {
        let wanted = self.reads.get(token.slot as usize).is_some_and(|read| {
            let unfinished = matches!(
                read.state,
                UringState::Ending | UringState::Restarting | UringState::Leaving
            );
            read.generation == token.generation && unfinished
        });
        if result < 0 && (wanted || self.orphans.contains(&token.pack())) {
            self.cancel(name(op::RECV, token));
        }
    }

    /// There may be something to read for a connection that the reactor reads.
    #[cold]
    fn readable(&mut self, token: Token, batch: &mut Batch) {
        if let Some(read) = self.reads.get_mut(token.slot as usize)
            && read.generation == token.generation
            && read.state == UringState::Polling
        {
            read.state = UringState::Direct;
            batch.events.push(Event::Readable { token });
        }
    }

    /// The multishot receive of a connection is over.
    #[cold]
    fn read_ended(&mut self, token: Token, result: i32, batch: &mut Batch) {
        let Some(read) = self.reads.get_mut(token.slot as usize) else { return };
        if read.generation != token.generation {
            self.orphans.remove(&token.pack());
            return;
        }
        let state = std::mem::replace(&mut read.state, UringState::Idle);
        let restart = matches!(state, UringState::Armed | UringState::Restarting);
        let is_open = result > 0
            || matches!(-result, libc::ECANCELED | libc::ENOBUFS | libc::EINTR | libc::EAGAIN);
        if state == UringState::Leaving && is_open {
            read.state = UringState::Direct;
            batch.events.push(Event::Readable { token });
            return;
        }
        match result {
            0 => batch.events.push(Event::Eof { token }),
            // Bytes, but the kernel wants to be asked again.
            1.. => {
                if restart {
                    self.arm_read(token);
                }
            }
            _ => match -result {
                libc::ECANCELED => {
                    if state == UringState::Restarting {
                        self.arm_read(token);
                    }
                }
                // All buffers are in this very batch: they are back before the next call.
                libc::ENOBUFS => {
                    self.provide_more();
                    if restart {
                        self.arm_read(token);
                    }
                }
                libc::EINTR | libc::EAGAIN => {
                    if restart {
                        self.arm_read(token);
                    }
                }
                errno => batch.events.push(Event::Failed { token, errno }),
            },
        }
    }

    /// Reports the listeners at which connections wait, and has them watched again.
    fn note_arrivals(&mut self, batch: &mut Batch) {
        self.is_accepting = false;
        let ready = sys::ready::<READY_LISTENERS>(&self.listeners);
        batch.arrivals.extend(ready.map(|key| key as u32));
        if !self.listens.is_empty() {
            self.arm_accept();
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Requests that are still armed write to the buffers below: the ring must be gone, and its
        // requests with it, before they are. Cancel all of them and wait until that is done.
        let any = io_uring::types::CancelBuilder::any();
        let _ = self.ring.submitter().register_sync_cancel(None, any);
    }
}

/// A send that does not wait and posts a completion only if it fails or falls short.
#[inline]
fn send_entry(fd: RawFd, bytes: &[u8]) -> squeue::Entry {
    let flags = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
    let send = opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32).flags(flags);
    send.build().flags(squeue::Flags::SKIP_SUCCESS)
}

/// A ring with the best set of flags this kernel has.
fn build() -> io::Result<IoUring> {
    let plain = || {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_submit_all().setup_cqsize(COMPLETIONS);
        builder
    };
    let mut best = plain();
    best.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun();
    let mut older = plain();
    older.setup_coop_taskrun();
    best.build(SUBMISSIONS).or_else(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => older.build(SUBMISSIONS),
        _ => Err(e),
    })
}

/// The ring through which buffers are lent to the kernel.
struct Provided {
    entries: NonNull<io_uring::types::BufRingEntry>,
    tail: u16,
}

impl Provided {
    const LAYOUT: Layout = match Layout::from_size_align(
        buffers::MAX_BUFFERS * size_of::<io_uring::types::BufRingEntry>(),
        4096,
    ) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    fn new(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc_zeroed(Self::LAYOUT) };
        let Some(entries) = NonNull::new(memory.cast()) else { handle_alloc_error(Self::LAYOUT) };
        let provided = Self { entries, tail: 0 };
        let address = entries.as_ptr() as u64;
        // SAFETY: the memory is page-aligned, holds as many entries as announced, and lives as long
        // as the ring: both are fields of the same struct, and its `drop` ends all requests first.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                address,
                buffers::MAX_BUFFERS as u16,
                0,
                0,
            )?;
        }
        Ok(provided)
    }

    /// Lends a buffer, from the next [`Provided::publish`] on.
    #[inline]
    fn add(&mut self, id: u16, room: &mut [u8]) {
        let at = self.tail as usize % buffers::MAX_BUFFERS;
        // SAFETY: `at` is within the ring, and the kernel reads only entries below the published
        // tail; there are never more buffers than entries, so this one has been taken out before.
        let entry = unsafe { &mut *self.entries.as_ptr().add(at) };
        entry.set_addr(room.as_mut_ptr() as u64);
        entry.set_len(room.len() as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline]
    fn publish(&self) {
        // SAFETY: the tail lies in the first entry, is aligned, and is written only here; the
        // kernel reads it atomically.
        unsafe {
            let tail = io_uring::types::BufRingEntry::tail(self.entries.as_ptr());
            AtomicU16::from_ptr(tail.cast_mut()).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout. `Uring` declares the ring before this,
        // so it has been closed already.
        unsafe { dealloc(self.entries.as_ptr().cast(), Self::LAYOUT) };
    }
}
