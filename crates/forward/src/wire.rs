//! What a hub needs of the network. The real one is the driver; tests have one in memory.

use crate::settings::Address;
use net::TlsClient;
use std::time::Duration;
use std::time::Instant;

/// Names a connection of this thread. A name is never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Id {
    /// The place in the thread's table.
    pub slot: u32,
    /// How often the place was used before.
    pub generation: u32,
}

/// See the module. What is sent leaves at the end of the turn.
pub trait Wire {
    /// Appends to a connection's output. Nothing happens if it is gone.
    fn send(&mut self, id: Id, bytes: &[u8]);
    /// Bytes of output that wait.
    fn backlog(&mut self, id: Id) -> usize;
    /// Ends a connection; what was not sent is dropped.
    fn close(&mut self, id: Id);
    /// Ends a connection to a server whose requests are given up, so that none of them reaches the
    /// server later.
    fn abort(&mut self, id: Id);
    /// Ends a connection when its output has been sent.
    fn finish(&mut self, id: Id);
    /// Leaves it to the peer to find out whether the other side is still there.
    fn do_not_probe(&mut self, id: Id);
    /// Ends a connection if the other side's machine is silent for so long.
    fn probe_within(&mut self, id: Id, time: Duration);
    /// Presents what input a connection has again.
    fn resume(&mut self, id: Id);
    /// Begins to connect. `Hub::connected` or `Hub::closed` follows.
    fn connect(&mut self, address: &Address, tls: Option<TlsClient>, timeout: Duration) -> Id;
    /// When this turn began.
    fn now(&self) -> Instant;
}

/// A client that there is not.
pub(super) const NOBODY: Id = Id { slot: u32::MAX, generation: 0 };

/// What the rest of a connection's input waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// More bytes.
    None,
    /// [`Wire::resume`], which comes soon, or when the client has read its replies.
    Held,
    /// [`Wire::resume`], after a command that may wait without end. A client that hangs up ends it.
    Blocked,
}

/// What a hub did with input.
pub struct Done {
    /// Bytes that are done with.
    pub bytes: usize,
    /// What the rest waits for.
    pub stall: Stall,
}
