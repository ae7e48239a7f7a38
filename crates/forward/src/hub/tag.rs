//! Requests under way: what is kept of each until its reply comes, where the reply goes, and
//! where a request goes that is sent again.

use crate::wire::Id;
use std::time::Instant;

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
    /// The same of a request that has been sent once, to the server of its key. So many bytes of
    /// what its connection keeps ([`Upstream::requests`](super::upstream::Upstream)) are the
    /// request's.
    Keyed(u32),
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

impl Kept {
    /// A request that has been sent once, to the server of its key.
    pub(super) fn new(request: Vec<u8>) -> Kept {
        let (tries, returns, is_asking, server) = (0, 0, false, None);
        let (is_watch, is_read, aim) = (false, false, Aim::Key);
        Kept { request, tries, is_asking, server, is_watch, is_read, aim, returns }
    }
}

impl Purpose {
    /// Returns the purpose of a request to a cluster that has been sent once, to the server of its
    /// key.
    #[cold]
    pub(super) fn redirectable(request: Vec<u8>) -> Purpose {
        Purpose::Redirectable(Box::new(Kept::new(request)))
    }
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

/// A request that is to be sent again.
pub(super) struct Again {
    /// When.
    pub due: Instant,
    /// Where its reply goes.
    pub tag: Tag,
    /// The pool.
    pub pool: usize,
    /// What it takes of the pool's limit meanwhile.
    pub bytes: usize,
}

/// Where what was redirected goes.
#[derive(Debug, Default)]
pub(super) struct Onward {
    /// The server to ask, if it is not that of the slot.
    pub server: Option<u16>,
    /// Whether it does not have the slot yet.
    pub is_asking: bool,
    /// Whether there is no sense in it now.
    pub is_later: bool,
}

impl Onward {
    /// To be tried again, wherever the slot is then.
    pub(super) fn later() -> Onward {
        Onward { is_later: true, ..Onward::default() }
    }
}

/// What a request takes in a queue beside its bytes.
const OVERHEAD: usize = 64;

/// Returns what a request takes while it is not answered.
pub(super) fn cost(request: &[u8]) -> u32 {
    u32::try_from(request.len() + OVERHEAD).unwrap_or(u32::MAX)
}
