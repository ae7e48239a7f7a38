//! What a client has begun with MULTI and WATCH. [`transactions`](super::transactions) works on
//! it.

use super::setting::OK;
use super::tag::Onward;
use crate::wire::Id;
use resp::Protocol;
use route::raw;

/// A transaction that has begun.
#[derive(Debug, Default)]
pub struct Multi {
    /// The server of its keys.
    pub(super) server: Option<usize>,
    /// The servers of these keys, or their slot.
    pub(super) group: Option<usize>,
    /// In front of a cluster: its first key. Slots and hashing rules may change before EXEC.
    pub(super) first_key: Option<Vec<u8>>,
    /// Requests without keys that came before the server was known; in front of a cluster, all
    /// requests.
    pub(super) requests: Vec<Vec<u8>>,
    /// Their bytes.
    pub(super) bytes: usize,
    /// A request was refused here: EXEC will be, too.
    pub is_dirty: bool,
    /// The server has refused a request for a reason that does not depend on where it was.
    pub(super) is_refused: bool,
    /// Where it has to go, because the slot has moved.
    pub(super) onward: Option<Onward>,
    /// How often it was sent again.
    pub(super) tries: u32,
    /// Whether the client watches keys.
    pub(super) is_watching: bool,
    /// Requests that are queued, here or at the server.
    pub(super) queued: usize,
    /// Which of them select a database, and which one.
    pub(super) selects: Vec<(usize, u32)>,
    /// Which of them the proxy answers.
    pub(super) answered_here: Vec<(usize, Vec<u8>)>,
}

impl Multi {
    /// The database that is selected by the reply to EXEC, if it is another one.
    pub(super) fn selects(&self, reply: &[u8]) -> Option<u32> {
        if self.selects.is_empty() {
            return None;
        }
        let done = raw::elements(reply)?;
        let selected = |&&(at, _): &&(usize, u32)| done.get(at).is_some_and(|reply| *reply == OK);
        self.selects.iter().rev().find(selected).map(|&(_, db)| db)
    }

    /// Keeps a request that the proxy answers. Returns what the server is sent instead.
    pub(super) fn keep_to_answer(&mut self, request: &[u8]) -> &'static [u8] {
        self.answered_here.push((self.queued, request.to_vec()));
        self.bytes += request.len();
        PLACEHOLDER
    }

    /// Bytes of requests that are kept here.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests that are queued, here or at the server.
    pub fn len(&self) -> usize {
        self.queued
    }
}

/// Keys that a client watches.
#[derive(Debug, Default)]
pub struct Watch {
    /// The server that watches.
    pub(super) server: usize,
    /// Requests WATCH.
    pub(super) count: u32,
    /// The keys' server, or their slot.
    pub(super) group: Option<usize>,
    /// A key may have changed: EXEC answers null.
    pub(super) is_broken: bool,
    /// The server does not have the slot yet.
    pub(super) is_asking: bool,
}

impl Watch {
    /// Returns the server, if the client still has a connection of its own there.
    pub fn server_among(&self, own: &[(usize, Id)]) -> Option<usize> {
        own.iter().any(|own| own.0 == self.server).then_some(self.server)
    }
}

pub(super) fn null_array(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Resp2 => b"*-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    }
}

/// What a server is sent instead.
const PLACEHOLDER: &[u8] = b"*1\r\n$4\r\nPING\r\n";
