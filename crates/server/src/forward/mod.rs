//! The requests that other nodes of the cluster answer (`docs/internals/forwarding.md`): a
//! reactor's hub, which is that of `dunlin proxy`, without listeners.
//!
//! A client's connection has a second name, by which the hub knows the client. What the hub wants
//! of it is put into an inbox, and the end of the turn hands it out, when every connection can be
//! reached.

pub mod gaps;
pub mod listening;
mod policy;
mod shared;

use listening::Listens;
use policy::Node;
pub use shared::Shared;

use engine::Session;
use engine::clients::forwarding::{Forward, Own, Reach as Nodes, Travel};
use engine::routing::Merge;
use forward::hub::listening::LISTENER;
use forward::hub::{Answers, Hub};
use forward::network::{Net, Reach, conn_id, hub_id};
use forward::settings::Address;
use forward::wire::{Id, Wire};
use net::{ConnId, TlsClient};
use route::code::NO_CLIENT;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The tag of links to other nodes.
pub const LINK: net::Tag = forward::network::SERVER;

/// Set in the generation of a name by which the hub knows a client.
const CLIENT: u32 = 1 << 31;

/// What a hub wants of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It gets a reply, or a message, which is at this place in the inbox.
    Reply(Range<usize>),
    /// It is closed when its output has been sent.
    Finish,
    /// What the hub has not taken is presented again.
    Resume,
    /// Another node has sent a keyspace event, which is at this place in the inbox.
    Heard(Range<usize>),
}

/// What the hub wants of clients.
#[derive(Default)]
pub struct Inbox {
    /// Replies, one behind the other.
    pub bytes: Vec<u8>,
    /// What is wanted of which client, in order.
    pub events: Vec<(Id, Event)>,
}

/// The network as the hub sees it.
struct Wires<'a, R> {
    net: Net<'a, R>,
    inbox: &'a mut Inbox,
}

fn is_client(id: Id) -> bool {
    id.generation & CLIENT != 0
}

fn client_id(id: ConnId) -> Id {
    let id = hub_id(id);
    Id { generation: id.generation | CLIENT, ..id }
}

fn connection(id: Id) -> Id {
    Id { generation: id.generation & !CLIENT, ..id }
}

impl<R: Reach> Wire for Wires<'_, R> {
    #[inline]
    fn send(&mut self, id: Id, bytes: &[u8]) {
        if !is_client(id) && id != LISTENER {
            return self.net.send(id, bytes);
        }
        let start = self.inbox.bytes.len();
        if id == LISTENER {
            self.inbox.bytes.extend_from_slice(bytes);
            let end = self.inbox.bytes.len();
            return self.inbox.events.push((id, Event::Heard(start..end)));
        }
        self.inbox.bytes.extend_from_slice(bytes);
        self.inbox.events.push((id, Event::Reply(start..self.inbox.bytes.len())));
    }

    #[inline]
    fn backlog(&mut self, id: Id) -> usize {
        self.net.backlog(connection(id))
    }

    fn close(&mut self, id: Id) {
        match is_client(id) {
            true => self.inbox.events.push((id, Event::Finish)),
            false => self.net.close(id),
        }
    }

    fn abort(&mut self, id: Id) {
        match is_client(id) {
            true => self.close(id),
            false => self.net.abort(id),
        }
    }

    fn do_not_probe(&mut self, id: Id) {
        if !is_client(id) {
            self.net.do_not_probe(id);
        }
    }

    fn probe_within(&mut self, id: Id, time: Duration) {
        if !is_client(id) {
            self.net.probe_within(id, time);
        }
    }

    fn finish(&mut self, id: Id) {
        match is_client(id) {
            true => self.inbox.events.push((id, Event::Finish)),
            false => self.net.finish(id),
        }
    }

    fn resume(&mut self, id: Id) {
        match is_client(id) {
            true => self.inbox.events.push((id, Event::Resume)),
            false => self.net.resume(id),
        }
    }

    fn connect(&mut self, address: &Address, tls: Option<TlsClient>, timeout: Duration) -> Id {
        self.net.connect(address, tls, timeout)
    }

    #[inline]
    fn now(&self) -> Instant {
        self.net.now()
    }
}

/// The reply of this node itself, which is joined with those of others.
fn own_reply(own: Own) -> Option<Vec<u8>> {
    match own {
        Own::Nothing => None,
        Own::Count(count) => Some(format!(":{count}\r\n").into_bytes()),
        Own::NoSuchClient => Some(route::raw::error(&format!("{NO_CLIENT} No such client"))),
    }
}

/// Returns the requests at the beginning of a client's that go each to the server of one slot: the
/// slots and the requests, whose bytes begin at `start`.
fn keyed_of<'r>(
    requests: &'r [Forward],
    bytes: &'r [u8],
    mut start: usize,
) -> impl Iterator<Item = (u16, &'r [u8])> {
    requests.iter().map_while(move |request| {
        let Travel::Slot(slot) = request.travel else { return None };
        let begin = std::mem::replace(&mut start, request.end);
        Some((slot, &bytes[begin..request.end]))
    })
}

/// What the hub has not taken of a client's requests.
struct Left {
    bytes: Vec<u8>,
    /// They are one request to these servers.
    asks: Option<Asks>,
}

/// Where a request goes that several servers answer side by side, and how their replies become one.
struct Asks {
    servers: Vec<u16>,
    merge: Merge,
    own: Own,
    /// Those that do not answer are left out.
    is_lenient: bool,
}

/// A reactor's hub.
pub struct Forwarder {
    hub: Hub<Node>,
    shared: Arc<Shared>,
    inbox: Inbox,
    /// Requests of clients that the hub has not taken, in order.
    left: HashMap<Id, VecDeque<Left>>,
    listens: Listens,
    /// The state of the users for which waits at other nodes have been looked at.
    rights: u64,
    /// Whether there are such that have to end.
    has_forbidden: bool,
}

impl Forwarder {
    /// The forwarder of a reactor.
    pub fn new(shared: &Arc<Shared>) -> Forwarder {
        let hub = Hub::new(&shared.common);
        let shared = Arc::clone(shared);
        Forwarder {
            hub,
            shared,
            inbox: Inbox::default(),
            left: HashMap::new(),
            listens: Listens::default(),
            rights: 0,
            has_forbidden: false,
        }
    }

    /// Calls the hub.
    fn with<R: Reach, T>(
        &mut self,
        reach: &mut R,
        call: impl FnOnce(&mut Hub<Node>, &mut Wires<'_, R>) -> T,
    ) -> T {
        let mut wires = Wires { net: Net(reach), inbox: &mut self.inbox };
        call(&mut self.hub, &mut wires)
    }

    /// Sends a client's requests.
    pub fn submit<R: Reach>(&mut self, reach: &mut R, id: ConnId, session: &mut Session) {
        let Some(mut forwarding) = session.forwarding.take() else { return };
        self.follow();
        let id = client_id(id);
        let protocol = session.protocol;
        let user = match session.user.may_do_everything() {
            true => 0,
            false => self.hub.number_of_user(session.user.name().as_bytes()),
        };
        let peer = (&*session.client.addr, session.id());
        let setting = forward::pool::Session { protocol, db: session.db.0, user, hops: 0 };
        self.with(reach, |hub, wires| hub.present(wires, id, peer, setting));
        let mut start = 0;
        let mut requests = &forwarding.requests[..];
        while let [request, behind @ ..] = requests {
            if !self.left.contains_key(&id) {
                let run = keyed_of(requests, &forwarding.bytes, start);
                let taken = self.with(reach, |hub, wires| hub.keyed(wires, id, run));
                if let Some(last) = requests[..taken].last() {
                    start = last.end;
                    requests = &requests[taken..];
                    continue;
                }
            }
            requests = behind;
            let bytes = &forwarding.bytes[start..request.end];
            start = request.end;
            let asks = self.asks(request.travel, session);
            if asks.is_some() || self.left.contains_key(&id) {
                let left = Left { bytes: bytes.to_vec(), asks };
                self.left.entry(id).or_default().push_back(left);
                self.present_again(reach, id);
                continue;
            }
            let taken = self.with(reach, |hub, wires| match request.travel {
                // The client is stalled.
                Travel::Slot(_) => 0,
                Travel::Queue(slot) => hub.transaction(wires, id, slot, bytes).bytes,
                _ => hub.data(wires, id, bytes).bytes,
            });
            if taken < bytes.len() {
                let left = Left { bytes: bytes[taken..].to_vec(), asks: None };
                self.left.insert(id, VecDeque::from([left]));
            }
        }
        forwarding.requests.clear();
        forwarding.bytes.clear();
        if self.left.contains_key(&id) {
            forwarding.holds_all = true;
        }
        session.forwarding = Some(forwarding);
    }

    /// Returns the servers that a request goes to side by side, if it travels so.
    fn asks(&self, travel: Travel, session: &Session) -> Option<Asks> {
        match travel {
            Travel::Acks => {
                let written = session.written_shards.as_deref();
                let shards = written.map_or(&[][..], |written| written.awaited());
                let servers = self.shared.leaders_of(shards);
                // What holds at each shard.
                Some(Asks { servers, merge: Merge::Min, own: Own::Nothing, is_lenient: false })
            }
            Travel::Nodes { reach, merge, own } => {
                let servers = self.shared.nodes(reach);
                Some(Asks { servers, merge, own, is_lenient: true })
            }
            _ => None,
        }
    }

    /// Takes over the newest view.
    fn follow(&mut self) {
        self.shared.follow();
        if self.hub.pools[0].shared.generation() != self.hub.pools[0].generation() {
            // No server's number ever means another address here.
            let _ = self.hub.pools[0].refresh();
        }
    }

    /// Sends a request to the other nodes that lead a shard. Its replies are dropped.
    pub fn spread<R: Reach>(&mut self, reach: &mut R, request: &[u8]) {
        self.follow();
        for &server in &*self.shared.others() {
            self.with(reach, |hub, wires| hub.tell(wires, usize::from(server), request));
        }
    }

    /// Ends what clients wait for at other nodes although their users may not do it any more. They
    /// are asked until it has ended, because a command may be on its way to them when rights change.
    pub fn end_forbidden_waits<R: Reach>(&mut self, reach: &mut R) {
        let engine = self.shared.engine;
        let rights = engine.acl.generation();
        if rights == self.rights && !self.has_forbidden {
            return;
        }
        self.rights = rights;
        let forbidden = engine.forbidden_waits();
        self.has_forbidden = !forbidden.is_empty();
        for client in forbidden {
            let request = route::raw::unblock(client);
            for server in self.shared.nodes(Nodes::Leaders) {
                self.with(reach, |hub, wires| hub.tell(wires, usize::from(server), &request));
            }
        }
    }

    /// Presents what the hub has not taken of a client's requests.
    pub fn present_again<R: Reach>(&mut self, reach: &mut R, id: Id) {
        let Some(mut queue) = self.left.remove(&id) else { return };
        while let Some(left) = queue.front_mut() {
            let taken = self.with(reach, |hub, wires| match &left.asks {
                None => hub.data(wires, id, &left.bytes).bytes,
                &Some(Asks { ref servers, merge, own, is_lenient }) => {
                    let own = own_reply(own);
                    let own = own.as_deref();
                    let answers = Answers { merge, own, is_lenient, is_apart: true };
                    match hub.ask_apart(wires, id, servers, &left.bytes, answers) {
                        true => left.bytes.len(),
                        false => 0,
                    }
                }
            });
            if taken < left.bytes.len() {
                left.bytes.drain(..taken);
                self.left.insert(id, queue);
                return;
            }
            queue.pop_front();
        }
    }

    /// A link is open.
    pub fn opened<R: Reach>(&mut self, reach: &mut R, id: ConnId) {
        self.with(reach, |hub, wires| hub.connected(wires, hub_id(id)));
    }

    /// Bytes have come on a link. Returns how many are done with.
    pub fn data<R: Reach>(&mut self, reach: &mut R, id: ConnId, input: &[u8]) -> usize {
        self.with(reach, |hub, wires| hub.data(wires, hub_id(id), input).bytes)
    }

    /// A link has ended, or has not come about.
    pub fn closed<R: Reach>(&mut self, reach: &mut R, id: ConnId, why: Option<&str>) {
        self.with(reach, |hub, wires| hub.closed(wires, hub_id(id), why));
    }

    /// A client has gone.
    pub fn left<R: Reach>(&mut self, reach: &mut R, id: ConnId) {
        let id = client_id(id);
        self.left.remove(&id);
        self.with(reach, |hub, wires| hub.closed(wires, id, None));
    }

    /// Time has passed. Returns when to call again.
    pub fn tick<R: Reach>(&mut self, reach: &mut R) -> Duration {
        self.shared.follow_login();
        self.shared.follow();
        let leads = self.shared.leads();
        self.with(reach, |hub, wires| {
            hub.leave_former_primaries(wires, &leads);
            hub.tick(wires)
        })
    }

    /// All events of the turn have been told.
    pub fn end_of_turn<R: Reach>(&mut self, reach: &mut R) {
        self.shared.follow();
        self.with(reach, |hub, wires| hub.end_of_turn(wires));
    }

    /// Takes what is wanted of clients, if anything is.
    pub fn take_events(&mut self) -> Option<Inbox> {
        (!self.inbox.events.is_empty()).then(|| std::mem::take(&mut self.inbox))
    }

    /// Returns whether two events that follow each other are replies to the same client.
    pub fn belong_together(one: &(Id, Event), next: &(Id, Event)) -> bool {
        let are_replies = matches!((&one.1, &next.1), (Event::Reply(_), Event::Reply(_)));
        are_replies && one.0 == next.0
    }

    /// Returns the places of replies in the inbox.
    pub fn replies(events: &[(Id, Event)]) -> impl Iterator<Item = Range<usize>> {
        events.iter().filter_map(|(_, event)| match event {
            Event::Reply(place) => Some(place.clone()),
            _ => None,
        })
    }

    /// Gives the buffers of the inbox back.
    pub fn recycle(&mut self, mut inbox: Inbox) {
        if self.inbox.events.is_empty() {
            inbox.bytes.clear();
            inbox.events.clear();
            inbox.bytes.shrink_to(1 << 16);
            self.inbox = inbox;
        }
    }

    /// The connection of a client that the hub calls so.
    pub fn connection_of(thread: usize, id: Id) -> ConnId {
        conn_id(thread, connection(id))
    }
}
