//! Between a reactor and a hub: connections of one thread become the hub's, and what the hub wants
//! of them is done.

use crate::policy::Front;
use forward::hub::Hub;
use forward::network::{Net, hub_id};
use forward::wire::Stall;
use net::{Close, ConnId, ConnIo, ConnectError, Consumed, Cx, Handler, PeerInfo, Problem, Tag};
use std::time::{Duration, Instant};

/// One thread's handler.
pub struct Driver {
    hub: Hub<Front>,
    /// When the proxy has to have ended, if it is ending.
    drain_until: fn() -> Option<Instant>,
    log: fn(&str),
    has_begun: bool,
}

impl Driver {
    /// The handler of a thread.
    pub fn new(hub: Hub<Front>, drain_until: fn() -> Option<Instant>, log: fn(&str)) -> Driver {
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
