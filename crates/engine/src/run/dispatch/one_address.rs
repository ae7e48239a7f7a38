//! The gate of a node whose clients see one server (`cluster-endpoint single`). A request runs
//! here, is forwarded to another node, or waits until other nodes have answered.
//! `docs/internals/forwarding.md` describes the rules.

use super::auditing;
use super::gates::{self, Refusal};
use super::refuse_request;
use super::slots::note_primary;
use crate::args::Args;
use crate::clients::WaitElsewhere;
use crate::clients::forwarding::{
    Forward, Forwarding, Own, Reach, Travel, push_request, push_words,
};
use crate::command::{Channels, Flags, Group, ScriptName};
use crate::cx::Cx;
use crate::engine::Engine;
use crate::error::{Error, NotNow, shown};
use crate::mailbox::Message;
use crate::membership::{Published, Scope, SlotPlace};
use crate::pubsub::Space;
use crate::request_keys::{RequestKey, RequestKeys};
use crate::scripting::note_script;
use crate::session::ReplyMode;
use crate::table::Resolved;
use crate::transaction::Multi;
use cluster::id::Id;
use journal::safe::Gate;
use route::code;
use spec::{About, Merge, Texts, Way};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Greatest number of forwarded requests of one client that are unanswered.
const MAX_AWAITED: usize = 1 << 14;

/// To the nodes that lead a shard. The client is told how many of them have done something, if it
/// is told at all.
const TELL_LEADERS: Travel =
    Travel::Nodes { reach: Reach::Leaders, merge: Merge::Sum, own: Own::Count(0) };

/// What a connection sees of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// A server that is in no cluster.
    Server,
    /// A node of a cluster.
    Node,
    /// One server in place of a cluster.
    OneServer,
}

impl View {
    /// What a connection of a cluster's node sees. A database with its own hashing rules always
    /// appears as one server, because clients compute slots by the standard rule.
    #[inline]
    pub(super) fn at_node(cx: &Cx<'_>) -> View {
        match cx.engine.has_single_endpoint() && !cx.session.speaks_cluster {
            true => View::OneServer,
            false => View::Node,
        }
    }
}

impl Engine {
    /// Returns whether users are stored at the coordinator (`cluster-share-users`).
    pub fn shares_users(&self) -> bool {
        self.membership.is_on() && self.config.cluster_share_users()
    }
}

impl Cx<'_> {
    /// Returns what this connection sees of the database.
    pub fn view(&self) -> View {
        if self.engine.membership.is_on() { View::at_node(self) } else { View::Server }
    }

    /// Returns what INFO and ROLE describe. To nodes and to the admin port that is this copy, also
    /// where they see one server.
    pub fn described_view(&self) -> View {
        let session = &*self.session;
        let is_of_node = || *session.user.name().as_bytes() == *self.engine.config.primaryuser();
        match self.view() {
            View::OneServer if session.is_insider || session.is_link || is_of_node() => View::Node,
            view => view,
        }
    }

    /// Has the events of other nodes' keys come that a channel or pattern of the client is about, and
    /// does not wait for them.
    pub fn hear_elsewhere(&self, space: Space, name: &[u8]) {
        if self.session.is_link || !self.engine.is_one_address() {
            return;
        }
        let elsewhere = &self.engine.pubsub.elsewhere;
        if elsewhere.ask(elsewhere.begin(self.now()), space, name, self.now()).is_new {
            // One thread listens for all.
            self.engine.mailboxes[0].post(Message::Listen);
        }
    }

    /// Returns whether a function library that this client loads or deletes is shared by all nodes.
    pub fn shares_functions(&self) -> bool {
        // A replication stream or a file repeats changes that were shared before.
        self.engine.is_one_address() && !self.session.is_link && !self.db.repeats_history()
    }

    /// Returns whether options that all nodes share are set at all nodes when this client sets them.
    pub fn shares_options(&self) -> bool {
        let is_client = self.session.client.fd >= 0 && !self.session.is_link;
        is_client && self.engine.is_one_address() && self.membership().is_some()
    }

    /// Returns whether the user of this name is shared by all nodes. The user by which nodes log in
    /// to each other belongs to each node.
    pub fn shares_user(&self, name: &[u8]) -> bool {
        self.engine.shares_users() && *self.engine.config.primaryuser() != *name
    }

    /// Ends the tracking of what the client reads at other nodes, if they track it.
    pub fn track_no_more_elsewhere(&mut self) {
        if self.session.tracking().is_some() && self.view() == View::OneServer {
            self.add_beside(|out| out.extend_from_slice(route::raw::UNTRACK));
        }
    }

    /// Forwards a request to the hub that runs here, too. The hub's reply is dropped.
    pub fn forward_beside(&mut self, args: Args<'_>) {
        self.add_beside(|out| push_words(out, args.words()));
    }

    /// Returns whether a command about clients concerns those of other nodes, too: the client sees
    /// one server, and another node has not passed its command on.
    pub fn asks_about_all_clients(&self) -> bool {
        self.view() == View::OneServer
            && !self.session.is_insider
            && !self.in_transaction
            && self.membership().is_some()
    }

    /// Returns the number of the client that asks: that of another node's client if this is the
    /// link that serves it.
    pub fn asking_client(&self) -> u64 {
        match self.session.client.live.origin.load(Relaxed) {
            0 => self.session.id(),
            origin => origin,
        }
    }

    /// Sends a request about clients to other nodes. Their answers, joined with what this node
    /// answers itself, are the reply.
    pub fn ask_nodes(&mut self, reach: Reach, (merge, own): (Merge, Own), args: Args<'_>) {
        let is_muted = self.session.reply_mode() != ReplyMode::On;
        let travel = Travel::Nodes { reach, merge, own };
        self.add_to_nodes(travel, is_muted, |out| push_words(out, args.words()));
    }

    /// Returns the error that there is no such client, with the code word that nodes understand if
    /// one of them asks.
    pub fn no_such_client(&self) -> Error {
        Error::format(format!("{} No such client", self.word_for_nodes(code::NO_CLIENT)))
    }

    /// Returns the error that there is no such user, with the code word that nodes understand if
    /// one of them asks.
    pub fn no_such_user(&self, name: &[u8]) -> Error {
        let word = self.word_for_nodes(code::NO_USER);
        Error::Bytes([word.as_bytes(), b" No such user '", name, b"'"].concat())
    }

    fn word_for_nodes(&self, word: &'static str) -> &'static str {
        if self.session.is_link { word } else { "ERR" }
    }

    /// Ends what these clients of this node have waiting at other nodes, where nothing is done for
    /// them from then on. The reply that is written next waits for that.
    pub fn end_waits_elsewhere(&mut self, clients: &[u64]) {
        if !clients.is_empty() {
            let request = route::raw::abandon(clients);
            self.add_to_nodes(TELL_LEADERS, true, |out| out.extend_from_slice(&request));
        }
    }

    /// Ends what clients of this node have waiting at other nodes and may not do any more. The reply
    /// that is written next waits for that.
    pub fn end_forbidden_waits(&mut self) {
        for client in self.engine.forbidden_waits() {
            let request = route::raw::unblock(client);
            self.add_to_nodes(TELL_LEADERS, true, |out| out.extend_from_slice(&request));
        }
    }

    fn add_to_nodes(&mut self, travel: Travel, is_muted: bool, add: impl FnOnce(&mut Vec<u8>)) {
        let one = Forward { place: self.reply.place(), end: 0, skipped: 0, is_muted, travel };
        self.session.forwarding.get_or_insert_default().add(one, add);
    }

    fn add_beside(&mut self, add: impl FnOnce(&mut Vec<u8>)) {
        let travel = Travel::Alone;
        let one = Forward { place: usize::MAX, end: 0, skipped: 0, is_muted: true, travel };
        self.session.forwarding.get_or_insert_default().add(one, add);
    }
}

/// Returns whether a request changes only definitions that all nodes share, and nothing on this
/// node.
pub(super) fn is_definition(cx: &Cx<'_>, row: &Resolved) -> bool {
    cx.shares_functions() && matches!(row.way, Way::All { about: About::Libraries, .. })
}

/// Lets a request run here, or returns a refusal that says which node answers it.
pub(super) fn gate(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    let travel = travel(cx, row, args)?;
    let is_queued = is_queued(cx, row);
    if let Some(forwarding) = &cx.session.forwarding
        && forwarding.awaited > 0
        && !is_queued
        && has_to_wait(cx, row, args, forwarding, travel)
    {
        return Err(NotNow::Forwarded.into());
    }
    match travel {
        None if !is_queued && !hears_all(cx, row, args) => Err(NotNow::Held.into()),
        None => {
            // The reply is sent only if no other node has become primary meanwhile.
            let is_about_data =
                !row.command.keys.is_empty() || row.command.flags.has(Flags::RUNS_QUEUE);
            let leads = is_about_data && cx.membership().is_some_and(|published| published.leads);
            note_primary(cx.session, leads)
        }
        Some(travel) => Err(Refusal::Forward(travel)),
    }
}

/// Returns the name of the other shard whose primary answers a request for one key in `slot`, if it
/// gets the request as it is, and [`gate`] would say nothing else.
#[inline]
pub(super) fn plainly_elsewhere(cx: &Cx<'_>, row: &Resolved, slot: u16) -> Option<Id> {
    let unusual = Flags::RUNS_QUEUE.with(Flags::WATCHES).with(Flags::AUDITED).with(Flags::ASKING);
    let forwarding = cx.session.forwarding.as_ref();
    let is_usual = row.goes_to_one_key()
        && row.command.script.is_none()
        && !row.command.flags.any(unusual)
        && forwarding.is_none_or(|it| !it.holds_all && it.awaited < MAX_AWAITED)
        && View::at_node(cx) == View::OneServer;
    if !is_usual {
        return None;
    }
    cx.engine.membership.plainly_elsewhere(&cx.thread.membership, slot)
}

/// Forwards a request of which [`plainly_elsewhere`] has said where it goes.
#[inline]
pub(super) fn forward_plainly(
    cx: &mut Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
    (slot, shard): (u16, Id),
) {
    if may_write(row) {
        cx.session.written_shards.get_or_insert_default().note(shard);
    }
    cx.session.checks_slot = false;
    let (place, travel) = (cx.reply.place(), Travel::Slot(slot));
    let one = Forward { place, end: 0, skipped: 0, is_muted: false, travel };
    let forwarding = cx.session.forwarding.get_or_insert_default();
    forwarding.add(one, |out| push_request(out, args));
}

fn may_write(row: &Resolved) -> bool {
    row.command.flags.any(Flags::WRITE.with(Flags::MAY_REPLICATE))
}

/// Returns whether the events of all nodes come that the channels or patterns of a request are
/// about, as far as the other nodes answer. A client that listens knows by the reply that it misses
/// nothing from then on, and that no event from before follows.
fn hears_all(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    let space = match row.command.channels {
        Channels::Patterns => Space::Patterns,
        Channels::All if row.command.keys.is_empty() => Space::Channels,
        _ => return true,
    };
    if cx.session.is_link || !cx.engine.is_one_address() {
        cx.session.listening = None;
        return true;
    }
    let (engine, now) = (cx.engine, cx.now());
    let elsewhere = &engine.pubsub.elsewhere;
    let request = *cx.session.listening.get_or_insert_with(|| elsewhere.begin(now));
    let (mut is_new, mut is_heard) = (false, true);
    for name in args.from(1) {
        let answer = elsewhere.ask(request, space, name, now);
        is_new |= answer.is_new;
        is_heard &= answer.is_heard;
    }
    if is_new {
        // One thread listens for all.
        engine.mailboxes[0].post(Message::Listen);
    }
    if is_heard {
        cx.session.listening = None;
    }
    is_heard
}

/// Returns whether MULTI queues the request.
fn is_queued(cx: &Cx<'_>, row: &Resolved) -> bool {
    cx.session.multi().is_some() && !row.command.flags.has(Flags::NOT_QUEUED)
}

/// Returns whether a request has to wait for the answers to earlier requests.
fn has_to_wait(
    cx: &Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
    forwarding: &Forwarding,
    travel: Option<Travel>,
) -> bool {
    if forwarding.holds_all {
        return true;
    }
    match travel {
        Some(travel) => {
            !matches!(travel, Travel::Slot(_) | Travel::Several)
                || forwarding.awaited >= MAX_AWAITED
        }
        None => {
            let safe = &cx.engine.safe;
            forwarding.holds_local
                || safe.holds_replies()
                || safe.holds_at(Gate::Quorum)
                || !only_touches_keys(cx, row, args)
        }
    }
}

/// Returns whether a request only reads or changes the keys that it names.
fn only_touches_keys(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    let flags = row.command.flags;
    let more = Flags::WALKS.with(Flags::WORLD).with(Flags::WATCHES).with(Flags::RUNS_QUEUE);
    cx.session.multi().is_none()
        && flags.any(Flags::READONLY.with(Flags::WRITE))
        && !flags.any(more)
        && row.command.script.is_none()
        && !row.command.keys.is_empty()
        && !row.may_wait(args.words())
}

/// Where the keys of a request are.
enum Found<'k> {
    /// The request has no keys.
    NoKeys,
    /// This node serves all keys.
    Here,
    /// One other node serves all keys. One of their slots.
    Elsewhere(u16),
    /// The keys are on several shards. Two keys that are on different ones.
    Apart(&'k [u8], &'k [u8]),
}

/// Returns how a request travels to other nodes, or `None` if it runs here.
fn travel(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<Option<Travel>, Refusal> {
    let scope = Scope::of(row, args.words());
    match scope {
        Scope::AllNodes if is_queued(cx, row) => {
            return queue_for_all(cx, row).map(|()| None);
        }
        Scope::AllNodes => return Ok(Some(everywhere(cx, row))),
        Scope::Defines if is_queued(cx, row) => {
            return Err(concerns_all(row, "a transaction").into());
        }
        Scope::Defines => {
            everywhere(cx, row);
            return Ok(None);
        }
        Scope::Own => return Ok(None),
        // Inside a transaction WAIT returns at once.
        Scope::Written if is_queued(cx, row) => return Ok(None),
        Scope::Written => return Ok(travel_to_written(cx)),
        _ => {}
    }
    if row.command.group == Group::Cluster && row.parent.is_some() {
        return Err(Error::NoCluster.into());
    }
    let flags = row.command.flags;
    if flags.has(Flags::RUNS_QUEUE) {
        return travel_of_queue(cx);
    }
    if row.command.keys.is_empty() {
        return Ok(None);
    }
    let may_write = may_write(row);
    let at = row.single_key;
    let words = args.words();
    let published = cx.membership();
    let Some(published) = published.as_deref() else {
        return Err(Error::Elsewhere(super::slots::DOWN.into()).into());
    };
    let is_queued = is_queued(cx, row);
    let may_split = scope == Scope::Splits && !is_queued;
    let found = if at > 0 {
        let key = args.key(at);
        let slot = published.slot_of(key).ok_or_else(|| Error::unmatched(key.bytes))?;
        let slots = [(slot, words[at])];
        if may_write && !is_queued {
            note_written(cx, &slots);
        }
        find(cx, published, &slots, may_write)?
    } else {
        cx.find_keys(row, args);
        let mut slots = slots_of(published, &cx.keys, words)?;
        if slots.is_empty() && row.command.script.is_some() && !is_queued {
            // It may be about keys that it does not declare.
            slots.extend(only_slot(published).map(|slot| (slot, &b""[..])));
        }
        if may_write && !is_queued {
            note_written(cx, &slots);
        }
        if may_split && is_parted(published, &slots) {
            return Ok(Some(Travel::Several));
        }
        find(cx, published, &slots, may_write)?
    };
    match found {
        Found::NoKeys => Ok(None),
        Found::Apart(..) if may_split => Ok(Some(Travel::Several)),
        Found::Apart(one, other) => Err(apart(published, one, other).into()),
        Found::Here if flags.has(Flags::WATCHES) && is_watching_elsewhere(cx) => {
            Err(Error::Elsewhere(WATCHED_APART.into()).into())
        }
        Found::Here => Ok(None),
        Found::Elsewhere(_) if flags.has(Flags::WATCHES) => Ok(Some(Travel::Alone)),
        Found::Elsewhere(_) if row.may_wait(words) => Ok(Some(Travel::Waits)),
        Found::Elsewhere(slot) => Ok(Some(Travel::Slot(slot))),
    }
}

const WATCHED_APART: &str = "CROSSSLOT The watched keys and the keys of the transaction are on different \
    shards of the cluster; give them a common hash tag";

fn is_watching_elsewhere(cx: &Cx<'_>) -> bool {
    cx.session.forwarding.as_ref().is_some_and(|forwarding| forwarding.is_watching)
}

/// Returns the error for two keys on different shards.
pub(super) fn apart(published: &Published, one: &[u8], other: &[u8]) -> Error {
    let (first, second) = (shown(one), shown(other));
    let advice = match published.hashing().is_standard() && published.next().is_none() {
        true => "; give them a common hash tag, as in {tag}key".to_owned(),
        false => {
            let rule = published.next().map_or(published.hashing(), |next| &next.hashing);
            let tag = |key| rule.tag(key).map_or("none".into(), |tag| format!("'{}'", shown(tag)));
            let tags = (tag(one), tag(other));
            format!(": their tags by the database's hashing rules are {} and {}", tags.0, tags.1)
        }
    };
    Error::Elsewhere(format!(
        "CROSSSLOT Keys '{first}' and '{second}' are on different shards of the cluster{advice}"
    ))
}

/// Returns how WAIT and WAITAOF travel outside a transaction. They concern the shards that the
/// client has written to since its last wait. Without such writes they concern the same shards
/// again, or all shards if the client has never written. They run here if only this node's shard is
/// concerned.
fn travel_to_written(cx: &mut Cx<'_>) -> Option<Travel> {
    let written = cx.session.written_shards.get_or_insert_default();
    written.begin_wait();
    let published = cx.membership();
    let own = published.filter(|published| published.leads);
    let own = own.as_ref().and_then(|published| published.own_shard());
    let written = cx.session.written_shards.as_ref().map(|written| written.awaited());
    let is_own = matches!((written, own), (Some([shard]), Some(own)) if *shard == own.id);
    (!is_own).then_some(Travel::Acks)
}

/// Records which shards a client's write concerns.
fn note_written(cx: &mut Cx<'_>, slots: &[(u16, &[u8])]) {
    let Some(published) = cx.membership() else { return };
    let shards = &published.view.topology.value.shards;
    for &(slot, _) in slots {
        if let Some(shard) = published.shard_of(slot).and_then(|at| shards.get(usize::from(at))) {
            cx.session.written_shards.get_or_insert_default().note(shard.id);
        }
    }
}

/// Whether MULTI may queue a command that concerns all nodes: messages, which the node that runs
/// the transaction passes on, and what is about all keys, if they are on one shard.
///
/// # Errors
/// It may not.
fn queue_for_all(cx: &Cx<'_>, row: &Resolved) -> Result<(), Refusal> {
    if row.way == Way::Message {
        return Ok(());
    }
    let published = cx.membership();
    let only = published.as_deref().and_then(only_slot);
    match is_about_all_keys(row) && only.is_some() {
        true => Ok(()),
        false => Err(concerns_all(row, "a transaction").into()),
    }
}

/// Refuses what a script asks for if it concerns all shards: it would be done at one.
pub(super) fn gate_of_script(cx: &Cx<'_>, row: &Resolved) -> Result<(), Refusal> {
    let is_about_all = cx.engine.is_one_address() && is_about_all_keys(row);
    let published = if is_about_all { cx.membership() } else { None };
    match published.as_deref().is_some_and(|published| only_slot(published).is_none()) {
        true => Err(concerns_all(row, "a script").into()),
        false => Ok(()),
    }
}

fn concerns_all(row: &Resolved, what: &str) -> Error {
    let name = &row.full_name;
    Error::format(format!("ERR '{name}' concerns all shards of the cluster, {what} only one"))
}

pub(super) fn is_about_all_keys(row: &Resolved) -> bool {
    matches!(row.way, Way::All { about: About::AllKeys, .. })
}

/// A slot of the shard that has all keys, if one shard has them.
fn only_slot(published: &Published) -> Option<u16> {
    let shards = &published.view.topology.value.shards;
    let mut shards = shards.iter().filter(|shard| !shard.slots.is_empty());
    let shard = shards.next().filter(|_| shards.next().is_none())?;
    shard.slots.ranges().first().map(|&(first, _)| first)
}

/// Returns how a request that concerns all shards travels.
fn everywhere(cx: &mut Cx<'_>, row: &Resolved) -> Travel {
    if row.command.flags.has(Flags::WRITE)
        && let Some(published) = cx.membership()
    {
        let written = cx.session.written_shards.get_or_insert_default();
        published.view.topology.value.shards.iter().for_each(|shard| written.note(shard.id));
    }
    Travel::Several
}

/// Returns how EXEC travels, by the keys of its queue.
fn travel_of_queue(cx: &mut Cx<'_>) -> Result<Option<Travel>, Refusal> {
    let Some(multi) = cx.session.take_multi() else { return Ok(None) };
    let result = travel_of(cx, &multi);
    cx.session.set_multi(Some(multi));
    result
}

fn travel_of(cx: &mut Cx<'_>, multi: &Multi) -> Result<Option<Travel>, Refusal> {
    if multi.is_broken {
        return Ok(None);
    }
    let keyspace = &cx.engine.keyspace;
    let published = cx.membership();
    let Some(published) = published.as_deref() else {
        return Err(Error::Elsewhere(super::slots::DOWN.into()).into());
    };
    let queue: Vec<Vec<&[u8]>> = multi.queue().iter().map(|queued| queued.words()).collect();
    let (mut slots, mut own) = (Vec::new(), None);
    for (queued, words) in multi.queue().iter().zip(&queue) {
        match Scope::of(queued.row, words) {
            Scope::Own => {
                own = Some(&queued.row.full_name);
                continue;
            }
            Scope::AllNodes if is_about_all_keys(queued.row) => {
                // There may be more shards than when it was queued.
                let slot = only_slot(published)
                    .ok_or_else(|| concerns_all(queued.row, "a transaction"))?;
                slots.push((slot, &b""[..]));
                continue;
            }
            // Messages; a shard channel's slot does not matter where clients listen at any node.
            Scope::AllNodes => continue,
            _ => {}
        }
        let keys = RequestKeys::of(keyspace, queued.row.command, words);
        slots.extend(slots_of(published, &keys, words)?);
    }
    let may_write = multi.has_any(Flags::WRITE.with(Flags::MAY_REPLICATE));
    if may_write {
        note_written(cx, &slots);
    }
    let is_watching_elsewhere = is_watching_elsewhere(cx);
    match find(cx, published, &slots, may_write)? {
        Found::Apart(one, other) => Err(apart(published, one, other).into()),
        Found::Here if is_watching_elsewhere => Err(Error::Elsewhere(WATCHED_APART.into()).into()),
        Found::Elsewhere(_) if cx.session.watching.is_some() => {
            Err(Error::Elsewhere(WATCHED_APART.into()).into())
        }
        Found::NoKeys if !is_watching_elsewhere => Ok(None),
        Found::Here => Ok(None),
        // What is about the connection the other node cannot do.
        Found::NoKeys | Found::Elsewhere(_) if own.is_some() => Err(about_connection(own).into()),
        // The node that has the watched keys knows whether they have changed.
        Found::NoKeys => Ok(Some(Travel::Alone)),
        Found::Elsewhere(slot) => Ok(Some(Travel::Queue(slot))),
    }
}

/// The error about a transaction that another node runs and that has a command about the client's
/// connection.
fn about_connection(name: Option<&String>) -> Error {
    let name = name.map_or("", String::as_str);
    Error::Elsewhere(format!(
        "EXECABORT Transaction discarded because of: '{name}' is about this connection, and another node of the \
         cluster has the keys of the transaction; send it before MULTI or after EXEC"
    ))
}

/// The slots of keys, and the keys.
///
/// # Errors
/// A key has no slot.
fn slots_of<'k>(
    published: &Published,
    keys: &RequestKeys,
    words: &[&'k [u8]],
) -> Result<Vec<(u16, &'k [u8])>, Error> {
    let slot = |key: &RequestKey| {
        let key = key.key(words);
        let slot = published.slot_of(key).ok_or_else(|| Error::unmatched(key.bytes))?;
        Ok((slot, key.bytes))
    };
    keys.iter().map(slot).collect()
}

/// Returns whether the hashing rule that is being introduced puts the keys on several shards. The
/// request is then split, and one server answers each piece.
fn is_parted(published: &Published, slots: &[(u16, &[u8])]) -> bool {
    published.next().is_some() && {
        let mut shards = slots.iter().map(|&(slot, key)| published.future_shard_of(slot, key));
        let first = shards.next();
        shards.any(|shard| Some(shard) != first)
    }
}

/// Returns where these keys are. Their slots are given.
fn find<'k>(
    cx: &Cx<'_>,
    published: &Published,
    slots: &[(u16, &'k [u8])],
    may_write: bool,
) -> Result<Found<'k>, Refusal> {
    let Some(&(first, key)) = slots.first() else { return Ok(Found::NoKeys) };
    let caller = super::slots::Caller {
        asker: cx.asker(),
        reads_replica: false,
        writes: may_write,
        is_about_channel: false,
    };
    let place = super::slots::place_of(&cx.engine.config, Some(published), first, caller)?;
    for &(slot, other) in &slots[1..] {
        if slot != first && published.shard_of(slot) != published.shard_of(first) {
            return Ok(Found::Apart(key, other));
        }
    }
    // Send it over a link to this node itself, because links handle ASK.
    let is_open = published.has_open()
        && slots.iter().any(|&(slot, key)| published.open_key(slot, key).is_some());
    match place {
        SlotPlace::Here if is_open => Ok(Found::Elsewhere(first)),
        SlotPlace::Here => Ok(Found::Here),
        SlotPlace::Replica(_) | SlotPlace::Moved(_) => Ok(Found::Elsewhere(first)),
        SlotPlace::NotYet | SlotPlace::Unassigned => {
            Err(Error::Elsewhere(super::slots::DOWN.into()).into())
        }
    }
}

/// Keeps the text of a script that is sent to another node, or clears the cache for SCRIPT FLUSH.
fn note_scripts(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) {
    let words = args.words();
    if row.command.script == Some(ScriptName::Source) {
        note_script(cx, words[1]);
        return;
    }
    match row.way {
        Way::All { about: About::Scripts(Texts::Load), .. } => note_script(cx, words[2]),
        Way::All { about: About::Scripts(Texts::Flush), .. } => cx.engine.scripts.cache.flush(),
        _ => {}
    }
}

/// Returns EVAL's name and the script's text for an EVALSHA in a transaction, where a NOSCRIPT
/// answer could not be followed by a second try.
fn text_of(engine: &Engine, row: &Resolved, words: &[&[u8]]) -> Option<(Vec<u8>, Vec<u8>)> {
    if row.command.script != Some(ScriptName::Digest) {
        return None;
    }
    let text = engine.script_text(words.get(1)?)?;
    let name = &engine.table.named_by(row, ScriptName::Source)?.full_name;
    Some((name.as_bytes().to_vec(), text))
}

/// Tells the audit log of a request that is forwarded, or of those that a transaction has queued.
fn note_audited(cx: &Cx<'_>, row: &Resolved, args: Args<'_>, multi: Option<&Multi>) {
    if row.command.flags.has(Flags::AUDITED) {
        auditing::note_forwarded(cx, row, args.words());
    }
    for queued in multi.into_iter().flat_map(Multi::queue) {
        if queued.row.command.flags.has(Flags::AUDITED) {
            auditing::note_forwarded(cx, queued.row, &queued.words());
        }
    }
}

/// Forwards a request to the node that answers it, or queues it in a transaction.
///
/// # Errors
/// The request has to be tried again.
pub(super) fn forward(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
    travel: Travel,
    flags: Flags,
) -> Result<(), NotNow> {
    if let Err(refusal) = gates::pass(cx, row, args, gates::FORWARDED) {
        return refuse_request(cx, row, refusal);
    }
    if is_queued(cx, row) {
        if let Some(multi) = cx.session.multi_mut() {
            multi.push(&cx.engine.keyspace, row, flags, args.words());
        }
        cx.reply.simple("QUEUED");
        return Ok(());
    }
    let is_muted = cx.session.reply_mode() != ReplyMode::On;
    let multi = match row.command.flags.has(Flags::RUNS_QUEUE) {
        true => cx.session.take_multi(),
        false => None,
    };
    note_scripts(cx, row, args);
    note_audited(cx, row, args, multi.as_deref());
    let skipped = multi.as_ref().map_or(0, |multi| multi.len() as u32 + 1);
    let place = cx.reply.place();
    let one = Forward { place, end: 0, skipped, is_muted, travel };
    let engine = cx.engine;
    let caching = cx.session.tracking().and_then(|tracking| tracking.caching);
    let forwarding = cx.session.forwarding.get_or_insert_default();
    if let Some(is_wanted) = caching {
        let before = Forward { skipped: 0, is_muted: true, travel: Travel::Several, ..one };
        forwarding.add(before, |out| out.extend_from_slice(&route::raw::caching(is_wanted)));
    }
    if row.command.flags.has(Flags::WATCHES) {
        forwarding.is_watching = true;
    } else if multi.is_some() {
        forwarding.is_watching = false;
    }
    if travel == Travel::Waits {
        let words = args.words().iter().map(|word| Box::from(*word)).collect();
        let waiting = WaitElsewhere { words, db: cx.db.index, error: None };
        *cx.session.client.waits_for() = Some(waiting);
    }
    if matches!(travel, Travel::Waits | Travel::Acks) {
        cx.session.client.live.waits_elsewhere.store(true, Release);
    }
    forwarding.add(one, |out| {
        if let Some(multi) = multi {
            out.extend_from_slice(route::raw::MULTI);
            for queued in multi.queue() {
                let words = queued.words();
                match text_of(engine, queued.row, &words) {
                    Some((name, text)) => {
                        let words = [&[&name[..], &text[..]], &words[2..]].concat();
                        push_words(out, &words);
                    }
                    None => push_words(out, &words),
                }
            }
        }
        push_request(out, args);
    });
    Ok(())
}
