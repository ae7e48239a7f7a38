//! The gate of a cluster's node: whether a request's keys are in one slot, and whether this server
//! answers for it. [`open_slots`] has what differs for slots that move key by key.

use super::gates::{Refusal, writes_keys};
use super::one_address::{self, View};
use super::{NotNow, open_slots};
use crate::args::Args;
use crate::clients::{Client, flag};
use crate::command::{Flags, Group};
use crate::cx::Cx;
use crate::engine::Engine;
use crate::error::Error;
use crate::mailbox::{Message, Push, recheck_all};
use crate::membership::{Current, Published, Scope, SlotPlace};
use crate::pubsub::Space;
use crate::request_keys::RequestKeys;
use crate::roles::ROLE_CHANGED;
use crate::session::{Fate, Session};
use crate::table::Resolved;
use cluster::change::moves;
use cluster::describe::{Asker, Node};
use cluster::id::Id;
use cluster::slots::Slots;
use config::{ClusterEndpointType, Config};
use keyspace::{Key, Slot};
use route::raw::PAUSED;
use spec::keys::{for_each_shard_channel, has_shard_channels};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;
use structs::crc16::{key_slot, prefix_slot};

/// How long after it has loaded its data a server waits for the coordinator's first answer before
/// it says that there is none.
const FIRST_ANSWER_MS: i64 = 10_000;

/// The same for requests with keys of clients that can ask other nodes for these.
const FIRST_KEYS_MS: i64 = 1_000;

const CROSSING: &str = "CROSSSLOT Keys in request don't hash to the same slot";
pub(super) const DOWN: &str = "CLUSTERDOWN The cluster is down";

impl Cx<'_> {
    /// How nodes are named to this client.
    pub fn asker(&self) -> Asker {
        self.engine.asker(self.session.transport_flags)
    }

    /// The slot of a key by the database's rule. `None`: no rule matches, or there are no slots.
    pub fn slot_of(&self, key: Key<'_>) -> Option<u16> {
        match self.membership() {
            Some(published) => published.slot_of(key),
            None => self.engine.keyspace.slot_of(key.hash).map(|slot| slot.number()),
        }
    }

    /// Returns whether all keys that begin with `prefix` are in the slot of `key`, or there are no
    /// slots.
    pub fn shares_slot_with_all(&self, key: Key<'_>, prefix: &[u8]) -> bool {
        if !self.engine.membership.is_on() || self.db.repeats_history() {
            return true;
        }
        // Other rules may find a key's tag anywhere in it.
        let is_standard = |it: Current| it.hashing().is_standard() && it.next().is_none();
        self.membership().is_none_or(is_standard)
            && prefix_slot(prefix) == Some(Slot::in_hash(key.hash).number())
    }

    /// What the coordinator said last.
    pub fn membership(&self) -> Option<Current> {
        self.engine.membership.current(&self.thread.membership)
    }
}

/// Returns whether a request is one about the cluster, of which a server that has just been started
/// knows nothing yet. `redis-cli --cluster create` asks as soon as the server listens.
fn waits_for_coordinator(cx: &Cx<'_>, row: &Resolved) -> bool {
    row.command.group == Group::Cluster
        && row.parent.is_some()
        && cx.engine.membership.is_new(cx.now(), FIRST_ANSWER_MS)
        && cx.membership().is_none()
}

/// Returns whether a request waits because the coordinator has not said yet where it is answered.
/// What concerns all nodes would be answered for this one alone.
fn waits_for_place(cx: &Cx<'_>, row: &Resolved, words: &[&[u8]]) -> bool {
    let membership = &cx.engine.membership;
    let is_single = cx.engine.is_one_address();
    let has_place = !row.command.keys.is_empty() || row.command.flags.has(Flags::RUNS_QUEUE);
    let is_elsewhere = || matches!(Scope::of(row, words), Scope::AllNodes | Scope::Defines);
    let within_ms = if is_single { FIRST_ANSWER_MS } else { FIRST_KEYS_MS };
    (has_place || (is_single && is_elsewhere()))
        && membership.is_new(cx.now(), within_ms)
        && cx.membership().is_none()
}

/// A client's request, or its transaction, is for one slot, which is served here.
pub(super) fn slot(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    if !cx.engine.membership.is_on() || cx.session.is_replica() {
        return Ok(());
    }
    if let Some(number) = cx.session.import() {
        return Ok(crate::importing::check_slots(cx, number, row, args)?);
    }
    let moves = &cx.engine.membership.moves;
    // A request that runs later, on another thread, may find that its slot has begun to wait
    // meanwhile.
    cx.session.checks_slot = moves.any_exports();
    let has_returned = cx.session.returned.as_ref().is_some_and(|returned| !returned.is_empty());
    if moves.any_paused() || moves.any_prepared() || has_returned {
        wait_for_move(cx, row, args)?;
    }
    // What is sent to a slot that is arriving is for this node.
    if View::at_node(cx) == View::OneServer && !row.command.flags.has(Flags::ASKING) {
        return one_address::gate(cx, row, args);
    }
    if cx.session.is_link && Scope::of(row, args.words()) == Scope::AllNodes {
        return Ok(());
    }
    if waits_for_coordinator(cx, row) || waits_for_place(cx, row, args.words()) {
        return Err(NotNow::Held.into());
    }
    let runs_queue = row.command.flags.has(Flags::RUNS_QUEUE);
    let is_asking = cx.session.asking && open_slots::is_asking(cx, row);
    if row.command.keys.is_empty() && !runs_queue {
        return Ok(());
    }
    let published = cx.membership();
    let is_by_hash = published.as_deref().is_none_or(|it| it.hashing().is_standard());
    let single = (is_by_hash && row.single_key > 0).then(|| args.key(row.single_key).hash);
    let slots = match single.and_then(|hash| cx.engine.keyspace.slot_of(hash)) {
        Some(slot) => SlotsOf::one(slot.number()),
        None => {
            cx.find_keys(row, args);
            let slots = slots_of(cx, published.as_deref(), row, args)?;
            // A client of one address may have them on shards of their own.
            if runs_queue && !cx.session.is_link {
                check_queued_channels(cx, slots.as_ref().map(|slots| slots.first))?;
            }
            match slots {
                Some(slots) => slots,
                None => return slot_of_channels(cx, row, args),
            }
        }
    };
    let slot = slots.first;
    // Links between nodes bring what is for one shard.
    let is_together = slots.are_one || cx.session.is_link && slots.are_together;
    if !is_together {
        return Err(Error::Elsewhere(CROSSING.into()).into());
    }
    let caller = Caller {
        asker: cx.asker(),
        reads_replica: cx.session.reads_replica,
        writes: writes_keys(cx, row),
        is_about_channel: false,
    };
    let served = served(&cx.engine.config, published.as_deref(), slot, caller);
    if let Err(refusal) = served {
        // MIGRATE finds out itself which keys are here: `redis-cli --cluster fix` sends them back.
        let knows = Flags::ASKING.with(Flags::ASKS_PEER);
        let is_asking = is_asking || row.command.flags.any(knows);
        let arrive = published.as_deref().filter(|published| published.leads);
        if !arrive.is_some_and(|published| all_arrive(cx, published, row, args, is_asking)) {
            if !cx.session.is_link {
                cx.engine.membership.send_on();
            }
            return Err(refusal);
        }
    }
    cx.session.checks_slot |= published.as_ref().is_some_and(|published| published.has_open());
    note_primary(cx.session, published.is_some_and(|published| published.leads))
}

/// Notes whether the session is answered as by its shard's primary. If the lease has ended, and
/// this server does not show yet that it leads no more, the request waits: its reply could not be
/// sent.
pub(super) fn note_primary(session: &mut Session, leads: bool) -> Result<(), Refusal> {
    if leads && session.is_past_lease {
        return Err(NotNow::Held.into());
    }
    session.answered_by_primary |= leads;
    Ok(())
}

/// Where a request for one key is answered, if no gate has anything to say because of the cluster.
pub(super) enum PlainPlace {
    /// Here, as by a server without a cluster: its slot is this server's, and nothing about it is
    /// under way. The session is prepared for that.
    Here,
    /// By the primary of another shard, which gets it as it is.
    Elsewhere {
        /// The slot of the key.
        slot: u16,
        /// The shard.
        shard: Id,
    },
    /// The gates have to say.
    Unclear,
}

/// Returns where a request for one key is answered, if that is plain.
#[inline]
pub(super) fn plain_place(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> PlainPlace {
    let (membership, session) = (&cx.engine.membership, &mut *cx.session);
    let is_usual = row.single_key > 0
        && !session.is_past_lease
        && !session.asking
        && session.import().is_none()
        && session.returned.as_ref().is_none_or(|returned| returned.is_empty())
        && !membership.moves.any();
    if !is_usual {
        return PlainPlace::Unclear;
    }
    let slot = Slot::in_hash(args.key(row.single_key).hash).number();
    if !membership.serves_plainly(&cx.thread.membership, slot) {
        return match one_address::plainly_elsewhere(cx, row, slot) {
            Some(shard) => PlainPlace::Elsewhere { slot, shard },
            None => PlainPlace::Unclear,
        };
    }
    if session.forwarding.as_ref().is_some_and(|forwarding| forwarding.awaited > 0) {
        return PlainPlace::Unclear;
    }
    session.checks_slot = false;
    session.answered_by_primary = true;
    PlainPlace::Here
}

/// Requests for slots that are about to move wait until they have, or stay. Those of a link come
/// back ([`Returned`](crate::clients::returned::Returned)).
#[cold]
fn wait_for_move(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    let flags = row.command.flags;
    let moves = &cx.engine.membership.moves;
    if row.command.keys.is_empty() && !flags.has(Flags::RUNS_QUEUE) {
        // What deletes or exchanges all keys does so before they are handed over, or not here.
        let is_change = flags.has(Flags::WORLD) && flags.has(Flags::WRITE);
        let waits = is_change && (moves.any_paused() || moves.any_prepared());
        if waits {
            moves.await_decision();
        }
        return match &mut cx.session.returned {
            // It would overtake requests of the same client.
            Some(returned)
                if waits || !returned.is_empty() && one_address::is_about_all_keys(row) =>
            {
                returned.add_all();
                Err(Error::Elsewhere(PAUSED.into()).into())
            }
            _ if waits => Err(NotNow::Paused.into()),
            _ => Ok(()),
        };
    }
    // Nothing of it runs yet that MULTI queues.
    if cx.session.multi().is_some() && !row.command.flags.has(Flags::NOT_QUEUED) {
        return Ok(());
    }
    cx.find_keys(row, args);
    let keyspace = &cx.engine.keyspace;
    let slots = || cx.keys.iter().filter_map(|key| key.slot(keyspace));
    let waits = slots().any(|slot| moves.is_paused(slot));
    // These have their connection for themselves.
    let is_alone = flags.any(Flags::RUNS_QUEUE.with(Flags::WATCHES)) || row.may_wait(args.words());
    match &mut cx.session.returned {
        Some(returned) if !is_alone && (waits || slots().any(|slot| returned.has(slot))) => {
            slots().for_each(|slot| returned.add(slot));
            Err(Error::Elsewhere(PAUSED.into()).into())
        }
        _ if waits => Err(NotNow::Paused.into()),
        _ => Ok(()),
    }
}

/// Shard channels belong to slots as keys do, and so do cursors of CLUSTERSCAN. What a primary
/// publishes reaches its replicas, and what is published at a replica its primary, so that clients
/// may subscribe and publish there.
fn slot_of_channels(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    let mut slots = Vec::new();
    let words = args.words();
    let found = for_each_shard_channel(row.command, words, |at| slots.push(key_slot(words[at])));
    let (Ok(()), Some(&slot)) = (found, slots.first()) else { return Ok(()) };
    let is_cursor = row.command.group == Group::Cluster;
    if is_cursor && words.get(1) == Some(&&b"0"[..]) {
        // The beginning is at no slot.
        return Ok(());
    }
    if slots.iter().any(|&other| other != slot) {
        return Err(Error::Elsewhere(CROSSING.into()).into());
    }
    let reads_replica = !is_cursor || cx.session.reads_replica;
    let is_about_channel = !is_cursor;
    let caller = Caller { asker: cx.asker(), reads_replica, writes: false, is_about_channel };
    served(&cx.engine.config, cx.membership().as_deref(), slot, caller)
}

/// The shard channels of a transaction are in one slot, which is that of its keys if it has any.
fn check_queued_channels(cx: &Cx<'_>, of_keys: Option<u16>) -> Result<(), Refusal> {
    let Some(multi) = cx.session.multi() else { return Ok(()) };
    let mut slots = Vec::from_iter(of_keys);
    for queued in multi.queue() {
        let command = queued.row.command;
        if command.group == Group::Cluster || !has_shard_channels(command) {
            continue;
        }
        let words = queued.words();
        // Its words were checked when it was queued.
        let found = |at: usize| slots.push(key_slot(words[at]));
        let _ = for_each_shard_channel(command, &words, found);
    }
    match slots.windows(2).all(|pair| pair[0] == pair[1]) {
        true => Ok(()),
        false => Err(Error::Elsewhere(CROSSING.into()).into()),
    }
}

/// What matters of a client and its request.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub(super) asker: Asker,
    pub(super) reads_replica: bool,
    pub(super) writes: bool,
    /// The request is about shard channels, not keys.
    pub(super) is_about_channel: bool,
}

/// The slots of a request's keys.
struct SlotsOf {
    first: u16,
    /// All are the first.
    are_one: bool,
    /// All are on one shard.
    are_together: bool,
}

impl SlotsOf {
    fn one(slot: u16) -> SlotsOf {
        SlotsOf { first: slot, are_one: true, are_together: true }
    }
}

/// The slots of the keys of a request, for EXEC of its queue. `None`: there are no keys, or no
/// slots.
fn slots_of(
    cx: &Cx<'_>,
    published: Option<&Published>,
    row: &Resolved,
    args: Args<'_>,
) -> Result<Option<SlotsOf>, Refusal> {
    let mut found: Option<SlotsOf> = None;
    let mut add = |slot: u16| match &mut found {
        None => found = Some(SlotsOf::one(slot)),
        Some(slots) if slots.first == slot => {}
        Some(slots) => {
            slots.are_one = false;
            let shard = |slot| published.map(|published| published.shard_of(slot));
            slots.are_together &= published.is_some() && shard(slot) == shard(slots.first);
        }
    };
    let keyspace = &cx.engine.keyspace;
    match published.filter(|published| !published.hashing().is_standard()) {
        None => {
            let slots = cx.keys.iter().filter_map(|key| key.slot(keyspace));
            slots.for_each(|slot| add(slot.number()));
        }
        Some(published) => {
            let mut unmatched = None;
            for_each_key(cx, row, args, &mut |key| match published.slot_of(key) {
                Some(slot) => add(slot),
                None => unmatched = Some(Error::unmatched(key.bytes)),
            });
            if let Some(error) = unmatched {
                return Err(error.into());
            }
        }
    }
    Ok(found)
}

/// Visits the keys of a request, or of the queue that it runs.
pub(super) fn for_each_key(
    cx: &Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
    visit: &mut dyn FnMut(Key<'_>),
) {
    let keyspace = &cx.engine.keyspace;
    let mut of_request = |row: &Resolved, words: &[&[u8]]| {
        let keys = RequestKeys::of(keyspace, row.command, words);
        keys.iter().for_each(|key| visit(key.key(words)));
    };
    match cx.session.multi() {
        Some(multi) if row.command.flags.has(Flags::RUNS_QUEUE) => {
            multi.queue().iter().for_each(|queued| of_request(queued.row, &queued.words()));
        }
        _ => of_request(row, args.words()),
    }
}

/// Whether a request for slots of another primary is answered here, because all its keys arrive
/// here: those that have come by themselves, and others if the sender knows that.
#[cold]
fn all_arrive(
    cx: &Cx<'_>,
    published: &Published,
    row: &Resolved,
    args: Args<'_>,
    is_asking: bool,
) -> bool {
    let mut all = published.has_open();
    if all {
        for_each_key(cx, row, args, &mut |key| {
            let open = published.slot_of(key).and_then(|slot| published.open_key(slot, key.bytes));
            all &= open_slots::is_arriving(open, is_asking);
        });
    }
    all
}

/// Where requests for this slot are answered, if they are answered at all.
pub(super) fn place_of(
    config: &Config,
    published: Option<&Published>,
    slot: u16,
    caller: Caller,
) -> Result<SlotPlace, Refusal> {
    let down = |text: &str| Err(Error::Elsewhere(text.into()).into());
    let Some(published) = published else { return down(DOWN) };
    let place = published.place_of(slot, caller.asker);
    if published.changes_roles && matches!(place, SlotPlace::NotYet | SlotPlace::Replica(_)) {
        return Err(NotNow::Paused.into());
    }
    if place == SlotPlace::Unassigned {
        return down("CLUSTERDOWN Hash slot not served");
    }
    let is_allowed = caller.is_about_channel && config.cluster_allow_pubsubshard_when_down();
    if !is_allowed && !published.is_ok(config.cluster_require_full_coverage()) {
        match config.cluster_allow_reads_when_down() {
            false => return down(DOWN),
            true if caller.writes => {
                return down("CLUSTERDOWN The cluster is down and only accepts read commands");
            }
            true => {}
        }
    }
    Ok(place)
}

/// Whether requests for this slot are answered here.
fn served(
    config: &Config,
    published: Option<&Published>,
    slot: u16,
    caller: Caller,
) -> Result<(), Refusal> {
    match place_of(config, published, slot, caller)? {
        SlotPlace::Here => Ok(()),
        // A replica cannot tell whether a key that it lacks has moved.
        SlotPlace::Replica(_)
            if caller.reads_replica
                && !caller.writes
                && published.is_none_or(|published| !published.may_lack(slot)) =>
        {
            Ok(())
        }
        SlotPlace::Replica(node) | SlotPlace::Moved(node) => Err(moved(slot, &node).into()),
        SlotPlace::NotYet | SlotPlace::Unassigned => Err(Error::Elsewhere(DOWN.into()).into()),
    }
}

impl Engine {
    /// Shows readers the newest view. Clients that wait for keys which are served elsewhere now are
    /// sent there, and what has waited for this view is tried again.
    pub fn publish_membership(&self, published: Published) {
        let before = self.membership.newest();
        if let Some(before) = &before
            && let Some(own) = before.own_shard()
        {
            let topologies = (&before.view.topology.value, &published.view.topology.value);
            let now_s = self.clock.wall().0.max(0).unsigned_abs() / 1000;
            let max = self.config.cluster_slot_migration_log_max_len();
            self.membership.moves.note_ends(topologies, own.id, now_s, max);
        }
        self.note_copies(&published);
        self.membership.publish(published);
        if let (Some(before), Some(published)) = (before, self.membership.newest()) {
            // One may have begun in between, by the view of before.
            self.membership.moves.end_imports(|job| !published.expects_copy(job));
            self.send_notices(&before, &published);
            self.tell_of_lost_slots(&before, &published);
        }
        self.send_waiters_on();
        recheck_all(&self.mailboxes);
    }

    /// Shows until when no other copy leads this server's shard. What waits because that was over
    /// is tried again.
    pub fn show_alone_until(&self, until: Instant) {
        let was_alone = self.membership.is_alone();
        self.membership.set_alone_until(until);
        if !was_alone && self.membership.is_alone() {
            recheck_all(&self.mailboxes);
        }
    }

    /// Ends the connection that brings a copy for a job. What has waited for it is tried again.
    pub fn end_import(&self, job: Id) {
        self.membership.moves.end_imports(|other| other == job);
        recheck_all(&self.mailboxes);
    }

    /// Sends clients that wait for keys to where these are served now.
    pub fn send_waiters_on(&self) {
        if let Some(published) = self.membership.newest() {
            self.clients.all().iter().for_each(|client| self.send_away(client, &published));
        }
    }

    /// Hides the slots of which this server has keys that are another's. A connection that brings a
    /// copy for a job that is over brings nothing more.
    fn note_copies(&self, published: &Published) {
        let topology = &published.view.topology.value;
        let own = published.own_shard().map(|shard| shard.id);
        let hidden = own.map(|own| moves::hidden(topology, own)).unwrap_or_default();
        self.keyspace.hide_slots(|slot| hidden.contains(slot.number()));
        let led = self.membership.newest().is_some_and(|before| before.leads);
        if let Some(own) = own.filter(|_| published.leads && !led) {
            // A file that was loaded, or the primary before, may be older than a move.
            // Keys of other shards' slots may be all that there is of them if etcd was rolled back.
            let is_sure = published.view.rolled_back.is_none();
            let stale = if is_sure { moves::stale(topology, own) } else { Slots::default() };
            self.membership.moves.expect_stale(&stale);
            let has_rules = !published.hashing().is_standard();
            self.membership.moves.set_expects_foreign(has_rules && is_sure);
        }
        // By the view that is shown until the new one is, others may begin.
        self.membership.moves.end_unprepared(|job| !published.expects_copy(job));
    }

    /// Ends the subscriptions to shard channels of slots that have left, and has caches forget what
    /// they read of them: changes are made, and told, elsewhere from now on.
    fn tell_of_lost_slots(&self, before: &Published, published: &Published) {
        let slots = |published: &Published| published.own_shard().map(|shard| shard.slots.clone());
        let lost = slots(before).unwrap_or_default().without(&slots(published).unwrap_or_default());
        if lost.is_empty() {
            return;
        }
        self.slot_usage.reset(|slot| lost.contains(slot));
        self.pubsub.for_each_listener(|space, channel, client| {
            if space == Space::ShardChannels && lost.contains(key_slot(channel)) {
                let push = Push::ShardUnsubscribed { channel: channel.into() };
                self.mailboxes[client.thread].post(Message::Push(client.id, Arc::new(push)));
            }
        });
        self.tracking.tell_all(self.receivers());
    }

    fn send_away(&self, client: &Client, published: &Published) {
        let Some(key) = client.waits_for_key() else { return };
        let Some(slot) = published.slot_of(Key::new(&key)) else { return };
        let served = served(&self.config, Some(published), slot, self.waiting(client));
        let line = match served {
            Err(Refusal::Error(Error::Elsewhere(line))) => line,
            // What it waits for comes to be elsewhere by the rule that comes.
            Ok(()) if published.sends_waiters_on(slot, &key) => ROLE_CHANGED.to_owned(),
            _ => return,
        };
        if let Some(token) = client.call_off_wait(&self.stats) {
            let error = Some(Cow::Owned(self.sent_away(line)));
            let message = Message::Unblock { client: client.id, token, error, fate: Fate::Open };
            self.mailboxes[client.thread].post(message);
        }
    }

    /// A client that waits for keys.
    fn waiting(&self, client: &Client) -> Caller {
        let flags = client.flags();
        Caller {
            asker: self.asker(flags),
            reads_replica: flags & flag::READS_REPLICA != 0,
            writes: self.last_writes(client),
            is_about_channel: false,
        }
    }

    /// What a client that has waited is told instead of a redirection. Clients of one server know
    /// of no other node; a link tries again by itself.
    fn sent_away(&self, line: String) -> String {
        if self.is_one_address() { ROLE_CHANGED.to_owned() } else { line }
    }

    /// How nodes are named to a client with these flags.
    pub(super) fn asker(&self, flags: u64) -> Asker {
        let by = self.config.cluster_preferred_endpoint_type();
        Asker {
            is_tls: flags & flag::TLS != 0,
            is_ipv6: flags & flag::IPV6 != 0,
            wants_hostname: by == ClusterEndpointType::Hostname,
        }
    }
}

/// Checks that the command of a client that has waited may say what is here of its keys, although
/// it has not got what it waited for: their slots may have moved meanwhile, or be about to.
///
/// # Errors
/// Where the client is to ask, or that it is to be looked at again.
#[cold]
pub(super) fn of_waiter(cx: &mut Cx<'_>, client: &Client, args: Args<'_>) -> Result<(), Refusal> {
    let engine = cx.engine;
    if !engine.membership.is_on() {
        return Ok(());
    }
    let moves = &engine.membership.moves;
    let mut slots = cx.keys.iter().filter_map(|key| key.slot(&engine.keyspace));
    if moves.any_paused() && slots.any(|slot| moves.is_paused(slot)) {
        return Err(NotNow::Paused.into());
    }
    let published = cx.membership();
    let caller = engine.waiting(client);
    for request_key in cx.keys.iter() {
        let key = request_key.key(args.words());
        let slot = published.as_deref().and_then(|published| published.slot_of(key));
        let Some(slot) = slot else { continue };
        let open = published.as_deref().and_then(|published| published.open_key(slot, key.bytes));
        if !open_slots::is_arriving(open, true) {
            served(&engine.config, published.as_deref(), slot, caller)?;
        }
    }
    Ok(())
}

/// Returns the error for a client that has waited for keys which are elsewhere.
pub(super) fn elsewhere_for_waiter(engine: &Engine, error: Error) -> Error {
    match error {
        Error::Elsewhere(line) => Error::Elsewhere(engine.sent_away(line)),
        other => other,
    }
}

const NOT_ONE_SLOT: &str = "ERR Script attempted to access keys that do not hash to the same slot";

/// Checks that the keys of a script's call are in one slot. Clients of one address may have them in
/// several slots of a shard, in scripts as elsewhere.
///
/// # Errors
/// What the script is told.
fn check_call(cx: &Cx<'_>, keys: &RequestKeys, args: Args<'_>) -> Result<(), Refusal> {
    let mut slots = keys.iter().map(|key| cx.slot_of(key.key(args.words())));
    let first = slots.next().flatten();
    match cx.engine.is_one_address() || slots.all(|slot| slot == first) {
        true => Ok(()),
        false => Err(Error::text(NOT_ONE_SLOT).into()),
    }
}

fn moved(slot: u16, node: &Node) -> Error {
    Error::Elsewhere(format!("MOVED {slot} {}:{}", node.endpoint, node.port))
}

/// What a script asks for is served here, too: its keys may be others than it has declared.
pub(super) fn slot_of_script(
    cx: &mut Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
) -> Result<(), Refusal> {
    if !cx.engine.membership.is_on() {
        return Ok(());
    }
    if row.command.keys.is_empty() {
        return one_address::gate_of_script(cx, row);
    }
    let keyspace = &cx.engine.keyspace;
    let keys = RequestKeys::of(keyspace, row.command, args.words());
    let caller = Caller {
        asker: cx.asker(),
        reads_replica: cx.session.reads_replica,
        writes: row.command.flags.has(Flags::WRITE),
        is_about_channel: false,
    };
    let published = cx.membership();
    check_call(cx, &keys, args)?;
    for key in keys.iter() {
        let key = key.key(args.words());
        let Some(slot) = cx.slot_of(key) else { return Err(Error::unmatched(key.bytes).into()) };
        let script = cx.script.as_mut().filter(|script| script.keeps_to_slot);
        if script.is_some_and(|script| *script.slot.get_or_insert(slot) != slot) {
            return Err(Error::text(NOT_ONE_SLOT).into());
        }
        let is_served = served(&cx.engine.config, published.as_deref(), slot, caller).is_ok();
        let open = published.as_deref().filter(|published| published.leads);
        let open = open.and_then(|published| published.open_key(slot, key.bytes));
        let is_asking = cx.session.checks_slot || row.command.flags.has(Flags::ASKING);
        if !is_served && !open_slots::is_arriving(open, is_asking)
            || open_slots::lacks_any(cx, published.as_deref(), row, &keys, args)
        {
            let text = "ERR Script attempted to access a non local key in a cluster node";
            return Err(Error::text(text).into());
        }
    }
    cx.session.answered_by_primary |= published.is_some_and(|published| published.leads);
    Ok(())
}
