//! Between a reactor and the engine: one connection's bytes become a session's requests, and what
//! other threads have for a session reaches its socket.

mod forwarded;

use crate::client_limits::{self, Input};
use crate::forward::gaps::Gaps;
use crate::forward::{self, Forwarder};
use crate::replication::feed;
use crate::replication::feed::{Bridge, Feeding, Replica};
use crate::{inside, log, tls};
use config::TlsAuthClientsUser;
use engine::clients::{Departure, flag};
use engine::clock::now;
use engine::dispatch::NotNow;
use engine::journal::safe;
use engine::mailbox::{Message, Push, recheck_all};
use engine::session::{Fate, Session};
use engine::worker::{FeedResult, Next, Peer};
use engine::{Engine, Millis, Worker};
use keyspace::memory;
use net::{
    Close, ConnId, ConnIo, ConnectError, Consumed, Cx, Gate, Handler, Kind, PeerInfo, Problem,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use structs::output::Output;

/// Bytes of replies to one client, after which the others get their turn.
const TURN_OUTPUT: usize = 1 << 20;

/// How long a thread rests before it looks again whether connections are within their rate.
const LIMITED_REST: Duration = Duration::from_millis(2);

/// How many of them it looks at then: what is left of the rate is soon used up again.
const MOST_RESUMED: usize = 64;

/// How long CLIENT LIST goes on showing the peak of a client's replies.
const PEAK_MS: i64 = 5000;

/// Bytes behind each word of a request.
const LINE_END: usize = 2;

/// Longest time between two rounds of housekeeping.
const ROUND: Duration = Duration::from_millis(100);

/// Connections that a round looks at in one turn, and the least pause between two such turns:
/// others are served in between.
const VISITS: usize = 512;
const VISIT_PAUSE: Duration = Duration::from_millis(1);

/// How often the thread's empty pages are made available to others.
const COLLECT_EVERY: Duration = Duration::from_millis(500);

/// How often the thread for operators notes the databases' figures.
const FIGURES_EVERY: Duration = Duration::from_secs(1);

/// Between two turns of eviction that were too short.
const EVICTION_PAUSE: Duration = Duration::from_millis(1);

/// A connection, as the handler knows it.
#[allow(clippy::large_enum_variant)] // Nearly all are clients'.
pub enum Conn {
    /// A client's.
    Client(Client),
    /// What brings a snapshot for a replica whose connection is encrypted.
    Bridge(Bridge),
    /// A link to another node of the cluster.
    Link,
}

/// A client's connection.
pub struct Client {
    session: Session,
    /// When its output began to exceed the soft limit.
    over_soft_limit_since: Option<Millis>,
    /// It came by `admin-socket`.
    is_operator: bool,
    /// Bytes of input and output that waited in the last round.
    seen: (usize, usize),
    /// The longest output of one batch since `peak_since`.
    reply_peak: usize,
    peak_since: Millis,
    /// Messages that follow the reply of a command that runs elsewhere.
    held: Vec<Arc<Push>>,
    /// What it gets as a replica.
    replica: Option<Replica>,
    /// Its replies that come from other nodes of the cluster.
    gaps: Option<Box<Gaps>>,
}

/// The connection with this name, if it is a client's.
fn client_of<'c>(cx: &'c mut Cx<'_, Conn>, id: ConnId) -> Option<(&'c mut Client, ConnIo<'c>)> {
    match cx.get(id)? {
        (Conn::Client(client), io) => Some((client, io)),
        (Conn::Bridge(_) | Conn::Link, _) => None,
    }
}

impl Client {
    /// Shows the registry the longest reply of late.
    fn show_peak(&mut self, now: Millis) {
        self.session.client.live.reply_peak.store(self.reply_peak, Relaxed);
        if now.0 - self.peak_since.0 >= PEAK_MS {
            (self.reply_peak, self.peak_since) = (0, now);
        }
    }
}

/// When work that comes round is due. Setting the time of day does not change it.
#[derive(Clone, Copy, Default)]
struct Due(Option<Instant>);

impl Due {
    /// Returns whether the work is due, and sets the next time if so.
    fn falls(&mut self, now: Instant, every: Duration) -> bool {
        let falls = self.0.is_none_or(|due| now >= due);
        if falls {
            self.0 = Some(now + every);
        }
        falls
    }

    /// Sets when the work is due.
    fn set(&mut self, at: Instant) {
        self.0 = Some(at);
    }

    fn left(self, now: Instant) -> Duration {
        self.0.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }
}

/// One thread's handler.
pub struct ReactorHandler {
    engine: &'static Engine,
    worker: Worker,
    by_client: HashMap<u64, ConnId>,
    /// Connections that wait for CLIENT PAUSE or a long command to end.
    paused: Vec<ConnId>,
    /// Connections that wait for what `rate-limits` allows, the longest first.
    limited: VecDeque<ConnId>,
    replicas: Feeding,
    /// What sends requests to other nodes of the cluster.
    forwarder: Option<Forwarder>,
    /// Bridges to replicas that are about to open.
    bridges: Vec<(ConnId, Bridge)>,
    round: Due,
    /// Where a look at all connections goes on that is under way.
    next_visit: Option<usize>,
    /// When the forwarder is told the time again.
    forwarding: Due,
    collection: Due,
    figures: Due,
    /// Connections by `admin-socket`.
    operators: usize,
    /// Keys have to go, and the last turn was too short for them.
    is_evicting: bool,
    expiry: engine::expire::Cycle,
}

impl ReactorHandler {
    /// The handler of the thread whose worker this is.
    pub fn new(worker: Worker, forwarder: Option<Forwarder>) -> ReactorHandler {
        ReactorHandler {
            engine: worker.engine(),
            forwarder,
            worker,
            by_client: HashMap::new(),
            paused: Vec::new(),
            limited: VecDeque::new(),
            replicas: Feeding::default(),
            bridges: Vec::new(),
            round: Due::default(),
            next_visit: None,
            forwarding: Due::default(),
            collection: Due::default(),
            figures: Due::default(),
            operators: 0,
            is_evicting: false,
            expiry: engine::expire::Cycle::default(),
        }
    }

    fn thread(&self) -> usize {
        self.worker.context().index
    }

    /// The names of users that the client may be by its certificate (`tls-auth-clients-user`).
    fn certified(&self, peer: &PeerInfo) -> Vec<String> {
        if peer.tag == tls::BUS {
            return Vec::new();
        }
        match self.engine.config.tls_auth_clients_user() {
            TlsAuthClientsUser::Off => Vec::new(),
            TlsAuthClientsUser::CommonName => peer.cert_name.iter().cloned().collect(),
            TlsAuthClientsUser::Uri => peer.cert_uris.clone(),
        }
    }

    fn refuse_one_too_many(&self, io: &mut ConnIo<'_>) {
        self.engine.stats.rejected_connections.add(1);
        io.out().extend_from_slice(b"-ERR max number of clients reached\r\n");
    }

    fn refuse(&self, peer: &PeerInfo, io: &mut ConnIo<'_>) -> bool {
        let config = &self.engine.config;
        if self.engine.clients.count() >= config.maxclients() {
            self.refuse_one_too_many(io);
            return true;
        }
        let is_near = peer.is_local()
            || config.protected_mode_private_networks() && peer.shares_private_range();
        if config.protected_mode() && self.engine.acl.needs_no_password() && !is_near {
            io.out().extend_from_slice(
                b"-DENIED Dunlin is running in protected mode because protected mode is enabled \
                and no password is set for the default user. In this mode connections are only \
                accepted from the loopback interface. If you want to connect from external \
                computers, set a password for the default user with the requirepass option or \
                CONFIG SET requirepass, or disable protected mode with CONFIG SET protected-mode \
                no from the loopback interface.\r\n",
            );
            self.engine.stats.rejected_connections.add(1);
            return true;
        }
        false
    }

    fn mail(&mut self, cx: &mut Cx<'_, Conn>) {
        // Once: what comes meanwhile wakes the thread again, and in between it sends what this
        // makes of output and serves its clients.
        for message in self.engine.mailboxes[self.thread()].take() {
            self.receive(message, cx);
        }
    }

    fn receive(&mut self, message: Message, cx: &mut Cx<'_, Conn>) {
        let client = match &message {
            Message::Push(client, _)
            | Message::Resume(client, _)
            | Message::Unblock { client, .. }
            | Message::Kill(client)
            | Message::Overflow(client)
            | Message::Stream(client)
            | Message::Arrived(client)
            | Message::Evict(client) => *client,
            Message::Recheck => return self.resume_paused(cx),
            Message::Feed => return,
            Message::Purge => return memory::purge(),
            Message::Spread(request) => return self.spread(cx, request),
            Message::Listen => return self.listen(cx),
            Message::EndLinks => return ReactorHandler::end_links(cx),
        };
        let Some((conn, mut io)) = self.by_client.get(&client).and_then(|&id| client_of(cx, id))
        else {
            return;
        };
        let before = io.pending_output();
        match message {
            Message::Push(_, push) => {
                let out = out_of(&mut conn.gaps, &mut io);
                if !self.worker.deliver(&mut conn.session, &push, out) {
                    conn.held.push(push);
                }
                hold_back_unless_behind(self.engine, conn, &mut io);
                check_output(self.engine, conn, &mut io);
            }
            Message::Resume(_, resumption) => {
                let out = out_of(&mut conn.gaps, &mut io);
                if self.worker.resume(&mut conn.session, resumption, out) {
                    for push in std::mem::take(&mut conn.held) {
                        self.worker.deliver(&mut conn.session, &push, out);
                    }
                    io.resume();
                    hold_back_unless_behind(self.engine, conn, &mut io);
                    check_output(self.engine, conn, &mut io);
                }
            }
            Message::Unblock { token, error, fate, .. } => {
                let out = out_of(&mut conn.gaps, &mut io);
                if self.worker.unblock(&mut conn.session, token, error, out) {
                    match fate {
                        Fate::Open => io.resume(),
                        Fate::CloseAfterReplies => io.close_after_flush(),
                        Fate::Close => io.close(),
                    }
                }
            }
            Message::Arrived(_) if conn.session.suspension.is_none() => io.resume(),
            Message::Kill(_) => io.close(),
            Message::Overflow(_) => {
                client_limits::note_overflow(self.engine, &conn.session.client);
                io.close();
            }
            Message::Evict(_) => {
                client_limits::note_eviction(self.engine, &conn.session.client);
                io.close();
            }
            // The end of the turn begins streams and feeds them.
            Message::Stream(_)
            | Message::Arrived(_)
            | Message::Recheck
            | Message::Feed
            | Message::Purge
            | Message::EndLinks
            | Message::Listen
            | Message::Spread(_) => {}
        }
        let written = io.pending_output().saturating_sub(before) as u64;
        self.worker.context().stats().net_out.add_own(written);
        let live = &conn.session.client.live;
        live.net_out.store(live.net_out.load(Relaxed) + written, Relaxed);
    }

    fn feed_replicas(&mut self, cx: &mut Cx<'_, Conn>) {
        for id in self.replicas.begin(self.engine) {
            let Some((conn, mut io)) = client_of(cx, id) else { continue };
            let Some(replica) = &mut conn.replica else { continue };
            let client = &conn.session.client;
            let fed = replica.feed(self.engine, client.id, &mut io);
            client.live.net_out.fetch_add(fed.bytes as u64, Relaxed);
            if let Some(bridge) = fed.bridge {
                self.bridges.push((bridge, Bridge::new(id, Arc::clone(client))));
            }
            let stats = self.worker.context().stats();
            stats.net_out.add_own(fed.bytes as u64);
            stats.repl_out.add_own(fed.bytes as u64);
            if fed.is_cut_off {
                feed::log_cut_off(self.engine, &client.addr);
                io.close();
            }
        }
    }

    /// Looks at some of the connections that are limited, and lets those go on that may.
    fn resume_limited(&mut self, cx: &mut Cx<'_, Conn>) {
        for _ in 0..self.limited.len().min(MOST_RESUMED) {
            let Some(id) = self.limited.pop_front() else { return };
            let Some((conn, mut io)) = client_of(cx, id) else { continue };
            if !self.engine.rate_limits.is_open(&mut conn.session) {
                self.limited.push_back(id);
            } else if conn.session.suspension.is_none() {
                io.resume();
            }
        }
    }

    fn resume_paused(&mut self, cx: &mut Cx<'_, Conn>) {
        for id in std::mem::take(&mut self.paused) {
            if let Some((conn, mut io)) = client_of(cx, id)
                && conn.session.suspension.is_none()
            {
                io.resume();
            }
        }
    }

    fn end_waits(&mut self, cx: &mut Cx<'_, Conn>, now: Millis) {
        for (client, token) in self.worker.due(now) {
            if let Some((conn, mut io)) =
                self.by_client.get(&client).and_then(|&id| client_of(cx, id))
                && self.worker.time_out(&mut conn.session, token, out_of(&mut conn.gaps, &mut io))
            {
                io.resume();
            }
        }
        let pause = &self.engine.pause;
        if pause.end_if_over(now) {
            // A shutdown may hold back writes all the same, but not what else has waited.
            recheck_all(&self.engine.mailboxes);
        }
        if !pause.is_on() && !self.paused.is_empty() {
            self.resume_paused(cx);
        }
    }

    /// Does what is due every [`ROUND`], and begins a look at all connections of the thread.
    fn begin_round(&mut self, cx: &mut Cx<'_, Conn>, now: Millis) {
        self.engine.look_at_log();
        if self.engine.debug.pauses_cron() {
            self.next_visit = None;
            return;
        }
        self.worker.tidy_scripts();
        self.next_visit.get_or_insert(0);
        self.visit_some(cx, now);
        if self.worker.context().is_for_operators {
            self.note_figures(cx.now());
        } else {
            self.expiry.begin(&mut self.worker);
        }
        if self.collection.falls(cx.now(), COLLECT_EVERY) {
            memory::collect();
        }
        if self.thread() == 0 {
            self.worker.with_db(|db| engine::caching::limit_keys(db));
            // Those whose clients were evicted just now first: keys need not go for them.
            self.mail(cx);
            self.is_evicting = self.worker.keep_limit();
            self.engine.sample_rates(now);
        }
    }

    /// Looks at some connections if a look at all is under way.
    fn visit_some(&mut self, cx: &mut Cx<'_, Conn>, now: Millis) {
        let Some(first) = self.next_visit else { return };
        let engine = self.engine;
        let timeout_ms = i64::try_from(engine.config.timeout()).unwrap_or(0).saturating_mul(1000);
        self.next_visit = cx.for_some(first, VISITS, |conn, io| {
            let Conn::Client(conn) = conn else { return };
            let (input, output) = (io.pending_input(), io.pending_output());
            conn.show_peak(now);
            let session = &conn.session;
            let live = &session.client.live;
            // A client that sends or reads a large piece is not idle, though no request is
            // complete.
            if conn.seen != (input, output) {
                conn.seen = (input, output);
                live.last_seen_ms.store(now.0, Relaxed);
            }
            let idle = now.0 - live.last_seen_ms.load(Relaxed);
            // Clients that wait for CLIENT PAUSE, a long command or the disk are exempt from
            // `timeout`.
            let waits = session.is_blocked() || io.is_paused() || io.holds_output();
            let may_idle = waits || session.is_subscribed() || session.is_monitor();
            if timeout_ms > 0 && idle > timeout_ms && !may_idle {
                log!(Verbose, "Closing idle client");
                io.close();
            } else if client_limits::is_over_output_limit(
                engine,
                session,
                io.output_charge(),
                &mut conn.over_soft_limit_since,
                now,
            ) || client_limits::is_evicted(engine, session, io, Input::of(io))
            {
                io.close();
            }
        });
    }

    /// Notes what operators are told while it cannot be had.
    fn note_figures(&mut self, now: Instant) {
        if self.figures.falls(now, FIGURES_EVERY) {
            self.worker.with_db(|db| db.note_figures());
        }
    }

    /// What becomes of the connection after its input has been run as far as possible.
    fn what_comes_next(
        &mut self,
        conn: &mut Client,
        io: &mut ConnIo<'_>,
        input: &[u8],
        fed: FeedResult,
    ) -> Consumed {
        let engine = self.engine;
        match fed.next {
            Next::Read { missing } => Consumed::need(fed.consumed, missing),
            Next::ReadWord { arrived, len } => Consumed {
                bytes: fed.consumed,
                next: net::NextInput::Word { arrived, len, behind: LINE_END },
            },
            Next::Again | Next::NotNow(NotNow::Busy) => Consumed::retry(fed.consumed),
            Next::Suspended => {
                io.pause();
                Consumed::read(fed.consumed)
            }
            Next::NotNow(NotNow::Cold) => {
                io.hold_back();
                Consumed::read(fed.consumed)
            }
            Next::NotNow(NotNow::Forwarded) => {
                conn.wait_for_gaps(io);
                Consumed::read(fed.consumed)
            }
            Next::NotNow(NotNow::Limited) => {
                self.limited.push_back(io.id());
                io.pause();
                Consumed::read(fed.consumed)
            }
            Next::NotNow(NotNow::Paused) => {
                self.paused.push(io.id());
                io.pause();
                Consumed::read(fed.consumed)
            }
            Next::NotNow(NotNow::Held) => {
                self.paused.push(io.id());
                io.hold_back();
                Consumed::read(fed.consumed)
            }
            Next::Closing => {
                if conn.session.overflows {
                    client_limits::note_overflow(engine, &conn.session.client);
                }
                if let Some(misuse) = conn.session.misuse.take() {
                    client_limits::note_misuse(engine, &conn.session.client, &misuse);
                }
                match conn.session.fate {
                    Fate::Close => io.close(),
                    Fate::Open | Fate::CloseAfterReplies => match conn.end_behind_gaps() {
                        true => io.hold_back(),
                        false => io.close_after_flush(),
                    },
                }
                Consumed::read(input.len())
            }
        }
    }
}

/// Keeps the output until the clients that cache what it changes have been told, and until the
/// writes that it tells of are safe, if that is asked for: the client's own, those that it has
/// read, and those that it was told of.
#[inline]
fn hold_back(engine: &Engine, session: &mut Session, io: &mut ConnIo<'_>) {
    // Another may lead by now, if this process has stood still: what was done is neither confirmed
    // nor told.
    if std::mem::take(&mut session.answered_by_primary) && !engine.membership.is_alone() {
        return io.close();
    }
    if session.told > 0 {
        let told = std::mem::take(&mut session.told);
        if told > engine.told() {
            io.hold_until(Gate::Told, told);
        }
    }
    // They were promised a quorum, whatever the mode is since.
    for reply in session.write_replies.drain(..) {
        io.hold_reply(reply.start..reply.end, reply.position.0);
    }
    if engine.safe.holds_replies()
        && let Some(gate) = engine.gate_of(session)
    {
        let timings = &engine.timings;
        let (gate, wait) = match gate {
            safe::Gate::Disk => (Gate::Released, &timings.commit_fsync),
            safe::Gate::Quorum => (Gate::Judged, &timings.commit_quorum),
        };
        // In a history that this one has taken the place of, positions may have been further on.
        let end = engine.journal.position();
        (session.written, session.seen) = (session.written.min(end), session.seen.min(end));
        let position = session.written.max(session.seen);
        // No quorum confirms anything to a replica: neither what it has from its primary, nor what
        // it wrote as a primary, which has met its end.
        if gate == Gate::Judged && engine.upstream.is_replica() {
            return;
        }
        io.hold_until(gate, position.0);
        wait.begin(position);
    }
}

/// The same if the output has no gaps; else it is done when they are filled.
fn hold_back_unless_behind(engine: &Engine, conn: &mut Client, io: &mut ConnIo<'_>) {
    if !conn.has_gaps() {
        hold_back(engine, &mut conn.session, io);
    }
}

/// Where what a client is told goes now.
#[inline]
fn out_of<'c>(gaps: &'c mut Option<Box<Gaps>>, io: &'c mut ConnIo<'_>) -> &'c mut Output {
    match gaps {
        Some(gaps) if gaps.is_open() => gaps.out(),
        _ => io.out(),
    }
}

/// Closes a client that has too much output. What is not held up by the socket is on its way.
fn check_output(engine: &Engine, conn: &mut Client, io: &mut ConnIo<'_>) {
    if io.pending_output() <= client_limits::SMALL {
        return;
    }
    let pending = io.output_charge();
    let (session, since) = (&conn.session, &mut conn.over_soft_limit_since);
    if client_limits::is_over_output_limit(engine, session, pending, since, now())
        || (io.backlog() > 0 && client_limits::is_evicted(engine, session, io, Input::of(io)))
    {
        io.close();
    }
}

/// What the limits make of a client whose input has been run as far as `rest`, of whose next word
/// `missing` bytes have not come yet: `true` if it is to be closed.
fn exceeds(
    engine: &Engine,
    conn: &mut Client,
    io: &ConnIo<'_>,
    rest: &[u8],
    missing: usize,
) -> bool {
    let output = io.output_charge();
    let announced = if rest.is_empty() { 0 } else { rest.len().saturating_add(missing) };
    let input = Input { arrived: rest.len(), announced };
    let most = input.memory().max(output).max(conn.session.queued_bytes());
    let is_large = most > client_limits::SMALL || !conn.session.was_authenticated;
    if !is_large && engine.client_memory_limit().is_none() {
        return false;
    }
    let (session, since) = (&conn.session, &mut conn.over_soft_limit_since);
    client_limits::is_over_output_limit(engine, session, output, since, now())
        || client_limits::is_over_query_limit(engine, session, rest, rest.len())
        || client_limits::is_evicted(engine, session, io, input)
}

/// Whether a client has to go before its next request is run: another one's may have decided that
/// in this very turn. A large request counts before it runs, as it does while it arrives.
fn is_out(engine: &Engine, conn: &Client, io: &ConnIo<'_>, input: &[u8]) -> bool {
    let arrived = Input { arrived: input.len(), announced: 0 };
    conn.session.client.live.is_evicted.load(Relaxed)
        || input.len() > client_limits::SMALL
            && client_limits::is_evicted(engine, &conn.session, io, arrived)
}

impl Handler for ReactorHandler {
    type Conn = Conn;

    fn opened(&mut self, peer: &PeerInfo, io: &mut ConnIo<'_>) -> Option<Conn> {
        if peer.tag == feed::BRIDGE {
            let at = self.bridges.iter().position(|(id, _)| *id == peer.id)?;
            return Some(Conn::Bridge(self.bridges.swap_remove(at).1));
        }
        if peer.is_outgoing && peer.tag == forward::LINK {
            if let Some(forwarder) = &mut self.forwarder {
                forwarder.opened(io, peer.id);
            }
            return Some(Conn::Link);
        }
        let is_from_inside = peer.tag == inside::CLIENT || peer.tag == inside::WATCHER;
        let is_operator = peer.tag == inside::OPERATOR;
        if is_operator && self.operators >= inside::MAX_OPERATORS {
            self.refuse_one_too_many(io);
            return None;
        }
        if !is_from_inside && !is_operator && self.refuse(peer, io) {
            return None;
        }
        let transport_flags = match peer.kind {
            Kind::Tcp => 0,
            Kind::Tls => flag::TLS,
            Kind::Unix => flag::UNIX_SOCKET,
        };
        let is_ipv6 = peer.addr.is_some_and(|addr| addr.ip().to_canonical().is_ipv6());
        let connected = self.worker.connect(Peer {
            addr: if is_from_inside { inside::NAME.to_owned() } else { peer.addr_text() },
            laddr: peer.local_text(),
            fd: peer.fd,
            is_local: peer.is_local(),
            transport_flags: transport_flags | if is_ipv6 { flag::IPV6 } else { 0 },
            is_insider: is_from_inside || is_operator,
            certified: self.certified(peer),
        });
        let Some(mut session) = connected else {
            // Another thread has accepted one meanwhile.
            self.refuse_one_too_many(io);
            return None;
        };
        if peer.tag == inside::WATCHER {
            session.become_watcher(&self.engine.acl);
        }
        self.by_client.insert(session.id(), peer.id);
        self.operators += usize::from(is_operator);
        Some(Conn::Client(Client {
            session,
            is_operator,
            over_soft_limit_since: None,
            seen: (0, 0),
            reply_peak: 0,
            peak_since: now(),
            held: Vec::new(),
            replica: None,
            gaps: None,
        }))
    }

    #[inline]
    fn data(&mut self, conn: &mut Conn, io: &mut ConnIo<'_>, input: &[u8]) -> Consumed {
        let conn = match conn {
            Conn::Client(client) => client,
            Conn::Bridge(bridge) => return bridge.cross(io, input),
            Conn::Link => return self.link_data(io, input),
        };
        let engine = self.engine;
        if conn.is_behind() {
            conn.wait_for_gaps(io);
            return Consumed::read(0);
        }
        if conn.session.is_link && engine.membership.ends_links() {
            // A link that is new: its requests are not run.
            forwarded::end_link(&mut conn.session, io);
            return Consumed::read(input.len());
        }
        let (before, backlog) = (io.pending_output(), io.backlog());
        let mut received = 0;
        if let Some(word) = io.take_word() {
            received = word.len();
            conn.session.supply_word(word);
        }
        let is_counted = engine.client_memory_limit().is_some();
        if is_counted && is_out(engine, conn, io, input) {
            io.close();
            return Consumed::read(input.len());
        }
        conn.session.output_room = client_limits::output_room(engine, &conn.session, backlog);
        // Where all clients' memory is limited it is counted as it grows.
        let turn_output = if is_counted { client_limits::SMALL } else { TURN_OUTPUT };
        let out = out_of(&mut conn.gaps, io);
        let most = out.len() + turn_output;
        let fed = self.worker.feed(&mut conn.session, input, out, most);
        if conn.session.forwarding.as_ref().is_some_and(|f| !f.requests.is_empty()) {
            self.forward(conn, io);
        }
        hold_back_unless_behind(engine, conn, io);
        if conn.session.is_link
            && engine.membership.ends_links()
            && conn.session.suspension.is_none()
        {
            // It has just become one: the other node is told before it sends the first request.
            forwarded::end_link(&mut conn.session, io);
            return Consumed::read(input.len());
        }
        if conn.session.is_replica() && conn.replica.is_none() {
            conn.replica = Some(Replica::default());
            self.replicas.add(engine, self.worker.context().index, io.id());
        }
        let live = &conn.session.client.live;
        let stats = self.worker.context().stats();
        received += fed.consumed;
        stats.net_in.add_own(received as u64);
        let written = io.pending_output().saturating_sub(before) as u64;
        stats.net_out.add_own(written);
        stats.reads.add_own(1);
        stats.writes.add_own(1);
        live.net_in.store(live.net_in.load(Relaxed) + received as u64, Relaxed);
        live.net_out.store(live.net_out.load(Relaxed) + written, Relaxed);
        conn.reply_peak = conn.reply_peak.max(written as usize);
        let missing = match fed.next {
            Next::Read { missing } => missing,
            Next::ReadWord { arrived, len } => len - arrived,
            _ => 0,
        };
        if fed.next != Next::Closing && exceeds(engine, conn, io, &input[fed.consumed..], missing) {
            io.close();
            return Consumed::read(input.len());
        }
        self.what_comes_next(conn, io, input, fed)
    }

    fn ended(&mut self, conn: &mut Conn, _: &mut ConnIo<'_>) -> bool {
        match conn {
            Conn::Client(client) => client.end_behind_gaps(),
            Conn::Bridge(_) | Conn::Link => false,
        }
    }

    fn not_opened(&mut self, id: ConnId, _: net::Tag, why: &ConnectError, cx: &mut Cx<'_, Conn>) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.closed(cx, id, Some(&why.to_string()));
        }
    }

    fn drained(&mut self, conn: &mut Conn, io: &mut ConnIo<'_>) {
        if let Conn::Client(Client { replica: Some(replica), .. }) = conn
            && let Some(mut bridge) = replica.bridge().and_then(|id| io.other(id))
        {
            bridge.resume();
        }
    }

    fn growing(&mut self, conn: &mut Conn, io: &mut ConnIo<'_>) {
        let Conn::Client(conn) = conn else { return };
        let (engine, session) = (self.engine, &conn.session);
        if io.pending_input() > client_limits::SMALL
            && (client_limits::is_over_query_limit(engine, session, io.input(), io.pending_input())
                || client_limits::is_evicted(engine, session, io, Input::of(io)))
        {
            io.close();
        }
    }

    fn closed(&mut self, id: ConnId, conn: Conn, why: Close, cx: &mut Cx<'_, Conn>) {
        let conn = match conn {
            Conn::Client(client) => client,
            Conn::Bridge(bridge) => {
                if let Some((conn, mut io)) = client_of(cx, bridge.to())
                    && let Some(replica) = &mut conn.replica
                {
                    replica.bridge_ended(why, &mut io);
                }
                return;
            }
            Conn::Link => return self.link_closed(id, why, cx),
        };
        self.client_left(id, &conn, cx);
        if let Some(replica) = &conn.replica {
            self.replicas.remove(self.engine, id);
            if let Some(mut bridge) = replica.bridge().and_then(|id| cx.io(id)) {
                bridge.close();
            }
        }
        let departure = match why {
            Close::Asked => Departure::Closed,
            Close::Eof | Close::Failed(_) | Close::Tls | Close::Stopping => Departure::Left,
        };
        self.by_client.remove(&conn.session.id());
        self.operators -= usize::from(conn.is_operator);
        self.worker.disconnect(conn.session, departure);
    }

    fn woken(&mut self, cx: &mut Cx<'_, Conn>) {
        self.mail(cx);
    }

    fn told(&self) -> u64 {
        self.engine.told()
    }

    #[inline]
    fn has_sent(&mut self) -> bool {
        let mailbox = &self.engine.mailboxes[self.thread()];
        let is_unconfirmed = mailbox.is_unconfirmed();
        if is_unconfirmed {
            mailbox.confirm();
        }
        is_unconfirmed
    }

    #[inline]
    fn awaits_sending(&self) -> bool {
        self.engine.mailboxes[self.thread()].is_unconfirmed()
    }

    fn begin_of_turn(&mut self) {
        self.worker.begin_turn();
        if self.engine.tier.get().is_some() {
            tier::own_ring::reap();
        }
    }

    fn end_of_turn(&mut self, cx: &mut Cx<'_, Conn>) {
        let has_tier = self.engine.tier.get().is_some();
        if has_tier {
            // To begin reads lets the kernel tell of those that have ended: a turn earlier than the
            // next.
            tier::own_ring::flush();
            tier::own_ring::reap();
        }
        if self.forwarder.is_some() {
            self.end_turn_of_forwarder(cx);
        }
        self.engine.flush_broadcasts();
        if cx.take_awaits_judgement() {
            self.engine.ask_for_acks();
        }
        if self.engine.journal.is_active() {
            self.engine.append_log.nudge(&self.engine.journal);
            let thread = self.thread();
            self.replicas.notify_others(self.engine, thread);
        }
        if self.engine.mailboxes[self.thread()].has_mail() {
            self.mail(cx);
        }
        if !self.replicas.is_empty() {
            self.feed_replicas(cx);
        }
        if has_tier {
            tier::own_ring::flush();
        }
        if !self.limited.is_empty() {
            cx.tick_within(LIMITED_REST);
        }
        if let Some(deadline) = self.worker.next_deadline() {
            let wait = deadline.left(now()) as u64;
            cx.tick_within(Duration::from_millis(wait));
        }
        self.worker.end_turn(net::thread_cpu_time);
    }

    fn tick(&mut self, cx: &mut Cx<'_, Conn>) -> Duration {
        let now = now();
        self.end_waits(cx, now);
        self.resume_limited(cx);
        if self.round.falls(cx.now(), ROUND) {
            self.begin_round(cx, now);
        } else {
            if self.is_evicting {
                self.is_evicting = self.worker.keep_limit();
            }
            self.visit_some(cx, now);
        }
        let round = match self.next_visit {
            Some(_) => VISIT_PAUSE,
            None => self.round.left(cx.now()).max(VISIT_PAUSE),
        };
        let most = if self.is_evicting { EVICTION_PAUSE } else { round };
        let most = self.expiry.step(&mut self.worker).map_or(most, |pause| pause.min(most));
        self.tick_of_forwarder(cx, most)
    }

    fn unconfirmed(&mut self, replies: usize) -> Vec<u8> {
        self.engine.count_unconfirmed(replies)
    }

    fn problem(&mut self, problem: Problem<'_>) {
        log!(Warning, "{problem}");
    }
}
