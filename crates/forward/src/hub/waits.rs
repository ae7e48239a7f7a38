//! WAIT and WAITAOF of a node's client at the primaries of several shards.
//!
//! A wait that ends at one primary before it has what it waits for, because its time is over or
//! CLIENT UNBLOCK has ended it, ends at the others, too. CLIENT UNBLOCK may have looked for it there
//! when it was still on its way. So the connections on which it waits are closed, and the servers
//! are asked how far their replicas are, without waiting.

use super::acks::Acks;
use super::client::Client;
use super::tag::{Purpose, Tag};
use super::{Conn, Hub};
use crate::policy::Policy;
use crate::pool::Session;
use crate::wire::{Id, Wire};

impl<P: Policy> Hub<P> {
    /// One server has answered a client that waits at several.
    #[cold]
    pub(super) fn wait_answered<W: Wire>(&mut self, wire: &mut W, id: Id, reply: &[u8]) {
        let Some(Conn::Client(mut client)) = self.take_conn(id) else { return };
        let awaited = client.awaited.take();
        match awaited {
            Some(acks) if !acks.is_satisfied_by(reply) => {
                self.end_waits(wire, &mut client, &acks);
            }
            awaited if !client.is_idle() => client.awaited = awaited,
            _ => {}
        }
        self.put(id, Conn::Client(client));
    }

    /// Ends a client's wait at the servers that have not answered.
    fn end_waits<W: Wire>(&mut self, wire: &mut W, client: &mut Client, acks: &Acks) {
        for (server, own) in std::mem::take(&mut client.own) {
            if self.upstream(own).is_none_or(|up| up.link.pending() == 0) {
                client.own.push((server, own));
                continue;
            }
            let Some(Conn::Upstream(mut up)) = self.take_conn(own) else { continue };
            wire.abort(own);
            self.upstream_dropped(&mut up);
            self.exclusive_ended(up.pool);
            let (sent, unsent, _) = up.link.take_all();
            let waiting = sent.into_iter().chain(unsent);
            for tag in waiting.filter(|tag| tag.purpose != Purpose::Discard) {
                let tag = Tag { bytes: 0, purpose: Purpose::Client, ..tag };
                let session = Session { db: 0, ..client.session };
                let key = self.pools[up.pool].link_key(session, client.turn, server);
                match self.shared(wire, up.pool, server, key) {
                    Ok(link) => self.send_on(wire, link, &acks.question, tag),
                    Err(why) => client.take(wire, tag.seq, tag.part, &why.reply()),
                }
            }
        }
    }
}
