//! Connections to servers: opening, sharing, sending, setting aside, closing.

use super::setting::{Names, Setting, changes};
use super::tag::{Purpose, Tag, cost};
use super::tracked::Tracking;
use super::upstream::Upstream;
use super::{Conn, Hub};
use crate::failure::{Ended, Failure};
use crate::policy::Policy;
use crate::pool::{LinkKey, Local, Session};
use crate::wire::{Id, NOBODY, Wire};
use resp::{Protocol, ReplyLimits, Scanner};
use route::link::{Broken, Link, SetupRequest};
use route::raw;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Most shared connections of a thread to one server, for each of the pool's `server_connections`:
/// there is one for each protocol and database in use.
const MAX_SHARED: usize = 64;

/// The requests that open a connection.
fn steps<P: Policy>(
    pool: &Local<P>,
    names: Names<'_>,
    key: LinkKey,
    tracking: Option<&Arc<Tracking>>,
) -> Vec<SetupRequest> {
    let mut steps = Vec::new();
    let mut add = |request: Vec<u8>, may_fail: bool| steps.push(SetupRequest { request, may_fail });
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
    let SetupRequest { request, may_fail } = P::introduction(names.link, hops, names.user(number));
    add(request, may_fail);
    let first = Setting { session: Session { db: 0, ..key.session }, tracking: None };
    let then = Setting { session: key.session, tracking };
    for SetupRequest { request, may_fail } in changes(pool, names, first, then) {
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
        let tls = local.shared.tls_client(&target.place);
        let tls = tls.map_err(|why| Failure::NoTlsName {
            server: local.name(server),
            why: why.to_string(),
        })?;
        let id = wire.connect(&target.place.address, tls, timeout);
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
            requests: VecDeque::new(),
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
        // It is kept until it is answered.
        match &tag.purpose {
            Purpose::Keyed(len) => {
                up.keep(request);
                tag.bytes = tag.bytes.saturating_add(*len);
            }
            Purpose::Redirectable(kept) => {
                tag.bytes = tag.bytes.saturating_add(kept.request.len() as u32);
            }
            _ => {}
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

    /// Notes that a connection has been closed that was of no more use.
    pub(super) fn upstream_dropped(&mut self, up: &mut Upstream) {
        self.dequeued(up, up.queued);
        self.forget_kept(up);
        let stats = self.pools[up.pool].server_stats(up.server);
        stats.server_connections.sub(1);
        stats.lost.add(up.link.pending() as u64);
    }

    /// Gives back what a connection that has ended takes of the pool's limits beside its requests.
    pub(super) fn forget_kept(&mut self, up: &mut Upstream) {
        self.pools[up.pool].queued -= std::mem::take(&mut up.kept);
        if std::mem::take(&mut up.is_detached) {
            self.exclusive_ended(up.pool);
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

    pub(super) fn exclusive_ended(&self, pool: usize) {
        self.pools[pool].shared.exclusive.fetch_sub(1, SeqCst);
    }

    /// Sends a request whose replies are messages.
    pub(super) fn say<W: Wire>(&mut self, wire: &mut W, id: Id, request: &[u8]) {
        let Some(up) = self.upstream(id) else { return };
        if up.link.is_ready() {
            wire.send(id, request);
        } else {
            up.subscribing.extend_from_slice(request);
        }
    }

    /// Has new requests take another connection until all on this one are answered. Clients that
    /// have some on this one wait for their replies, since later ones could overtake them.
    pub(super) fn set_aside(&mut self, up: &mut Upstream) {
        let local = &mut self.pools[up.pool];
        let links = &mut local.targets[up.server].links;
        let Some(at) = links.iter().position(|link| link.1 == up.id) else { return };
        local.shared.exclusive.fetch_add(1, SeqCst);
        links.swap_remove(at);
        up.is_detached = true;
        self.detached.push(up.id);
        // The client of a long reply gets it before any later one.
        for tag in up.link.tags().skip(usize::from(up.passing.is_some())) {
            if let Some(client) = self.client(tag.client).filter(|client| !client.is_idle()) {
                client.waits_for_all = true;
            }
        }
    }

    /// Makes a connection ready for requests that came back on it. Returns whether it is.
    pub(super) fn takes_returned<W: Wire>(&mut self, wire: &mut W, id: Id) -> bool {
        match self.upstream(id) {
            Some(up) if up.has_returned && up.link.pending() > 0 => false,
            Some(up) if up.has_returned => {
                up.has_returned = false;
                let purpose = Purpose::Discard;
                let tag = Tag { client: NOBODY, seq: 0, part: 0, bytes: 0, purpose };
                self.send_on(wire, id, raw::AGAIN, tag);
                true
            }
            _ => true,
        }
    }

    /// Uses a connection again that had been set aside.
    pub(super) fn put_back<W: Wire>(&mut self, wire: &mut W, up: Box<Upstream>) {
        let id = up.id;
        self.put(id, Conn::Upstream(up));
        self.takes_returned(wire, id);
    }
}
