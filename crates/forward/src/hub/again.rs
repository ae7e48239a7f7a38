//! Requests that are to be sent again later: a redirection, a server that cannot be reached.
//! They wait in [`Hub::again`](super::Hub) until [`cluster`](super::cluster) sends them.

use super::Hub;
use super::client::Client;
use super::tag::{Again, Aim, Kept, Onward, Purpose, Tag, cost};
use crate::policy::Policy;
use crate::pool::{MAX_SERVERS, Place};
use crate::settings::Address;
use crate::wire::Wire;
use route::slots::{self, Redirection, redirection};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// A request is sent so often.
pub(super) const MAX_TRIES: u32 = 200;

/// The same while its server cannot be reached.
const MAX_UNREACHED: u32 = 40;

/// Between two attempts while the cluster cannot serve a slot.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The same while this node and another have seen different states of the cluster.
pub(super) const BRIEF_PAUSE: Duration = Duration::from_millis(2);

impl<P: Policy> Hub<P> {
    /// Learns from a redirection.
    pub(super) fn onward(&self, pool: usize, redirection: Redirection) -> Onward {
        let shared = &self.pools[pool].shared;
        match redirection {
            Redirection::Moved(slot, address) => {
                shared.is_stale.store(true, SeqCst);
                let Some(place) = self.named(pool, address) else { return Onward::later() };
                let server = server_at(shared, &place);
                shared.change(|topology| {
                    if let Some(place) = topology.slots.get_mut(usize::from(slot)) {
                        *place = server.or(*place);
                    }
                });
                Onward::default()
            }
            Redirection::Ask(_, address) => match self.named(pool, address) {
                Some(place) => {
                    let server = server_at(shared, &place);
                    Onward { server, is_asking: true, is_later: false }
                }
                None => Onward::later(),
            },
            Redirection::TryAgain | Redirection::Down => {
                shared.is_stale.store(true, SeqCst);
                Onward::later()
            }
        }
    }

    /// Returns the place of the server that another one names. Without a host it means its own
    /// host. `None`: where it is reached is not known at the moment.
    fn named(&self, pool: usize, (host, port): slots::Address) -> Option<Place> {
        let pool = &self.pools[pool];
        let answering = pool.targets.get(self.answering).map(|target| &target.place.address);
        let host = match (&host[..], answering) {
            ("", Some(Address::Tcp(own, _))) => own.clone(),
            _ => host,
        };
        match pool.shared.places.get() {
            Some(places) => (places.0)(&host, port),
            None => Some(Address::Tcp(host, port).into()),
        }
    }

    /// Sends a request that has certainly not been sent, or run, again after a while.
    pub(super) fn try_again<W: Wire>(
        &mut self,
        wire: &mut W,
        tag: Tag,
        mut kept: Box<Kept>,
        reply: &[u8],
    ) {
        kept.server = None;
        kept.is_asking = false;
        if kept.tries >= MAX_UNREACHED || kept.aim == Aim::Server {
            return self.deliver(wire, tag, reply);
        }
        let due = wire.now() + PAUSE;
        self.postpone(wire, due, tag, kept, reply);
    }

    pub(super) fn postpone<W: Wire>(
        &mut self,
        wire: &mut W,
        due: Instant,
        tag: Tag,
        mut kept: Box<Kept>,
        reply: &[u8],
    ) {
        let Some(client) = self.client(tag.client) else { return };
        // Later requests would overtake this one.
        client.waits_for_all = true;
        kept.tries += 1;
        if kept.tries > MAX_TRIES {
            return self.deliver(wire, tag, given_up(reply));
        }
        let pool = client.pool;
        self.queue_again(pool, due, Tag { purpose: Purpose::Redirectable(kept), ..tag });
    }

    /// The server of a request that is being presented cannot be reached. In front of a cluster it
    /// is tried again; otherwise its tag comes back.
    pub(super) fn unreachable(
        &mut self,
        now: Instant,
        client: &mut Client,
        tag: Tag,
    ) -> Result<(), Tag> {
        let Purpose::Redirectable(kept) = &tag.purpose else { return Err(tag) };
        if kept.is_watch || client.tracking.is_some() || kept.aim == Aim::Server {
            return Err(tag);
        }
        client.waits_for_all = true;
        self.pools[client.pool].shared.is_stale.store(true, SeqCst);
        let due = client.repeats_at(now + PAUSE);
        self.queue_until(client.pool, due, tag);
        Ok(())
    }

    pub(super) fn queue_again(&mut self, pool: usize, due: Instant, tag: Tag) {
        let due = self.client(tag.client).map_or(due, |client| client.repeats_at(due));
        self.queue_until(pool, due, tag);
    }

    fn queue_until(&mut self, pool: usize, due: Instant, tag: Tag) {
        let bytes = match &tag.purpose {
            Purpose::Redirectable(kept) => cost(&kept.request) as usize,
            _ => 0,
        };
        self.pools[pool].queued += bytes;
        self.add_again(Again { due, tag, pool, bytes });
    }

    pub(super) fn add_again(&mut self, again: Again) {
        self.again_due = match self.again.is_empty() {
            true => again.due,
            false => self.again_due.min(again.due),
        };
        self.again.push(again);
    }
}

/// What a client gets for a redirection that could not be followed: it does not know of servers.
pub(super) fn given_up(reply: &[u8]) -> &[u8] {
    match redirection(reply) {
        Some(Redirection::Ask(..) | Redirection::Moved(..)) => MOVING,
        _ => reply,
    }
}

pub(super) const MOVING: &[u8] =
    b"-TRYAGAIN proxy: the slot is being moved, and no server has all its keys; send it again\r\n";

/// The number of the server at a place, which may be new.
pub fn server_at(shared: &crate::pool::Shared, place: &Place) -> Option<u16> {
    shared.change(|topology| {
        let known = topology.servers.iter().position(|server| server == place);
        let at = match known {
            Some(at) => at,
            None if topology.servers.len() < MAX_SERVERS => {
                topology.servers.push(place.clone());
                topology.ejected.push(None);
                topology.servers.len() - 1
            }
            None => return None,
        };
        u16::try_from(at).ok()
    })
}
