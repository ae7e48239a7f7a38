//! Hands a reply to the client whose request it answers.

use super::Hub;
use super::tag::Tag;
use crate::policy::Policy;
use crate::wire::{Id, Wire};

impl<P: Policy> Hub<P> {
    #[inline]
    pub(super) fn deliver<W: Wire>(&mut self, wire: &mut W, tag: Tag, reply: &[u8]) {
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
    pub(super) fn answered<W: Wire>(&mut self, wire: &mut W, id: Id) {
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

    /// Has a page of SCAN that is not full go on at the next server. Returns whether it does.
    #[cold]
    fn scan_on(&mut self, tag: &Tag, reply: &[u8]) -> bool {
        let Some(client) = self.client(tag.client) else { return false };
        let pool = client.pool;
        let Some(mut page) = client.page(tag.seq).map(std::mem::take) else { return false };
        let piece = page.next(reply, &self.pools[pool]);
        if let Some(place) = self.client(tag.client).and_then(|client| client.page(tag.seq)) {
            *place = page;
        }
        let goes_on = piece.is_some();
        // The connection that the reply came on may be needed, and is being worked on.
        self.pages.extend(piece.map(|piece| (tag.client, tag.seq, piece)));
        goes_on
    }
}
