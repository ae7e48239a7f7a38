//! Connections to servers: shared ones, and those that a client has for itself.

use super::flow::cost;
use super::passing::{PROGRESS_WITHIN, Passing};
use super::stepping::{Names, Setting, changes};
use super::tracking::Tracking;
use super::wire::{Id, Wire};
use super::{Conn, Hub};
use crate::failure::{Ended, Failure};
use crate::policy::Policy;
use crate::pool::{LinkKey, Local, Session};
use crate::stats::{LARGE, Times};
use resp::{Protocol, ReplyLimits, Scanner};
use route::link::{Broken, Link, Received, Step};
use route::raw;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Between two attempts to connect to a server that could not be reached.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// How long a node that leads no shard any more may take to answer what it was asked before.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Replies to clients that have gone are read up to so many bytes within [`VOID_WITHIN`]. With more,
/// their connection is closed, since those of other clients would wait behind them.
const MAX_VOID: usize = 64 << 20;
const VOID_WITHIN: Duration = Duration::from_secs(1);

/// So much is read of one connection to a server in a turn.
const TURN_BYTES: usize = 1 << 20;

/// Most shared connections of a thread to one server, for each of the pool's `server_connections`:
/// there is one for each protocol and database in use.
const MAX_SHARED: usize = 64;

/// Where a reply goes.
#[derive(Debug)]
pub struct Tag {
    /// The client.
    pub client: Id,
    /// The request's number.
    pub seq: u64,
    /// The part of a request that was split.
    pub part: u32,
    /// What it takes in the queue; set when it is sent.
    pub bytes: u32,
    /// What it is.
    pub purpose: Purpose,
}

/// What a request was made for.
#[derive(Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Its reply goes to the client.
    Client,
    /// Its reply goes nowhere.
    Discard,
    /// CLIENT ID: its reply is the number by which the server knows the connection.
    Identify,
    /// A question of another thread, by its number.
    Relay(u64),
    /// COMMAND INFO about this name.
    Learn(String),
    /// To a cluster: its reply may be a redirection, so the request is kept, and how often it was
    /// tried.
    Redirectable(Box<Kept>),
    /// To a cluster: it was too long to be kept, so it cannot be sent elsewhere.
    Streamed,
    /// To a cluster, between MULTI and EXEC.
    Queued,
    /// The same, but the client has its reply already.
    Requeued,
    /// EXEC, to a cluster or of a transaction that selects a database.
    Exec,
    /// SELECT of this database, if it can be one.
    Select(Option<u32>),
}

/// A request that may have to be sent elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its bytes.
    pub request: Vec<u8>,
    /// How often it has been sent.
    pub tries: u32,
    /// Whether it is sent again by ASKING.
    pub is_asking: bool,
    /// The server to ask, if it is not that of the slot.
    pub server: Option<u16>,
    /// Whether it is a WATCH.
    pub is_watch: bool,
    /// Whether it was sent to a replica, and so may be repeated at the primary.
    pub is_read: bool,
    /// Where it may be sent again.
    pub aim: Aim,
    /// How often its server gave it back.
    pub returns: u32,
}

/// The servers that may answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// That of its first key; any if it has none.
    Key,
    /// That of this slot: it is one shard's part of a request for all of them, such as KEYS.
    Slot(u16),
    /// No other than the one that it was sent to: all servers get it, and this one has no slots.
    Server,
}

/// Whether a request that was lost has reached the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WasSent {
    /// It may have.
    Perhaps,
    /// Certainly not.
    No,
}

/// A connection to a server.
pub struct Upstream {
    /// The connection.
    pub id: Id,
    /// The pool's number.
    pub pool: usize,
    /// The server's number.
    pub server: usize,
    /// What it is set to.
    pub key: LinkKey,
    /// What its server tracks for the owner.
    pub tracking: Option<Arc<Tracking>>,
    /// Matches replies.
    pub link: Link<Tag>,
    /// The client that has it for itself.
    pub owner: Option<Id>,
    /// [`Client::origin`](super::client::Client) of the owner, if the server knows it.
    pub origin: u64,
    /// The number by which the server knows it; 0 if that was asked and is not known.
    pub server_id: Option<i64>,
    /// The server has given requests back, and gives back those that concern the same slots.
    pub has_returned: bool,
    /// Bytes of replies to clients that have gone, since a time.
    void: (Instant, usize),
    /// What has been read in a turn, by the turn's number.
    turn: (u64, usize),
    /// What was left of the input that was shown last.
    left: usize,
    /// When it was last sent a request.
    pub used_at: Instant,
    /// Messages are the owner's subscriptions, not replies.
    pub is_subscribed: bool,
    /// Requests of subscriptions that wait for the set-up.
    pub subscribing: Vec<u8>,
    /// Finds the ends of messages.
    pub scanner: Scanner,
    /// When it has to be connected.
    pub connect_by: Option<Instant>,
    /// Since when its server leads no shard of the cluster any more.
    former_since: Option<Instant>,
    /// Requests up to a number were sent before a time.
    marks: VecDeque<(u64, Instant)>,
    /// What its requests without a reply take.
    pub queued: usize,
    /// Replies up to this number are in the statistics of times.
    timed: u64,
    /// The long reply that is being passed on.
    pub passing: Option<Box<Passing>>,
    /// It was shared, until a long reply came.
    pub is_detached: bool,
    /// What is kept of a reply until it is whole, or until the client takes it, and of a long
    /// request.
    pub kept: usize,
    /// When its owner's request has to be answered.
    pub answers_by: Option<Instant>,
    /// Its owner has it for one long request, which has been sent.
    pub has_upload: bool,
}

impl Upstream {
    /// Since when the oldest request waits.
    fn waits_since(&mut self) -> Option<Instant> {
        let answered = self.link.answered();
        while self.marks.front().is_some_and(|mark| mark.0 <= answered) {
            self.marks.pop_front();
        }
        self.marks.front().map(|mark| mark.1)
    }

    /// Records how long the replies took that have come.
    #[inline]
    fn note_times(&mut self, now: Instant, times: &Times) {
        let answered = self.link.answered();
        while let Some(&(end, sent)) = self.marks.front() {
            let end_answered = end.min(answered);
            if end_answered > self.timed {
                times.add(now.saturating_duration_since(sent), end_answered - self.timed);
                self.timed = end_answered;
            }
            if end > answered {
                break;
            }
            self.marks.pop_front();
        }
    }

    /// Counts bytes of replies to clients that have gone. Returns whether they are so many that the
    /// connection is to be closed.
    #[cold]
    fn wastes(&mut self, bytes: usize, now: Instant) -> bool {
        if now >= self.void.0 + VOID_WITHIN {
            self.void = (now, 0);
        }
        self.void.1 += bytes;
        self.void.1 > MAX_VOID
    }

    /// Notes that the last request, which went out in parts, has been sent now.
    pub fn mark_end(&mut self, now: Instant) {
        if let Some(mark) = self.marks.back_mut() {
            mark.1 = now;
        }
    }

    /// Notes when a request was sent.
    #[inline]
    pub fn mark(&mut self, now: Instant) {
        let sent = self.link.sent();
        match self.marks.back_mut() {
            Some(mark) if mark.1 == now => mark.0 = sent,
            _ => self.marks.push_back((sent, now)),
        }
    }
}

/// The requests that open a connection.
fn steps<P: Policy>(
    pool: &Local<P>,
    names: Names<'_>,
    key: LinkKey,
    tracking: Option<&Arc<Tracking>>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |request: Vec<u8>, may_fail: bool| steps.push(Step { request, may_fail });
    let login = pool.shared.login();
    let password = login.as_ref().map(|login| login.password.as_bytes());
    let user = login.as_ref().and_then(|login| login.user.as_deref());
    let Session { protocol, user: number, hops, .. } = key.session;
    match (protocol, password) {
        (Protocol::Resp3, Some(password)) => {
            let user = user.unwrap_or("default").as_bytes();
            add(raw::request(&[b"HELLO", b"3", b"AUTH", user, password]), false);
        }
        (Protocol::Resp3, None) => add(raw::request(&[b"HELLO", b"3"]), false),
        (Protocol::Resp2, Some(password)) => match user {
            Some(user) => add(raw::request(&[b"AUTH", user.as_bytes(), password]), false),
            None => add(raw::request(&[b"AUTH", password]), false),
        },
        (Protocol::Resp2, None) => {}
    }
    let Step { request, may_fail } = P::introduction(names.link, hops, names.user(number));
    add(request, may_fail);
    let first = Setting { session: Session { db: 0, ..key.session }, tracking: None };
    let then = Setting { session: key.session, tracking };
    for Step { request, may_fail } in changes(pool, names, first, then) {
        add(request, may_fail);
    }
    if key.is_reading {
        add(raw::request(&[b"READONLY"]), false);
    }
    if key.gives_back {
        // Other servers than Dunlin ignore the word, or do not know CLIENT CAPA.
        add(raw::AGAIN.to_vec(), true);
    }
    steps
}

impl<P: Policy> Hub<P> {
    /// Opens a connection to a server.
    ///
    /// # Errors
    /// What to tell the client.
    pub(super) fn open<W: Wire>(
        &mut self,
        wire: &mut W,
        pool: usize,
        server: usize,
        key: LinkKey,
        tracking: Option<Arc<Tracking>>,
    ) -> Result<Id, Failure> {
        let now = wire.now();
        let local = &mut self.pools[pool];
        let config = &local.shared.config;
        let target = &local.targets[server];
        if target.retry_at.is_some_and(|at| now < at) {
            return Err(Failure::Unreachable(local.name(server)));
        }
        let timeout = config.connect_timeout;
        let tls = local.shared.tls_client(&target.address);
        let tls = tls.map_err(|why| Failure::NoTlsName {
            server: local.name(server),
            why: why.to_string(),
        })?;
        let id = wire.connect(&target.address, tls, timeout);
        let names = Names { users: &self.users, link: &self.common.link_name };
        let steps = steps(local, names, key, tracking.as_ref());
        let upstream = Upstream {
            id,
            pool,
            server,
            key,
            tracking,
            link: Link::new(steps),
            owner: None,
            origin: 0,
            server_id: None,
            has_returned: false,
            void: (now, 0),
            turn: (0, 0),
            left: 0,
            used_at: now,
            is_subscribed: false,
            subscribing: Vec::new(),
            scanner: Scanner::new(ReplyLimits::PEER),
            connect_by: Some(now + timeout),
            former_since: None,
            marks: VecDeque::new(),
            queued: 0,
            timed: 0,
            passing: None,
            is_detached: false,
            kept: 0,
            answers_by: None,
            has_upload: false,
        };
        local.server_stats(server).server_connections.add(1);
        self.put(id, Conn::Upstream(Box::new(upstream)));
        Ok(id)
    }

    /// The shared connection to a server.
    #[inline]
    pub(super) fn shared<W: Wire>(
        &mut self,
        wire: &mut W,
        pool: usize,
        server: usize,
        key: LinkKey,
    ) -> Result<Id, Failure> {
        let target = &self.pools[pool].targets[server];
        if let Some(link) = target.links.iter().find(|link| link.0 == key) {
            return Ok(link.1);
        }
        self.make_room(wire, pool, server)?;
        // The server must not take what is shared for what one client does.
        let is_nobodys = |id: Id| match self.conns.get(id.slot as usize) {
            Some(Some(Conn::Upstream(up))) => up.id == id && up.origin == 0,
            _ => false,
        };
        let idle = &self.pools[pool].targets[server].idle;
        if let Some(at) = idle.iter().position(|idle| idle.0 == key && is_nobodys(idle.1)) {
            let target = &mut self.pools[pool].targets[server];
            let link = target.idle.swap_remove(at);
            target.links.push(link);
            return Ok(link.1);
        }
        let id = self.open(wire, pool, server, key, None)?;
        self.pools[pool].targets[server].links.push((key, id));
        Ok(id)
    }

    /// Closes a shared connection to a server if there are as many as there may be: of those that
    /// wait for no reply the one that was used least recently.
    ///
    /// # Errors
    /// All of them wait for replies.
    fn make_room<W: Wire>(
        &mut self,
        wire: &mut W,
        pool: usize,
        server: usize,
    ) -> Result<(), Failure> {
        let local = &self.pools[pool];
        let config = &local.shared.config;
        let links = &local.targets[server].links;
        let most = MAX_SHARED * usize::from(config.server_connections);
        if links.len() < most {
            return Ok(());
        }
        let unused_since = |id: Id| match self.conns.get(id.slot as usize) {
            Some(Some(Conn::Upstream(up))) => (up.link.pending() == 0).then_some(up.used_at),
            _ => None,
        };
        let unused = links.iter().filter_map(|link| Some((unused_since(link.1)?, link.1)));
        let Some((_, id)) = unused.min_by_key(|(since, _)| *since) else {
            // A node's links are told apart by users, too, whose number it does not choose.
            return match P::BOUNDS_CLIENTS {
                true => Err(self.too_many(pool, server, most)),
                false => Ok(()),
            };
        };
        self.pools[pool].targets[server].links.retain(|link| link.1 != id);
        if let Some(Conn::Upstream(mut up)) = self.take_conn(id) {
            wire.close(id);
            self.upstream_dropped(&mut up);
        }
        Ok(())
    }

    fn too_many(&self, pool: usize, server: usize, most: usize) -> Failure {
        let local = &self.pools[pool];
        local.server_stats(server).refused.add(1);
        Failure::TooManySessions { server: local.name(server), most }
    }

    /// Sends a request on a connection.
    #[inline]
    pub(super) fn send_on<W: Wire>(&mut self, wire: &mut W, id: Id, request: &[u8], mut tag: Tag) {
        let now = wire.now();
        let Some(Conn::Upstream(up)) =
            self.conns.get_mut(id.slot as usize).and_then(Option::as_mut)
        else {
            return;
        };
        debug_assert_eq!(up.id, id);
        let local = &mut self.pools[up.pool];
        tag.bytes = cost(request);
        if let Purpose::Redirectable(kept) = &tag.purpose {
            // It is kept until it is answered.
            tag.bytes = tag.bytes.saturating_add(kept.request.len() as u32);
        }
        up.queued += tag.bytes as usize;
        local.queued += tag.bytes as usize;
        let stats = local.server_stats(up.server);
        stats.queue_bytes.add(u64::from(tag.bytes));
        stats.requests.add(1);
        stats.request_bytes.add(request.len() as u64);
        up.link.send(request, tag, &mut |bytes| wire.send(id, bytes));
        up.mark(now);
        up.used_at = now;
    }

    /// A connection to a server has been made.
    pub(super) fn upstream_connected<W: Wire>(&mut self, wire: &mut W, up: &mut Upstream) {
        up.connect_by = None;
        let id = up.id;
        let config = &self.pools[up.pool].shared.config;
        if let Some(silence) = P::SILENCE {
            wire.probe_within(id, silence);
        } else if !config.keepalive {
            wire.do_not_probe(id);
        }
        up.link.opened(&mut |bytes| wire.send(id, bytes));
        self.subscribe_now(wire, up);
        self.failed_over(wire, up.pool, up.server);
        let local = &mut self.pools[up.pool];
        local.targets[up.server].retry_at = None;
    }

    /// Bytes of a server. Returns how many are done with.
    pub(super) fn upstream_data<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &mut Upstream,
        input: &[u8],
    ) -> Result<usize, Ended> {
        let mut at = 0;
        let id = up.id;
        self.void_bytes = 0;
        let long = self.pools[up.pool].shared.config.limits.long;
        let (mut replies, mut answered) = (0, 0);
        loop {
            if up.passing.is_some() {
                let (len, tag) = self.pass_reply(wire, up, &input[at..])?;
                at += len;
                let Some(tag) = tag else { break };
                replies += 1;
                answered += tag.bytes as usize;
                self.pools[up.pool].server_stats(up.server).large_responses.add(1);
                self.passed(wire, up, tag);
                continue;
            }
            if up.is_subscribed && up.link.is_ready() {
                self.subscribe_now(wire, up);
                at += self.messages(wire, up, &input[at..])?;
                break;
            }
            let found = up.link.receive(&input[at..], &mut |bytes| wire.send(id, bytes));
            let (received, len) = match found {
                Ok(Some(found)) => found,
                Ok(None) if input.len() - at > long => {
                    if self.begin_passing(wire, up, &input[at..]) {
                        continue;
                    }
                    break;
                }
                Ok(None) => break,
                Err(why) => return Err(self.why_broken(up.pool, why)),
            };
            at += len;
            match received {
                Some(Received::Reply(tag, reply)) => {
                    replies += 1;
                    answered += tag.bytes as usize;
                    if reply.starts_with(b"-READONLY") {
                        // It is not the master any more: the sentinels, or the nodes, know more.
                        self.pools[up.pool].shared.is_stale.store(true, SeqCst);
                    }
                    if len > LARGE {
                        self.pools[up.pool].server_stats(up.server).large_responses.add(1);
                    }
                    self.replied(wire, up, tag, reply);
                }
                Some(Received::Push(push)) => self.push_came(wire, up, push)?,
                None => {}
            }
        }
        let left = input.len() - at;
        self.count_kept_reply(up, if left > long { left } else { 0 });
        self.pools[up.pool].server_stats(up.server).response_bytes.add(at as u64);
        if replies > 0 {
            self.dequeued(up, answered);
            let stats = self.pools[up.pool].server_stats(up.server);
            stats.responses.add(replies);
            up.note_times(wire.now(), &stats.times);
            let failures = &self.pools[up.pool].shared.failures[up.server];
            if failures.load(SeqCst) != 0 {
                failures.store(0, SeqCst);
            }
        }
        self.check_void(up, wire.now())?;
        Ok(at)
    }

    /// Counts what has come for clients that have gone.
    ///
    /// # Errors
    /// It is so much that the connection is to be closed.
    fn check_void(&mut self, up: &mut Upstream, now: Instant) -> Result<(), Ended> {
        let bytes = std::mem::take(&mut self.void_bytes);
        if bytes == 0 || !P::BOUNDS_CLIENTS || !up.wastes(bytes, now) {
            return Ok(());
        }
        Err(Ended::LeftBehind(MAX_VOID))
    }

    /// Counts what a server has sent: `shown` bytes of input, of which `taken` are done with. Returns
    /// whether it is not read before the next turn, so that the others get theirs: what is long is
    /// looked at byte by byte.
    #[inline]
    pub(super) fn has_spent_turn(&mut self, up: &mut Upstream, shown: usize, taken: usize) -> bool {
        if up.turn.0 != self.turn {
            up.turn = (self.turn, 0);
        }
        up.turn.1 += shown.saturating_sub(up.left);
        up.left = shown - taken;
        let has_spent = P::BOUNDS_CLIENTS && up.turn.1 > TURN_BYTES;
        if has_spent {
            self.spent.push(up.id);
        }
        has_spent
    }

    /// Reads all servers again.
    pub(super) fn begin_turn<W: Wire>(&mut self, wire: &mut W) {
        self.turn += 1;
        for id in std::mem::take(&mut self.spent) {
            let passing = self.upstream(id).and_then(|up| up.passing.as_ref());
            if !passing.is_some_and(|passing| passing.is_held()) {
                wire.resume(id);
            }
        }
    }

    /// Returns why a connection ends on which a link has broken.
    pub(super) fn why_broken(&self, pool: usize, why: Broken) -> Ended {
        match why {
            Broken::Refused(why) if raw::is_about_login(&why) => {
                Ended::WrongLogin { pool: self.pools[pool].shared.config.name.clone(), why }
            }
            Broken::Refused(why) => Ended::Refused(why),
            Broken::Invalid(why) => Ended::Invalid(why.to_string()),
            Broken::Unasked => Ended::Unasked,
        }
    }

    /// A push has come.
    ///
    /// # Errors
    /// It says that the server goes down.
    fn push_came<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &mut Upstream,
        push: &[u8],
    ) -> Result<(), Ended> {
        if P::TRUSTS_SERVERS && push == raw::GOES_DOWN {
            return Err(Ended::GoesDown);
        }
        self.pushed(wire, up, push);
        Ok(())
    }

    /// A connection to a server is of no more use: all that wait for it are told so.
    pub(super) fn upstream_lost<W: Wire>(
        &mut self,
        wire: &mut W,
        mut up: Box<Upstream>,
        why: Ended,
    ) {
        let was_connecting = up.connect_by.is_some() || !up.link.is_ready();
        if let Some(to) = up.passing.as_ref().and_then(|passing| passing.client()) {
            // It has the beginning of a reply that has no end.
            self.drop_client(wire, to);
        }
        let (sent, unsent, _) = up.link.take_all();
        let had_requests = !sent.is_empty() || !unsent.is_empty();
        let queued = up.queued;
        self.dequeued(&mut up, queued);
        self.forget_kept(&mut up);
        let local = &mut self.pools[up.pool];
        let stats = local.server_stats(up.server);
        stats.server_connections.sub(1);
        stats.lost.add((sent.len() + unsent.len()) as u64);
        let target = &mut local.targets[up.server];
        let was_current = target.links.iter().any(|link| link.1 == up.id)
            || target.idle.iter().any(|link| link.1 == up.id)
            || up.owner.is_some()
            || up.is_detached;
        target.links.retain(|link| link.1 != up.id);
        target.idle.retain(|link| link.1 != up.id);
        if was_connecting {
            target.retry_at = Some(wire.now() + RETRY_AFTER);
        }
        let server = local.name(up.server);
        if was_current && why.is_failure() && (had_requests || was_connecting) {
            self.note_failure(wire.now(), up.pool, up.server, &why);
            self.failing_over(wire, up.pool, up.server);
        }
        let was_sent = if why == Ended::GoesDown { WasSent::No } else { WasSent::Perhaps };
        let is_refused = why.is_refusal();
        let reply = Failure::Lost { server, why }.reply();
        for tag in sent {
            self.lost(wire, tag, &reply, was_sent);
        }
        // What a server has refused it will refuse again.
        let was_sent = if is_refused { WasSent::Perhaps } else { WasSent::No };
        for tag in unsent {
            self.lost(wire, tag, &reply, was_sent);
        }
        if let Some(owner) = up.owner {
            self.exclusive_ended(up.pool);
            self.own_lost(wire, owner, &up);
        } else if up.is_subscribed {
            self.ear_lost(up.id);
        }
    }

    /// Notes that a connection has been closed that was of no more use.
    pub(super) fn upstream_dropped(&mut self, up: &mut Upstream) {
        self.dequeued(up, up.queued);
        self.forget_kept(up);
        let stats = self.pools[up.pool].server_stats(up.server);
        stats.server_connections.sub(1);
        stats.lost.add(up.link.pending() as u64);
    }

    /// Counts what is kept of replies on a connection.
    #[inline]
    fn count_kept_reply(&mut self, up: &mut Upstream, left: usize) {
        let kept = left + up.passing.as_ref().map_or(0, |passing| passing.backlog);
        if kept != up.kept {
            let local = &mut self.pools[up.pool];
            local.queued = local.queued + kept - up.kept;
            up.kept = kept;
        }
    }

    /// Gives back what a connection that has ended takes of the pool's limits beside its requests.
    fn forget_kept(&mut self, up: &mut Upstream) {
        self.pools[up.pool].queued -= std::mem::take(&mut up.kept);
        if std::mem::take(&mut up.is_detached) {
            self.exclusive_ended(up.pool);
        }
    }

    /// Ends the requests to nodes of a cluster that lead no shard any more and do not say so: a
    /// process that stands still keeps its connections. `leads` has the numbers of the servers that
    /// lead.
    pub fn leave_former_primaries<W: Wire>(&mut self, wire: &mut W, leads: &[u16]) {
        let now = wire.now();
        let mut late = Vec::new();
        for conn in self.conns.iter_mut().flatten() {
            let Conn::Upstream(up) = conn else { continue };
            let is_used = up.is_subscribed || up.link.pending() > 0;
            if up.answers_by.is_some()
                || leads.iter().any(|&server| usize::from(server) == up.server)
                || !is_used
            {
                up.former_since = None;
            } else if now >= *up.former_since.get_or_insert(now) + LAST_ANSWERS {
                late.push(up.id);
            }
        }
        for id in late {
            if let Some(Conn::Upstream(up)) = self.take_conn(id) {
                self.pools[up.pool].server_stats(up.server).server_timedout.add(1);
                wire.abort(id);
                self.upstream_lost(wire, up, Ended::NotLeading);
            }
        }
    }

    /// Looks for servers that do not answer.
    pub(super) fn check_timeouts<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        let (mut late, mut unread) = (Vec::new(), Vec::new());
        for conn in self.conns.iter_mut().flatten() {
            let Conn::Upstream(up) = conn else { continue };
            let config = &self.pools[up.pool].shared.config;
            unread.extend(Self::unread_since(up, now));
            let is_late = match (up.connect_by, config.timeout) {
                (Some(by), _) => now >= by,
                _ if up.answers_by.is_some_and(|by| now >= by) => up.link.pending() > 0,
                (None, timeout) if up.passing.is_some() => {
                    let passing = up.passing.as_ref().filter(|passing| !passing.is_held());
                    let within = timeout.unwrap_or(PROGRESS_WITHIN);
                    passing.is_some_and(|passing| now >= passing.progress_at + within)
                }
                // A blocking command takes its time.
                (None, Some(timeout)) if up.owner.is_none() || up.has_upload => {
                    up.waits_since().is_some_and(|since| now >= since + timeout)
                }
                _ => false,
            };
            if is_late {
                late.push((up.id, up.connect_by.is_some()));
            }
        }
        for id in unread {
            self.drop_unread(wire, id);
        }
        for (id, is_connecting) in late {
            if let Some(Conn::Upstream(up)) = self.take_conn(id) {
                self.pools[up.pool].server_stats(up.server).server_timedout.add(1);
                wire.abort(id);
                let why = if is_connecting { Ended::NotReached } else { Ended::Silent };
                self.upstream_lost(wire, up, why);
            }
        }
    }
}
