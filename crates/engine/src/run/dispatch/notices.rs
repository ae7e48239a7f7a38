//! Sends maintenance notices (CLIENT MAINT_NOTIFICATIONS) to clients before and after a shard gets
//! another primary, slots move, or this server goes down. `docs/internals/notices.md` describes
//! their forms.

use crate::clients::Client;
use crate::engine::Engine;
use crate::mailbox::{Message, Push};
use crate::membership::Published;
use cluster::describe::Asker;
use cluster::notices::{Moved, Notices, between};
use cluster::slots::Slots;
use cluster::topology::Replica;
use resp::{Output, Protocol, Reply};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Number of seconds for which a client extends its timeouts, unless a later notice ends them
/// sooner.
const SECONDS: i64 = 10;

/// The form in which a client wants addresses (`moving-endpoint-type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EndpointType {
    /// No address. The client uses the one it has.
    None = 1,
    /// The address by which nodes reach each other.
    InternalIp = 2,
    /// The host name of that address.
    InternalFqdn = 3,
    /// The address that the node announces to clients.
    ExternalIp = 4,
    /// The host name of that address.
    ExternalFqdn = 5,
}

impl EndpointType {
    /// All types, with their words.
    pub const WORDS: [(&str, EndpointType); 5] = [
        ("none", EndpointType::None),
        ("internal-ip", EndpointType::InternalIp),
        ("internal-fqdn", EndpointType::InternalFqdn),
        ("external-ip", EndpointType::ExternalIp),
        ("external-fqdn", EndpointType::ExternalFqdn),
    ];

    /// Returns the type that a client has chosen, or `None` if it wants no notices.
    fn of(client: &Client) -> Option<EndpointType> {
        let number = client.live.notices.load(Relaxed);
        Self::WORDS.iter().map(|(_, kind)| *kind).find(|kind| *kind as u8 == number)
    }

    /// Returns a node's address in this form, or `None` if the client finds it by itself.
    fn address(self, node: &Replica, asker: Asker) -> Option<String> {
        let address = &node.address;
        let hostname = Some(&address.hostname).filter(|name| !name.is_empty());
        let for_clients = Some(&address.for_clients.ipv4).filter(|host| !host.is_empty());
        let host = match self {
            EndpointType::None => return None,
            EndpointType::InternalIp => &address.host,
            EndpointType::ExternalIp => for_clients.unwrap_or(&address.host),
            EndpointType::InternalFqdn | EndpointType::ExternalFqdn => {
                hostname.or(for_clients).unwrap_or(&address.host)
            }
        };
        let port = asker.node(node).port;
        // Clients split the address at the first colon, so an IPv6 address cannot be sent.
        (!host.contains(':')).then(|| format!("{host}:{port}"))
    }
}

impl Engine {
    /// Notifies clients of the changes that concern them.
    pub(super) fn send_notices(&self, before: &Published, after: &Published) {
        let notices = between(&before.view, &after.view);
        if notices.is_empty() {
            return;
        }
        let is_single = self.is_one_address();
        for client in self.clients.all() {
            if EndpointType::of(&client).is_none() {
                continue;
            }
            let told = match is_single {
                true => tell_of_one_server(&notices, after.view.revision),
                false => tell_of_slots(&notices, after, self.asker(client.flags())),
            };
            self.push_notices(&client, told);
        }
    }

    /// Notifies clients that this server goes down, and names the node to connect to. Returns the
    /// notified clients.
    pub fn send_away_from(&self, published: &Published, seconds: i64) -> Vec<Arc<Client>> {
        let view = &published.view;
        let is_alive =
            |copy: &&Replica| copy.id != published.me && view.alive.contains_key(&copy.id);
        let leads = |copy: &&Replica| {
            view.topology.value.shards.iter().any(|shard| shard.holder.id == copy.id)
        };
        let copies = || view.topology.value.copies().filter(is_alive);
        let Some(to) = copies().find(leads).or_else(|| copies().next()) else { return Vec::new() };
        let mut told = Vec::new();
        for client in self.clients.all() {
            let Some(kind) = EndpointType::of(&client) else { continue };
            let address = kind.address(to, self.asker(client.flags()));
            let notice = encode(|reply| {
                reply.push(4);
                reply.bulk(b"MOVING");
                reply.integer(view.revision as i64);
                reply.integer(seconds);
                reply.bulk_or_null(address.as_deref().map(str::as_bytes));
            });
            self.push_notices(&client, vec![notice]);
            told.push(client);
        }
        told
    }

    fn push_notices(&self, client: &Client, notices: Vec<Box<[u8]>>) {
        for notice in notices {
            let push = Arc::new(Push::Notice(notice));
            self.mailboxes[client.thread].post(Message::Push(client.id, push));
        }
    }
}

fn encode(write: impl FnOnce(&mut Reply<'_>)) -> Box<[u8]> {
    let mut out = Output::default();
    write(&mut Reply::new(&mut out, Protocol::Resp3));
    out.into_bytes().into()
}

/// Returns a notice with a number and, if given, a time.
fn plain(name: &str, revision: u64, seconds: Option<i64>) -> Box<[u8]> {
    encode(|reply| {
        reply.push(2 + usize::from(seconds.is_some()));
        reply.bulk(name.as_bytes());
        reply.integer(revision as i64);
        if let Some(seconds) = seconds {
            reply.integer(seconds);
        }
    })
}

/// Returns the notices for clients of a single endpoint: requests may take longer, until the end of
/// the change.
fn tell_of_one_server(notices: &Notices, revision: u64) -> Vec<Box<[u8]>> {
    let Notices { failing_over, failed_over, leaving, has_ended_move, .. } = notices;
    let told = [
        (!failing_over.is_empty()).then(|| plain("FAILING_OVER", revision, Some(SECONDS))),
        (!failed_over.is_empty()).then(|| plain("FAILED_OVER", revision, None)),
        (!leaving.is_empty()).then(|| plain("MIGRATING", revision, Some(SECONDS))),
        has_ended_move.then(|| plain("MIGRATED", revision, None)),
    ];
    told.into_iter().flatten().collect()
}

/// Returns the notices for cluster clients: which slots of this node's shard move, and where moved
/// slots are now.
fn tell_of_slots(notices: &Notices, after: &Published, asker: Asker) -> Vec<Box<[u8]>> {
    // This number is the same at all nodes.
    let revision = after.view.topology.revision;
    let mut told = Vec::new();
    let own = after.own_shard();
    let is_own = |shard| own.is_some_and(|own| own.id == shard);
    let leaving = notices.leaving.iter().find(|(shard, _)| is_own(*shard)).map(|(_, slots)| slots);
    let handed_over = own.filter(|own| notices.failing_over.contains(&own.id));
    let handed_over = handed_over.map(|own| &own.slots);
    if let Some(slots) = leaving.or(handed_over) {
        told.push(encode(|reply| {
            reply.push(3);
            reply.bulk(b"SMIGRATING");
            reply.integer(after.view.revision as i64);
            reply.bulk(ranges(slots).as_bytes());
        }));
    }
    if !notices.moved.is_empty() {
        told.push(encode(|reply| {
            reply.push(3);
            reply.bulk(b"SMIGRATED");
            reply.integer(revision as i64);
            reply.array(notices.moved.len());
            for Moved { from, to, slots } in &notices.moved {
                reply.array(3);
                for node in [from, to].map(|copy| asker.node(copy)) {
                    reply.bulk(format!("{}:{}", node.endpoint, node.port).as_bytes());
                }
                reply.bulk(ranges(slots).as_bytes());
            }
        }));
    }
    told
}

/// Formats slots as `1-5,7`.
fn ranges(slots: &Slots) -> String {
    let range = |&(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    slots.ranges().iter().map(range).collect::<Vec<_>>().join(",")
}
