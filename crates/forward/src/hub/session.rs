//! Commands that change what a client's next requests mean: transactions and subscriptions.

use super::client::{Client, Flow, ReplyPlace};
use super::multi::Multi;
use super::{Conn, Hub};
use crate::policy::Policy;
use crate::wire::{Id, Wire};
use spec::Session;

impl<P: Policy> Hub<P> {
    /// All requests of a client that waited for it have been answered.
    pub(super) fn settle<W: Wire>(&mut self, wire: &mut W, id: Id) {
        let Some(Conn::Client(mut client)) = self.take_conn(id) else { return };
        client.waits_for_all = false;
        client.is_blocked = false;
        client.repeats_in_order = false;
        client.repeats_until = None;
        if client.watch.is_none() && client.multi.is_none() && client.tracking.is_none() {
            self.release(wire, &mut client);
        }
        self.rehome(wire, &mut client);
        // A transaction that has ended takes nothing any more.
        self.count_kept(wire, &mut client, 0);
        self.put(id, Conn::Client(client));
        wire.resume(id);
    }

    /// A command of transactions or subscriptions, outside MULTI.
    pub(super) fn session<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        session: Session,
        server: Option<usize>,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        match session {
            Session::Multi => {
                client.multi = Some(Box::new(Multi::default()));
                client.answer(wire, b"+OK\r\n");
            }
            Session::Exec => client.answer(wire, b"-ERR EXEC without MULTI\r\n"),
            Session::Discard => client.answer(wire, b"-ERR DISCARD without MULTI\r\n"),
            Session::Watch => return self.watch(wire, client, server, words, request),
            Session::Unwatch => {
                match client.watch.take().and_then(|watch| watch.server_among(&client.own)) {
                    Some(server) => {
                        self.forward(wire, client, server, request, ReplyPlace::Waiting);
                        self.settle_soon(client);
                    }
                    None => client.answer(wire, b"+OK\r\n"),
                }
            }
            Session::Subscribe => return self.subscribe(wire, client, words),
            Session::Unsubscribe => return self.unsubscribe(wire, client, words),
        }
        Flow::Done
    }
}
