//! Why a session reads no further requests, and how that ends.

use super::mailbox::last_ticket;
use super::waiter::{TimeoutReply, Waiter};
use super::watching::Watching;
use crate::journal::JournalPos;
use crate::table::Resolved;
use keyspace::{DbIndex, Millis};
use resp::Output;
use std::borrow::Cow;
use std::sync::Arc;

/// Why a session does not read further requests.
pub struct Suspension {
    /// Distinguishes this suspension from earlier ones of the same client.
    pub token: u64,
    /// When it ends by itself, and with what.
    pub deadline: Option<Millis>,
    pub(crate) on_timeout: TimeoutReply,
    /// The blocked command, if it is one.
    pub waiter: Option<Arc<Waiter>>,
    /// Whether CLIENT REPLY keeps its reply from the client.
    pub(crate) is_silent: bool,
    /// The error in place of the reply, if it was ended from outside with one.
    pub(crate) error: Option<Cow<'static, str>>,
    /// Whether the client may cache what the reply says: what it has to forget comes after that.
    pub(crate) is_cached: bool,
    /// The request, if the audit log is to be told how it ends.
    pub(crate) audited: Option<Box<AuditedRequest>>,
}

/// A request of which the audit log knows the beginning.
pub(crate) struct AuditedRequest {
    pub(crate) row: &'static Resolved,
    pub(crate) words: Vec<Box<[u8]>>,
}

impl Suspension {
    /// One that a background job ends.
    pub fn background(on_timeout: TimeoutReply) -> Suspension {
        Suspension {
            token: 0,
            deadline: None,
            on_timeout,
            waiter: None,
            is_silent: false,
            error: None,
            is_cached: false,
            audited: None,
        }
    }
}

/// The end of a suspension, from another thread.
pub struct Resumption {
    /// The suspension's.
    pub token: Option<u64>,
    /// The encoded reply.
    pub reply: Output,
    /// The position behind what was written for it; 0 if nothing was.
    pub written: JournalPos,
    /// The position behind what it may tell of.
    pub seen: JournalPos,
    /// The last [ticket](crate::mailbox) of what others have to be told before.
    pub(crate) told: u64,
    /// What the client watches, if the command has changed that.
    pub(crate) watching: Option<Box<Watching>>,
    /// What the client's transaction has chosen for it.
    pub(crate) choice: Option<Choice>,
}

/// What commands that may stand beside scripts choose for their connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// SELECT.
    pub(crate) db: DbIndex,
    /// READONLY.
    pub(crate) reads_replica: bool,
}

impl Resumption {
    /// The end of a suspension by a reply alone.
    pub(crate) fn new(token: Option<u64>, reply: Output, written: JournalPos) -> Resumption {
        let told = last_ticket();
        Resumption {
            token,
            reply,
            written,
            seen: JournalPos(0),
            told,
            watching: None,
            choice: None,
        }
    }
}
