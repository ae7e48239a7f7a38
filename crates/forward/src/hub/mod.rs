//! One thread of a proxy or of a node, without its network: clients, servers, and what they said.
//!
//! A hub is told what happened ([`Hub::accepted`], [`Hub::data`], [`Hub::connected`],
//! [`Hub::closed`], [`Hub::tick`], [`Hub::end_of_turn`]) and acts through a [`Wire`]. Nothing in it
//! blocks, reads a clock or knows a socket, so tests run it on a network in memory.
//!
//! While a connection's bytes are being worked on, the connection is out of the table; a reply that
//! would go to it then is impossible, because replies arrive with the bytes of servers.
//!
//! This file has the state: the struct [`Hub`] and its table of connections. Its methods are in the
//! other files, and a file calls only files further down
//! (`crates/tidy/lists/modules/forward.txt`, which a test checks). From the top down:
//!
//! * what a hub is told: `member` (by a node), `events`
//! * bytes become requests and replies: `request`; `receiving`, `losing`, `passing`,
//!   `returning`
//! * one kind of request: `session`, `layout`, `cluster`, `uploading`, `queueing`, `local`,
//!   `transactions`, `splicing`, `tracking`, `administering`, `learning`, `about`, `permission`
//! * requests go out, replies come back: `sending`, `again`, `restore`, `pubsub`, `answering`,
//!   `waits`, `leaving`, `listening`, `servers`
//! * connections to servers: `own`, `stepping`, `links`, `flow`, `notices`
//! * data: `common`, `mailbox`, `filters`, `upstream`, `client`, `multi`, `subscriptions`,
//!   `upload`, `tag`, `setting`, `acks`, `tracked`, `commands`, `hops`, `proxy_header`

mod about;
mod acks;
mod administering;
mod again;
mod answering;
mod client;
mod cluster;
mod commands;
mod common;
mod events;
mod filters;
mod flow;
pub mod hops;
mod layout;
mod learning;
mod leaving;
mod links;
pub mod listening;
mod local;
mod losing;
mod mailbox;
mod member;
mod multi;
mod notices;
mod own;
mod passing;
mod permission;
mod proxy_header;
mod pubsub;
mod queueing;
mod receiving;
mod request;
mod restore;
mod returning;
mod sending;
mod servers;
mod session;
mod setting;
mod splicing;
mod stepping;
mod subscriptions;
mod tag;
mod tracked;
mod tracking;
mod transactions;
mod upload;
mod uploading;
mod upstream;
mod waits;
pub use again::server_at;
pub use commands::Commands;
pub use common::{Common, Layout};
pub use sending::Answers;
#[cfg(test)]
mod redirecting;
#[cfg(test)]
mod tests;

use crate::policy::Policy;
use crate::pool::{Local, Shared};
use crate::wire::Id;
use client::Client;
use mailbox::{Mailbox, Return};
use route::plan::Piece;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use subscriptions::{Listening, Restoring};
use tag::Again;
use upstream::Upstream;

/// A connection.
enum Conn {
    Client(Box<Client>),
    Upstream(Box<Upstream>),
}

impl Conn {
    fn id(&self) -> Id {
        match self {
            Conn::Client(client) => client.id,
            Conn::Upstream(up) => up.id,
        }
    }
}

/// See the module.
pub struct Hub<P> {
    common: Arc<Common>,
    commands: Arc<Commands>,
    /// The pools, retired ones too.
    pub pools: Vec<Local<P>>,
    /// The pools' numbers, by tags.
    of_tag: Vec<Option<usize>>,
    retired: Vec<usize>,
    /// Numbers that are free.
    vacant: Vec<usize>,
    layout_version: u64,
    /// When to look at what is left of retired pools.
    sweep_at: Instant,
    conns: Vec<Option<Conn>>,
    /// Clients whose output has to shrink.
    paused: Vec<Id>,
    /// Clients that waited for all their requests to be answered.
    settling: Vec<Id>,
    /// Clients that are not read while the queue of a server is long, and its connection.
    congested: Vec<(Id, Id)>,
    /// Connections that were shared until a long reply came.
    detached: Vec<Id>,
    /// Clients' own connections that are not read, because the client does not read a long reply.
    held_own: Vec<Id>,
    /// Clients whose long requests wait for their servers to take more.
    uploading: Vec<Id>,
    /// Subscriptions to make again.
    restoring: Vec<Restoring>,
    /// What fills pages of SCAN, and the requests that it belongs to.
    pages: Vec<(Id, u64, Piece)>,
    /// Requests to send again, and when.
    again: Vec<Again>,
    /// When the first of them is due, at the earliest.
    again_due: Instant,
    /// What is being asked of servers, by pool and name.
    learning: HashSet<(usize, String)>,
    /// Clients that wait for that.
    learners: Vec<Id>,
    /// What other threads ask of this one, and answer.
    mailbox: Arc<Mailbox>,
    /// Questions of other threads that servers have not answered, by their numbers.
    relays: HashMap<u64, Return>,
    last_relay: u64,
    /// The number of the turn.
    turn: u64,
    /// Connections to servers that are not read before the next turn.
    spent: Vec<Id>,
    /// Clients that wait for the end of a pause.
    held: Vec<Id>,
    /// The number of the server whose reply is being handed on.
    answering: usize,
    /// Bytes of replies to clients that have gone, on the connection that is being read.
    void_bytes: usize,
    /// What it listens to for a node's clients.
    listening: Listening,
    /// The users of a node's clients that may not do everything.
    users: Vec<Box<[u8]>>,
    is_draining: bool,
    /// The number of the last maintenance notice.
    last_notice: u64,
    /// The clients that have come.
    arrivals: u64,
    /// Requests until the next whose key is looked at.
    until_sample: u32,
}

/// Of so many requests the key of one is looked at.
const SAMPLE: u32 = 256;

impl<P: Policy> Hub<P> {
    /// The hub of a thread.
    pub fn new(common: &Arc<Common>) -> Hub<P> {
        let (layout_version, layout) = common.layout();
        let mut pools = Vec::new();
        let mut add = |shared: &Arc<Shared>| {
            pools.push(Local::new(shared));
            pools.len() - 1
        };
        let of_tag = layout.iter().map(|shared| shared.as_ref().map(&mut add)).collect();
        Hub {
            common: common.clone(),
            commands: common.commands.clone(),
            pools,
            of_tag,
            retired: Vec::new(),
            vacant: Vec::new(),
            layout_version,
            sweep_at: Instant::now(),
            conns: Vec::new(),
            paused: Vec::new(),
            congested: Vec::new(),
            settling: Vec::new(),
            detached: Vec::new(),
            held_own: Vec::new(),
            uploading: Vec::new(),
            restoring: Vec::new(),
            pages: Vec::new(),
            again: Vec::new(),
            again_due: Instant::now(),
            learning: HashSet::new(),
            learners: Vec::new(),
            mailbox: common.new_mailbox(),
            relays: HashMap::new(),
            last_relay: 0,
            turn: 0,
            spent: Vec::new(),
            held: Vec::new(),
            answering: 0,
            void_bytes: 0,
            listening: Listening::default(),
            users: Vec::new(),
            is_draining: false,
            last_notice: 0,
            arrivals: 0,
            until_sample: SAMPLE,
        }
    }

    fn put(&mut self, id: Id, conn: Conn) {
        let slot = id.slot as usize;
        if self.conns.len() <= slot {
            self.conns.resize_with(slot + 1, || None);
        }
        self.conns[slot] = Some(conn);
    }

    #[inline]
    fn take_conn(&mut self, id: Id) -> Option<Conn> {
        let place = self.conns.get_mut(id.slot as usize)?;
        if place.as_ref()?.id() != id {
            return None;
        }
        place.take()
    }

    #[inline]
    fn client(&mut self, id: Id) -> Option<&mut Client> {
        match self.conns.get_mut(id.slot as usize)?.as_mut()? {
            Conn::Client(client) if client.id == id => Some(client),
            _ => None,
        }
    }

    fn upstream(&mut self, id: Id) -> Option<&mut Upstream> {
        match self.conns.get_mut(id.slot as usize)?.as_mut()? {
            Conn::Upstream(up) if up.id == id => Some(up),
            _ => None,
        }
    }
}
