//! What a connection to a server is set to (protocol, database, user, tracking), and the
//! requests that take it from one setting to another.

use super::tracked::Tracking;
use crate::policy::{Policy, acts_for};
use crate::pool::{Local, Session};
use resp::Protocol;
use route::link::SetupRequest;
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
    pub(super) fn is(&self, other: &Setting<'_>) -> bool {
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
) -> Vec<SetupRequest> {
    let mut steps = Vec::new();
    let (before, after) = (from.session, to.session);
    if before.hops != after.hops {
        steps.push(P::introduction(names.link, after.hops, names.user(after.user)));
    }
    let mut step = |request: Vec<u8>| steps.push(SetupRequest { request, may_fail: false });
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

/// The reply to SELECT.
pub(super) const OK: &[u8] = b"+OK\r\n";

/// The database that a word names, if it can be one.
pub(super) fn database(word: &[u8]) -> Option<u32> {
    numbers::parse_u64(word).and_then(|db| u32::try_from(db).ok())
}
