//! One replica, as its primary knows it.

use super::Settings;
use crate::vote::Vote;
use crate::wire::DualChannels;
use journal::safe::Copy;
use journal::{HistoryId, JournalPos};
use keyspace::Millis;
use std::sync::Arc;
use structs::words::split_words;

/// The first server version whose snapshots can have hashes with fields that expire.
const TIMED_FIELDS_SINCE: u32 = 0x0009_0000;

/// The RDB versions that a peer reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RdbVersions {
    /// Of a snapshot without fields of hashes that expire.
    pub plain: u16,
    /// Of one that has such fields; `None`: the peer cannot read it.
    pub timed: Option<u16>,
}

impl RdbVersions {
    /// What all peers read that do not name their version.
    pub const OLDEST: RdbVersions = RdbVersions { plain: 10, timed: None };
    /// What peers read that do.
    pub const NEWEST: RdbVersions = RdbVersions { plain: 11, timed: None };
    /// What Redis 7.4 and 8 read.
    pub const REDIS: RdbVersions = RdbVersions { plain: 11, timed: Some(12) };
    /// What Valkey 9 reads.
    pub const VALKEY: RdbVersions = RdbVersions { plain: 11, timed: Some(80) };

    /// Returns the version of a snapshot that has such fields or not, or `None` if the peer cannot
    /// read it.
    pub fn of(self, has_timed_fields: bool) -> Option<u16> {
        if has_timed_fields { self.timed } else { Some(self.plain) }
    }
}

/// What a replica says of itself before it asks for the stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// `listening-port`.
    pub port: u16,
    /// `ip-address`: the address that it is to be reached at, if not the one it connected from.
    pub announced_ip: Option<String>,
    /// `capa eof`: it finds the end of a snapshot of unknown length.
    pub finds_end: bool,
    /// `capa psync2`: it understands an id behind `+CONTINUE`.
    pub knows_ids: bool,
    /// `version`, as 0x00MMmmpp.
    pub version: Option<u32>,
    /// `rdb-only 1`: it wants a snapshot and no stream.
    pub rdb_only: bool,
    /// `capa dual-channel` and `capa rdb-channel-repl`: it can take the snapshot over a second
    /// connection.
    pub dual: DualChannels,
    /// `rdb-channel 1`: this is such a second connection.
    pub rdb_channel: bool,
    /// `main-ch-client-id`: the client of the first one (Redis).
    pub main_client: Option<u64>,
    /// `set-rdb-client-id`: this is the first one, and that the client of the second (Valkey).
    pub rdb_client: Option<u64>,
    /// `rdb-filter-only`: what the snapshot is to hold.
    pub contents: Contents,
}

impl Facts {
    /// Returns whether the filter that the replica wants cannot be applied: part of the data goes
    /// straight into the socket, and the filter would have to find its end.
    pub fn is_filter_refused(&self) -> bool {
        self.contents != Contents::All && !self.finds_end
    }

    /// Returns the RDB versions that the replica reads. If it does not say, the settings do.
    pub fn rdb_versions(&self, settings: &Settings) -> RdbVersions {
        match self.version {
            None if self.rdb_only && !self.rdb_channel => settings.rdb_of_files,
            None => settings.rdb,
            Some(..TIMED_FIELDS_SINCE) => RdbVersions::NEWEST,
            Some(_) => RdbVersions::VALKEY,
        }
    }
}

/// What of the data a snapshot is to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Contents {
    /// Everything.
    #[default]
    All,
    /// The libraries of functions.
    Functions,
    /// Metadata.
    Nothing,
}

/// Why a filter of snapshots is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FilterError {
    /// A quote is not closed.
    NoWords,
    /// There is no such filter.
    Unsupported(Vec<u8>),
}

impl Contents {
    /// Reads the value of `rdb-filter-only`: the parts that are to be in a snapshot.
    ///
    /// # Errors
    /// It has no words, or one that names no part.
    pub fn parse(value: &[u8]) -> Result<Contents, FilterError> {
        let mut contents = Contents::Nothing;
        for word in split_words(value).ok_or(FilterError::NoWords)? {
            if !word.eq_ignore_ascii_case(b"functions") {
                return Err(FilterError::Unsupported(word));
            }
            contents = Contents::Functions;
        }
        Ok(contents)
    }
}

/// How far a replica is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It has said something of itself.
    Handshake,
    /// It waits for a snapshot to begin.
    Waiting,
    /// A snapshot is on its way to it.
    Receiving,
    /// All of a snapshot of unknown length has been sent. The replica may not have seen its end, so
    /// nothing may be sent before it acknowledges.
    Loading,
    /// Its snapshot comes over a second connection, and has not begun.
    Paired,
    /// The replica gets the stream while its snapshot comes over a second connection, until it
    /// acknowledges.
    Parallel,
    /// It gets the stream.
    Online,
}

impl Stage {
    /// Returns the name that INFO shows.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Handshake => "handshake",
            Stage::Waiting | Stage::Receiving | Stage::Paired => "wait_bgsave",
            Stage::Parallel => "send_bulk_and_stream",
            Stage::Loading => "send_bulk",
            Stage::Online => "online",
        }
    }
}

/// One replica.
#[derive(Debug)]
pub struct Link {
    /// Its client's number.
    pub client: u64,
    /// The address that it connected from.
    pub ip: String,
    /// What it said of itself.
    pub facts: Facts,
    /// How far it is connected.
    pub stage: Stage,
    /// The sender of snapshots can write to its socket.
    pub has_socket: bool,
    /// It asked with SYNC: it does not acknowledge.
    pub is_old: bool,
    /// When it was last heard of.
    pub heard: Millis,
    /// Since when it has waited for a snapshot.
    pub waits_since: Millis,
    /// The positions that the replica reports, from the moment at which it asked for the stream.
    pub copy: Option<Arc<Copy>>,
    /// What it said with its last acknowledgement, and the position of that, if it is a copy of a
    /// cluster.
    pub vote: Option<(Vote, JournalPos)>,
    /// The replica was nearly up to date once since it asked for the stream.
    pub has_caught_up: bool,
    /// A second connection: the moment of the snapshot that is sent over it.
    pub cut: Option<(HistoryId, JournalPos)>,
    /// A first connection: the whole snapshot has gone to the second.
    pub snapshot_is_sent: bool,
    /// It was told that there is no snapshot for it, and nothing more is to be sent.
    pub is_refused: bool,
}

impl Link {
    pub(super) fn new(client: u64, ip: &str, now: Millis) -> Link {
        Link {
            client,
            ip: ip.to_owned(),
            facts: Facts::default(),
            stage: Stage::Handshake,
            has_socket: false,
            is_old: false,
            heard: now,
            waits_since: now,
            copy: None,
            vote: None,
            has_caught_up: false,
            cut: None,
            snapshot_is_sent: false,
            is_refused: false,
        }
    }

    /// Returns the address to show.
    pub fn shown_ip(&self) -> &str {
        self.facts.announced_ip.as_deref().unwrap_or(&self.ip)
    }

    /// Returns the server at the other end, as far as it can be known. When it comes back it is
    /// another client.
    pub(super) fn server(&self) -> (String, u16) {
        (self.ip.clone(), self.facts.port)
    }

    /// Returns whether it has been sent all that it gets: a snapshot, if it wanted nothing else, or
    /// the reason why there is none.
    pub fn is_served(&self) -> bool {
        let has_snapshot = matches!(self.stage, Stage::Loading | Stage::Online);
        self.is_refused || self.facts.rdb_only && !self.facts.rdb_channel && has_snapshot
    }

    /// Returns the state that INFO shows. Valkey has other names where there are two connections.
    pub fn state(&self) -> &'static str {
        match self.stage {
            Stage::Receiving | Stage::Loading if self.facts.rdb_channel => "wait_bgsave",
            Stage::Parallel if self.has_joined() => "bg_transfer",
            stage => stage.name(),
        }
    }

    /// Returns what the connection is for, as INFO shows it.
    pub fn connection_type(&self) -> &'static str {
        match self.stage {
            _ if self.facts.rdb_channel => "rdb-channel",
            Stage::Paired | Stage::Parallel => "main-channel",
            _ => "replica",
        }
    }

    /// Returns whether it is a first connection that has asked for the stream behind the snapshot
    /// of its second one.
    pub(super) fn has_joined(&self) -> bool {
        self.stage == Stage::Parallel && self.facts.rdb_client.is_some()
    }

    /// Returns whether it is the second connection of a replica that is known by its first.
    pub(super) fn is_second(&self) -> bool {
        self.facts.rdb_channel && self.facts.main_client.is_some()
    }

    /// Returns whether it has asked for the stream.
    pub fn is_replica(&self) -> bool {
        self.stage != Stage::Handshake
    }

    /// Returns the position that the replica has acknowledged.
    pub fn acknowledged(&self) -> JournalPos {
        self.copy.as_ref().map_or(JournalPos::default(), |copy| copy.received())
    }

    /// Seconds since it was heard of.
    pub fn lag_s(&self, now: Millis) -> i64 {
        (now.0 - self.heard.0).max(0) / 1000
    }
}
