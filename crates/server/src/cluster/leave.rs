//! A primary that is told to go down hands its shard over first, so that no client waits for a
//! lease to end.

use super::{Requests, switch};
use crate::log;
use cluster::id::Id;
use cluster::view::View;
use engine::Engine;
use engine::clients::{Client, flag};
use engine::mailbox::Message;
use engine::membership::{Published, Request};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The way for requests of this process, which is one node at most.
static REQUESTS: OnceLock<Requests> = OnceLock::new();

/// How long the shutdown waits for another copy to lead. A switch takes some tens of milliseconds,
/// or is given up.
const PATIENCE: Duration = Duration::from_secs(6);

/// How long clients may take to connect to another node.
const GRACE: Duration = Duration::from_secs(4);

/// How long a linked copy may take to be close behind and a member.
const ENROLMENT: Duration = Duration::from_secs(4);

/// How long no client may have been sent to another node before the shutdown goes on. A client that
/// still asks here has not read the new slots yet.
const QUIET: Duration = Duration::from_millis(500);

/// How long no copy may be close behind before the shutdown goes on: a copy that is still there is
/// linked again by then.
const ALONE: Duration = Duration::from_millis(300);

/// How long other nodes may take to end their links, and how often links that are new are told to.
/// A request of a link may wait for its reply meanwhile. What is unanswered at the end is an error
/// for the other node's client, so this is as long as a busy machine needs.
const PARTING: Duration = Duration::from_secs(5);
const REMINDER: Duration = Duration::from_millis(20);

/// Between two looks at which copy leads.
const LOOK: Duration = Duration::from_millis(5);

/// Takes the way for requests.
pub(super) fn prepare(requests: Requests) {
    // There is one node in a process.
    let _ = REQUESTS.set(requests);
}

/// The copy of this server's shard that is to lead it: a member that is close behind.
pub(super) fn successor(engine: &Engine, view: &View, me: Id) -> Option<Id> {
    let near = switch::near(engine, view);
    another_copy(view, me, |id| near.contains(&id) && view.has_member(id))
}

/// A copy of this server's shard that may be promoted and is as wanted.
fn another_copy(view: &View, me: Id, is_wanted: impl Fn(Id) -> bool) -> Option<Id> {
    let shard = view.topology.value.shard_of(me)?;
    let copies = shard.copies.iter().filter(|copy| !copy.is_never_promoted);
    copies.map(|copy| copy.id).find(|id| *id != me && is_wanted(*id))
}

/// Returns whether this server leads a shard that has slots.
pub fn leads_slots(engine: &Engine) -> bool {
    engine.membership.newest().is_some_and(|published| {
        published.leads && published.own_shard().is_some_and(|shard| !shard.slots.is_empty())
    })
}

/// Hands this server's shard over, if it leads one and a copy can take it. `waits` says whether the
/// shutdown still may wait. It goes on in any case: an operator has to look first if that is not
/// wanted.
pub fn hand_over(engine: &Engine, waits: impl Fn() -> bool) {
    let (Some(requests), Some(published)) = (REQUESTS.get(), engine.membership.newest()) else {
        return;
    };
    // A lease that is lost for a moment comes back, as long as etcd answers.
    let may_lead = published.leads || engine.membership.is_coordinator_present();
    if !may_lead || !is_named(&published) || !has_successor(engine, &waits) || !waits() {
        return;
    }
    log!(Notice, "Cluster: another copy takes over this server's shard before it goes down");
    // The receiver lives as long as the process does.
    drop(requests.send((Request::HandOver, None)));
    let until = Instant::now() + PATIENCE;
    let is_over = |now: &Arc<Published>| !is_named(now) && !now.changes_roles;
    let mut alone_since = None;
    while let Some(now) = engine.membership.newest().filter(|now| !is_over(now)) {
        // The copies that could take over may be going down as well.
        alone_since = match successor(engine, &now.view, now.me) {
            Some(_) => None,
            None => alone_since.or(Some(Instant::now())),
        };
        let is_alone = alone_since.is_some_and(|since: Instant| since.elapsed() >= ALONE);
        if is_alone || !waits() || Instant::now() >= until {
            log!(Warning, "Cluster: no other copy leads this server's shard yet; it goes down");
            return;
        }
        std::thread::sleep(LOOK);
    }
    wait_for_readers_of_slots(engine, waits);
}

/// Returns whether the topology names this server as its shard's primary. Its lease may have ended.
fn is_named(published: &Published) -> bool {
    published.own_shard().is_some_and(|shard| shard.holder.id == published.me)
}

/// Returns whether a copy can lead. One that is linked, but far behind or no member yet, soon can,
/// and one that is alive is linked a moment later.
fn has_successor(engine: &Engine, waits: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    let until = began + ENROLMENT;
    while let Some(now) = engine.membership.newest() {
        if successor(engine, &now.view, now.me).is_some() {
            return true;
        }
        let linked = switch::all_linked(engine, &now.view);
        let may_be_linked = |id| began.elapsed() < ALONE && now.view.alive.contains_key(&id);
        let may_come =
            another_copy(&now.view, now.me, |id| linked.contains(&id) || may_be_linked(id))
                .is_some();
        if !may_come || !waits() || Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    false
}

/// Waits until clients of a cluster ask the new primary: each reads the slots some time after it has
/// been sent on for the first time, and would not be able to connect until then.
fn wait_for_readers_of_slots(engine: &Engine, waits: impl Fn() -> bool) {
    let is_client = |client: &Arc<Client>| client.flags() & (flag::LINK | flag::REPLICA) == 0;
    if engine.is_one_address() || !engine.clients.all().iter().any(is_client) {
        return;
    }
    let until = Instant::now() + GRACE;
    let (mut sent_on, mut since) = (engine.membership.sent_on(), Instant::now());
    while since.elapsed() < QUIET && waits() && Instant::now() < until {
        std::thread::sleep(LOOK);
        let now = engine.membership.sent_on();
        if now != sent_on {
            (sent_on, since) = (now, Instant::now());
        }
    }
}

/// Tells clients that have asked for notices where to go, and waits until they have gone. A client
/// that does not go is closed when the server ends.
pub fn send_clients_away(engine: &Engine, waits: impl Fn() -> bool) {
    let Some(published) = engine.membership.newest() else { return };
    // Clients of a cluster are told where slots are.
    if !engine.is_one_address() || !waits() {
        return;
    }
    let told = engine.send_away_from(&published, GRACE.as_secs() as i64);
    let until = Instant::now() + GRACE;
    let is_there = |client: &Arc<Client>| engine.clients.get(client.id).is_some();
    while told.iter().any(is_there) && waits() && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
}

/// Tells other nodes that this server carries nothing more out for their clients, and waits until
/// they have ended their links: so they know which requests they may send again, to the shard's new
/// primary or to this server when it is back.
pub fn end_links(engine: &Engine, waits: impl Fn() -> bool) {
    if !engine.membership.is_on() {
        return;
    }
    engine.membership.end_links(true);
    let until = Instant::now() + PARTING;
    let links = || engine.clients.all().iter().filter(|client| client.is_link()).count();
    while links() > 0 && waits() && Instant::now() < until {
        engine.mailboxes.iter().for_each(|mailbox| mailbox.post(Message::EndLinks));
        std::thread::sleep(REMINDER);
    }
    match links() {
        0 => {}
        left => log!(
            Warning,
            "Cluster: {left} links of other nodes end although they may have requests without a \
             reply"
        ),
    }
}

/// The server does not go down after all: links of other nodes are served again.
pub fn keep_links(engine: &Engine) {
    engine.membership.end_links(false);
}
