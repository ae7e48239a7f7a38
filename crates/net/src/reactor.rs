//! One thread's event loop: see the [module](super) for what a turn is.

use super::coalesce::{Coalescer, WaitLimit};
use super::conn::{Link, Token, flag};
use super::core::Core;
use super::cx::{ConnIo, Cx};
use super::driver::Driver;
use super::epoll::Epoll;
use super::gated::{Gate, Passed};
use super::listen::Listener;
use super::peer::{Kind, PeerInfo, addresses};
use super::probe::Backend;
use super::shared::{Arrival, Net};
use super::sys;
use super::tls::Session;
use super::turn::{Batch, Event, Flight};
use super::uring::Uring;
use super::yielding::{Scheduling, Yielding};
use super::{Close, Handler, Problem};
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use structs::reactor;

/// A TLS peer that has not finished its handshake by then is dropped.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Turns in a row that only retried, after which retrying slows down: the holder of a lock
/// may wait for this very core.
const EAGER_RETRIES: u32 = 8;
const RETRY_REST: Duration = Duration::from_micros(50);
/// For so long after something was held, clients are taken to wait for their replies.
const HOLDING: Duration = Duration::from_millis(2);
/// How much later than asked for a wait of a reactor may end.
const TIMER_SLACK: Duration = Duration::from_micros(1);
/// How long a stopping reactor goes on sending to peers that are slow to read.
const STOP_TIME: Duration = Duration::from_millis(300);

/// One thread's reactor. Made and run on that thread.
pub struct Reactor<H: Handler> {
    pub(super) core: Core,
    pub(super) driver: Driver,
    pub(super) users: Vec<Option<H::Conn>>,
    pub(super) handler: H,
    /// Decrypted input on its way to the handler; empty between events.
    pub(super) plain: Vec<u8>,
    /// Buffers that need a second look; empty between turns.
    pub(super) unsettled: Vec<Flight>,
    pub(super) coalescer: Coalescer,
    yielding: Yielding,
    /// None if this thread cannot give way.
    scheduling: Option<Scheduling>,
    pub(super) net: Arc<Net>,
    pub(super) batch: Batch,
    pub(super) listening: Vec<Arc<Listener>>,
    pub(super) listening_version: u64,
    /// Listeners let go of in this turn: a queued request may still name their descriptors.
    pub(super) retired: Vec<Arc<Listener>>,
    /// Listeners that cannot accept now, and when to try again.
    pub(super) resting: Vec<u32>,
    pub(super) rested_at: Option<Instant>,
    /// Since when there is no room for another connection.
    pub(super) full_since: Option<Instant>,
    /// TLS connections before the end of their handshakes, oldest first.
    handshakes: std::collections::VecDeque<(Token, Instant)>,
    next_tick: Instant,
    /// Turns in a row that had nothing to do but retry.
    fruitless: u32,
    /// What was flushed last is to be followed up as soon as it is sent.
    eager: bool,
    /// Replies were handed over in this turn.
    pub(super) hands_over: bool,
    /// An io_uring belongs to the thread that made it.
    _not_send: PhantomData<*const ()>,
}

impl<H: Handler> Reactor<H> {
    /// Sets up the reactor of thread `thread`, which must be the calling one.
    ///
    /// # Errors
    /// The kernel refused what the back-end needs.
    ///
    /// # Panics
    /// When `net` was made for fewer threads.
    pub fn new(net: &Arc<Net>, thread: usize, handler: H) -> io::Result<Self> {
        assert!(thread < net.threads(), "there is no seat for thread {thread}");
        let waker = net.waker(thread).fd();
        let driver = match net.options().backend {
            Backend::Uring => Driver::Uring(Box::new(Uring::new(waker)?)),
            Backend::Epoll => Driver::Epoll(Box::new(Epoll::new(waker)?)),
        };
        // The kernel lets short waits last longer than they should, to save power.
        sys::set_timer_slack(TIMER_SLACK);
        // Listeners and mail may be there already.
        net.waker(thread).wake();
        Ok(Self {
            core: Core::new(thread as u8),
            driver,
            users: Vec::new(),
            handler,
            plain: Vec::new(),
            unsettled: Vec::new(),
            coalescer: Coalescer::new(Instant::now()),
            yielding: Yielding::new(Instant::now()),
            scheduling: net.options().may_schedule.then(Scheduling::of_this_thread).flatten(),
            net: net.clone(),
            batch: Batch::default(),
            listening: Vec::new(),
            listening_version: 0,
            retired: Vec::new(),
            resting: Vec::new(),
            rested_at: None,
            full_since: None,
            handshakes: std::collections::VecDeque::new(),
            next_tick: Instant::now(),
            fruitless: 0,
            eager: false,
            hands_over: false,
            _not_send: PhantomData,
        })
    }

    /// Has waits ask network cards for packets for so many microseconds before the thread sleeps.
    ///
    /// # Errors
    /// The kernel cannot do that.
    pub fn busy_poll(&self, micros: u32) -> io::Result<()> {
        self.driver.busy_poll(micros)
    }

    /// Runs until [`Net::stop`] or [`Cx::stop`]; then sends what the sockets take, reports every
    /// connection as closed, and returns the handler.
    ///
    /// # Errors
    /// The kernel refused to wait for events, which it does only when something is badly wrong.
    pub fn run(mut self) -> io::Result<H> {
        reactor::mark();
        while !self.core.stop {
            self.turn()?;
        }
        self.wind_up()?;
        let Self { driver, handler, .. } = self;
        drop(driver);
        Ok(handler)
    }

    fn turn(&mut self) -> io::Result<()> {
        let thread = self.core.thread as usize;
        self.wait()?;
        self.handler.begin_of_turn();
        let woken = self.net.waker(thread).take_notice();
        self.core.now = Instant::now();
        self.after_submission();
        if self.handler.has_sent() {
            self.net.wake_holding();
        }
        self.settle();
        self.settle_handed();
        self.release_held();
        self.deliver();
        if woken {
            self.on_woken();
        }
        if self.core.now >= self.next_tick
            || self.core.tick_wanted.is_some_and(|at| self.core.now >= at)
        {
            self.core.tick_wanted = None;
            self.tick();
        }
        self.retry();
        self.begin_handshakes();
        self.reap();
        self.advance();
        let mut cx = Cx { core: &mut self.core, users: &mut self.users };
        self.handler.end_of_turn(&mut cx);
        self.reap();
        self.advance();
        self.release_held();
        self.eager = self.flush() | self.handler.awaits_sending();
        self.announce_held();
        self.reap();
        Ok(())
    }

    /// Waits for the events of the turn, for several if that pays.
    #[inline]
    fn wait(&mut self) -> io::Result<()> {
        let thread = self.core.thread as usize;
        let timeout = self.timeout();
        // Clients that wait for held replies send nothing, and what releases them has a batch delay
        // of its own.
        let waits_for_release = self.core.now < self.core.held_at + HOLDING;
        let most = self.net.coalescing_time();
        self.give_way(waits_for_release && !most.is_zero());
        let may_wait = !(timeout.is_zero() || waits_for_release);
        let most = if may_wait { most } else { Duration::ZERO };
        let mut wait_limit = self.coalescer.wait_limit(most, self.core.now, sys::thread_cpu_time);
        if let Some(WaitLimit { events, time }) = wait_limit {
            self.net.note_coalescing(thread);
            if !self.driver.can_be_patient() {
                // The sends leave; what arrives meanwhile is found when the rest is over.
                self.driver.wait(Duration::ZERO, None, &mut self.batch)?;
                if self.batch.events.len() < events as usize {
                    self.net.waker(thread).rest(time.min(timeout));
                }
                wait_limit = None;
            }
        }
        let may_sleep = !timeout.is_zero()
            && self.batch.events.is_empty()
            && self.net.waker(thread).fall_asleep();
        let timeout = if may_sleep { timeout } else { Duration::ZERO };
        self.driver.wait(timeout, wait_limit, &mut self.batch)
    }

    /// Has this thread give way to others where that pays: see [`Yielding`].
    #[inline]
    fn give_way(&mut self, holds: bool) {
        let Some(scheduling) = &self.scheduling else { return };
        let senders = self.coalescer.senders();
        let waits = || scheduling.waits();
        let decided = self.yielding.decide(self.core.now, holds, senders, waits);
        let Some(gives_way) = decided else { return };
        if let Err(error) = scheduling.give_way(gives_way) {
            self.handler.problem(Problem::Scheduling(&error));
            self.scheduling = None;
        } else if gives_way {
            self.net.note_yielding(self.core.thread as usize);
        }
    }

    /// Lets go of output that was held and may leave.
    #[inline]
    fn release_held(&mut self) {
        let passed = self.passed();
        self.core.release(passed);
    }

    /// Up to where positions have passed the gates at this moment.
    #[inline]
    fn passed(&self) -> Passed {
        let is_waiting = !self.core.holding[Gate::Told as usize].is_empty();
        let told = match is_waiting {
            // Threads that have run their last request deliver nothing.
            true if self.net.is_stopping() => u64::MAX,
            true => self.handler.told(),
            false => self.core.passed.told,
        };
        Passed { told, ..self.net.passed() }
    }

    /// Sees to it that what this turn holds will leave.
    #[inline]
    fn announce_held(&mut self) {
        let thread = self.core.thread as usize;
        let is_holding = self.core.holds();
        self.net.set_holding(thread, is_holding);
        if is_holding || self.hands_over {
            if self.hands_over || !self.core.holding[Gate::Released as usize].is_empty() {
                self.core.held_at = self.core.now;
            }
            let passed = self.passed();
            if passed != self.core.passed {
                // The position was reached meanwhile, and only this reactor knows of these replies.
                let (handed, waker) = self.net.handed(thread);
                handed.send_due(passed.released, waker);
                if is_holding {
                    self.net.waker(thread).wake();
                }
            }
            self.hands_over = false;
        }
    }

    /// How long the next wait may last.
    fn timeout(&self) -> Duration {
        if self.eager || self.core.hurried() {
            let only_retries = !self.eager
                && self.core.leaving.is_empty()
                && self.core.hellos.is_empty()
                && self.core.rerun.is_empty()
                && self.core.dead.is_empty();
            let tired = only_retries && self.fruitless > EAGER_RETRIES;
            return if tired { RETRY_REST } else { Duration::ZERO };
        }
        let mut deadline = self.next_tick;
        if let Some(at) = self.core.tick_wanted {
            deadline = deadline.min(at);
        }
        if let Some(at) = self.rested_at {
            deadline = deadline.min(at);
        }
        if let Some((_, at)) = self.handshakes.front() {
            deadline = deadline.min(*at);
        }
        if let Some(at) = self.core.connecting_deadline() {
            deadline = deadline.min(at);
        }
        deadline.saturating_duration_since(self.core.now)
    }

    /// Takes every event of the turn to where it belongs.
    fn deliver(&mut self) {
        let events = std::mem::take(&mut self.batch.events);
        for event in &events {
            match *event {
                Event::Data { token, buf } => self.on_data(token, buf),
                Event::Eof { token } => {
                    if let Some(slot) = self.core.find(token) {
                        self.on_eof(slot);
                    }
                }
                Event::Failed { token, errno } => {
                    if let Some(slot) = self.core.find(token) {
                        self.core.kill(slot, Close::Failed(errno));
                    }
                }
                Event::HungUp { token, both } => {
                    if let Some(slot) = self.core.find(token) {
                        self.on_hung_up(slot, both);
                    }
                }
                Event::Writable { token } => {
                    if let Some(slot) = self.core.find(token) {
                        self.on_writable(slot);
                    }
                }
                Event::Readable { token } => {
                    if let Some(slot) = self.core.find(token) {
                        self.on_readable(slot);
                    }
                }
            }
        }
        if !self.core.begun_words.is_empty() {
            self.begin_direct();
        }
        let has_progress = std::mem::take(&mut self.core.has_progress);
        let is_fruitless = events.is_empty() && !has_progress;
        self.fruitless = if is_fruitless { self.fruitless.saturating_add(1) } else { 0 };
        self.batch.events = events;
        self.batch.events.clear();
        if !self.batch.arrivals.is_empty() {
            self.accept_some();
        }
    }

    fn on_woken(&mut self) {
        let thread = self.core.thread as usize;
        for arrival in self.net.take_mail(thread) {
            self.admit(arrival);
        }
        self.on_found();
        if self.net.listeners().version() != self.listening_version {
            self.sync_listeners();
        }
        self.core.stop |= self.net.is_stopping();
        let mut cx = Cx { core: &mut self.core, users: &mut self.users };
        self.handler.woken(&mut cx);
    }

    /// Makes a new socket a connection of this thread.
    pub(super) fn admit(&mut self, arrival: Arrival) {
        let Arrival { fd, kind, tag, unix_path } = arrival;
        if kind != Kind::Unix {
            // Both are wishes: a socket that has died already will say so when it is read.
            let _ = sys::set_nodelay(fd.as_raw_fd());
            let _ = sys::set_keepalive(fd.as_raw_fd(), self.net.keepalive_seconds());
        }
        let Some(slot) = self.core.take_slot() else {
            self.net.depart(self.core.thread as usize);
            return;
        };
        self.seat_users();
        let link = &mut self.core.links[slot as usize];
        (link.fd, link.tag) = (Some(fd), tag);
        self.core.live += 1;
        self.set_up(slot, kind, unix_path);
    }

    /// Begins to read a connection that was not made by this side.
    pub(super) fn set_up(&mut self, slot: u32, kind: Kind, unix_path: Option<Arc<str>>) {
        let (token, tag) = (self.core.token(slot), self.core.links[slot as usize].tag);
        let Some(raw) = self.core.links[slot as usize].fd.as_ref().map(AsRawFd::as_raw_fd) else {
            return;
        };
        if let Err(e) = self.driver.attach(token, raw) {
            self.handler.problem(Problem::Setup(&e));
            self.core.kill(slot, Close::Failed(e.raw_os_error().unwrap_or(libc::EIO)));
            return;
        }
        if kind != Kind::Tls {
            self.introduce(slot, unix_path);
            return;
        }
        let session = self.net.tls(tag).map(|context| Session::new(&context));
        let link = &mut self.core.links[slot as usize];
        if let Some(Ok(session)) = session {
            link.tls = Some(Box::new(session));
            link.flags |= flag::TLS | flag::HANDSHAKE | flag::HELLO;
            self.handshakes.push_back((token, self.core.now + HANDSHAKE_TIME));
        } else {
            let why = io::Error::other("TLS is not set up");
            self.handler.problem(Problem::Setup(&why));
            self.core.kill(slot, Close::Tls);
        }
    }

    /// Tells the handler of a connection that is ready for requests.
    pub(super) fn introduce(&mut self, slot: u32, unix_path: Option<Arc<str>>) {
        let asked_for = self.core.links[slot as usize].is(flag::OUTGOING);
        let connecting = asked_for.then(|| self.core.take_connecting(slot)).flatten();
        let unix_path = connecting.map_or(unix_path, |connecting| connecting.unix_path);
        let peer = self.peer_info(slot, unix_path);
        let mut io = ConnIo { core: &mut self.core, slot };
        match self.handler.opened(&peer, &mut io) {
            Some(user) => self.users[slot as usize] = Some(user),
            None => self.core.close_after_flush(slot),
        }
    }

    pub(super) fn peer_info(&mut self, slot: u32, unix_path: Option<Arc<str>>) -> PeerInfo {
        let id = self.core.id(slot);
        let link = &mut self.core.links[slot as usize];
        let kind = match &unix_path {
            _ if link.is(flag::TLS) => Kind::Tls,
            Some(_) => Kind::Unix,
            None => Kind::Tcp,
        };
        let (mut addr, mut local) = (None, None);
        if kind != Kind::Unix
            && let Some(fd) = link.fd.take()
        {
            let (fd, theirs, ours) = addresses(fd);
            (addr, local) = (theirs, ours);
            link.fd = Some(fd);
        }
        PeerInfo {
            id,
            fd: link.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            kind,
            tag: link.tag,
            is_outgoing: link.is(flag::OUTGOING),
            addr,
            local,
            unix_path,
            cert_name: link.tls.as_ref().and_then(|session| session.peer_name()),
            cert_uris: link.tls.as_ref().map_or_else(Vec::new, |session| session.peer_uris()),
        }
    }

    fn tick(&mut self) {
        let mut cx = Cx { core: &mut self.core, users: &mut self.users };
        let pause = self.handler.tick(&mut cx);
        self.next_tick = self.core.now + pause;
    }

    /// Takes up what waited for this turn.
    fn retry(&mut self) {
        self.end_rest();
        let now = self.core.now;
        while let Some((token, _)) = self.handshakes.front().filter(|(_, at)| *at <= now).copied() {
            self.handshakes.pop_front();
            if let Some(slot) = self.core.find(token)
                && self.core.links[slot as usize].is(flag::HANDSHAKE)
            {
                self.tls_failed(slot, "handshake timed out");
            }
        }
        if !self.core.retries.is_empty() {
            for token in std::mem::take(&mut self.core.retries) {
                if let Some(slot) = self.core.find(token) {
                    self.core.links[slot as usize].flags &= !flag::RETRY;
                    self.again(slot);
                }
            }
        }
        if !self.core.rerun.is_empty() {
            for token in std::mem::take(&mut self.core.rerun) {
                if let Some(slot) = self.core.find(token) {
                    self.core.links[slot as usize].flags &= !flag::RERUN;
                    self.again(slot);
                }
            }
        }
    }

    /// Takes leave of the connections that ended.
    #[inline]
    pub(super) fn reap(&mut self) {
        self.seat_users();
        if !(self.core.dead.is_empty() && self.core.not_opened.is_empty()) {
            self.remove_ended();
        }
    }

    fn remove_ended(&mut self) {
        while let Some((slot, why)) = self.core.dead.pop() {
            let token = self.core.token(slot);
            let link = &mut self.core.links[slot as usize];
            self.driver.detach(token, link.flags);
            // The generation makes every older name of the slot stale.
            let fresh = Link { generation: link.generation.wrapping_add(1), ..Link::default() };
            let gone = std::mem::replace(link, fresh);
            // Otherwise the peer would not hear of it before the last descriptor is closed.
            if let Some(fd) = gone.fd.as_ref().filter(|_| gone.is(flag::SHARED)) {
                sys::shutdown(fd.as_raw_fd());
            }
            let (handed, _) = self.net.handed(self.core.thread as usize);
            let (is_outgoing, is_counted) =
                (gone.is(flag::OUTGOING), !gone.is(flag::OUTGOING | flag::ADOPTED));
            match gone.fd {
                // It is being sent at this moment: the number must stay what it is.
                Some(fd) if gone.is(flag::HANDED) && handed.take_back(token).is_none() => {
                    self.core.lingering.push((token, fd));
                }
                fd => self.core.leaving.add(fd, self.net.admission()),
            }
            self.core.closing.push(slot);
            self.core.live -= 1;
            if is_counted {
                self.net.depart(self.core.thread as usize);
            }
            if is_outgoing {
                self.core.connecting_ended(token, why);
            }
            if let Some(user) = self.users[slot as usize].take() {
                let id = super::ConnId::new(self.core.thread, token);
                let mut cx = Cx { core: &mut self.core, users: &mut self.users };
                self.handler.closed(id, user, why, &mut cx);
                self.seat_users();
            }
        }
        if !self.core.not_opened.is_empty() {
            self.tell_not_opened();
        }
    }

    /// Sends what the sockets still take, and ends everything. No connection ends before all
    /// reactors have run their last request: the one that asked for the shutdown would take its end
    /// for the server's, while another thread still answers.
    fn wind_up(&mut self) -> io::Result<()> {
        let end = || self.net.end_service(STOP_TIME);
        reactor::waiting("the thread has run its last request", end);
        for listener in std::mem::take(&mut self.listening) {
            self.driver.unlisten(listener.key);
            self.retired.push(listener);
        }
        for slot in 0..self.core.links.len() as u32 {
            let link = &self.core.links[slot as usize];
            if link.fd.is_some() && !link.is(flag::DEAD | flag::HANDSHAKE | flag::CONNECTING) {
                self.core.close_after_flush(slot);
            }
        }
        // What is sent piece by piece goes on without an event.
        let mut goes_on = self.flush();
        let deadline = Instant::now() + STOP_TIME;
        loop {
            let waits = |link: &Link| {
                link.is(flag::STUCK | flag::HANDED) || link.holds() || link.unsealed() > 0
            };
            let stuck = self.core.links.iter().any(waits);
            let timeout =
                if stuck && !goes_on { Duration::from_millis(10) } else { Duration::ZERO };
            self.driver.wait(timeout, None, &mut self.batch)?;
            self.after_submission();
            self.settle();
            self.settle_handed();
            let events = std::mem::take(&mut self.batch.events);
            for event in events {
                match event {
                    Event::Data { buf, .. } => self.driver.recycle(buf),
                    Event::Writable { token } => {
                        if let Some(slot) = self.core.find(token) {
                            self.on_writable(slot);
                        }
                    }
                    _ => {}
                }
            }
            self.release_held();
            goes_on = self.flush();
            self.announce_held();
            self.core.dead.iter_mut().for_each(|(_, why)| *why = Close::Stopping);
            self.reap();
            let stuck = self.core.links.iter().any(waits);
            if !(stuck || goes_on) || Instant::now() >= deadline {
                break;
            }
        }
        self.batch.arrivals.clear();
        for slot in 0..self.core.links.len() as u32 {
            self.core.kill(slot, Close::Stopping);
        }
        self.reap();
        // Those that were on their way here have nowhere to go.
        for arrival in self.net.take_mail(self.core.thread as usize) {
            drop(arrival);
            self.net.depart(self.core.thread as usize);
        }
        // Cancellations go out, so that closing is closing.
        self.driver.wait(Duration::ZERO, None, &mut self.batch)?;
        self.after_submission();
        self.core.leaving.close(usize::MAX, self.net.admission());
        Ok(())
    }
}
