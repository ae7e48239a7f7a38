//! What the reactor threads share: listeners, settings that can change at run time, and each
//! thread's seat, through which others reach it.

use super::admission::{Admission, Room, SharedAdmission};
use super::gated::Passed;
use super::handed::HandedReplies;
use super::listen::{BindError, ListenSpec, Listener, Listeners};
use super::peer::{Kind, Tag};
use super::probe::Backend;
use super::resolve::{Found, Resolver};
use super::tls::TlsContext;
use super::waker::Waker;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use structs::sync::{lock, wait_timeout};

/// The most reactor threads there can be: as many as a byte of a connection's name tells apart, and
/// as `io-threads` allows.
pub const MAX_THREADS: usize = 256;

/// How often [`Net::wait_for_end`] asks whether it is to give up, and how often before the end was
/// asked for.
const LOOK: Duration = Duration::from_millis(10);
const SLOW_LOOK: Duration = Duration::from_secs(10);

/// How the network layer is set up.
#[derive(Debug, Clone)]
pub struct NetOptions {
    /// The back-end, as [`Backend::choose`] found it.
    pub backend: Backend,
    /// How many reactor threads there will be, at most [`MAX_THREADS`].
    pub threads: usize,
    /// Connections with these tags belong to the last thread, and no others do. Where there are
    /// none, or only one thread, every thread serves all.
    pub reserved: &'static [Tag],
    /// Seconds of silence after which the kernel probes a TCP peer; zero for never.
    pub keepalive_seconds: u32,
    /// How long a busy thread may wait for several connections to have sent something.
    pub coalescing_time: Duration,
    /// How many strangers a turn lets in.
    pub admission: Admission,
    /// Pending connections a listener may have.
    pub backlog: u32,
    /// Threads may choose their scheduling policy. Not where a filter of system calls may kill for
    /// it.
    pub may_schedule: bool,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            backend: Backend::Epoll,
            threads: 1,
            reserved: &[],
            keepalive_seconds: 300,
            coalescing_time: Duration::from_micros(50),
            admission: Admission::default(),
            backlog: 511,
            may_schedule: true,
        }
    }
}

/// A new connection on its way to its thread.
pub(super) struct Arrival {
    pub fd: OwnedFd,
    pub kind: Kind,
    pub tag: Tag,
    pub unix_path: Option<Arc<str>>,
}

impl Arrival {
    pub fn accepted(fd: OwnedFd, from: &Listener) -> Self {
        Self { fd, kind: from.spec.kind, tag: from.tag(), unix_path: from.unix_path.clone() }
    }

    pub fn adopted(fd: OwnedFd, kind: Kind, tag: Tag) -> Self {
        let unix_path = (kind == Kind::Unix).then(|| Arc::from(""));
        Self { fd, kind, tag, unix_path }
    }
}

/// One thread, as the others see it.
struct Seat {
    waker: Waker,
    /// Connections it has or has been assigned.
    connections: AtomicUsize,
    mail: Mutex<Vec<Arrival>>,
    /// Answers of the resolver.
    found: Mutex<Vec<Found>>,
    /// Replies that it has handed over.
    handed: HandedReplies,
    /// It holds output back.
    is_holding: AtomicBool,
    /// Waits that were for several events.
    coalesced_waits: AtomicU64,
    /// How often it began to give way to other threads.
    yielding: AtomicU64,
    /// TLS handshakes that wait for their turn, and those that were refused.
    waiting_handshakes: AtomicUsize,
    refused_handshakes: AtomicU64,
}

/// What all reactor threads share. Made once, before the threads.
pub struct Net {
    options: NetOptions,
    keepalive_seconds: AtomicU32,
    coalescing_micros: AtomicU32,
    admission: SharedAdmission,
    stopping: AtomicBool,
    /// Reactors that may still run requests, once [`Net::stop`] was called.
    serving: Mutex<usize>,
    /// Told when a reactor has run its last request.
    served: Condvar,
    /// Output held at the gate `Released` for positions up to this one may leave.
    released: AtomicU64,
    /// The same for the gate `Judged`; see [`Passed`].
    confirmed: AtomicU64,
    given_up: AtomicU64,
    epoch: AtomicU64,
    confirmed_before: AtomicU64,
    seats: Box<[Seat]>,
    assigning: Mutex<()>,
    listeners: Listeners,
    tls: Mutex<HashMap<Tag, Arc<TlsContext>>>,
    resolver: Resolver,
}

fn micros(time: Duration) -> u32 {
    time.as_micros().min(3_600_000_000) as u32
}

impl Net {
    /// Prepares for `options.threads` reactors.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(options: NetOptions) -> io::Result<Arc<Self>> {
        let threads = options.threads.clamp(1, MAX_THREADS);
        let seat = |_| {
            Ok(Seat {
                waker: Waker::new()?,
                connections: AtomicUsize::new(0),
                mail: Mutex::default(),
                found: Mutex::default(),
                handed: HandedReplies::default(),
                is_holding: AtomicBool::new(false),
                coalesced_waits: AtomicU64::new(0),
                yielding: AtomicU64::new(0),
                waiting_handshakes: AtomicUsize::new(0),
                refused_handshakes: AtomicU64::new(0),
            })
        };
        Ok(Arc::new(Self {
            keepalive_seconds: AtomicU32::new(options.keepalive_seconds),
            coalescing_micros: AtomicU32::new(micros(options.coalescing_time)),
            admission: SharedAdmission::new(options.admission),
            stopping: AtomicBool::new(false),
            serving: Mutex::new(threads),
            served: Condvar::new(),
            released: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            confirmed_before: AtomicU64::new(0),
            seats: (0..threads).map(seat).collect::<io::Result<_>>()?,
            assigning: Mutex::new(()),
            listeners: Listeners::default(),
            tls: Mutex::default(),
            resolver: Resolver::default(),
            options,
        }))
    }

    /// Makes `specs` the listeners, now and at run time: keeps those that are open, opens the new
    /// ones, closes the others. If one cannot be opened, nothing changes.
    ///
    /// # Errors
    /// Which listener could not be opened, and why.
    pub fn rebind(&self, specs: &[ListenSpec]) -> Result<(), BindError> {
        self.listeners.rebind(specs, self.options.backlog)?;
        self.wake_all();
        Ok(())
    }

    /// Whether there is no listener: what was asked for may all be optional, and absent.
    pub fn is_deaf(&self) -> bool {
        self.listeners.is_empty()
    }

    /// The addresses the TCP listeners have.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.addresses()
    }

    /// Sets what TLS connections with this tag use that are accepted from now on; the others keep
    /// what they have.
    pub fn set_tls(&self, tag: Tag, context: Option<Arc<TlsContext>>) {
        let mut contexts = lock(&self.tls);
        match context {
            Some(context) => drop(contexts.insert(tag, context)),
            None => drop(contexts.remove(&tag)),
        }
    }

    /// Makes a connected socket a connection of the thread with the fewest, as if it had been
    /// accepted.
    pub fn adopt(&self, fd: OwnedFd, kind: Kind, tag: Tag) {
        self.hand_over(self.assign(0, tag), Arrival::adopted(fd, kind, tag));
    }

    /// Sets the keep-alive time of connections accepted from now on; zero for none.
    pub fn set_keepalive(&self, seconds: u32) {
        self.keepalive_seconds.store(seconds, Ordering::Relaxed);
    }

    /// Sets how long a busy thread may wait for several connections to have sent something; zero
    /// for not at all. Up to an hour counts.
    pub fn set_coalescing_time(&self, time: Duration) {
        self.coalescing_micros.store(micros(time), Ordering::Relaxed);
    }

    /// Sets how many strangers a turn lets in.
    pub fn set_admission(&self, admission: Admission) {
        self.admission.set(admission);
    }

    pub(super) fn admission(&self) -> &SharedAdmission {
        &self.admission
    }

    /// How many TLS handshakes wait for their turn.
    pub fn waiting_handshakes(&self) -> usize {
        self.seats.iter().map(|seat| seat.waiting_handshakes.load(Ordering::Relaxed)).sum()
    }

    /// How many TLS handshakes were refused because too many waited.
    pub fn refused_handshakes(&self) -> u64 {
        self.seats.iter().map(|seat| seat.refused_handshakes.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn note_waiting_handshakes(&self, thread: usize, waiting: usize) {
        self.seats[thread].waiting_handshakes.store(waiting, Ordering::Relaxed);
    }

    pub(super) fn note_refused_handshake(&self, thread: usize) {
        self.seats[thread].refused_handshakes.fetch_add(1, Ordering::Relaxed);
    }

    /// How many waits have been for several events.
    pub fn coalesced_waits(&self) -> u64 {
        self.seats.iter().map(|seat| seat.coalesced_waits.load(Ordering::Relaxed)).sum()
    }

    /// How often a thread has begun to give way to others, because replies to its clients are held.
    pub fn periods_yielding(&self) -> u64 {
        self.seats.iter().map(|seat| seat.yielding.load(Ordering::Relaxed)).sum()
    }

    /// The waker of a thread: the one that [`ConnId::thread`](super::ConnId::thread) names.
    ///
    /// # Panics
    /// When there is no such thread.
    #[inline]
    pub fn waker(&self, thread: usize) -> &Waker {
        &self.seats[thread].waker
    }

    /// Wakes every reactor.
    pub fn wake_all(&self) {
        for seat in &self.seats {
            seat.waker.wake();
        }
    }

    /// From now on output is [held](super::ConnIo::hold_until) at the gate `Released` for positions
    /// behind this one, also for those that were released. A reactor knows by the end of its turn.
    pub fn release_only(&self, position: u64) {
        self.released.store(position, Ordering::SeqCst);
    }

    /// What is [held](super::ConnIo::hold_until) at the gate `Judged` has met its end up to these
    /// positions. `released` and `confirmed_before` are not looked at. Callers take turns.
    pub fn judge(&self, passed: Passed) {
        if passed.epoch != self.epoch.load(Ordering::SeqCst) {
            let confirmed = self.confirmed.load(Ordering::SeqCst);
            self.confirmed_before.store(confirmed, Ordering::SeqCst);
        }
        self.confirmed.store(passed.confirmed, Ordering::SeqCst);
        self.given_up.store(passed.given_up, Ordering::SeqCst);
        // Last: a reactor that sees the new epoch sees positions of that epoch.
        self.epoch.store(passed.epoch, Ordering::SeqCst);
        self.wake_holding();
    }

    /// Wakes the reactors that hold output.
    pub(super) fn wake_holding(&self) {
        for seat in &self.seats {
            if seat.is_holding.load(Ordering::SeqCst) {
                seat.waker.wake();
            }
        }
    }

    /// Lets go of output that is [held](super::ConnIo::hold_until) at the gate `Released` for
    /// positions up to this one. Most of it is sent by the calling thread.
    pub fn release(&self, position: u64) {
        self.released.store(position, Ordering::SeqCst);
        self.wake_holding();
        for seat in &self.seats {
            seat.handed.send_due(position, &seat.waker);
        }
    }

    /// The replies that a thread has handed over, and the waker that they are returned with.
    #[inline]
    pub(super) fn handed(&self, thread: usize) -> (&HandedReplies, &Waker) {
        let seat = &self.seats[thread];
        (&seat.handed, &seat.waker)
    }

    /// What is handed over waits at the gate `Released`.
    pub(super) fn released(&self) -> u64 {
        self.released.load(Ordering::SeqCst)
    }

    pub(super) fn passed(&self) -> Passed {
        let epoch = self.epoch.load(Ordering::SeqCst);
        Passed {
            epoch,
            released: self.released(),
            confirmed: self.confirmed.load(Ordering::SeqCst),
            given_up: self.given_up.load(Ordering::SeqCst),
            confirmed_before: self.confirmed_before.load(Ordering::SeqCst),
            told: 0,
        }
    }

    /// Says whether a thread wants to be woken by [`Net::release`]; to be said before it looks at
    /// what is released.
    pub(super) fn set_holding(&self, thread: usize, is_holding: bool) {
        let seat = &self.seats[thread].is_holding;
        if seat.load(Ordering::Relaxed) != is_holding {
            seat.store(is_holding, Ordering::SeqCst);
        }
    }

    /// How many reactor threads there are.
    pub fn threads(&self) -> usize {
        self.seats.len()
    }

    /// Connections of one thread, those on their way to it included.
    pub fn connections(&self, thread: usize) -> usize {
        self.seats[thread].connections.load(Ordering::Acquire)
    }

    /// What was asked for.
    pub fn options(&self) -> &NetOptions {
        &self.options
    }

    /// Ends all reactors; output their sockets take at once is still sent.
    pub fn stop(&self) {
        // First: a client that is disconnected and tries again must not get in.
        self.listeners().refuse();
        self.stopping.store(true, Ordering::SeqCst);
        // `wait_for_end` has looked at it, or waits.
        drop(lock(&self.serving));
        self.served.notify_all();
        self.wake_all();
    }

    /// Waits until all reactors have run their last request, or until those that have not are to be
    /// left behind: `gives_up` is asked now and then.
    pub fn wait_for_end(&self, gives_up: impl Fn() -> bool) {
        let mut serving = lock(&self.serving);
        while *serving > 0 && !gives_up() {
            let pause = if self.is_stopping() { LOOK } else { SLOW_LOOK };
            serving = wait_timeout(&self.served, serving, pause, |serving| {
                *serving > 0 && (pause == LOOK || !self.is_stopping())
            });
        }
    }

    /// Whether [`Net::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The calling reactor has run its last request. Where all stop, waits for the others, for
    /// `timeout` at most.
    pub(super) fn end_service(&self, timeout: Duration) {
        let mut serving = lock(&self.serving);
        *serving -= 1;
        self.served.notify_all();
        if self.is_stopping() {
            drop(wait_timeout(&self.served, serving, timeout, |serving| *serving > 0));
        }
    }

    pub(super) fn keepalive_seconds(&self) -> u32 {
        self.keepalive_seconds.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn coalescing_time(&self) -> Duration {
        Duration::from_micros(self.coalescing_micros.load(Ordering::Relaxed).into())
    }

    /// A thread, the calling one, waits for several events.
    #[inline]
    pub(super) fn note_coalescing(&self, thread: usize) {
        let waits = &self.seats[thread].coalesced_waits;
        waits.store(waits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A thread, the calling one, begins to give way.
    pub(super) fn note_yielding(&self, thread: usize) {
        self.seats[thread].yielding.fetch_add(1, Ordering::Relaxed);
    }

    /// What TLS connections of this tag use that are accepted from now on.
    pub fn tls(&self, tag: Tag) -> Option<Arc<TlsContext>> {
        lock(&self.tls).get(&tag).cloned()
    }

    pub(super) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// The resolver has an answer for a thread.
    pub(super) fn found(&self, thread: usize, found: Found) {
        lock(&self.seats[thread].found).push(found);
        self.seats[thread].waker.wake();
    }

    pub(super) fn take_found(&self, thread: usize) -> Vec<Found> {
        std::mem::take(&mut *lock(&self.seats[thread].found))
    }

    pub(super) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Returns whether a thread, of whose connections some may be ending, may accept one more. The
    /// reserved thread always may: its connections are few, and have descriptors of their own.
    pub(super) fn room(&self, thread: usize, are_ending: bool) -> Room {
        if self.reserved_thread() == Some(thread) {
            return Room::Free;
        }
        self.admission.room(self.threads(), self.all_connections(), are_ending)
    }

    /// Returns how many descriptors that wait a thread with so many listeners closes in this turn.
    pub(super) fn closes(&self, listeners: usize) -> usize {
        self.admission.closes(self.threads(), listeners, self.all_connections())
    }

    /// Connections of all threads, those on their way included.
    fn all_connections(&self) -> usize {
        (0..self.threads()).map(|thread| self.connections(thread)).sum()
    }

    /// Returns the thread that serves the reserved tags and nothing else, if there is one.
    fn reserved_thread(&self) -> Option<usize> {
        let has_reserved = !self.options.reserved.is_empty() && self.threads() > 1;
        has_reserved.then(|| self.threads() - 1)
    }

    /// Returns the threads that serve connections with this tag.
    fn threads_for(&self, tag: Tag) -> Range<usize> {
        match self.reserved_thread() {
            None => 0..self.threads(),
            Some(last) if self.options.reserved.contains(&tag) => last..last + 1,
            Some(last) => 0..last,
        }
    }

    /// Returns whether a thread serves connections with this tag.
    pub(super) fn serves(&self, thread: usize, tag: Tag) -> bool {
        self.threads_for(tag).contains(&thread)
    }

    /// Picks the thread with the fewest connections of those that serve this tag, the caller's if
    /// it is among them, and counts the new connection there.
    pub(super) fn assign(&self, own: usize, tag: Tag) -> usize {
        // Accepting is rare and expensive enough for a lock, which makes the spreading exact.
        let _one_at_a_time = lock(&self.assigning);
        let load = |thread: &usize| (self.connections(*thread), *thread != own);
        let chosen = self.threads_for(tag).min_by_key(load).unwrap_or(own);
        self.seats[chosen].connections.fetch_add(1, Ordering::Relaxed);
        chosen
    }

    pub(super) fn depart(&self, thread: usize) {
        // A thread that sees it sees that the descriptor waits to be closed.
        self.seats[thread].connections.fetch_sub(1, Ordering::Release);
    }

    pub(super) fn hand_over(&self, thread: usize, arrival: Arrival) {
        lock(&self.seats[thread].mail).push(arrival);
        self.seats[thread].waker.wake();
    }

    pub(super) fn take_mail(&self, thread: usize) -> Vec<Arrival> {
        std::mem::take(&mut *lock(&self.seats[thread].mail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_where_there_are_fewest() {
        let net = Net::new(NetOptions { threads: 3, ..NetOptions::default() }).unwrap();
        for _ in 0..30 {
            net.assign(1, Tag::default());
        }
        assert_eq!([0, 1, 2].map(|t| net.connections(t)), [10, 10, 10]);
        net.depart(2);
        assert_eq!(net.assign(0, Tag::default()), 2, "the one with a vacancy");
        assert_eq!(net.assign(1, Tag::default()), 1, "a tie goes to the one that accepted");
    }

    #[test]
    fn a_reserved_thread_has_its_tags_and_nothing_else() {
        const RESERVED: Tag = Tag(7);
        let options = NetOptions { threads: 3, reserved: &[RESERVED], ..NetOptions::default() };
        let net = Net::new(options).unwrap();
        for _ in 0..4 {
            net.assign(2, Tag::default());
            net.assign(0, RESERVED);
        }
        assert_eq!([0, 1, 2].map(|t| net.connections(t)), [2, 2, 4]);
        assert!(net.serves(2, RESERVED) && !net.serves(2, Tag::default()));
        assert!(net.serves(0, Tag::default()) && !net.serves(0, RESERVED));
    }
}
