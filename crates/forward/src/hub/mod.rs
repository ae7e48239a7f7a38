//! One thread of the proxy, without its network: clients, servers, and what they said.
//!
//! A hub is told what happened ([`Hub::accepted`], [`Hub::data`], [`Hub::connected`],
//! [`Hub::closed`], [`Hub::tick`], [`Hub::end_of_turn`]) and acts through a [`Wire`]. Nothing in it
//! blocks, reads a clock or knows a socket, so tests run it on a network in memory.
//!
//! While a connection's bytes are being worked on, the connection is out of the table; a reply that
//! would go to it then is impossible, because replies arrive with the bytes of servers.

mod administering;
mod client;
mod cluster;
mod common;
mod filters;
mod flow;
pub use cluster::server_at;
pub mod hops;
mod layout;
mod learning;
pub mod listening;
mod member;
mod notices;
mod passing;
pub use common::{Commands, Common};
pub use layout::Layout;
pub use session::Answers;
mod local;
mod pubsub;
#[cfg(test)]
mod redirecting;
mod request;
mod restore;
mod returning;
mod servers;
mod session;
mod splicing;
mod stepping;
#[cfg(test)]
mod tests;
mod tracking;
mod transactions;
mod uploading;
mod upstream;
mod waits;
pub mod wire;

use crate::failure::Ended;
use crate::policy::Policy;
use crate::pool::{Local, Shared};
use administering::{Mailbox, Return};
use client::Client;
use cluster::Again;
use listening::Listening;
use pubsub::Restoring;
use route::plan::Piece;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use upstream::{Purpose, Tag, Upstream};
use wire::{Id, Wire};

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
/// The longest time between two calls of [`Hub::tick`].
const TICK: Duration = Duration::from_millis(20);

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

    /// A client has connected to the pool with this tag.
    pub fn accepted<W: Wire>(&mut self, wire: &mut W, id: Id, tag: usize, peer: &str) {
        if self.pool_of_tag(tag).is_none() {
            self.follow_layout(wire);
        }
        // A pool that has just gone.
        let Some(pool) = self.pool_of_tag(tag) else { return wire.finish(id) };
        let local = &self.pools[pool];
        let config = &local.shared.config;
        let count = local.shared.clients.fetch_add(1, SeqCst);
        local.stats.client_connections.add(1);
        local.stats.accepted.add(1);
        let number = self.common.last_client.fetch_add(1, SeqCst) + 1;
        let mut client = Client::new(id, number, pool, peer.to_owned(), wire.now());
        client.is_authenticated = config.client_login.is_none();
        client.awaits_header = config.proxy_protocol;
        client.session.db = config.db;
        client.turn = self.arrivals;
        self.arrivals += 1;
        if config.limits.clients.is_some_and(|most| count >= most) {
            wire.send(id, b"-ERR max number of clients reached\r\n");
            client.is_leaving = true;
            wire.finish(id);
        }
        self.put(id, Conn::Client(Box::new(client)));
    }

    /// A connection to a server has been made.
    pub fn connected<W: Wire>(&mut self, wire: &mut W, id: Id) {
        if let Some(Conn::Upstream(mut up)) = self.take_conn(id) {
            self.upstream_connected(wire, &mut up);
            self.put(id, Conn::Upstream(up));
        }
    }

    /// Bytes have come.
    pub fn data<W: Wire>(&mut self, wire: &mut W, id: Id, input: &[u8]) -> Done {
        match self.take_conn(id) {
            None => Done { bytes: input.len(), stall: Stall::None },
            Some(Conn::Client(mut client)) => {
                let bytes = self.requests(wire, &mut client, input);
                self.count_kept(wire, &mut client, input.len() - bytes);
                let stall = client.stall();
                self.put(id, Conn::Client(client));
                Done { bytes, stall }
            }
            Some(Conn::Upstream(mut up)) => match self.upstream_data(wire, &mut up, input) {
                Ok(bytes) => {
                    let is_held = up.passing.as_ref().is_some_and(|passing| passing.is_held());
                    let is_held = self.has_spent_turn(&mut up, input.len(), bytes) || is_held;
                    self.put(id, Conn::Upstream(up));
                    Done { bytes, stall: if is_held { Stall::Held } else { Stall::None } }
                }
                Err(why) => {
                    self.pools[up.pool].server_stats(up.server).server_err.add(1);
                    wire.close(id);
                    self.upstream_lost(wire, up, why);
                    Done { bytes: input.len(), stall: Stall::None }
                }
            },
        }
    }

    /// A connection will send no more. Returns whether it is to stay open until its requests are
    /// answered.
    pub fn ended(&mut self, id: Id) -> bool {
        let Some(client) = self.client(id) else { return false };
        if client.is_leaving {
            return true;
        }
        if client.is_settled() || client.upload.is_some() {
            return false;
        }
        client.is_leaving = true;
        true
    }

    /// A connection has ended, and the hub did not ask for it.
    pub fn closed<W: Wire>(&mut self, wire: &mut W, id: Id, error: Option<&str>) {
        match self.take_conn(id) {
            None => {}
            Some(Conn::Client(client)) => {
                let stats = &self.pools[client.pool].stats;
                if error.is_some() {
                    stats.client_err.add(1)
                } else {
                    stats.client_eof.add(1)
                }
                self.client_gone(wire, client);
            }
            Some(Conn::Upstream(up)) => {
                let stats = self.pools[up.pool].server_stats(up.server);
                if error.is_some() {
                    stats.server_err.add(1)
                } else {
                    stats.server_eof.add(1)
                }
                let why = error.map_or(Ended::Closed, |error| Ended::Failed(error.to_owned()));
                self.upstream_lost(wire, up, why);
            }
        }
    }

    /// Closes a client's connection.
    fn drop_client<W: Wire>(&mut self, wire: &mut W, id: Id) {
        if let Some(Conn::Client(client)) = self.take_conn(id) {
            wire.close(id);
            self.client_gone(wire, client);
        }
    }

    fn client_gone<W: Wire>(&mut self, wire: &mut W, client: Box<Client>) {
        let local = &self.pools[client.pool];
        local.shared.clients.fetch_sub(1, SeqCst);
        local.stats.client_connections.sub(1);
        self.pools[client.pool].queued -= client.kept;
        let subscribed = client.subscriptions.iter().flat_map(|subs| subs.connections.iter());
        let own = client.own.iter().map(|own| own.1);
        for id in own.chain(subscribed.map(|known| known.id)) {
            self.drop_own(wire, id);
        }
    }

    /// Hands a reply to the request that it belongs to.
    #[inline]
    fn reply<W: Wire>(&mut self, wire: &mut W, tag: Tag, reply: &[u8]) {
        match tag.purpose {
            Purpose::Client | Purpose::Select(_) => {}
            Purpose::Redirectable(_) if reply[0] != b'-' => {}
            Purpose::Discard | Purpose::Identify => return,
            Purpose::Relay(number) => return self.relayed(number, reply),
            Purpose::Learn(name) => return self.learned(wire, tag.seq as usize, name, reply),
            Purpose::Redirectable(kept) => {
                let tag = Tag { purpose: Purpose::Client, ..tag };
                return self.redirected(wire, tag, kept, reply);
            }
            Purpose::Streamed => return self.streamed(wire, tag, reply),
            Purpose::Queued | Purpose::Requeued => return self.queued(wire, tag, reply),
            Purpose::Exec => return self.executed(wire, tag, reply),
        }
        self.deliver(wire, tag, reply);
    }

    #[inline]
    fn deliver<W: Wire>(&mut self, wire: &mut W, tag: Tag, reply: &[u8]) {
        let Some(client) = self.client(tag.client) else {
            self.void_bytes += reply.len();
            return;
        };
        if client.has_pages() {
            return self.deliver_page(wire, tag, reply);
        }
        client.take(wire, tag.seq, tag.part, reply);
        if client.awaited.is_some() {
            self.wait_answered(wire, tag.client, reply);
        }
        self.answered(wire, tag.client);
    }

    /// The same for a client that waits for pages of SCAN.
    #[cold]
    fn deliver_page<W: Wire>(&mut self, wire: &mut W, tag: Tag, reply: &[u8]) {
        if self.scan_on(&tag, reply) {
            return;
        }
        let Some(client) = self.client(tag.client) else { return };
        client.take(wire, tag.seq, tag.part, reply);
        self.answered(wire, tag.client);
    }

    /// A client has got a reply.
    #[inline]
    fn answered<W: Wire>(&mut self, wire: &mut W, id: Id) {
        let Some(client) = self.client(id) else { return };
        let early = client.early_bytes;
        if client.is_idle() {
            if client.is_leaving {
                if client.is_settled() {
                    wire.finish(id);
                }
            } else if client.waits_for_all {
                self.settling.push(id);
            }
        }
        if early > 1 << 16 || wire.backlog(id) > 1 << 16 {
            self.check_output(wire, id);
        }
    }

    /// All events of a turn have been told.
    pub fn end_of_turn<W: Wire>(&mut self, wire: &mut W) {
        self.follow_layout(wire);
        for pool in 0..self.pools.len() {
            let changed = self.pools[pool].refresh();
            if let Some(&server) =
                changed.iter().find(|server| self.pools[pool].failing == Some(**server))
            {
                self.failed_over(wire, pool, server);
            }
            self.look_for_successor(wire, pool);
            if changed.is_empty() {
                continue;
            }
            let is_outdated = |conn: &Conn| match conn {
                Conn::Upstream(up) if up.pool == pool && changed.contains(&up.server) => {
                    Some(up.id)
                }
                _ => None,
            };
            let outdated: Vec<Id> = self.conns.iter().flatten().filter_map(is_outdated).collect();
            for id in outdated {
                if let Some(Conn::Upstream(up)) = self.take_conn(id) {
                    wire.abort(id);
                    self.upstream_lost(wire, up, Ended::Replaced);
                }
            }
        }
        self.go_on_scanning(wire);
        self.send_again(wire);
        self.read_letters(wire);
        for id in std::mem::take(&mut self.settling) {
            self.settle(wire, id);
        }
        self.go_on(wire);
        self.go_on_passing(wire);
        self.begin_turn(wire);
        self.go_on_uploading(wire);
        self.publish_queues();
    }

    /// Time has passed. Returns when to call again, at the latest.
    pub fn tick<W: Wire>(&mut self, wire: &mut W) -> Duration {
        self.check_timeouts(wire);
        self.check_uploads(wire);
        self.send_again(wire);
        self.readmit(wire.now());
        self.end_pauses(wire);
        self.follow_layout(wire);
        self.sweep(wire);
        self.restore(wire);
        TICK
    }

    /// Tells clients that the proxy is about to end, and lets each go when all its requests are
    /// answered. Returns whether any is left.
    pub fn drain<W: Wire>(&mut self, wire: &mut W, seconds: u64) -> bool {
        let is_first = !std::mem::replace(&mut self.is_draining, true);
        let mut is_any = false;
        let notice = self.notice("MOVING", Some(seconds), true);
        for conn in self.conns.iter_mut().flatten() {
            let Conn::Client(client) = conn else { continue };
            is_any = true;
            if is_first && client.wants_notices {
                client.send_message(wire, &notice);
            }
            let may_stay = is_first && client.wants_notices;
            if !may_stay && client.is_idle() && client.multi.is_none() && !client.is_leaving {
                client.is_leaving = true;
                wire.finish(client.id);
            }
        }
        is_any
    }
}
