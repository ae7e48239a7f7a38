//! Connections on which a node of a cluster listens to keyspace events of other nodes, for its
//! clients (`docs/internals/forwarding.md`).
//!
//! There is one to each server that is named, and none without a name to listen to. What comes goes
//! to [`LISTENER`] as the server has sent it. A connection that is lost is made again at the next
//! call of [`Hub::listen_at`]; events in between are missed, as by a client that connects again.

use super::subscriptions::{Ear, SUBSCRIBE, Subscription, UNSUBSCRIBE};
use super::upstream::Upstream;
use super::{Conn, Hub};
use crate::failure::Ended;
use crate::policy::Policy;
use crate::pool::{LinkKey, Session};
use crate::wire::{Id, Wire};
use resp::Protocol;
use route::raw;

/// The client that gets what is heard.
pub const LISTENER: Id = Id { slot: u32::MAX, generation: 1 };

impl<P: Policy> Hub<P> {
    /// Listens to channels (kind 0) or patterns (kind 1). Servers are asked for known names, too:
    /// their confirmation comes after the events from before.
    pub fn listen_to<W: Wire>(&mut self, wire: &mut W, names: Vec<Subscription>) {
        for name in names {
            self.say_to_ears(wire, SUBSCRIBE[name.0], &name);
            self.listening.names.insert(name);
        }
    }

    /// Listens to fewer channels or patterns.
    pub fn listen_no_more_to<W: Wire>(&mut self, wire: &mut W, names: &[Subscription]) {
        for name in names {
            if self.listening.names.remove(name) {
                self.say_to_ears(wire, UNSUBSCRIBE[name.0], name);
            }
        }
    }

    fn say_to_ears<W: Wire>(&mut self, wire: &mut W, verb: &[u8], name: &Subscription) {
        let request = raw::request(&[verb, &name.1]);
        let mut ids = Vec::new();
        for ear in &mut self.listening.ears {
            ear.awaited += 1;
            ids.push(ear.id);
        }
        ids.into_iter().for_each(|id| self.say(wire, id, &request));
    }

    /// Listens at these servers of the first pool, and at no others. Returns whether all of them
    /// have confirmed all names.
    pub fn listen_at<W: Wire>(&mut self, wire: &mut W, servers: &[u16]) -> bool {
        let is_wanted =
            |ear: &mut Ear| servers.iter().any(|&server| usize::from(server) == ear.server);
        let ears = &mut self.listening.ears;
        let left: Vec<Ear> = match self.listening.names.is_empty() {
            true => std::mem::take(ears),
            false => ears.extract_if(.., |ear| !is_wanted(ear)).collect(),
        };
        for ear in left {
            if let Some(Conn::Upstream(mut up)) = self.take_conn(ear.id) {
                wire.close(ear.id);
                self.upstream_dropped(&mut up);
            }
        }
        if self.listening.names.is_empty() {
            return true;
        }
        let mut is_complete = true;
        for &server in servers {
            let server = usize::from(server);
            match self.listening.ears.iter().find(|ear| ear.server == server) {
                Some(ear) => is_complete &= ear.awaited == 0,
                None => {
                    self.open_ear(wire, server);
                    is_complete = false;
                }
            }
        }
        is_complete
    }

    /// Opens a connection, unless the server could not be reached just now.
    fn open_ear<W: Wire>(&mut self, wire: &mut W, server: usize) {
        let key = LinkKey::new(Session { protocol: Protocol::Resp3, ..Session::default() });
        let Ok(id) = self.open(wire, 0, server, key, None) else { return };
        if let Some(up) = self.upstream(id) {
            up.is_subscribed = true;
        }
        let awaited = self.listening.names.len();
        self.listening.ears.push(Ear { server, id, awaited });
        let mut requests = Vec::new();
        for (kind, name) in &self.listening.names {
            requests.extend_from_slice(&raw::request(&[SUBSCRIBE[*kind], name]));
        }
        self.say(wire, id, &requests);
    }

    /// A message has come on such a connection.
    ///
    /// # Errors
    /// The server refuses what it is asked for.
    pub(super) fn heard<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &Upstream,
        message: &[u8],
    ) -> Result<(), Ended> {
        if raw::is_error(message) {
            let why = String::from_utf8_lossy(message).trim().to_owned();
            return Err(Ended::RefusesSubscription(why));
        }
        let parts = raw::elements(message).unwrap_or_default();
        let name = parts.first().and_then(|name| raw::text(name)).unwrap_or_default();
        if name == b"message" || name == b"pmessage" {
            wire.send(LISTENER, message);
        } else if SUBSCRIBE.contains(&name) || UNSUBSCRIBE.contains(&name) {
            let ear = self.listening.ears.iter_mut().find(|ear| ear.id == up.id);
            if let Some(ear) = ear {
                ear.awaited = ear.awaited.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// A connection on which the hub listens is lost.
    pub(super) fn ear_lost(&mut self, id: Id) {
        self.listening.ears.retain(|ear| ear.id != id);
    }
}
