//! This server's place in a cluster: what its coordinator said last, as commands and gates read it.
//!
//! One thread of the server publishes; reactors read. A publication is immutable, and each reading
//! thread keeps the newest one it has seen, so that a request costs one load of a counter and takes
//! no lock ([`Membership::current`]). Without a cluster nothing is ever published.

pub mod moves;

use crate::clock::monotonic;
use crate::journal::JournalPos;
use crate::table::Resolved;
use cluster::bus::Bus;
use cluster::change::Setting;
use cluster::describe::{Asker, Node};
use cluster::hashing::Hashing;
use cluster::id::{Epoch, Id};
use cluster::shared::{Library, Policy};
use cluster::slots::{COUNT, Slots};
use cluster::topology::{Address, MovePhase, Phase, Shard};
use cluster::view::View;
use keyspace::{DbIndex, Key, Millis, Slot};
pub(crate) use moves::each;
pub use moves::{Arrival, Moves, PastMove, Progress};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use structs::flags::Flag;
use structs::sync::lock;

/// The owner of a slot that no shard has.
const UNASSIGNED: u16 = u16::MAX;

/// What an operator asks of the coordinator. The words are read already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// CLUSTER ADDSLOTS, ADDSLOTSRANGE.
    AddSlots(Slots),
    /// CLUSTER DELSLOTS, DELSLOTSRANGE.
    DeleteSlots(Slots),
    /// CLUSTER FLUSHSLOTS.
    FlushSlots,
    /// CLUSTER SETSLOT.
    SetSlot {
        /// The slot.
        slot: u16,
        /// What it becomes.
        setting: Setting,
        /// This server has keys in it.
        has_keys: bool,
    },
    /// ADDSLOTS, DELSLOTS and SETSLOT within MULTI, as one change. Bumping an epoch changes nothing.
    Together(Vec<Option<Request>>),
    /// CLUSTER MIGRATESLOTS: slots, and the nodes that they go to.
    MigrateSlots(Vec<(Slots, Id)>),
    /// CLUSTER CANCELSLOTMIGRATIONS.
    CancelMoves,
    /// CLUSTER MIGRATION IMPORT: slots that move to this server.
    ImportSlots {
        /// The slots.
        slots: Slots,
        /// The name of the job.
        job: Id,
    },
    /// CLUSTER MIGRATION CANCEL: the jobs with these names.
    CancelJobs(Vec<Id>),
    /// CLUSTER MIGRATION SET: how fast and in which order jobs are done. No names: all of them.
    PaceJobs {
        /// The jobs.
        names: Vec<Id>,
        /// Bytes per second; 0 is no limit.
        rate: Option<u64>,
        /// Those with a greater one come first.
        priority: Option<i32>,
    },
    /// CLUSTER SET-CONFIG-EPOCH.
    SetConfigEpoch(Epoch),
    /// CLUSTER MEET, with the other node's host and port.
    Meet(String, u16),
    /// CLUSTER REPLICATE.
    Replicate {
        /// Whose replica this server becomes.
        primary: Id,
        /// This server has keys.
        has_keys: bool,
    },
    /// CLUSTER REPLICATE NO ONE.
    StandAlone,
    /// CLUSTER FORGET.
    Forget(Id),
    /// CLUSTER RESET.
    Reset {
        /// This server has keys.
        has_keys: bool,
    },
    /// CLUSTER FAILOVER.
    Switch,
    /// CLUSTER FAILOVER TAKEOVER, FORCE.
    TakeOver,
    /// A change of what all nodes have alike.
    Define(Definition),
    /// This server goes down, and another copy is to lead its shard.
    HandOver,
}

/// A change of what all nodes have alike. Its words are read already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Definition {
    /// ACL SETUSER: a name and rules.
    SetUser(Vec<u8>, Vec<Vec<u8>>),
    /// ACL DELUSER.
    DeleteUsers(Vec<Vec<u8>>),
    /// FUNCTION LOAD.
    LoadLibrary(Library, Policy),
    /// FUNCTION RESTORE.
    RestoreLibraries(Vec<Library>, Policy),
    /// FUNCTION DELETE.
    DeleteLibrary(String),
    /// FUNCTION FLUSH.
    FlushLibraries,
    /// CONFIG SET notify-keyspace-events: the letters.
    Events(String),
}

/// A database as the coordinator has it, and this server's part in it.
pub struct Published {
    /// What was read.
    pub view: View,
    /// This server.
    pub me: Id,
    /// This server takes writes: it is the holder with these very data, and acts as such.
    pub leads: bool,
    /// This server's shard has another primary from this moment, and one of the two is this server:
    /// requests wait until the other has seen that, too.
    pub changes_roles: bool,
    /// The ports that copies have for each other.
    pub bus: Bus,
    /// The database's rule.
    hashing: Arc<Hashing>,
    /// The rule that takes its place.
    next: Option<Next>,
    /// The number of each slot's shard.
    owners: Box<[u16]>,
    /// The number of this server's shard.
    own: u16,
    /// The slots of this server's shard that move key by key. Mostly there are none.
    open: BTreeMap<u16, Open>,
    /// Requests are answered, with and without `cluster-require-full-coverage`.
    is_ok: [bool; 2],
    /// This server leads, and nothing about its slots needs a closer look.
    is_plain: bool,
    /// Every shard with slots has a primary, and nothing about slots needs a closer look.
    passes_on: bool,
    /// Replies to CLUSTER SLOTS, by protocol and asker.
    slot_replies: [OnceLock<Box<[u8]>>; 16],
}

/// The rule that takes the place of the database's.
pub struct Next {
    /// The rule.
    pub hashing: Arc<Hashing>,
    /// How far the change is.
    pub phase: Phase,
    /// The number of each slot's shard then. `None`: as now.
    owners: Option<Box<[u16]>>,
}

/// Which nodes a request concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The one of its keys; without a key, this one.
    Keys,
    /// Those of its keys, which may be on several shards.
    Splits,
    /// All.
    AllNodes,
    /// All: it changes what all nodes have alike, by way of the coordinator.
    Defines,
    /// The client's own: it is about the connection.
    Own,
    /// Those that the connection has written to.
    Written,
}

impl Scope {
    /// Returns which nodes a request concerns.
    pub fn of(row: &Resolved, words: &[&[u8]]) -> Scope {
        use spec::{About, Session, Way};
        match row.way_of(words) {
            Way::Local(local) if local.is_about_connection() => Scope::Own,
            // Clients listen at any node.
            Way::Session(Session::Subscribe | Session::Unsubscribe) => Scope::Own,
            Way::All { about: About::Libraries, .. } => Scope::Defines,
            Way::All { about: About::Server, .. } => Scope::Keys,
            Way::All { .. } | Way::Scan | Way::Message => Scope::AllNodes,
            Way::Split { .. } => Scope::Splits,
            Way::Written(_) => Scope::Written,
            // What is refused by a proxy a node can do.
            Way::Keys | Way::Local(_) | Way::Session(_) | Way::OneServer | Way::Refused(_) => {
                Scope::Keys
            }
        }
    }
}

/// Where a request for a slot belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SlotPlace {
    /// This server leads the slot's shard.
    Here,
    /// This server is to lead the slot's shard, or has done so, and does not take writes now.
    NotYet,
    /// This server is a replica of the slot's shard, which this node leads.
    Replica(Node),
    /// This node leads the slot's shard.
    Moved(Node),
    /// No shard has the slot.
    Unassigned,
}

/// How a slot, or by a change of the rule one key, moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    /// To the shard with this number. Keys that are not here any more are there.
    Leaving(u16),
    /// It has left: all keys are at the shard with this number.
    Left(u16),
    /// To this server's shard: clients ask for it that its primary has sent.
    Arriving,
    /// It has arrived at this server's shard, which does not have it by name yet.
    Arrived,
    /// Nowhere: the rule that comes has no slot for the key.
    Homeless,
}

impl Published {
    /// Prepares a view for readers.
    ///
    /// Rules that the publication `before` has, too, are taken from there, ready for use.
    pub fn new(
        view: View,
        me: Id,
        leads: bool,
        changes_roles: bool,
        before: Option<&Published>,
    ) -> Published {
        let (hashing, next) = rules(&view, before);
        let shards = view.topology.value.shards.iter();
        let owners = owners(shards.map(|shard| Some(&shard.slots)));
        let is_ok = [view.is_ok(false), view.is_ok(true)];
        let open = open_slots(&view, me);
        let own = view.topology.value.shards.iter().position(|shard| shard.copy(me).is_some());
        let is_still = hashing.is_standard() && next.is_none() && open.is_empty();
        let is_settled = is_still && is_ok.iter().all(|&is_ok| is_ok);
        let mut used = view.topology.value.shards.iter().filter(|shard| !shard.slots.is_empty());
        let passes_on = is_settled && used.all(|shard| shard.copy(shard.holder.id).is_some());
        let is_plain = leads && !changes_roles && is_settled;
        Published {
            is_plain,
            passes_on,
            hashing,
            next,
            bus: Bus::of(&view, before.map(|before| &before.bus)),
            own: own.and_then(|at| u16::try_from(at).ok()).unwrap_or(UNASSIGNED),
            open,
            view,
            me,
            leads,
            changes_roles,
            owners,
            is_ok,
            slot_replies: Default::default(),
        }
    }

    /// Whether every request for `slot` is answered here, as by a server without a cluster. If not,
    /// that is not said.
    #[inline]
    fn serves_plainly(&self, slot: u16) -> bool {
        self.is_plain && self.owners.get(usize::from(slot)) == Some(&self.own)
    }

    /// Returns the name of the other shard whose primary answers every request for `slot`.
    /// `None`: a closer look is needed.
    #[inline]
    fn plainly_elsewhere(&self, slot: u16) -> Option<Id> {
        let owner = *self.owners.get(usize::from(slot))?;
        let is_other = self.passes_on && owner != self.own;
        let shard = self.view.topology.value.shards.get(usize::from(owner)).filter(|_| is_other)?;
        Some(shard.id)
    }

    /// Where a request for `slot` belongs.
    pub fn place_of(&self, slot: u16, asker: Asker) -> SlotPlace {
        let owner = self.owners.get(usize::from(slot)).copied().unwrap_or(UNASSIGNED);
        let Some(shard) = self.view.topology.value.shards.get(usize::from(owner)) else {
            return SlotPlace::Unassigned;
        };
        if shard.holder.id == self.me {
            return if self.leads { SlotPlace::Here } else { SlotPlace::NotYet };
        }
        match shard.copy(shard.holder.id).map(|primary| asker.node(primary)) {
            None => SlotPlace::Unassigned,
            Some(node) if shard.copy(self.me).is_some() => SlotPlace::Replica(node),
            Some(node) => SlotPlace::Moved(node),
        }
    }

    /// The slot of a key by the database's rule. `None`: no rule matches.
    #[inline]
    pub fn slot_of(&self, key: Key<'_>) -> Option<u16> {
        match &*self.hashing {
            // The only rule that a cluster of servers started by hand has. The hash has it.
            Hashing::Standard => Some(Slot::in_hash(key.hash).number()),
            rules => rules.slot(key.bytes),
        }
    }

    /// Whether another shard than this server's has a key by the database's rule.
    pub fn is_of_other_shard(&self, key: Key<'_>) -> bool {
        let owner = self.slot_of(key).and_then(|slot| self.shard_of(slot));
        self.own != UNASSIGNED && owner.is_some_and(|owner| owner != self.own)
    }

    /// The database's rule.
    pub fn hashing(&self) -> &Arc<Hashing> {
        &self.hashing
    }

    /// The rule that takes its place.
    pub fn next(&self) -> Option<&Next> {
        self.next.as_ref()
    }

    /// How a slot moves key by key to or from this server's shard. `None`: it does not.
    #[inline]
    pub fn open(&self, slot: u16) -> Option<Open> {
        if self.open.is_empty() { None } else { self.open.get(&slot).copied() }
    }

    /// How a key, which has this slot, moves to or from this server's shard. `None`: it does not.
    #[inline]
    pub fn open_key(&self, slot: u16, key: &[u8]) -> Option<Open> {
        match &self.next {
            None => self.open(slot),
            Some(next) => self.open(slot).or_else(|| self.rehashed(slot, key, next)),
        }
    }

    #[cold]
    fn rehashed(&self, slot: u16, key: &[u8], next: &Next) -> Option<Open> {
        let (from, phase) = (self.shard_of(slot)?, next.phase);
        let Some(to) = self.future_shard_of(slot, key) else {
            return (from == self.own && phase >= Phase::Moving).then_some(Open::Homeless);
        };
        match (from == self.own, to == self.own) {
            (true, false) if matches!(phase, Phase::Moving | Phase::Turning) => {
                Some(Open::Leaving(to))
            }
            (true, false) if phase == Phase::Settling => Some(Open::Left(to)),
            (false, true) if phase == Phase::Settling => Some(Open::Arrived),
            (false, true) => Some(Open::Arriving),
            _ => None,
        }
    }

    /// Whether a key of this slot may be missing here, although the slot is this server's shard's.
    pub fn may_lack(&self, slot: u16) -> bool {
        self.open(slot).is_some() || self.next.is_some()
    }

    /// Whether clients that wait here for this key are to ask again: it comes to be elsewhere by
    /// the rule that comes, which may take long. A slot that moves is handed over soon, so they
    /// wait for that.
    pub fn sends_waiters_on(&self, slot: u16, key: &[u8]) -> bool {
        self.next.is_some()
            && matches!(self.open_key(slot, key), Some(Open::Leaving(_) | Open::Left(_)))
    }

    /// The number of the shard that has a key by the rule that comes; by the present one, if none
    /// comes.
    pub fn future_shard_of(&self, slot: u16, key: &[u8]) -> Option<u16> {
        match &self.next {
            None => self.shard_of(slot),
            Some(next) => next.hashing.slot(key).and_then(|slot| self.future_owner(slot)),
        }
    }

    /// The number of the shard that has a slot when the rule has changed.
    pub fn future_owner(&self, slot: u16) -> Option<u16> {
        let owners = self.next.as_ref().and_then(|next| next.owners.as_ref());
        let owner = owners.unwrap_or(&self.owners).get(usize::from(slot)).copied();
        let shards = self.view.topology.value.shards.len();
        owner.filter(|owner| usize::from(*owner) < shards)
    }

    /// Whether any slot or key moves to or from this server's shard.
    #[inline]
    pub fn has_open(&self) -> bool {
        !self.open.is_empty() || self.next.is_some()
    }

    /// The primary of the shard with this number.
    pub fn primary_of(&self, shard: u16, asker: Asker) -> Option<Node> {
        let shard = self.view.topology.value.shards.get(usize::from(shard))?;
        shard.copy(shard.holder.id).map(|primary| asker.node(primary))
    }

    /// The number of the shard that has a slot.
    #[inline]
    pub fn shard_of(&self, slot: u16) -> Option<u16> {
        let owner = self.owners.get(usize::from(slot)).copied();
        let shards = self.view.topology.value.shards.len();
        owner.filter(|owner| usize::from(*owner) < shards)
    }

    /// Whether requests are answered.
    pub fn is_ok(&self, requires_full_coverage: bool) -> bool {
        self.is_ok[usize::from(requires_full_coverage)]
    }

    /// Takes over where this server announces to be.
    fn relocate(&mut self, address: &Address) {
        let copies = self.view.topology.value.shards.iter_mut().flat_map(|shard| &mut shard.copies);
        for copy in copies.filter(|copy| copy.id == self.me) {
            copy.address = address.clone();
        }
    }

    /// Whether this server is to be sent a copy for this job.
    pub fn expects_copy(&self, job: Id) -> bool {
        let topology = &self.view.topology.value;
        let found = topology.moves.iter().find(|other| other.id == job);
        let found = found.filter(|job| job.phase() == MovePhase::Copying);
        self.leads && found.is_some_and(|job| self.own_shard().map(|own| own.id) == Some(job.to))
    }

    /// The shard that this server belongs to.
    pub fn own_shard(&self) -> Option<&Shard> {
        self.view.topology.value.shard_of(self.me)
    }

    /// The reply to CLUSTER SLOTS, which `make` writes once for each kind of client.
    pub fn slots_reply(&self, resp3: bool, asker: Asker, make: impl FnOnce() -> Vec<u8>) -> &[u8] {
        let (resp3, is_tls) = (usize::from(resp3), usize::from(asker.is_tls));
        let is_ipv6 = usize::from(asker.is_ipv6);
        let kind = resp3 | is_tls << 1 | usize::from(asker.wants_hostname) << 2 | is_ipv6 << 3;
        self.slot_replies[kind].get_or_init(|| make().into_boxed_slice())
    }
}

/// The number of each slot's shard, from the slots of all shards.
fn owners<'a>(slots: impl Iterator<Item = Option<&'a Slots>>) -> Box<[u16]> {
    let mut owners = vec![UNASSIGNED; usize::from(COUNT)].into_boxed_slice();
    for (at, slots) in slots.enumerate() {
        for &(first, last) in slots.into_iter().flat_map(|slots| slots.ranges()) {
            owners[usize::from(first)..=usize::from(last)].fill(at as u16);
        }
    }
    owners
}

/// The rules of a database, ready for use.
fn rules(view: &View, before: Option<&Published>) -> (Arc<Hashing>, Option<Next>) {
    let topology = &view.topology.value;
    let known = before.map(|before| (&before.view.topology.value, before));
    let make = |rules: &Vec<String>| match known {
        Some((old, before)) if old.hashing == *rules => Arc::clone(&before.hashing),
        Some((old, Published { next: Some(next), .. }))
            if old.rehash.as_ref().is_some_and(|rehash| rehash.rules == *rules) =>
        {
            Arc::clone(&next.hashing)
        }
        _ => Arc::new(Hashing::of_checked(rules)),
    };
    let next = topology.rehash.as_ref().map(|rehash| Next {
        hashing: make(&rehash.rules),
        phase: rehash.phase,
        owners: (!rehash.slots.is_empty())
            .then(|| owners(topology.shards.iter().map(|shard| rehash.slots.get(&shard.id)))),
    });
    (make(&topology.hashing), next)
}

fn open_slots(view: &View, me: Id) -> BTreeMap<u16, Open> {
    let shards = &view.topology.value.shards;
    let Some(own) = view.topology.value.shard_of(me) else { return BTreeMap::new() };
    let leaving = own.migrating.iter().filter_map(|(&slot, to)| {
        let to = shards.iter().position(|shard| shard.id == *to)?;
        Some((slot, Open::Leaving(u16::try_from(to).ok()?)))
    });
    leaving.chain(own.importing.keys().map(|&slot| (slot, Open::Arriving))).collect()
}

/// Keys that were sent away and deleted here, but may come back with a fail-over: replicas may not
/// know of that yet.
#[derive(Default)]
struct Unsure {
    hashes: HashSet<u64>,
    /// The same, with the position behind their deletion; `None`: they are being sent.
    groups: VecDeque<(Option<JournalPos>, Vec<u64>)>,
}

/// How many keys wait to be sent before others. Requests for more of them try again all the same.
const MAX_FIRST: usize = 1 << 16;

/// What this server does for a change of the hashing rules, beside what the topology says of it.
#[derive(Default)]
pub struct Rehashing {
    /// Why it does not go on.
    obstacle: Mutex<String>,
    /// Keys that were sent away since the server began.
    moved: AtomicU64,
    /// Keys that requests wait for, which are sent before others.
    first: Mutex<VecDeque<(DbIndex, Box<[u8]>)>>,
    unsure: Mutex<Unsure>,
}

impl Rehashing {
    /// Keys that were sent away since the server began.
    pub fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }

    /// Keys were sent away.
    pub(crate) fn count_moved(&self, keys: usize) {
        self.moved.fetch_add(keys as u64, Relaxed);
    }

    /// Has keys that leave sent before others: a request waits for them, whose other keys have
    /// left.
    pub(crate) fn send_first(&self, db: DbIndex, keys: Vec<Box<[u8]>>) {
        if keys.is_empty() {
            return;
        }
        let mut first = lock(&self.first);
        let more = MAX_FIRST.saturating_sub(first.len());
        first.extend(keys.into_iter().take(more).map(|key| (db, key)));
    }

    /// Takes some keys of one database that are to be sent before others.
    pub(crate) fn take_first(&self, most: usize) -> Option<(DbIndex, Vec<Box<[u8]>>)> {
        let mut first = lock(&self.first);
        let db = first.front()?.0;
        let together = first.iter().take(most).take_while(|(other, _)| *other == db).count();
        let mut keys: Vec<Box<[u8]>> = first.drain(..together).map(|(_, key)| key).collect();
        keys.sort_unstable();
        keys.dedup();
        Some((db, keys))
    }

    /// Whether it cannot be said where a key is, which is not here.
    pub(crate) fn is_unsure(&self, hash: u64) -> bool {
        lock(&self.unsure).hashes.contains(&hash)
    }

    /// Keys are about to be sent away.
    pub(crate) fn begin_sending(&self, hashes: Vec<u64>) {
        let mut unsure = lock(&self.unsure);
        unsure.hashes.extend(&hashes);
        unsure.groups.push_back((None, hashes));
    }

    /// The keys that were sent last are deleted here before this position.
    pub(crate) fn end_sending(&self, position: JournalPos) {
        if let Some(last) = lock(&self.unsure).groups.back_mut() {
            last.0 = Some(position);
        }
    }

    /// Forgets keys of whose deletion all that need to know do. Returns whether there are none
    /// left.
    pub(crate) fn settle(&self, is_known: impl Fn(JournalPos) -> bool) -> bool {
        let mut unsure = lock(&self.unsure);
        while let Some((Some(position), _)) = unsure.groups.front()
            && is_known(*position)
        {
            let Some((_, hashes)) = unsure.groups.pop_front() else { break };
            hashes.iter().for_each(|hash| _ = unsure.hashes.remove(hash));
        }
        unsure.groups.is_empty()
    }

    /// Notes why it does not go on; nothing, if it does.
    pub fn set_obstacle(&self, why: String) {
        *lock(&self.obstacle) = why;
    }

    /// Why it does not go on.
    pub fn obstacle(&self) -> String {
        lock(&self.obstacle).clone()
    }
}

/// What a thread has seen last.
#[derive(Default)]
pub(crate) struct Seen(RefCell<(u64, Option<Current>)>);

/// What was published last, as its thread sees it. The count of its users is the thread's own:
/// one that reactors share would go from core to core with each request.
#[derive(Clone)]
#[expect(clippy::redundant_allocation, reason = "the outer count is the thread's own")]
pub struct Current(Arc<Arc<Published>>);

impl Deref for Current {
    type Target = Published;

    #[inline]
    fn deref(&self) -> &Published {
        &self.0
    }
}

/// See the head of this file.
#[derive(Default)]
pub struct Membership {
    me: OnceLock<Id>,
    /// Whether it has a name, among the special states of the server.
    is_on: Flag,
    /// Counts the publications.
    version: AtomicU64,
    newest: Mutex<Option<Arc<Published>>>,
    /// Slots that move.
    pub moves: Moves,
    /// The change of the hashing rules.
    pub rehash: Rehashing,
    /// Where this server announces to be. What is published says so before the coordinator does.
    address: Mutex<Option<Address>>,
    /// When this server joined, and how many nanoseconds later it may be that another leads.
    joined: OnceLock<Instant>,
    alone_for: AtomicU64,
    is_coordinator_present: AtomicBool,
    /// When this server had its data and began to ask the coordinator, in milliseconds since 1970;
    /// 0: it has not begun.
    began_ms: AtomicI64,
    ends_links: AtomicBool,
    /// Requests of clients that were sent to another node.
    sent_on: AtomicU64,
    /// The database has hashing rules of its own, or is about to.
    has_rules: AtomicBool,
    /// Files with what only this server had, and the writes in them.
    rescues: AtomicU64,
    rescued: AtomicU64,
    /// The port for other nodes that this server does not reach, so it announces none; or empty.
    unreached: Mutex<String>,
}

impl Membership {
    /// Returns the state of a server in no cluster. `flag` is the bit of one among the special
    /// states of the server.
    pub(crate) fn new(flag: Flag) -> Membership {
        Membership { is_on: flag, ..Membership::default() }
    }

    /// This server is a node of a cluster, with this name. Called once, before a client is served.
    pub fn join(&self, me: Id) {
        assert!(self.me.set(me).is_ok(), "a server has one name");
        self.is_on.set(true);
        self.joined.get_or_init(monotonic);
    }

    /// The server's name; `None`: it is in no cluster.
    #[inline]
    pub fn me(&self) -> Option<Id> {
        self.me.get().copied()
    }

    /// Whether this server is a node of a cluster.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.is_set()
    }

    /// Whether this server goes down, and runs nothing more for other nodes.
    #[inline]
    pub fn ends_links(&self) -> bool {
        self.ends_links.load(SeqCst)
    }

    /// Says so.
    pub fn end_links(&self, ends: bool) {
        self.ends_links.store(ends, SeqCst);
    }

    /// How many requests of clients were sent to another node.
    pub fn sent_on(&self) -> u64 {
        self.sent_on.load(Relaxed)
    }

    /// Counts one.
    pub(crate) fn send_on(&self) {
        self.sent_on.fetch_add(1, Relaxed);
    }

    /// Whether the database has hashing rules of its own, or changes its rule.
    #[inline]
    pub fn has_rules(&self) -> bool {
        self.has_rules.load(Relaxed)
    }

    /// Whether the coordinator answers.
    pub fn is_coordinator_present(&self) -> bool {
        self.is_coordinator_present.load(Relaxed)
    }

    /// Notes whether the coordinator answers.
    pub fn set_coordinator_present(&self, is_present: bool) {
        self.is_coordinator_present.store(is_present, Relaxed);
    }

    /// A file was written with so many writes that only this server had.
    pub fn count_rescued(&self, writes: u64) {
        self.rescues.fetch_add(1, Relaxed);
        self.rescued.fetch_add(writes, Relaxed);
    }

    /// How many such files were written, and how many writes they have.
    pub fn rescued(&self) -> (u64, u64) {
        (self.rescues.load(Relaxed), self.rescued.load(Relaxed))
    }

    /// Notes the port for other nodes that this server does not reach; empty: it reaches all.
    pub fn set_unreached(&self, place: String) {
        *lock(&self.unreached) = place;
    }

    /// The port for other nodes that this server does not reach; empty: it reaches all.
    pub fn unreached(&self) -> String {
        lock(&self.unreached).clone()
    }

    /// Until then no other copy leads this server's shard.
    pub(crate) fn set_alone_until(&self, until: Instant) {
        let Some(&joined) = self.joined.get() else { return };
        let time = until.saturating_duration_since(joined).as_nanos();
        self.alone_for.store(u64::try_from(time).unwrap_or(u64::MAX), SeqCst);
    }

    /// Whether this server was the only one to lead its shard until now. What it has done before
    /// this call may be told.
    pub fn is_alone(&self) -> bool {
        let alone_for = u128::from(self.alone_for.load(SeqCst));
        self.joined.get().is_some_and(|joined| (monotonic() - *joined).as_nanos() < alone_for)
    }

    /// Readers see this from now on.
    pub(crate) fn publish(&self, published: Published) {
        self.show(&mut lock(&self.newest), published);
    }

    fn show(&self, newest: &mut Option<Arc<Published>>, mut published: Published) {
        if let Some(address) = self.address() {
            published.relocate(&address);
        }
        let has_rules = !published.hashing.is_standard() || published.next.is_some();
        self.has_rules.store(has_rules, Relaxed);
        *newest = Some(Arc::new(published));
        self.version.fetch_add(1, Release);
    }

    /// Where this server announces to be, if that was said while it runs.
    pub fn address(&self) -> Option<Address> {
        lock(&self.address).clone()
    }

    /// This server announces another address from now on. Its own clients are told so at once.
    pub fn announce(&self, address: Address) {
        let mut newest = lock(&self.newest);
        *lock(&self.address) = Some(address);
        let Some(published) = newest.as_deref() else { return };
        let Published { view, me, leads, changes_roles, .. } = published;
        let (leads, changes_roles) = (*leads, *changes_roles);
        let published = Published::new(view.clone(), *me, leads, changes_roles, newest.as_deref());
        self.show(&mut newest, published);
    }

    /// Counts what was published.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// This server has loaded its data, and asks the coordinator from now on.
    pub fn begin(&self, now: Millis) {
        self.began_ms.store(now.0, Relaxed);
    }

    /// Returns whether the coordinator has been asked for less than `within_ms`, if it has been
    /// asked at all.
    pub(crate) fn is_new(&self, now: Millis, within_ms: i64) -> bool {
        let began_ms = self.began_ms.load(Relaxed);
        began_ms == 0 || now.0 - began_ms < within_ms
    }

    /// What was published last, for threads that serve no client.
    pub fn newest(&self) -> Option<Arc<Published>> {
        lock(&self.newest).clone()
    }

    /// What was published last. `seen` is the calling thread's.
    #[inline]
    pub(crate) fn current(&self, seen: &Seen) -> Option<Current> {
        self.with_current(seen, Option::clone)
    }

    /// Whether every request for `slot` is answered here, as by a server without a cluster. If not,
    /// that is not said. `seen` is the calling thread's.
    #[inline]
    pub(crate) fn serves_plainly(&self, seen: &Seen, slot: u16) -> bool {
        self.with_current(seen, |current| {
            current.as_ref().is_some_and(|published| published.serves_plainly(slot))
        })
    }

    /// Returns the name of the other shard whose primary answers every request for `slot`.
    /// `None`: a closer look is needed. `seen` is the calling thread's.
    #[inline]
    pub(crate) fn plainly_elsewhere(&self, seen: &Seen, slot: u16) -> Option<Id> {
        self.with_current(seen, |current| current.as_ref()?.plainly_elsewhere(slot))
    }

    #[inline]
    fn with_current<R>(&self, seen: &Seen, look: impl FnOnce(&Option<Current>) -> R) -> R {
        let version = self.version.load(Acquire);
        let mut seen = seen.0.borrow_mut();
        if seen.0 != version {
            *seen = (version, self.newest().map(|newest| Current(Arc::new(newest))));
        }
        look(&seen.1)
    }
}
