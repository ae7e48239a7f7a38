//! What threads share of a pool, and what each keeps of it.

use crate::placement::{Continuum, Distribution};
use crate::policy::{Audience, Policy, Together, WalkNumbers};
use crate::settings::{Address, Invalid, Login, Pool, PoolKind, Reads, Server};
use crate::stats::{PoolStats, ServerStats};
use crate::vocabulary::Vocabulary;
use crate::wire::Id;
use cluster::hashing::Hashing;
use net::TlsClient;
use resp::Protocol;
use route::plan::{KeyPlace, Placement};
use rustls::ClientConfig;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use structs::crc16::SLOTS;
use structs::sync::lock;

/// Servers that there can be places for; a cluster's nodes come and go.
pub const MAX_SERVERS: usize = 1024;

/// Where a server is, and by which of the pool's rules of TLS it is reached there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its address.
    pub address: Address,
    /// The rules, as [`Shared::set_server_rules`] numbers them. They belong to the port: links to
    /// other ports of the same servers may still be made by others.
    pub rules: usize,
}

impl From<Address> for Place {
    /// Of a pool with one set of rules.
    fn from(address: Address) -> Place {
        Place { address, rules: 0 }
    }
}

/// Which servers there are, and which are to be used.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// Places, by the servers' numbers. A number never comes to mean another role.
    pub servers: Vec<Place>,
    /// Of the servers that share keys: those that are taken out, and until when.
    pub ejected: Vec<Option<Instant>>,
    /// Of a cluster: the server of each slot.
    pub slots: Vec<Option<u16>>,
    /// By the numbers of primaries: their replicas that may be read.
    pub replicas: Vec<Vec<u16>>,
    /// Servers without a slot that have clients, so messages and scripts concern them, too.
    pub slotless: Vec<u16>,
    /// Of a node's hub: the other servers that have clients, replicas.
    pub followers: Vec<u16>,
    /// Of a node's hub: what SCAN's cursors call the servers with slots, in ascending order, and
    /// which these are. A shard has the same number at all nodes, whoever leads it.
    pub walk: Vec<(u16, u16)>,
    /// Of a node's hub: how keys get their slots.
    pub rule: SlotRule,
}

/// How keys get their slots.
#[derive(Clone, Debug, Default)]
pub struct SlotRule {
    /// By which rule.
    pub hashing: Arc<Hashing>,
    /// The rule that takes its place, and the server of each slot then. Keys that it parts are sent
    /// in different requests.
    pub next: Option<NextRule>,
}

/// A rule that takes the place of another, and the server of each slot then.
pub type NextRule = (Arc<Hashing>, Arc<[Option<u16>]>);

/// Finds the texts of scripts by their digests.
pub struct Texts(pub Box<FindText>);

/// Returns the text of the script that has this digest.
type FindText = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;

impl std::fmt::Debug for Texts {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Texts")
    }
}

/// Says where servers are that other servers name.
pub struct Places(pub Box<FindPlace>);

/// Returns where the server is reached that clients reach at this host and port. `None`: that is
/// not known at the moment.
type FindPlace = dyn Fn(&str, u16) -> Option<Place> + Send + Sync;

impl std::fmt::Debug for Places {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Places")
    }
}

/// What all threads share of a pool.
#[derive(Debug)]
pub struct Shared {
    /// Its configuration.
    pub config: Pool,
    topology: Mutex<Topology>,
    generation: AtomicU64,
    /// Failures of each server in a row.
    pub failures: Vec<AtomicUsize>,
    /// Clients, of all threads.
    pub clients: AtomicUsize,
    /// Connections that clients have for themselves, of all threads.
    pub exclusive: AtomicUsize,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Requests that are passed on as they come, of all threads.
    pub uploads: AtomicUsize,
    /// What requests without a reply take, of all threads, as of each one's last turn.
    pub queued: AtomicUsize,
    /// Commands that the servers know and we do not.
    pub vocabulary: Mutex<Vocabulary>,
    /// Set when a thread has seen that the topology is stale.
    pub is_stale: AtomicBool,
    /// Set when the configuration has it no more, or differently.
    pub is_retired: AtomicBool,
    /// Whether the log says that what is called the master is none.
    pub doubted: AtomicBool,
    /// How often the master has changed.
    pub switches: AtomicU64,
    /// Each thread's figures.
    pub stats: Mutex<Vec<Arc<PoolStats>>>,
    /// What we say to servers.
    login: Mutex<Option<Login>>,
    /// The rules of TLS towards servers by their numbers, as last read from the files. Or why there
    /// are none and no connection is made.
    server_rules: Mutex<Vec<ServerRules>>,
    /// Returns the text of a script that has this digest.
    pub script: OnceLock<Texts>,
    /// Of a node's hub: where the servers are reached that redirections name.
    pub places: OnceLock<Places>,
    /// Databases that a server has let a client select.
    selectable: Mutex<BTreeSet<u32>>,
}

/// Rules of TLS towards servers; `None`: without TLS.
type ServerRules = Result<Option<Arc<ClientConfig>>, Invalid>;

/// Rules that were never set.
fn not_read() -> ServerRules {
    Err(Invalid("whether it speaks TLS is not known yet".into()))
}

impl Shared {
    /// Of a pool that starts.
    pub fn new(config: Pool) -> Arc<Shared> {
        let place = |server: &Server| server.address.clone().into();
        let servers: Vec<Place> = match &config.kind {
            PoolKind::Servers(servers) => servers.iter().map(place).collect(),
            PoolKind::Single(server) => vec![place(server)],
            PoolKind::Sentinel { .. } | PoolKind::Cluster { .. } => Vec::new(),
        };
        let ejected = vec![None; servers.len()];
        let failures = (0..MAX_SERVERS).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Shared {
            topology: Mutex::new(Topology { servers, ejected, ..Topology::default() }),
            generation: AtomicU64::new(1),
            failures,
            clients: AtomicUsize::new(0),
            exclusive: AtomicUsize::new(0),
            pause: Pause::default(),
            uploads: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            vocabulary: Mutex::default(),
            is_stale: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            switches: AtomicU64::new(0),
            stats: Mutex::default(),
            login: Mutex::new(config.login.clone()),
            server_rules: Mutex::default(),
            script: OnceLock::new(),
            places: OnceLock::new(),
            selectable: Mutex::new(BTreeSet::from([config.db])),
            config,
        })
    }

    /// How many servers it can have.
    fn counted(&self) -> usize {
        match &self.config.kind {
            PoolKind::Servers(servers) => servers.len(),
            PoolKind::Single(_) => 1,
            PoolKind::Sentinel { .. } | PoolKind::Cluster { .. } => MAX_SERVERS,
        }
    }

    /// Goes on with the figures of the pool that this one replaces, and with what is known of its
    /// servers.
    pub fn inherit(&self, old: &Shared) {
        if self.config.kind == old.config.kind {
            if !matches!(self.config.kind, PoolKind::Servers(_) | PoolKind::Single(_)) {
                *lock(&self.topology) = old.topology();
            }
            *lock(&self.stats) = lock(&old.stats).clone();
            return;
        }
        let named = |server: &Server| {
            old.members().iter().position(|other| other.member.name == server.member.name)
        };
        let mut before: Vec<Option<usize>> = self.members().iter().map(named).collect();
        before.resize(self.counted(), None);
        let renumbered = |stats: &Arc<PoolStats>| Arc::new(stats.renumbered(&before));
        *lock(&self.stats) = lock(&old.stats).iter().map(renumbered).collect();
        self.switches.store(old.switches.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// What we say to servers.
    pub fn login(&self) -> Option<Login> {
        lock(&self.login).clone()
    }

    /// Connections that are made from now on say this.
    pub fn set_login(&self, login: Option<Login>) {
        *lock(&self.login) = login;
    }

    /// Takes over rules that have been read, for servers that are reached by those of this number.
    pub fn set_server_rules(&self, number: usize, rules: Option<Arc<ClientConfig>>) {
        self.put_rules(number, Ok(rules));
    }

    /// Makes no connection to servers that are reached by these rules until there are some.
    pub fn refuse_links(&self, number: usize, why: Invalid) {
        self.put_rules(number, Err(why));
    }

    fn put_rules(&self, number: usize, rules: ServerRules) {
        let mut all = lock(&self.server_rules);
        let count = all.len().max(number + 1);
        all.resize_with(count, not_read);
        all[number] = rules;
    }

    /// Returns whether a database is known to be there, so that no server has to be asked.
    pub fn is_selectable(&self, db: u32) -> bool {
        lock(&self.selectable).contains(&db)
    }

    /// A server has let a client select a database.
    pub fn note_selectable(&self, db: u32) {
        lock(&self.selectable).insert(db);
    }

    /// What a connection to this place needs to speak TLS, if it is to.
    ///
    /// # Errors
    /// It has no name that could be asked for, or there are no rules.
    pub fn tls_client(&self, place: &Place) -> Result<Option<TlsClient>, Invalid> {
        let Some(tls) = &self.config.server_tls else { return Ok(None) };
        let rules = lock(&self.server_rules).get(place.rules).cloned().unwrap_or_else(not_read)?;
        rules.map(|rules| tls.client(&rules, &place.address)).transpose()
    }

    /// The topology now.
    pub fn topology(&self) -> Topology {
        lock(&self.topology).clone()
    }

    /// Changes the topology; threads see it at their next turn.
    pub fn change<R>(&self, change: impl FnOnce(&mut Topology) -> R) -> R {
        let result = change(&mut lock(&self.topology));
        self.generation.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Tells changes of the topology apart.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Returns whether it has a server that does not fail.
    pub fn is_served(&self) -> bool {
        let topology = self.topology();
        (0..topology.servers.len()).any(|at| self.failures[at].load(Ordering::SeqCst) == 0)
    }

    /// The name of the server with this number and address.
    pub fn server_name(&self, at: usize, address: &Address) -> String {
        let member = self.members().get(at);
        member.map_or_else(|| address.to_string(), |named| named.member.name.clone())
    }

    fn members(&self) -> &[Server] {
        match &self.config.kind {
            PoolKind::Servers(servers) => servers,
            _ => &[],
        }
    }
}

/// A pause of all clients of a pool: until when, in milliseconds since the process began, and whether
/// it holds what only reads, too. 0: there is none.
#[derive(Debug, Default)]
pub struct Pause(AtomicU64);

impl Pause {
    /// The longest one.
    pub const LONGEST_MS: u64 = 1 << 61;

    /// Begins one, or makes one that there is longer or stricter.
    pub fn begin(&self, now_ms: u64, ms: u64, is_all: bool) {
        let longer = |marks: u64| {
            let (until, was_all) = (marks >> 1, marks & 1 == 1);
            let is_there = until > now_ms;
            let until = if is_there { until.max(now_ms + ms) } else { now_ms + ms };
            Some(until << 1 | u64::from(is_all || is_there && was_all))
        };
        // It always succeeds.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, longer);
    }

    /// Ends it.
    pub fn end(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Returns whether there may be one.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns whether it holds a request that may write, or only reads.
    pub fn holds(&self, now_ms: u64, writes: bool) -> bool {
        let marks = self.0.load(Ordering::SeqCst);
        let holds = marks >> 1 > now_ms && (writes || marks & 1 == 1);
        if marks != 0 && marks >> 1 <= now_ms {
            // It is over; requests need not look at the time any more.
            let _ = self.0.compare_exchange(marks, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
        holds
    }
}

/// What a client's requests need of the connection that carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The protocol that replies are in.
    pub protocol: Protocol,
    /// The database that is selected.
    pub db: u32,
    /// Of a cluster's node: the user whose permissions a script has there, by its number in the
    /// hub's list. 0: one that may do everything.
    pub user: u32,
    /// The proxies that the client's requests have come through.
    pub hops: u8,
}

/// Tells shared connections to one server apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkKey {
    /// What it is set to.
    pub session: Session,
    /// Which of several: a client always uses the same, so that its requests stay in order.
    pub lane: u16,
    /// Whether the server, a cluster's replica, is told that it is to be read.
    pub is_reading: bool,
    /// Whether a cluster's server is asked to give requests back whose slots are about to move. If
    /// not, they wait there, which only a client that has the connection for itself can afford.
    /// Other nodes give a node's requests back on all connections.
    pub gives_back: bool,
}

impl LinkKey {
    /// The first one.
    pub fn new(session: Session) -> LinkKey {
        LinkKey { session, lane: 0, is_reading: false, gives_back: false }
    }
}

/// One thread's view of a server.
#[derive(Debug)]
pub struct Target {
    /// Where it is.
    pub place: Place,
    /// The shared connections.
    pub links: Vec<(LinkKey, Id)>,
    /// Connections of clients' own that are free.
    pub idle: Vec<(LinkKey, Id)>,
    /// Not before this is it connected to again.
    pub retry_at: Option<Instant>,
}

/// How keys get to servers.
#[derive(Debug)]
enum Spread {
    /// All are at the first server.
    One,
    /// They are shared by hash.
    Hashed(Continuum),
    /// By slots, which servers hand over to each other.
    Slots,
}

/// One thread's view of a pool.
pub struct Local<P> {
    /// What the threads share.
    pub shared: Arc<Shared>,
    /// This thread's figures.
    pub stats: Arc<PoolStats>,
    /// What requests without a reply take, of this thread.
    pub queued: usize,
    /// What of it is in the sum of all threads.
    pub published: usize,
    /// The servers.
    pub targets: Vec<Target>,
    /// Whether it has been replaced, or is no more.
    pub is_retired: bool,
    /// The primary that is lost and has no successor yet.
    pub failing: Option<usize>,
    /// What has replaced it.
    pub successor: Option<usize>,
    /// How often slots have changed their servers.
    pub moves: u64,
    generation: u64,
    spread: Spread,
    slots: Vec<Option<u16>>,
    /// The servers that have keys of their own.
    primaries: Vec<usize>,
    /// For each server in front of a cluster its first slot, if it has any.
    first_slots: Vec<Option<u16>>,
    replicas: Vec<Vec<u16>>,
    slotless: Vec<u16>,
    followers: Vec<u16>,
    /// What SCAN's cursors call the servers of a cluster that have slots.
    walk: Vec<(u16, u16)>,
    rule: SlotRule,
    chance: Cell<u32>,
    policy: PhantomData<P>,
}

impl<P: Policy> Local<P> {
    /// A thread's view of a pool.
    pub fn new(shared: &Arc<Shared>) -> Local<P> {
        let stats = Arc::new(PoolStats::new(shared.counted()));
        lock(&shared.stats).push(stats.clone());
        let mut local = Local {
            shared: shared.clone(),
            stats,
            queued: 0,
            published: 0,
            targets: Vec::new(),
            is_retired: false,
            failing: None,
            successor: None,
            moves: 0,
            generation: 0,
            spread: Spread::One,
            slots: Vec::new(),
            primaries: Vec::new(),
            first_slots: Vec::new(),
            replicas: Vec::new(),
            slotless: Vec::new(),
            followers: Vec::new(),
            walk: Vec::new(),
            rule: SlotRule::default(),
            chance: Cell::new(0x9e37_79b9),
            policy: PhantomData,
        };
        local.refresh();
        local
    }

    /// Takes over what has changed. Returns the servers that are not the ones that they were: all
    /// connections to them are to be closed.
    pub fn refresh(&mut self) -> Vec<usize> {
        let generation = self.shared.generation();
        if generation == self.generation {
            return Vec::new();
        }
        self.generation = generation;
        let topology = self.shared.topology();
        let mut outdated = Vec::new();
        for (at, place) in topology.servers.iter().enumerate() {
            match self.targets.get_mut(at) {
                Some(target) if target.place == *place => {}
                Some(target) => {
                    outdated.push(at);
                    target.place = place.clone();
                    target.retry_at = None;
                }
                None => self.targets.push(Target {
                    place: place.clone(),
                    links: Vec::new(),
                    idle: Vec::new(),
                    retry_at: None,
                }),
            }
        }
        self.spread = match &self.shared.config.kind {
            PoolKind::Servers(servers) => self.hashed(servers, &topology),
            PoolKind::Cluster { .. } => Spread::Slots,
            PoolKind::Single(_) | PoolKind::Sentinel { .. } => Spread::One,
        };
        let is_same_rule = Arc::ptr_eq(&self.rule.hashing, &topology.rule.hashing);
        if self.slots != topology.slots || !is_same_rule {
            self.slots = topology.slots;
            self.moves += 1;
        }
        self.replicas = topology.replicas;
        self.slotless = topology.slotless;
        self.followers = topology.followers;
        self.walk = topology.walk;
        self.first_slots = vec![None; self.targets.len()];
        for (slot, at) in (0..).zip(&self.slots) {
            if let Some(at) = *at
                && let Some(first) = self.first_slots.get_mut(usize::from(at))
            {
                first.get_or_insert(slot);
            }
        }
        if self.has_slots() && P::WALK == WalkNumbers::FirstSlots {
            // A shard keeps its first slot when another server comes to lead it.
            let firsts = self.first_slots.iter().zip(0..);
            self.walk = firsts.filter_map(|(slot, at)| Some(((*slot)?, at))).collect();
            self.walk.sort_unstable();
        }
        self.rule = topology.rule;
        self.primaries = match &self.shared.config.kind {
            PoolKind::Cluster { .. } => {
                let mut owners: Vec<usize> =
                    self.slots.iter().flatten().map(|&at| usize::from(at)).collect();
                owners.sort_unstable();
                owners.dedup();
                owners
            }
            PoolKind::Servers(_) => (0..self.targets.len()).collect(),
            PoolKind::Single(_) | PoolKind::Sentinel { .. } => {
                (0..self.targets.len().min(1)).collect()
            }
        };
        outdated
    }

    /// Tells which topology it has.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What requests without a reply take, of all threads.
    #[inline]
    pub fn queued_of_all(&self) -> usize {
        let others = self.shared.queued.load(Ordering::Relaxed).wrapping_sub(self.published);
        others.wrapping_add(self.queued)
    }

    /// How keys are shared by hash among the servers that are not taken out.
    fn hashed(&self, servers: &[Server], topology: &Topology) -> Spread {
        let members: Vec<_> = servers.iter().map(|server| server.member.clone()).collect();
        let is_live = |at: usize| topology.ejected.get(at).is_none_or(Option::is_none);
        let distribution = self.shared.config.distribution;
        Spread::Hashed(Continuum::new(distribution, &members, is_live))
    }

    /// Returns whether keys have slots, which servers hand over to each other: a request may be
    /// redirected.
    #[inline]
    pub fn has_slots(&self) -> bool {
        matches!(self.spread, Spread::Slots)
    }

    /// What a key has in common with those that stay with it: a slot, or the server.
    pub fn group_of(&self, key: &[u8]) -> Option<usize> {
        match self.has_slots() {
            true => self.rule.hashing.slot(key).map(usize::from),
            false => self.place(key).map(|place| place.group),
        }
    }

    /// The server of a group of keys.
    pub fn server_of_group(&self, group: Option<usize>) -> Option<usize> {
        match group {
            Some(slot) if !self.slots.is_empty() => self.slots.get(slot)?.map(usize::from),
            group => group.filter(|at| *at < self.targets.len()),
        }
    }

    /// The figures of a server.
    pub fn server_stats(&self, server: usize) -> &ServerStats {
        self.stats.of(server)
    }

    /// The name of a server, for messages.
    pub fn name(&self, server: usize) -> String {
        match self.shared.members().get(server) {
            Some(named) => named.member.name.clone(),
            None => {
                self.targets.get(server).map_or_else(String::new, |t| t.place.address.to_string())
            }
        }
    }

    /// The servers that answer what concerns all.
    pub fn every(&self) -> Vec<usize> {
        self.primaries.clone()
    }

    /// The first slot of a cluster's server, if it has any.
    pub fn first_slot(&self, server: usize) -> Option<u16> {
        self.first_slots.get(server).copied().flatten()
    }

    /// All servers of a cluster, replicas too, as its node knows them.
    pub fn every_copy(&self) -> Vec<usize> {
        let others = self.slotless.iter().chain(&self.followers).map(|&at| usize::from(at));
        self.primaries.iter().copied().chain(others).collect()
    }

    /// The servers that have clients; none if all of them answer what concerns all.
    pub fn every_with_clients(&self) -> Vec<usize> {
        if self.slotless.is_empty() {
            return Vec::new();
        }
        let slotless = self.slotless.iter().map(|&at| usize::from(at));
        self.primaries.iter().copied().chain(slotless).collect()
    }

    /// The server that answers a client's read in place of this one. A client keeps to one of
    /// several, so that it does not see an older state after a newer one.
    pub fn reader(&self, server: usize, client: u64, now: Instant) -> usize {
        let reads = self.shared.config.reads;
        let Some(replicas) = self.replicas.get(server).filter(|_| reads != Reads::Primary) else {
            return server;
        };
        let is_reachable = |at: &usize| {
            self.targets.get(*at).is_some_and(|t| t.retry_at.is_none_or(|retry| retry <= now))
        };
        let replicas = replicas.iter().map(|at| usize::from(*at)).filter(is_reachable);
        let primary = (reads == Reads::All).then_some(server);
        let usable: Vec<usize> = primary.into_iter().chain(replicas).collect();
        if usable.is_empty() { server } else { usable[(client % usable.len() as u64) as usize] }
    }

    /// The shared connection of a client to a server.
    #[inline]
    pub fn link_key(&self, session: Session, turn: u64, server: usize) -> LinkKey {
        let lane = (turn % u64::from(self.shared.config.server_connections)) as u16;
        let is_reading = self.has_slots() && self.is_replica(server);
        let gives_back = self.has_slots() && P::SHARED_LINKS_GIVE_BACK;
        LinkKey { session, lane, is_reading, gives_back }
    }

    /// Returns whether a server has keys of its own.
    pub fn is_primary(&self, server: usize) -> bool {
        self.primaries.contains(&server)
    }

    /// Returns whether a server is read in place of another.
    pub fn is_replica(&self, server: usize) -> bool {
        self.shared.config.reads != Reads::Primary && !self.primaries.contains(&server)
    }

    /// The server of a cluster's slot.
    #[inline]
    pub fn server_of_slot(&self, slot: u16) -> Option<usize> {
        self.slots.get(usize::from(slot)).copied().flatten().map(usize::from)
    }

    /// Returns whether the server of `key` has all keys that begin with `prefix`, or finds out by
    /// itself, as those of a cluster do.
    pub fn shares_server(&self, key: &[u8], prefix: &[u8]) -> bool {
        let config = &self.shared.config;
        if self.has_slots() || self.servers() == 1 {
            return true;
        }
        config.distribution != Distribution::Random
            && config.keys.is_decided_by(prefix)
            && self.place(key) == self.place(prefix)
    }

    fn chance(&self) -> u32 {
        // Xorshift: which of several equal servers, no more.
        let mut x = self.chance.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.chance.set(x);
        x
    }
}

impl<P: Policy> Placement for Local<P> {
    fn servers(&self) -> usize {
        self.primaries.len()
    }

    fn radix(&self) -> usize {
        match (&self.spread, P::WALK) {
            (Spread::Slots, WalkNumbers::Given) => MAX_SERVERS,
            (Spread::Slots, WalkNumbers::FirstSlots) => usize::from(SLOTS),
            (Spread::Hashed(_) | Spread::One, _) => self.targets.len(),
        }
    }

    fn walk_from(&self, number: usize) -> Option<usize> {
        if self.has_slots() {
            return self.walk.iter().map(|&(at, _)| usize::from(at)).find(|at| *at >= number);
        }
        self.primaries.iter().copied().find(|at| *at >= number)
    }

    fn listens_anywhere(&self) -> bool {
        P::AUDIENCE == Audience::All
    }

    fn walked(&self, number: usize) -> Option<usize> {
        if self.has_slots() {
            let found = self.walk.iter().find(|&&(at, _)| usize::from(at) == number);
            return found.map(|&(_, server)| usize::from(server));
        }
        Some(number)
    }

    #[inline]
    fn place(&self, key: &[u8]) -> Option<KeyPlace> {
        if let Spread::Hashed(continuum) = &self.spread {
            let hash =
                if self.targets.len() == 1 { 0 } else { self.shared.config.keys.hash_of(key) };
            let server = continuum.server(hash, self.chance())?;
            return Some(KeyPlace { server, group: server });
        }
        if !self.slots.is_empty() {
            let slot = usize::from(self.rule.hashing.slot(key)?);
            let server = usize::from(self.slots[slot]?);
            let group = match &self.rule.next {
                _ if P::TOGETHER == Together::OneSlot => slot,
                None => server,
                Some((next, servers)) => {
                    let future = next.slot(key).and_then(|slot| servers[usize::from(slot)]);
                    server + MAX_SERVERS * future.map_or(MAX_SERVERS, usize::from)
                }
            };
            return Some(KeyPlace { server, group });
        }
        (!self.targets.is_empty()).then_some(KeyPlace { server: 0, group: 0 })
    }

    fn any(&self) -> Option<usize> {
        match &self.spread {
            Spread::Hashed(continuum) => continuum.server(0, 0),
            Spread::Slots if !self.slots.is_empty() => self.primaries.first().copied(),
            Spread::Slots | Spread::One => (!self.targets.is_empty()).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::samples::Front;

    #[test]
    fn each_server_of_a_large_pool_has_figures_of_its_own() {
        let pool = Pool::new("p", PoolKind::Cluster { seeds: Vec::new() });
        let local = Local::<Front>::new(&Shared::new(pool));
        local.server_stats(0).requests.add(1);
        local.server_stats(64).requests.add(10);
        local.server_stats(MAX_SERVERS - 1).requests.add(100);
        let requests = |server: usize| local.server_stats(server).requests.get();
        assert_eq!((requests(0), requests(64), requests(MAX_SERVERS - 1)), (1, 10, 100));
        assert_eq!(requests(63), 0);
    }
}
