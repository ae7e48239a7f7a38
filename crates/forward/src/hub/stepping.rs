//! Keeps the connections that a client has for itself in step with its session.
//!
//! What a client has said about its connection is its [`Session`] and its [tracking](super::tracking).
//! A shared connection is chosen by the session and never changes. A client's own connection stays
//! while the client watches keys, is in a transaction, or has its keys tracked, and the client may
//! change its session meanwhile. So each connection remembers what it was last set to, and before a
//! request goes out on it the difference is made up. As at the beginning of a connection, the
//! request waits for the replies: if the server refuses, the connection is closed, and nothing has
//! run in the wrong database.

use super::Hub;
use super::client::Client;
use super::setting::{Names, OK, Setting, changes};
use super::tag::{Purpose, Tag};
use super::upstream::Upstream;
use crate::policy::Policy;
use crate::wire::{Id, Wire};

impl<P: Policy> Hub<P> {
    /// Has the client's next requests on a connection of its own find what the client has said. To
    /// be called while none of its requests is under way there.
    pub(super) fn bring_in_step<W: Wire>(&mut self, wire: &mut W, client: &Client, own: Id) {
        let wanted = client.setting();
        let Some(up) = self.upstream(own).filter(|up| !up.setting().is(&wanted)) else { return };
        let (pool, session, tracking) = (up.pool, up.key.session, up.tracking.take());
        let from = Setting { session, tracking: tracking.as_ref() };
        let names = Names { users: &self.users, link: &self.common.link_name };
        let steps = changes(&self.pools[pool], names, from, wanted);
        let Some(up) = self.upstream(own) else { return };
        up.key.session = wanted.session;
        up.tracking = wanted.tracking.cloned();
        up.link.set_up(steps, &mut |bytes| wire.send(own, bytes));
    }

    /// A reply has come that may say that another database is selected.
    pub(super) fn selected(&mut self, up: &mut Upstream, tag: &Tag, reply: &[u8]) {
        let db = match tag.purpose {
            Purpose::Select(db) if reply == OK => db,
            Purpose::Exec => self
                .client(tag.client)
                .and_then(|client| client.executing.as_ref())
                .and_then(|multi| multi.selects(reply)),
            _ => None,
        };
        let Some(db) = db else { return };
        up.key.session.db = db;
        self.pools[up.pool].shared.note_selectable(db);
        if let Some(client) = self.client(tag.client) {
            client.session.db = db;
        }
    }
}
