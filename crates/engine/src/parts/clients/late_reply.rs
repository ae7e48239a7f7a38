//! The reply that a parked session waits for, and that any thread may send.

use super::Clients;
use super::mailbox::{Mailbox, Message};
use super::suspension::Resumption;
use crate::journal::JournalPos;
use resp::{Output, Protocol, Reply};

/// The reply that a parked session waits for.
pub struct LateReply {
    pub(crate) mailbox: &'static Mailbox,
    pub(crate) client: u64,
    pub(crate) token: u64,
    pub(crate) protocol: Protocol,
}

impl LateReply {
    /// Whether its client is still connected.
    pub fn is_awaited(&self, clients: &Clients) -> bool {
        clients.get(self.client).is_some()
    }

    /// Sends it.
    pub fn send(self, write: impl FnOnce(&mut Reply<'_>)) {
        let mut out = Output::default();
        write(&mut Reply::new(&mut out, self.protocol));
        let resumption = Resumption::new(Some(self.token), out, JournalPos(0));
        self.mailbox.post(Message::Resume(self.client, resumption));
    }
}
