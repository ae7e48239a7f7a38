//! Redirections of a Redis Cluster.

use super::upstream::{Kept, Purpose, Tag};
use super::wire::{Id, Wire};
use super::{Conn, Hub};
use crate::config::Address;
use crate::pool::{LinkKey, MAX_SERVERS};
use route::raw;
use route::slots::{Redirection, redirection};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// A request is sent so often.
const MAX_TRIES: u32 = 40;
/// Between two attempts while the cluster cannot serve a slot.
const PAUSE: Duration = Duration::from_millis(50);

impl Hub {
    /// Sends a request elsewhere if its reply asks for it. Otherwise the reply is the client's: returns its
    /// tag.
    pub(super) fn redirected(
        &mut self,
        now: Instant,
        tag: Tag,
        mut kept: Box<Kept>,
        reply: &[u8],
    ) -> Option<Tag> {
        let Some(redirection) = redirection(reply) else { return Some(tag) };
        let client = self.client(tag.client)?;
        // Later requests would overtake this one.
        client.waits_for_all = true;
        let pool = client.pool;
        kept.tries += 1;
        kept.server = None;
        if kept.tries > MAX_TRIES {
            return Some(tag);
        }
        let shared = self.pools[pool].shared.clone();
        let mut due = now;
        match redirection {
            Redirection::Moved(slot, address) => {
                kept.is_asking = false;
                shared.is_stale.store(true, SeqCst);
                let server = server_at(&shared, &Address::Tcp(address.0, address.1));
                shared.change(|topology| {
                    if let Some(place) = topology.slots.get_mut(usize::from(slot)) {
                        *place = server.or(*place);
                    }
                });
                // The same server may say so twice while it learns itself.
                if kept.tries > 5 {
                    due += PAUSE;
                }
            }
            Redirection::Ask(_, address) => {
                kept.is_asking = true;
                kept.server = server_at(&shared, &Address::Tcp(address.0, address.1));
            }
            Redirection::TryAgain | Redirection::Down => {
                kept.is_asking = false;
                shared.is_stale.store(true, SeqCst);
                due += PAUSE;
            }
        }
        let before = self.again.iter().filter(|(_, before)| before.client == tag.client);
        let due = before.map(|(due, _)| *due).max().map_or(due, |last| due.max(last));
        self.again.push((due, Tag { purpose: Purpose::Redirectable(kept), ..tag }));
        None
    }

    /// Sends requests again whose time has come.
    pub(super) fn send_again<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        if self.again.is_empty() {
            return;
        }
        let (due, later) =
            std::mem::take(&mut self.again).into_iter().partition(|(at, _)| *at <= now);
        self.again = later;
        let due: Vec<(Instant, Tag)> = due;
        for (_, tag) in due {
            let Some(client) = self.client(tag.client) else { continue };
            let pool = client.pool;
            self.pools[pool].refresh();
            let Purpose::Redirectable(kept) = &tag.purpose else { continue };
            let asked = kept.server.map(usize::from);
            match asked.or_else(|| self.server_of_kept(pool, &kept.request)) {
                Some(server) => self.send_kept(wire, pool, server, tag),
                None => {
                    let reply = raw::error(route::plan::NO_SERVER);
                    self.deliver(wire, Tag { purpose: Purpose::Client, ..tag }, &reply);
                }
            }
        }
    }

    fn server_of_kept(&self, pool: usize, request: &[u8]) -> Option<usize> {
        let words = raw::elements(request)?;
        let words: Option<Vec<&[u8]>> = words.iter().map(|word| raw::text(word)).collect();
        let words = words?;
        let row = self.commands.table.lookup(&words)?;
        let mut key = None;
        let _ = spec::keys::for_each_key(row.command, &words, |at, _| {
            key = key.or(Some(at));
        });
        let local = &self.pools[pool];
        route::Placement::place(local, words[key?]).map(|place| place.server)
    }

    fn send_kept<W: Wire>(&mut self, wire: &mut W, pool: usize, server: usize, tag: Tag) {
        let Some(client) = self.client(tag.client) else { return };
        let key = LinkKey { protocol: client.protocol, db: client.db };
        let id = if client.is_blocked {
            self.move_own(wire, tag.client, server)
        } else {
            self.shared(wire, pool, server, key)
        };
        let id = match id {
            Ok(id) => id,
            Err(why) => {
                let reply = raw::error(&why);
                return self.deliver(wire, Tag { purpose: Purpose::Client, ..tag }, &reply);
            }
        };
        let Purpose::Redirectable(kept) = &tag.purpose else { return };
        let request = kept.request.clone();
        if kept.is_asking {
            let asking =
                Tag { client: tag.client, seq: 0, part: 0, bytes: 0, purpose: Purpose::Discard };
            self.send_on(wire, id, b"*1\r\n$6\r\nASKING\r\n", asking);
        }
        self.send_on(wire, id, &request, tag);
    }

    /// Gives a client whose command waits a connection of its own to another server.
    fn move_own<W: Wire>(&mut self, wire: &mut W, id: Id, server: usize) -> Result<Id, String> {
        let Some(Conn::Client(mut client)) = self.take_conn(id) else {
            return Err(route::plan::NO_SERVER.into());
        };
        if client.own_to(server).is_none() {
            self.release(wire, &mut client);
        }
        let acquired = self.acquire_own(wire, &mut client, server);
        let own = client.own_to(server);
        self.put(id, Conn::Client(client));
        acquired.and_then(|()| own.ok_or_else(|| route::plan::NO_SERVER.into()))
    }
}

/// The number of the server at an address, which may be new.
pub fn server_at(shared: &crate::pool::Shared, address: &Address) -> Option<u16> {
    shared.change(|topology| {
        let known = topology.servers.iter().position(|server| server == address);
        let at = match known {
            Some(at) => at,
            None if topology.servers.len() < MAX_SERVERS => {
                topology.servers.push(address.clone());
                topology.ejected.push(None);
                topology.servers.len() - 1
            }
            None => return None,
        };
        u16::try_from(at).ok()
    })
}
