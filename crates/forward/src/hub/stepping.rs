//! Keeps the connections that a client has for itself in step with its session.
//!
//! What a client has said about its connection is its [`Session`] and its [tracking](super::tracking).
//! A shared connection is chosen by the session and never changes. A client's own connection stays
//! while the client watches keys, is in a transaction, or has its keys tracked, and the client may
//! change its session meanwhile. So each connection remembers what it was last set to, and before a
//! request goes out on it the difference is made up. As at the beginning of a connection, the
//! request waits for the replies: if the server refuses, the connection is closed, and nothing has
//! run in the wrong database.

use super::Hub;
use super::client::{Client, Slot};
use super::request::Flow;
use super::tracking::Tracking;
use super::upstream::{Purpose, Tag, Upstream};
use super::wire::{Id, Wire};
use crate::failure::Failure;
use crate::policy::{Policy, acts_for};
use crate::pool::{Local, Session};
use resp::Protocol;
use route::link::Step;
use route::plan::Placement;
use route::raw;
use std::sync::Arc;
use structs::numbers;

/// What a connection is set to, or is to be set to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub session: Session,
    pub tracking: Option<&'a Arc<Tracking>>,
}

impl Setting<'_> {
    fn is(&self, other: &Setting<'_>) -> bool {
        let is_tracking = match (self.tracking, other.tracking) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.session == other.session && is_tracking
    }
}

/// What the numbers in a session stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    /// The users of a node's clients.
    pub users: &'a [Box<[u8]>],
    /// The name of this process's connections.
    pub link: &'a str,
}

impl<'a> Names<'a> {
    /// Returns the name of a user by its number, unless it may do everything.
    pub fn user(&self, number: u32) -> Option<&'a [u8]> {
        (number as usize).checked_sub(1).map(|at| &*self.users[at])
    }
}

/// The requests that take a connection from one setting to another.
pub(super) fn changes<P: Policy>(
    pool: &Local<P>,
    names: Names<'_>,
    from: Setting<'_>,
    to: Setting<'_>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let (before, after) = (from.session, to.session);
    if before.hops != after.hops {
        steps.push(P::introduction(names.link, after.hops, names.user(after.user)));
    }
    let mut step = |request: Vec<u8>| steps.push(Step { request, may_fail: false });
    if before.protocol != after.protocol {
        let version = match after.protocol {
            Protocol::Resp2 => b"2",
            Protocol::Resp3 => b"3",
        };
        step(raw::request(&[b"HELLO", version]));
    }
    if before.user != after.user {
        let login = pool.shared.login().and_then(|login| login.user);
        let own = login.as_deref().unwrap_or("default").as_bytes();
        let name = names.user(after.user).unwrap_or(own);
        step(raw::request(&[b"CLIENT", b"CAPA", &acts_for(name)]));
    }
    if before.db != after.db {
        step(raw::request(&[b"SELECT", after.db.to_string().as_bytes()]));
    }
    match (from.tracking, to.tracking) {
        (Some(before), Some(after)) if Arc::ptr_eq(before, after) => {}
        (before, Some(after)) => step(after.request(before.map(|before| &**before))),
        (Some(_), None) => step(raw::UNTRACK.to_vec()),
        (None, None) => {}
    }
    steps
}

impl Upstream {
    /// What it is set to, when all that was sent on it has been carried out.
    pub(super) fn setting(&self) -> Setting<'_> {
        Setting { session: self.key.session, tracking: self.tracking.as_ref() }
    }
}

impl Client {
    /// What its connections are to be set to.
    pub(super) fn setting(&self) -> Setting<'_> {
        Setting { session: self.session, tracking: self.tracking.as_ref() }
    }
}

impl<P: Policy> Hub<P> {
    /// Has the client's next requests on a connection of its own find what the client has said. To
    /// be called while none of its requests is under way there.
    pub(super) fn bring_in_step<W: Wire>(&mut self, wire: &mut W, client: &Client, own: Id) {
        let wanted = client.setting();
        let Some(up) = self.upstream(own).filter(|up| !up.setting().is(&wanted)) else { return };
        let (pool, session, tracking) = (up.pool, up.key.session, up.tracking.take());
        let from = Setting { session, tracking: tracking.as_ref() };
        let names = Names { users: &self.users, link: &self.common.link_name };
        let steps = changes(&self.pools[pool], names, from, wanted);
        let Some(up) = self.upstream(own) else { return };
        up.key.session = wanted.session;
        up.tracking = wanted.tracking.cloned();
        up.link.set_up(steps, &mut |bytes| wire.send(own, bytes));
    }

    /// SELECT. A database that no client has selected yet is for a server to find.
    pub(super) fn select<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        number: &[u8],
        request: &[u8],
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        let db = database(number);
        let local = &self.pools[client.pool];
        if let Some(db) = db.filter(|&db| local.shared.is_selectable(db)) {
            client.session.db = db;
            client.answer(wire, b"+OK\r\n");
            return Flow::Done;
        }
        let own = client.own.first().map(|own| own.0);
        let Some(server) = own.or_else(|| local.any()) else {
            client.answer(wire, &Failure::NoServer.reply());
            return Flow::Done;
        };
        match self.acquire_own(wire, client, server) {
            Ok(id) => {
                self.bring_in_step(wire, client, id);
                let seq = client.push(Slot::Waiting);
                let purpose = Purpose::Select(db);
                let tag = Tag { client: client.id, seq, part: 0, bytes: 0, purpose };
                self.send_on(wire, id, request, tag);
            }
            Err(why) => client.answer(wire, &why.reply()),
        }
        self.settle_soon(client);
        Flow::Done
    }

    /// A reply has come that may say that another database is selected.
    pub(super) fn selected(&mut self, up: &mut Upstream, tag: &Tag, reply: &[u8]) {
        let db = match tag.purpose {
            Purpose::Select(db) if reply == OK => db,
            Purpose::Exec => self
                .client(tag.client)
                .and_then(|client| client.executing.as_ref())
                .and_then(|multi| multi.selects(reply)),
            _ => None,
        };
        let Some(db) = db else { return };
        up.key.session.db = db;
        self.pools[up.pool].shared.note_selectable(db);
        if let Some(client) = self.client(tag.client) {
            client.session.db = db;
        }
    }
}

/// The reply to SELECT.
pub(super) const OK: &[u8] = b"+OK\r\n";

/// The database that a word names, if it can be one.
pub(super) fn database(word: &[u8]) -> Option<u32> {
    numbers::parse_u64(word).and_then(|db| u32::try_from(db).ok())
}
