//! The primary's side of replication, as a state machine: what replicas say and the time come in,
//! what is to be done comes out. It does no I/O and reads no clock.
//!
//! ```text
//!             REPLCONF …            PSYNC, bytes are kept
//!   ─────────▶ Handshake ──────────────────────────────────────────▶ Online
//!                  │ PSYNC or SYNC, otherwise                          ▲  ▲
//!                  ▼                                    $<length>      │  │ first
//!               Waiting ──── due ────▶ Receiving ──────────────────────┘  │ acknowledgement
//!                  ▲                       │  $EOF: all is sent           │
//!                  │ the snapshot failed   └─────────────────▶ Loading ───┘
//! ```
//!
//! A replica with two connections gets the snapshot over the second, which goes from Waiting to
//! Loading like any other and never further, and meanwhile the stream over the first:
//!
//! ```text
//!   first, Valkey   Handshake ──────────────── PSYNC from the cut ──▶ Parallel ── acknowledges ──▶ Online
//!   first, Redis    Handshake ── PSYNC ──▶ Paired ──── the cut ─────▶ Parallel ── acknowledges ──▶ Online
//! ```
//!
//! All replicas read one journal. The machine decides which of them continue, which share a
//! snapshot with others, when the stream needs a PING, and which link is dead.

mod behind;
mod dual;
mod link;
pub mod said;
#[cfg(test)]
mod tests;

pub use behind::{Behind, SoftLimit};
pub use link::{Contents, Facts, FilterError, Link, RdbVersions, Stage};

use crate::wire::{DualChannel, DualChannels, Wanted};
use journal::{History, JournalPos};
use keyspace::Millis;
use std::collections::BTreeMap;
use structs::numbers::parse_i64;

/// The options that the machine follows.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `repl-diskless-sync`.
    pub diskless: bool,
    /// `repl-diskless-sync-delay`.
    pub delay_s: u64,
    /// `repl-diskless-sync-max-replicas`.
    pub max_replicas: usize,
    /// `repl-ping-replica-period`.
    pub ping_period_s: u64,
    /// `repl-timeout`.
    pub timeout_s: u64,
    /// `replica-rdb-version`: for replicas that do not say what they read.
    pub rdb: RdbVersions,
    /// For peers that only want a snapshot and do not say so either: they keep it as a file.
    pub rdb_of_files: RdbVersions,
}

/// What a replica's acknowledgement means while it has a snapshot to load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledged {
    /// It was known to get the stream, or it is none.
    Noted,
    /// The stream is to begin now.
    Begins,
    /// The replica has loaded the snapshot and gets the stream: it counts as a copy from now on.
    Counts,
}

/// What the journal has, to decide whether a replica may continue.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// The ids.
    pub history: History,
    /// The first position to read from, if bytes are kept.
    pub first: Option<JournalPos>,
    /// The end.
    pub position: JournalPos,
}

/// The decision about a PSYNC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// The stream goes on from here.
    Continue(JournalPos),
    /// A snapshot is needed. `was_partial`: the replica hoped for less.
    Full {
        /// It asked to continue.
        was_partial: bool,
    },
    /// A snapshot is needed, and the replica is to fetch it over a second connection.
    OwnChannel {
        /// By this protocol.
        protocol: DualChannel,
        /// It asked to continue.
        was_partial: bool,
    },
    /// The stream goes on from the snapshot that this client gets, the second connection of the
    /// replica.
    Join(u64),
}

/// How a snapshot is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// Straight into the sockets, with a mark at the end.
    Direct,
    /// By a file, with its length first.
    File,
}

/// Replicas that get one snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Their clients.
    pub clients: Vec<u64>,
    /// How they get it.
    pub transfer: Transfer,
    /// The RDB versions that all of them read.
    pub rdb: RdbVersions,
    /// What all of them want in it.
    pub contents: Contents,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A PING goes into the stream.
    Ping,
    /// A bare line feed goes to a replica that waits for its snapshot.
    Keepalive(u64),
    /// The link is dead.
    Disconnect(u64),
    /// A snapshot is due.
    Send(Group),
    /// The snapshot that is on its way has no replica left: it is to end.
    CallOff,
}

/// What an option of REPLCONF asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Configured {
    /// It was noted.
    Noted,
    /// The option is not known.
    Unknown,
    /// The value is not one.
    Invalid,
    /// The value is no client that has to do with it.
    NoClient,
    /// The value is no filter of snapshots.
    NoFilter(FilterError),
}

/// The replicas of this server.
#[derive(Debug, Default)]
pub struct Primary {
    links: BTreeMap<u64, Link>,
    /// A snapshot is on its way: one group at a time.
    is_sending: bool,
    last_ping: Option<Millis>,
    last_keepalive: Option<Millis>,
    /// How many times in a row a server, by address and port, was cut off before it had caught up.
    failures: BTreeMap<(String, u16), u32>,
}

/// How often the allowance of a replica doubles at most.
const MAX_DOUBLINGS: u32 = 16;
/// Servers whose failures are remembered.
const MAX_SERVERS: usize = 1000;

impl Primary {
    /// Returns the replicas that have asked for the stream, in the order of their clients. First
    /// connections that have joined their second ones come last, since they have asked later.
    pub fn replicas(&self) -> impl Iterator<Item = &Link> {
        let links = || self.links.values().filter(|link| link.is_replica() && !link.is_second());
        links().filter(|link| !link.has_joined()).chain(links().filter(|link| link.has_joined()))
    }

    /// Returns the link of a client.
    pub fn link(&self, client: u64) -> Option<&Link> {
        self.links.get(&client)
    }

    /// Returns the link of a client, for the I/O side to note what it knows.
    pub fn link_mut(&mut self, client: u64) -> Option<&mut Link> {
        self.links.get_mut(&client)
    }

    /// Returns how many of the replicas that count get the stream and have sent something within so
    /// many seconds (`min-replicas-max-lag`).
    pub fn good_replicas(
        &self,
        now: Millis,
        max_lag_s: i64,
        counts: impl Fn(&Link) -> bool,
    ) -> usize {
        let is_good = |link: &&Link| {
            link.stage == Stage::Online && link.lag_s(now) <= max_lag_s && counts(link)
        };
        self.links.values().filter(is_good).count()
    }

    /// Takes one option of a client's REPLCONF.
    pub fn configure(
        &mut self,
        client: u64,
        ip: &str,
        option: &[u8],
        value: &[u8],
        now: Millis,
    ) -> Configured {
        if !self.is_pair(option, value) {
            return Configured::NoClient;
        }
        let link = self.links.entry(client).or_insert_with(|| Link::new(client, ip, now));
        let facts = &mut link.facts;
        match option.to_ascii_lowercase().as_slice() {
            b"listening-port" => match parse_i64(value).and_then(|port| port.try_into().ok()) {
                Some(port) => facts.port = port,
                None => return Configured::Invalid,
            },
            b"ip-address" => {
                facts.announced_ip = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"capa" => match value.to_ascii_lowercase().as_slice() {
                b"eof" => facts.finds_end = true,
                b"psync2" => facts.knows_ids = true,
                b"dual-channel" => facts.dual.valkey = true,
                b"rdb-channel-repl" => facts.dual.redis = true,
                // Unknown capabilities are no error: a replica names all that it has.
                _ => {}
            },
            b"version" => match parse_version(value) {
                Some(version) => facts.version = Some(version),
                None => return Configured::Invalid,
            },
            b"rdb-only" => match parse_i64(value) {
                Some(number) => facts.rdb_only = number == 1,
                None => return Configured::Invalid,
            },
            b"rdb-channel" => match parse_i64(value) {
                Some(number) => facts.rdb_channel = number == 1,
                None => return Configured::Invalid,
            },
            b"main-ch-client-id" => facts.main_client = parse_client(value),
            b"set-rdb-client-id" => facts.rdb_client = parse_client(value),
            b"rdb-filter-only" => match Contents::parse(value) {
                Ok(contents) => facts.contents = contents,
                Err(error) => return Configured::NoFilter(error),
            },
            _ => return Configured::Unknown,
        }
        Configured::Noted
    }

    /// Handles a client that asks for the stream. It may be told to fetch a snapshot by one of
    /// these protocols.
    pub fn sync(
        &mut self,
        client: u64,
        ip: &str,
        wanted: Wanted,
        kept: &Kept,
        offered: DualChannels,
        now: Millis,
    ) -> Sync {
        if let Some(join) = self.join(client, wanted, now) {
            return join;
        }
        let link = self.links.entry(client).or_insert_with(|| Link::new(client, ip, now));
        (link.heard, link.waits_since) = (now, now);
        if let Wanted::From(id, position) = wanted
            && kept.first.is_some_and(|first| position >= first)
            && position <= kept.position
            && kept.history.contains(&id, position)
        {
            link.stage = Stage::Online;
            return Sync::Continue(position);
        }
        let was_partial = wanted != Wanted::Everything;
        if let Some(protocol) = link.own_channel(offered) {
            // With Valkey's protocol it asks again.
            if protocol == DualChannel::Redis {
                link.stage = Stage::Paired;
            }
            return Sync::OwnChannel { protocol, was_partial };
        }
        link.stage = Stage::Waiting;
        Sync::Full { was_partial }
    }

    /// Takes a replica's acknowledgement.
    pub fn acknowledge(
        &mut self,
        client: u64,
        received: JournalPos,
        synced: Option<JournalPos>,
        now: Millis,
    ) -> Acknowledged {
        let Some(link) = self.links.get_mut(&client) else { return Acknowledged::Noted };
        link.heard = now;
        if let Some(copy) = &link.copy {
            copy.set_received(received);
            if let Some(synced) = synced {
                copy.set_synced(synced);
            }
        }
        let acknowledged = match link.stage {
            Stage::Loading if !link.facts.rdb_only => Acknowledged::Begins,
            Stage::Parallel => Acknowledged::Counts,
            _ => return Acknowledged::Noted,
        };
        link.stage = Stage::Online;
        acknowledged
    }

    /// Returns the replicas that load a snapshot.
    pub fn loading(&self) -> impl Iterator<Item = u64> {
        let loads = |link: &&Link| link.stage == Stage::Loading;
        self.links.values().filter(loads).map(|link| link.client)
    }

    /// Notes that a replica has sent something at this time, even if it says nothing.
    pub fn hear(&mut self, client: u64, at: Millis) {
        if let Some(link) = self.links.get_mut(&client) {
            link.heard = link.heard.max(at);
        }
    }

    /// Notes that a replica was cut off because it is too far behind. If it had not caught up since
    /// its snapshot, the next snapshot would end in the same way, so it may be twice as far behind
    /// from now on.
    pub fn cut_off(&mut self, client: u64) {
        let Some(link) = self.links.get(&client).filter(|link| !link.has_caught_up) else { return };
        let server = link.server();
        if self.failures.len() < MAX_SERVERS || self.failures.contains_key(&server) {
            let failures = self.failures.entry(server).or_default();
            *failures = (*failures + 1).min(MAX_DOUBLINGS);
        }
    }

    /// Notes that a replica is nearly up to date and forgets its failures. Returns `false` while
    /// its snapshot comes over another connection: until that is loaded the replica may stop
    /// reading and fall behind.
    pub fn caught_up(&mut self, client: u64) -> bool {
        let Some(link) = self.links.get_mut(&client) else { return false };
        if link.stage == Stage::Parallel {
            return false;
        }
        if !std::mem::replace(&mut link.has_caught_up, true) {
            self.failures.remove(&link.server());
        }
        true
    }

    /// Returns how far behind a replica may be, if others may be `usual` behind. What it gets for
    /// its failures ends at `most`: a link that never carries what is written would take all
    /// memory.
    pub fn allowance(&self, client: u64, usual: u64, most: u64) -> u64 {
        let failures = self.links.get(&client).and_then(|link| self.failures.get(&link.server()));
        let doubled = usual.saturating_mul(1 << failures.copied().unwrap_or(0));
        doubled.min(most.max(usual))
    }

    /// Removes a client that is gone. Returns its link, if it had one.
    pub fn disconnected(&mut self, client: u64) -> Option<Link> {
        self.links.remove(&client)
    }

    /// Returns whether a snapshot is on its way to replicas.
    pub fn is_sending(&self) -> bool {
        self.is_sending
    }

    /// Notes that the snapshot for a group was sent, or that it failed. The caller disconnects the
    /// replicas that failed, because their streams are broken in the middle.
    pub fn sent(&mut self, group: &Group, now: Millis) {
        self.is_sending = false;
        for client in &group.clients {
            if let Some(link) = self.links.get_mut(client)
                && link.stage == Stage::Receiving
                && !link.is_refused
            {
                link.heard = now;
                let is_marked = group.transfer == Transfer::Direct && !link.is_old;
                let ends = link.facts.rdb_channel;
                link.stage = if is_marked || ends { Stage::Loading } else { Stage::Online };
            }
            if let Some(main) = self.main_of(*client).and_then(|main| self.links.get_mut(&main)) {
                main.snapshot_is_sent = true;
            }
        }
    }

    /// Notes that a group was told why there is no snapshot for it.
    pub fn refused(&mut self, group: &Group) {
        for client in &group.clients {
            if let Some(link) = self.links.get_mut(client) {
                link.is_refused = true;
            }
        }
    }

    /// Lets a group wait again, because its snapshot could not begin.
    pub fn postponed(&mut self, group: &Group) {
        self.is_sending = false;
        for client in &group.clients {
            if let Some(link) = self.links.get_mut(client) {
                link.stage = Stage::Waiting;
            }
        }
    }

    /// Returns what is due at this time.
    pub fn tick(&mut self, settings: &Settings, now: Millis) -> Vec<Action> {
        let mut actions = Vec::new();
        let period_ms = settings.ping_period_s.saturating_mul(1000) as i64;
        let timeout_ms = settings.timeout_s.saturating_mul(1000) as i64;
        let is_due =
            |last: Option<Millis>, period: i64| last.is_none_or(|at| now.0 - at.0 >= period);
        // The periods of PING do not depend on replicas coming, so a new replica gets no PING at
        // once. Until the period ends, its position is that of the writes.
        let pinged = *self.last_ping.get_or_insert(now);
        if now.0 - pinged.0 >= period_ms {
            self.last_ping = Some(now);
            if self.replicas().next().is_some() {
                actions.push(Action::Ping);
            }
        }
        for link in self.links.values() {
            // A replica sends nothing while it receives a snapshot. The sender of the snapshot
            // watches it then. While it loads it sends empty lines ([`Primary::hear`]).
            let speaks = matches!(link.stage, Stage::Loading | Stage::Online);
            let is_silent = speaks && !link.is_old;
            if is_silent && now.0 - link.heard.0 > timeout_ms {
                actions.push(Action::Disconnect(link.client));
            }
        }
        actions.extend(self.broken_pairs(timeout_ms, now).map(Action::Disconnect));
        if is_due(self.last_keepalive, 1000) {
            self.last_keepalive = Some(now);
            let waiting = self.links.values().filter(|link| link.stage == Stage::Waiting);
            actions.extend(waiting.map(|link| Action::Keepalive(link.client)));
        }
        let is_received = self.links.values().any(|link| link.stage == Stage::Receiving);
        if self.is_sending && !is_received {
            actions.push(Action::CallOff);
        }
        if let Some(group) = self.due_group(settings, now) {
            self.is_sending = true;
            for client in &group.clients {
                if let Some(link) = self.links.get_mut(client) {
                    link.stage = Stage::Receiving;
                }
            }
            actions.push(Action::Send(group));
        }
        actions
    }

    /// Returns the replicas whose snapshot is to begin. The one that has waited longest decides how
    /// it is sent; those that can take it in the same form join.
    fn due_group(&self, settings: &Settings, now: Millis) -> Option<Group> {
        if self.is_sending {
            return None;
        }
        let form = |link: &Link| {
            let contents = link.facts.contents;
            let wants_direct =
                settings.diskless || contents != Contents::All || link.facts.rdb_channel;
            let is_direct = wants_direct && link.facts.finds_end;
            let transfer = if is_direct { Transfer::Direct } else { Transfer::File };
            (transfer, self.rdb_versions(link, settings), contents)
        };
        let is_waiting = |link: &&Link| link.stage == Stage::Waiting && link.has_socket;
        let waiting: Vec<&Link> = self.links.values().filter(is_waiting).collect();
        let first = waiting.iter().min_by_key(|link| link.waits_since.0)?;
        let (transfer, rdb, contents) = form(first);
        let joins = |link: &&&Link| form(link) == (transfer, rdb, contents);
        let clients: Vec<u64> = waiting.iter().filter(joins).map(|link| link.client).collect();
        let waited_ms = now.0 - first.waits_since.0;
        let is_complete = settings.max_replicas > 0 && clients.len() >= settings.max_replicas;
        let has_waited = waited_ms >= settings.delay_s.saturating_mul(1000) as i64;
        let is_due = transfer == Transfer::File || is_complete || has_waited;
        is_due.then_some(Group { clients, transfer, rdb, contents })
    }
}

/// Reads the number of a client.
fn parse_client(text: &[u8]) -> Option<u64> {
    u64::try_from(parse_i64(text)?).ok()
}

/// Reads a version: `9.1.0` is 0x00090100.
fn parse_version(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let parts: Vec<u32> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match parts.as_slice() {
        [major, minor, patch] if parts.iter().all(|&part| part < 256) => {
            Some(major << 16 | minor << 8 | patch)
        }
        _ => None,
    }
}
