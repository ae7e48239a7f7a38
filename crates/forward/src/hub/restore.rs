//! Subscriptions whose server is lost, or has them no more.

use super::client::{Client, send_message};
use super::subscriptions::{RESTORE_WITHIN, Restoring, SUBSCRIBE, Subscription};
use super::{Conn, Hub};
use crate::policy::Policy;
use crate::wire::{Id, Wire};
use route::raw;

impl<P: Policy> Hub<P> {
    /// A connection of a client's subscriptions is lost.
    pub(super) fn subscriber_lost<W: Wire>(&mut self, wire: &mut W, owner: Id, id: Id) {
        let now = wire.now();
        let Some(client) = self.client(owner) else { return };
        let protocol = client.session.protocol;
        let Some(subscriptions) = client.subscriptions.as_mut() else { return };
        let Some(at) = subscriptions.connections.iter().position(|known| known.id == id) else {
            return;
        };
        let lost = subscriptions.connections.swap_remove(at);
        let since = *subscriptions.lost_since.get_or_insert(now);
        if now.saturating_duration_since(since) > RESTORE_WITHIN {
            client.is_leaving = true;
            return wire.finish(owner);
        }
        let waited = subscriptions.awaited > 0;
        subscriptions.awaited -= lost.awaited.len();
        subscriptions.owe(&lost);
        // What the client wanted to end has ended.
        for (kind, channel) in &lost.leaving {
            if let Some(reply) = subscriptions.end(protocol, *kind, channel) {
                send_message(wire, owner, &mut client.behind, &reply);
            }
        }
        let is_confirmed = waited && subscriptions.awaited == 0;
        let channels = lost.channels.difference(&lost.leaving).cloned().collect();
        if is_confirmed {
            self.confirmed(wire, owner);
        }
        self.restore_later(now, owner, channels);
    }

    /// Subscribes again where it is time to.
    pub(super) fn restore<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        if self.restoring.iter().all(|restoring| now < restoring.due) {
            return;
        }
        let all = std::mem::take(&mut self.restoring);
        let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|r| r.due <= now);
        self.restoring = later;
        for Restoring { client: id, channels, .. } in due {
            let Some(Conn::Client(mut client)) = self.take_conn(id) else { continue };
            let failed = self.restore_of(wire, &mut client, channels);
            let since =
                client.subscriptions.as_mut().map(|subs| *subs.lost_since.get_or_insert(now));
            let is_over =
                since.is_some_and(|since| now.saturating_duration_since(since) > RESTORE_WITHIN);
            if is_over {
                client.is_leaving = true;
                wire.finish(id);
            }
            self.put(id, Conn::Client(client));
            if !is_over {
                self.restore_later(now, id, failed);
            }
        }
    }

    /// Returns the channels for which there is no server now.
    fn restore_of<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        channels: Vec<Subscription>,
    ) -> Vec<Subscription> {
        let mut failed = Vec::new();
        for (kind, channel) in channels {
            let servers = self.servers_of_channel(client.pool, kind, &channel);
            let mut has_failed = servers.is_empty();
            for server in servers {
                match self.subscriber(wire, client, server) {
                    Ok(id) => {
                        let subscriptions = client.subscriptions.get_or_insert_default();
                        if subscriptions.begin_again(id, kind, &channel) {
                            let request = raw::request(&[SUBSCRIBE[kind], &channel]);
                            self.say(wire, id, &request);
                        }
                    }
                    Err(_) => has_failed = true,
                }
            }
            if has_failed {
                failed.push((kind, channel));
            }
        }
        failed
    }

    /// Ends a client's subscriptions at servers of a pool that is retired, to make them again.
    pub(super) fn resubscribe<W: Wire>(&mut self, wire: &mut W, client: &mut Client) {
        let Some(subscriptions) = client.subscriptions.as_mut() else { return };
        let mut channels = Vec::new();
        for known in std::mem::take(&mut subscriptions.connections) {
            self.drop_own(wire, known.id);
            channels.extend(known.channels);
        }
        channels.sort_unstable();
        channels.dedup();
        self.restore_later(wire.now(), client.id, channels);
    }

    /// Ends a client's subscriptions without a word.
    pub(super) fn end_subscriptions<W: Wire>(&mut self, wire: &mut W, client: &mut Client) {
        let Some(subscriptions) = client.subscriptions.take() else { return };
        for known in subscriptions.connections {
            self.drop_own(wire, known.id);
        }
        self.restoring.retain(|restoring| restoring.client != client.id);
    }
}
