//! Between a reactor and a hub: connections of one thread become the hub's, and what the hub wants
//! of them is done.
//!
//! The reactor's turns are the hub's. All that a turn's clients have for one server leaves with one
//! write.

use crate::config::Address;
use crate::hub::wire::{Id, Wire};
use crate::hub::{Hub, Stall};
use net::{
    Close, ConnId, ConnIo, ConnectError, Consumed, Cx, Handler, Outgoing, PeerInfo, Problem, Tag,
    Target, TlsClient,
};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The tag of connections to servers. Those of clients have the number of their pool.
pub const SERVER: Tag = Tag(u32::MAX - 1);

/// The parts of a connection's name that a hub uses; the thread is always its own.
pub fn hub_id(id: ConnId) -> Id {
    let bits = id.as_u64();
    Id { slot: (bits & 0xff_ffff) as u32, generation: (bits >> 24) as u32 }
}

/// The connection of a thread that a hub calls so.
#[inline]
pub fn conn_id(thread: usize, id: Id) -> ConnId {
    let bits = (thread as u64) << 56 | u64::from(id.generation) << 24 | u64::from(id.slot);
    ConnId::from_u64(bits)
}

fn outgoing(address: &Address, tls: Option<TlsClient>, timeout: Duration) -> Outgoing {
    let target = match address {
        Address::Unix(path, _) => Target::Unix(path.clone()),
        Address::Tcp(host, port) => match host.parse::<IpAddr>() {
            Ok(ip) => Target::Socket(SocketAddr::new(ip, *port)),
            Err(_) => Target::Name(host.clone(), *port),
        },
    };
    Outgoing { target, tls, tag: SERVER, timeout }
}

/// A thread's connections, wherever a handler is called.
pub trait Reach {
    /// The thread.
    fn thread(&self) -> usize;
    /// One of its connections.
    fn io(&mut self, id: ConnId) -> Option<ConnIo<'_>>;
    /// Makes one.
    fn connect(&mut self, outgoing: Outgoing) -> ConnId;
    /// When this turn began.
    fn now(&self) -> Instant;
}

impl Reach for ConnIo<'_> {
    #[inline]
    fn thread(&self) -> usize {
        self.id().thread()
    }
    #[inline]
    fn io(&mut self, id: ConnId) -> Option<ConnIo<'_>> {
        self.other(id)
    }
    fn connect(&mut self, outgoing: Outgoing) -> ConnId {
        ConnIo::connect(self, outgoing)
    }
    #[inline]
    fn now(&self) -> Instant {
        ConnIo::now(self)
    }
}

impl<C> Reach for Cx<'_, C> {
    #[inline]
    fn thread(&self) -> usize {
        Cx::thread(self)
    }
    #[inline]
    fn io(&mut self, id: ConnId) -> Option<ConnIo<'_>> {
        Cx::io(self, id)
    }
    fn connect(&mut self, outgoing: Outgoing) -> ConnId {
        Cx::connect(self, outgoing)
    }
    fn now(&self) -> Instant {
        Cx::now(self)
    }
}

/// What a hub sees of them.
pub struct Net<'a, R>(pub &'a mut R);

impl<R: Reach> Net<'_, R> {
    #[inline]
    fn io(&mut self, id: Id) -> Option<ConnIo<'_>> {
        self.0.io(conn_id(self.0.thread(), id))
    }
}

impl<R: Reach> Wire for Net<'_, R> {
    #[inline]
    fn send(&mut self, id: Id, bytes: &[u8]) {
        if let Some(mut io) = self.io(id) {
            io.out().extend_from_slice(bytes);
        }
    }

    #[inline]
    fn backlog(&mut self, id: Id) -> usize {
        self.io(id).map_or(0, |io| io.pending_output())
    }

    fn close(&mut self, id: Id) {
        if let Some(mut io) = self.io(id) {
            io.close();
        }
    }

    fn abort(&mut self, id: Id) {
        if let Some(mut io) = self.io(id) {
            io.abort();
        }
    }

    fn finish(&mut self, id: Id) {
        if let Some(mut io) = self.io(id) {
            io.close_after_flush();
        }
    }

    fn do_not_probe(&mut self, id: Id) {
        if let Some(io) = self.io(id) {
            io.do_not_probe();
        }
    }

    fn probe_within(&mut self, id: Id, time: Duration) {
        if let Some(io) = self.io(id) {
            io.probe_within(time);
        }
    }

    fn resume(&mut self, id: Id) {
        if let Some(mut io) = self.io(id) {
            io.resume();
        }
    }

    fn connect(&mut self, address: &Address, tls: Option<TlsClient>, timeout: Duration) -> Id {
        hub_id(self.0.connect(outgoing(address, tls, timeout)))
    }

    #[inline]
    fn now(&self) -> Instant {
        self.0.now()
    }
}

/// One thread's handler.
pub struct Driver {
    hub: Hub,
    /// When the proxy has to have ended, if it is ending.
    drain_until: fn() -> Option<Instant>,
    log: fn(&str),
    has_begun: bool,
}

impl Driver {
    /// The handler of a thread.
    pub fn new(hub: Hub, drain_until: fn() -> Option<Instant>, log: fn(&str)) -> Driver {
        Driver { hub, drain_until, log, has_begun: false }
    }
}

impl Handler for Driver {
    type Conn = ();

    fn opened(&mut self, peer: &PeerInfo, io: &mut ConnIo<'_>) -> Option<()> {
        let id = hub_id(peer.id);
        if peer.is_outgoing {
            self.hub.connected(&mut Net(io), id);
        } else {
            self.hub.accepted(&mut Net(io), id, peer.tag.0 as usize, &peer.addr_text());
        }
        Some(())
    }

    fn not_opened(&mut self, id: ConnId, _: Tag, why: &ConnectError, cx: &mut Cx<'_, ()>) {
        self.hub.closed(&mut Net(cx), hub_id(id), Some(&why.to_string()));
    }

    #[inline]
    fn data(&mut self, (): &mut (), io: &mut ConnIo<'_>, input: &[u8]) -> Consumed {
        let id = hub_id(io.id());
        let done = self.hub.data(&mut Net(io), id, input);
        match done.stall {
            Stall::None => {}
            Stall::Held => io.hold_back(),
            // As with a server: a client that hangs up does not wait any longer.
            Stall::Blocked if io.has_ended() => io.close_after_flush(),
            Stall::Blocked => io.pause(),
        }
        Consumed::read(done.bytes)
    }

    fn ended(&mut self, (): &mut (), io: &mut ConnIo<'_>) -> bool {
        self.hub.ended(hub_id(io.id()))
    }

    fn closed(&mut self, id: ConnId, (): (), why: Close, cx: &mut Cx<'_, ()>) {
        let error = match why {
            Close::Failed(errno) => Some(std::io::Error::from_raw_os_error(errno).to_string()),
            Close::Tls => Some("the TLS session broke".to_owned()),
            Close::Eof | Close::Asked | Close::Stopping => None,
        };
        self.hub.closed(&mut Net(cx), hub_id(id), error.as_deref());
    }

    fn tick(&mut self, cx: &mut Cx<'_, ()>) -> Duration {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.hub.preconnect(&mut Net(cx));
        }
        let pause = self.hub.tick(&mut Net(cx));
        if let Some(until) = (self.drain_until)() {
            let left = until.saturating_duration_since(cx.now());
            let is_any = self.hub.drain(&mut Net(cx), left.as_secs());
            if !is_any || left.is_zero() {
                cx.stop();
            }
        }
        pause
    }

    fn end_of_turn(&mut self, cx: &mut Cx<'_, ()>) {
        self.hub.end_of_turn(&mut Net(cx));
    }

    fn problem(&mut self, problem: Problem<'_>) {
        (self.log)(&problem.to_string());
    }
}
