//! Subscriptions. A client that subscribes has connections of its own to the servers of its
//! channels.
//!
//! A channel lives on the server that its name hashes to, as a key does, so that PUBLISH and
//! SUBSCRIBE meet. Patterns and keyspace notifications are subscribed to at all servers. Numbers of
//! subscriptions in confirmations are the client's, not a server's.
//!
//! When a connection is lost, its channels are subscribed to again, wherever they are now. The
//! client gets their confirmations a second time, and so knows that messages may be missing.

use super::Hub;
use super::client::{Client, Flow, send_message};
use super::subscriptions::{
    Parting, RESTORE_AFTER, Restoring, SUBSCRIBE, Subscriber, Subscription, UNSUBSCRIBE,
    confirmation, in_protocol, kind_of,
};
use super::upstream::Upstream;
use crate::failure::{Ended, Failure};
use crate::policy::Policy;
use crate::wire::{Id, Wire};
use resp::{Protocol, Scanned};
use route::plan::Placement;
use route::raw;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

impl<P: Policy> Hub<P> {
    pub(super) fn servers_of_channel(
        &self,
        pool: usize,
        kind: usize,
        channel: &[u8],
    ) -> Vec<usize> {
        let local = &self.pools[pool];
        if kind == 1 || channel.starts_with(b"__key") {
            return local.every();
        }
        let place = local.place(channel).map(|place| place.server);
        place.or_else(|| local.any()).into_iter().collect()
    }

    /// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE.
    pub(super) fn subscribe<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        let kind = kind_of(words[0]);
        for channel in &words[1..] {
            let subscription = (kind, channel.to_vec());
            let servers = self.servers_of_channel(client.pool, kind, channel);
            for (at, server) in servers.into_iter().enumerate() {
                let id = match self.subscriber(wire, client, server) {
                    Ok(id) => id,
                    Err(why) => {
                        client.answer(wire, &why.reply());
                        return Flow::Done;
                    }
                };
                self.say(wire, id, &raw::request(&[SUBSCRIBE[kind], channel]));
                let subscriptions = client.subscriptions.get_or_insert_default();
                subscriptions.awaited += 1;
                let is_there = subscriptions.sets[kind].contains(*channel);
                if let Some(known) = subscriptions.connection(id) {
                    let is_new = known.channels.insert(subscription.clone());
                    // One server speaks for all.
                    let is_repeat = at == 0 && (is_there || !is_new);
                    known.awaited.push_back(is_repeat.then(|| subscription.clone()));
                }
            }
        }
        Flow::Done
    }

    /// The connection of the client's subscriptions at a server.
    pub(super) fn subscriber<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
    ) -> Result<Id, Failure> {
        let subscriptions = client.subscriptions.get_or_insert_default();
        if let Some(known) = subscriptions.connections.iter().find(|known| known.server == server) {
            return Ok(known.id);
        }
        let id = self.acquire(wire, client, server, client.session, None)?;
        if let Some(up) = self.upstream(id) {
            up.is_subscribed = true;
        }
        client.subscriptions.get_or_insert_default().connections.push(Subscriber {
            server,
            id,
            channels: BTreeSet::new(),
            leaving: BTreeSet::new(),
            awaited: VecDeque::new(),
            restored: 0,
        });
        Ok(id)
    }

    /// Sends what waited for the set-up.
    pub(super) fn subscribe_now<W: Wire>(&mut self, wire: &mut W, up: &mut Upstream) {
        if up.link.is_ready() && !up.subscribing.is_empty() {
            wire.send(up.id, &std::mem::take(&mut up.subscribing));
        }
    }

    /// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE.
    pub(super) fn unsubscribe<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        let kind = kind_of(words[0]);
        // Like messages, confirmations come whatever CLIENT REPLY says.
        client.is_muted = false;
        let subscriptions = client.subscriptions.get_or_insert_default();
        let mut channels: Vec<Vec<u8>> = words[1..].iter().map(|word| word.to_vec()).collect();
        if channels.is_empty() {
            channels = subscriptions.sets[kind].iter().cloned().collect();
        }
        if channels.is_empty() {
            let count = subscriptions.count(kind);
            let reply = confirmation(client.session.protocol, UNSUBSCRIBE[kind], None, count);
            client.answer(wire, &reply);
        }
        for channel in channels {
            let subscription = (kind, channel.clone());
            for restoring in self.restoring.iter_mut().filter(|r| r.client == client.id) {
                restoring.channels.retain(|known| *known != subscription);
            }
            let subscriptions = client.subscriptions.get_or_insert_default();
            let leaves =
                subscriptions.connections.iter().any(|it| it.leaving.contains(&subscription));
            if leaves || !subscriptions.sets[kind].contains(&channel) {
                if subscriptions.awaited > 0 {
                    subscriptions.afterwards.push(subscription);
                    continue;
                }
                let count = subscriptions.count(kind);
                let reply =
                    confirmation(client.session.protocol, UNSUBSCRIBE[kind], Some(&channel), count);
                client.answer(wire, &reply);
                continue;
            }
            let subscriptions = client.subscriptions.get_or_insert_default();
            let mut asked = Vec::new();
            for known in &mut subscriptions.connections {
                if known.channels.contains(&subscription) {
                    known.leaving.insert(subscription.clone());
                    known.awaited.push_back(None);
                    asked.push(known.id);
                }
            }
            subscriptions.awaited += asked.len();
            if asked.is_empty() {
                // Its server is lost, and it is to be subscribed to again: not any more.
                let owed = subscriptions.owed.remove(&subscription).unwrap_or(0);
                let count = subscriptions.count(kind);
                let begun =
                    confirmation(client.session.protocol, SUBSCRIBE[kind], Some(&channel), count);
                let subscriptions = client.subscriptions.get_or_insert_default();
                subscriptions.sets[kind].remove(&channel);
                let count = subscriptions.count(kind);
                let reply =
                    confirmation(client.session.protocol, UNSUBSCRIBE[kind], Some(&channel), count);
                for _ in 0..owed {
                    client.answer(wire, &begun);
                }
                client.answer(wire, &reply);
            }
            for id in asked {
                self.say(wire, id, &raw::request(&[UNSUBSCRIBE[kind], &channel]));
            }
        }
        Flow::Done
    }

    /// Messages of subscriptions. Returns how many bytes are done with.
    pub(super) fn messages<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &mut Upstream,
        input: &[u8],
    ) -> Result<usize, Ended> {
        let mut at = 0;
        while at < input.len() {
            match up.scanner.scan(&input[at..]) {
                Ok(Scanned::Reply { len }) => {
                    self.message(wire, up, &input[at..at + len])?;
                    at += len;
                }
                Ok(Scanned::Incomplete { .. }) => break,
                Err(why) => return Err(Ended::Invalid(why.to_string())),
            }
        }
        Ok(at)
    }

    /// One message. An error of a subscription that was to be made again ends the connection.
    fn message<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &Upstream,
        message: &[u8],
    ) -> Result<(), Ended> {
        let Some(owner) = up.owner else { return self.heard(wire, up, message) };
        let now = wire.now();
        let Some(client) = self.client(owner) else { return Ok(()) };
        let protocol = client.session.protocol;
        let Some(subscriptions) = client.subscriptions.as_mut() else { return Ok(()) };
        let Some(at) = subscriptions.connections.iter().position(|known| known.id == up.id) else {
            return Ok(());
        };
        let parts = raw::elements(message).unwrap_or_default();
        let name = parts.first().and_then(|name| raw::text(name)).unwrap_or_default();
        let begins = SUBSCRIBE.iter().position(|known| *known == name);
        let ends = UNSUBSCRIBE.iter().position(|known| *known == name);
        let is_restored = subscriptions.connections[at].restored > 0;
        let front = subscriptions.connections[at].awaited.front();
        let is_repeat = front.is_some_and(|repeat| repeat.is_some());
        let mut is_confirmation = true;
        match (begins.or(ends), parts.get(1).and_then(|channel| raw::text(channel))) {
            (Some(kind), Some(channel)) => {
                let subscription = (kind, channel.to_vec());
                if ends.is_some()
                    && let Parting::Unasked(is_known) =
                        subscriptions.connections[at].ended(&subscription)
                {
                    // The server gives the channel up, because its slot has moved.
                    if is_known {
                        self.restore_later(now, owner, vec![subscription]);
                    }
                    return Ok(());
                }
                let owed = begins.map_or(0, |kind| subscriptions.take_owed(kind, channel));
                let set = &mut subscriptions.sets[kind];
                let is_new = if begins.is_some() {
                    set.insert(channel.to_vec())
                } else {
                    set.remove(channel)
                };
                let is_repeat = !is_restored && is_repeat;
                // That it comes again unasked tells the client that messages may be missing.
                if is_new || is_repeat || (begins.is_some() && is_restored) {
                    let count = subscriptions.count(kind);
                    let reply = confirmation(protocol, name, Some(channel), count);
                    for _ in 0..=owed {
                        send_message(wire, owner, &mut client.behind, &reply);
                    }
                }
            }
            _ => {
                is_confirmation = raw::is_error(message);
                if is_confirmation && is_restored {
                    let why = String::from_utf8_lossy(message).trim().to_owned();
                    return Err(Ended::RefusesSubscription(why));
                }
                send_message(wire, owner, &mut client.behind, &in_protocol(protocol, message));
            }
        }
        if is_confirmation {
            let known = &mut subscriptions.connections[at];
            if is_restored {
                known.restored -= 1;
                if subscriptions.connections.iter().all(|known| known.restored == 0) {
                    subscriptions.lost_since = None;
                }
            } else if known.awaited.pop_front().is_some() {
                subscriptions.awaited -= 1;
                if subscriptions.awaited == 0 {
                    self.confirmed(wire, owner);
                }
            }
        }
        if wire.backlog(owner) > 1 << 16 {
            self.check_output(wire, owner);
        }
        Ok(())
    }

    /// All subscriptions that a client waited for are confirmed.
    pub(super) fn confirmed<W: Wire>(&mut self, wire: &mut W, owner: Id) {
        let Some(client) = self.client(owner) else { return };
        if let Some(subscriptions) = &mut client.subscriptions {
            for (kind, channel) in std::mem::take(&mut subscriptions.afterwards) {
                let count = subscriptions.count(kind);
                let reply =
                    confirmation(client.session.protocol, UNSUBSCRIBE[kind], Some(&channel), count);
                send_message(wire, owner, &mut client.behind, &reply);
            }
        }
        if client.is_leaving && client.is_settled() {
            wire.finish(owner);
        } else {
            wire.resume(owner);
        }
    }

    /// A message that answers no request, on a connection that is not for subscriptions: an
    /// invalidation.
    pub(super) fn pushed<W: Wire>(&mut self, wire: &mut W, up: &Upstream, push: &[u8]) {
        let Some(client) = up.owner.and_then(|owner| self.client(owner)) else { return };
        // A client that has gone back to RESP2 hears none, as at a server.
        if client.session.protocol == Protocol::Resp3 {
            client.send_message(wire, push);
        }
    }

    /// Has channels of a client subscribed to again soon.
    pub(super) fn restore_later(&mut self, now: Instant, client: Id, channels: Vec<Subscription>) {
        if !channels.is_empty() {
            self.restoring.push(Restoring { client, due: now + RESTORE_AFTER, channels });
        }
    }
}
