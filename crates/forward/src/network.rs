//! A reactor's connections as a hub sees them. The reactor's turns are the hub's: all that a turn's
//! clients have for one server leaves with one write.

use crate::settings::Address;
use crate::wire::{Id, Wire};
use net::{ConnId, ConnIo, Cx, Outgoing, Tag, Target, TlsClient};
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
