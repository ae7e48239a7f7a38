//! Between a reactor and the engine: one connection's bytes become a session's requests, and what
//! other threads have for a session reaches its socket.

use crate::log;
use crate::net::{Close, ConnId, ConnIo, Consumed, Cx, Handler, Kind, PeerInfo, Problem};
use engine::clients::flag;
use engine::mailbox::Message;
use engine::session::{Fate, Session};
use engine::worker::{Next, Peer, now};
use engine::{Engine, Millis, Worker};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Longest time between two rounds of housekeeping.
const ROUND: Duration = Duration::from_millis(100);

/// A connection, as the handler knows it.
pub struct Conn {
    session: Session,
    /// When its output began to exceed the soft limit.
    over_soft_limit_since: Option<Millis>,
}

/// One thread's handler.
pub struct Hub {
    engine: &'static Engine,
    worker: Worker,
    by_client: HashMap<u64, ConnId>,
    /// Connections that wait for CLIENT PAUSE or a long command to end.
    paused: Vec<ConnId>,
    next_round: Millis,
    expiry: engine::expire::Cycle,
}

impl Hub {
    /// The handler of the thread whose worker this is.
    pub fn new(worker: Worker) -> Hub {
        Hub {
            engine: worker.engine(),
            worker,
            by_client: HashMap::new(),
            paused: Vec::new(),
            next_round: Millis(0),
            expiry: engine::expire::Cycle::default(),
        }
    }

    fn thread(&self) -> usize {
        self.worker.context().index
    }

    fn refuse(&self, peer: &PeerInfo, io: &mut ConnIo<'_>) -> bool {
        let config = &self.engine.config;
        if self.engine.clients.count() >= config.maxclients() {
            self.engine.stats.rejected_connections.add(1);
            io.out().extend_from_slice(b"-ERR max number of clients reached\r\n");
            return true;
        }
        if config.protected_mode() && config.requirepass().is_empty() && !peer.is_local() {
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
        let mailbox = &self.engine.mailboxes[self.thread()];
        while mailbox.has_mail() {
            for message in mailbox.take() {
                self.receive(message, cx);
            }
        }
    }

    fn receive(&mut self, message: Message, cx: &mut Cx<'_, Conn>) {
        let client = match &message {
            Message::Push(client, _)
            | Message::Resume(client, _)
            | Message::Unblock(client, _)
            | Message::Kill(client) => *client,
            Message::Recheck => return self.resume_paused(cx),
        };
        let Some((conn, mut io)) = self.by_client.get(&client).and_then(|&id| cx.get(id)) else {
            return;
        };
        match message {
            Message::Push(_, push) => self.worker.deliver(&mut conn.session, &push, io.out()),
            Message::Resume(_, resumption) => {
                if self.worker.resume(&mut conn.session, resumption, io.out()) {
                    io.resume();
                }
            }
            Message::Unblock(_, with_error) => {
                if self.worker.unblock(&mut conn.session, with_error, io.out()) {
                    io.resume();
                }
            }
            Message::Kill(_) => io.close(),
            Message::Recheck => {}
        }
    }

    fn resume_paused(&mut self, cx: &mut Cx<'_, Conn>) {
        for id in std::mem::take(&mut self.paused) {
            if let Some((conn, mut io)) = cx.get(id)
                && conn.session.suspension.is_none()
            {
                io.resume();
            }
        }
    }

    fn end_waits(&mut self, cx: &mut Cx<'_, Conn>, now: Millis) {
        for (client, token) in self.worker.due(now) {
            if let Some((conn, mut io)) = self.by_client.get(&client).and_then(|&id| cx.get(id))
                && self.worker.time_out(&mut conn.session, token, io.out())
            {
                io.resume();
            }
        }
        let until = self.engine.pause.until_ms.load(Relaxed);
        if until != 0 && until <= now.0 {
            // Several threads may find the end; only a pause that is still the same one ends.
            let pause = &self.engine.pause.until_ms;
            let _ = pause.compare_exchange(until, 0, Relaxed, Relaxed);
        }
        if until <= now.0 && !self.paused.is_empty() {
            self.resume_paused(cx);
        }
    }

    /// Housekeeping over all connections of the thread.
    fn round(&mut self, cx: &mut Cx<'_, Conn>, now: Millis) {
        if self.engine.debug.pauses_cron() {
            return;
        }
        let config = &self.engine.config;
        let timeout_ms = i64::try_from(config.timeout()).unwrap_or(0).saturating_mul(1000);
        let engine = self.engine;
        cx.for_each(|conn, io| {
            let live = &conn.session.client.live;
            live.output_bytes.store(io.pending_output(), Relaxed);
            live.query_bytes.store(io.pending_input(), Relaxed);
            let idle = now.0 - live.last_seen_ms.load(Relaxed);
            let may_idle = conn.session.suspension.is_some()
                || conn.session.is_subscribed()
                || conn.session.is_monitor;
            if timeout_ms > 0 && idle > timeout_ms && !may_idle {
                log!(Verbose, "Closing idle client");
                io.close();
            } else if is_over_output_limit(engine, conn, io, now) {
                io.close();
            } else if io.pending_input() > config.client_query_buffer_limit() {
                engine.stats.query_buffer_disconnections.add(1);
                io.close();
            }
        });
        self.expiry.begin(&self.worker);
        if self.thread() == 0 {
            self.engine.keyspace.collect_outgrown();
            let commands = self.engine.thread_stats.iter().map(|s| s.commands.get()).sum();
            self.engine.rates.sample(now.0, commands);
        }
    }
}

/// Whether a client reads so slowly that `client-output-buffer-limit` closes it.
fn is_over_output_limit(engine: &Engine, conn: &mut Conn, io: &ConnIo<'_>, now: Millis) -> bool {
    let class = if conn.session.is_subscribed() {
        config::ClientClass::PubSub
    } else {
        config::ClientClass::Normal
    };
    let limit = engine.config.client_output_buffer_limit(class);
    let pending = io.pending_output() as u64;
    if limit.soft_bytes > 0 && pending > limit.soft_bytes {
        conn.over_soft_limit_since.get_or_insert(now);
    } else {
        conn.over_soft_limit_since = None;
    }
    let soft_ms = i64::try_from(limit.soft_seconds).unwrap_or(i64::MAX).saturating_mul(1000);
    let is_over = (limit.hard_bytes > 0 && pending > limit.hard_bytes)
        || conn.over_soft_limit_since.is_some_and(|since| now.0 - since.0 > soft_ms);
    if is_over {
        engine.stats.output_buffer_disconnections.add(1);
        let client = &conn.session.client;
        log!(
            Warning,
            "Client id={} addr={} scheduled to be closed ASAP for overcoming of output buffer \
             limits.",
            client.id,
            client.addr
        );
    }
    is_over
}

impl Handler for Hub {
    type Conn = Conn;

    fn opened(&mut self, peer: &PeerInfo, io: &mut ConnIo<'_>) -> Option<Conn> {
        if self.refuse(peer, io) {
            return None;
        }
        let transport_flags = match peer.kind {
            Kind::Tcp => 0,
            Kind::Tls => flag::TLS,
            Kind::Unix => flag::UNIX_SOCKET,
        };
        let session = self.worker.connect(Peer {
            addr: peer.addr_text(),
            laddr: peer.local_text(),
            fd: peer.fd,
            is_local: peer.is_local(),
            transport_flags,
        });
        self.by_client.insert(session.id(), peer.id);
        Some(Conn { session, over_soft_limit_since: None })
    }

    #[inline]
    fn data(&mut self, conn: &mut Conn, io: &mut ConnIo<'_>, input: &[u8]) -> Consumed {
        let before = io.pending_output();
        let fed = self.worker.feed(&mut conn.session, input, io.out());
        let live = &conn.session.client.live;
        let stats = self.worker.context().stats();
        stats.net_in.add_own(fed.consumed as u64);
        stats.net_out.add_own(io.pending_output().saturating_sub(before) as u64);
        stats.reads.add_own(1);
        stats.writes.add_own(1);
        live.net_in.store(live.net_in.load(Relaxed) + fed.consumed as u64, Relaxed);
        match fed.next {
            Next::Read { missing } => Consumed::need(fed.consumed, missing),
            Next::Again if io.choked() => Consumed::read(fed.consumed),
            Next::Again => Consumed::retry(fed.consumed),
            Next::Suspended => {
                io.pause();
                Consumed::read(fed.consumed)
            }
            Next::Paused { .. } => {
                self.paused.push(io.id());
                io.pause();
                Consumed::read(fed.consumed)
            }
            Next::Closing => {
                match conn.session.fate {
                    Fate::Close => io.close(),
                    Fate::Open | Fate::CloseAfterReplies => io.close_after_flush(),
                }
                Consumed::read(input.len())
            }
        }
    }

    fn closed(&mut self, _id: ConnId, conn: Conn, _why: Close) {
        self.by_client.remove(&conn.session.id());
        self.worker.disconnect(conn.session);
    }

    fn woken(&mut self, cx: &mut Cx<'_, Conn>) {
        self.mail(cx);
    }

    fn end_of_turn(&mut self, cx: &mut Cx<'_, Conn>) {
        if self.engine.mailboxes[self.thread()].has_mail() {
            self.mail(cx);
        }
        if let Some(deadline) = self.worker.next_deadline() {
            let wait = deadline.0.saturating_sub(now().0).max(0) as u64;
            cx.tick_within(Duration::from_millis(wait));
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_, Conn>) -> Duration {
        let now = now();
        self.end_waits(cx, now);
        if now >= self.next_round {
            self.next_round = Millis(now.0 + ROUND.as_millis() as i64);
            self.round(cx, now);
        }
        let round = Duration::from_millis((self.next_round.0 - now.0).max(1) as u64);
        self.expiry.step(&mut self.worker).map_or(round, |pause| pause.min(round))
    }

    fn problem(&mut self, problem: Problem<'_>) {
        log!(Warning, "{problem}");
    }
}
