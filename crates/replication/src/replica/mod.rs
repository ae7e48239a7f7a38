//! The replica's side of replication, as a state machine: what the primary sends and the time come
//! in, what is to be done comes out. It does no I/O and reads no clock.
//!
//! ```text
//!   Waiting ── due ──▶ Connecting ──▶ Greeting ──▶ Presenting ──▶ Asking
//!      ▲                               PING         AUTH,          PSYNC │
//!      │                                            REPLCONF …           │
//!      │                        +FULLRESYNC          ┌───────────────────┤ +CONTINUE
//!      │                                             ▼                   ▼
//!      └── lost ─── from anywhere           Heading ─▶ Receiving ──▶ Following
//!                                             $…        the snapshot
//! ```
//!
//! A primary may answer that the snapshot is to come over a connection of its own, the RDB channel
//! ([`crate::wire`] has both protocols). Then the stream comes over the first one, the main
//! channel, from where the snapshot ends:
//!
//! ```text
//!   Asking ── +RDBCHANNELSYNC ──▶ Branching ────────── +FULLRESYNC ──────────▶ Heading ─▶ Receiving …
//!          or +DUALCHANNELSYNC     RDB: REPLCONF …,                               ▲
//!                                  PSYNC or SYNC ── $ENDOFF ──▶ Joining ── +CONTINUE
//!                                                              main: REPLCONF, PSYNC
//! ```
//!
//! The machine says which of the two it listens to ([`Replica::listens_to`]); what comes over the
//! other waits.
//!
//! What the replica has (a history and a position in it) is the journal's to know; it is asked for
//! when PSYNC is sent. When a stream has ended, the machine tries again at once. After a failure it
//! waits before that, longer each time where a snapshot was what failed.

mod dual;
pub mod framing;
#[cfg(test)]
mod tests;

use crate::vote::Vote;
use crate::wire::{Answer, DualChannel, DualChannels, SnapshotEnd};
use journal::{HistoryId, JournalPos};
use keyspace::Millis;
use resp::bulk::push_request;

/// The wait after a stream that ended at once: a primary that takes over ends the streams of its
/// replicas, and this one may have come just before.
const HANDOVER_WAIT_MS: i64 = 10;
/// The first wait after a link was lost.
const FIRST_WAIT_MS: i64 = 100;
/// The longest wait between attempts to connect, so that a primary that comes back is found soon.
const LONGEST_WAIT_MS: i64 = 1000;
/// The first and the longest wait after a snapshot that was of no use: each costs the primary much.
const SNAPSHOT_WAIT_MS: i64 = 1000;
const LONGEST_SNAPSHOT_WAIT_MS: i64 = 60_000;
/// Between two acknowledgements.
const ACK_PERIOD_MS: i64 = 1000;

/// What a replica says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Where it can be reached (`replica-announce-port`, or what it listens on).
    pub port: u16,
    /// `replica-announce-ip`.
    pub announced_ip: Vec<u8>,
    /// `primaryuser` and `primaryauth`; no password, no AUTH.
    pub user: Vec<u8>,
    /// See there.
    pub password: Vec<u8>,
    /// Its version, `MAJOR.MINOR.PATCH`, by which Valkey chooses the form of the snapshot.
    pub version: String,
}

/// What the state machine needs to know of the server at the moment of an event.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// What it says of itself.
    pub identity: Identity,
    /// The history and position of this server's data; `None` if the stream cannot go on from them.
    pub has: Option<(HistoryId, JournalPos)>,
    /// `repl-timeout`, in milliseconds.
    pub timeout_ms: i64,
    /// This server hands over: the server that it is to follow is its replica so far.
    pub hands_over: bool,
    /// How a snapshot may come over a connection of its own.
    pub dual: DualChannels,
}

/// How far the link to the primary is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stage {
    /// It is not tried before its time has come.
    #[default]
    Waiting,
    /// The connection is being made.
    Connecting,
    /// PING is sent.
    Greeting,
    /// AUTH and REPLCONF are sent, and so many replies are still to come.
    Presenting,
    /// PSYNC is sent, or SYNC.
    Asking,
    /// The second connection is made, and a snapshot asked for over it.
    Branching,
    /// The snapshot's position is known, and the stream behind it is asked for over the first
    /// connection.
    Joining,
    /// A snapshot was promised.
    Heading,
    /// The snapshot comes and is loaded.
    Receiving,
    /// The stream comes.
    Following,
}

impl Stage {
    /// Returns the name that ROLE shows.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Waiting => "connect",
            Stage::Connecting => "connecting",
            Stage::Greeting | Stage::Presenting | Stage::Asking | Stage::Branching => "handshake",
            Stage::Joining | Stage::Heading | Stage::Receiving => "sync",
            Stage::Following => "connected",
        }
    }
}

/// A snapshot that is to be received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    /// How its end is found.
    pub end: SnapshotEnd,
    /// The history and the position at which the stream goes on behind it; `None` with a primary
    /// that knows only SYNC and counts no positions.
    pub from: Option<(HistoryId, JournalPos)>,
    /// It comes over the RDB channel, and the stream over the main channel meanwhile.
    pub is_parallel: bool,
}

/// The connections of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// The first one.
    Main,
    /// The second one, for a snapshot.
    Rdb,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Connect, and say how that went.
    Connect,
    /// Connect once more, for a snapshot, and say how that went.
    ConnectRdbChannel,
    /// Send these bytes.
    Send(Channel, Vec<u8>),
    /// Receive and load the snapshot that comes now.
    Receive(Promise),
    /// The stream follows from the replica's position. Its history may have another id from now on.
    Follow(Option<HistoryId>),
    /// Say up to where the stream was applied.
    Acknowledge,
    /// The server that was to take over has done so, or refuses.
    HandedOver {
        /// See there.
        is_accepted: bool,
    },
    /// Close the connections that there are.
    Close,
    /// A line for the log.
    Log(String),
    /// A line for the log, of what went wrong.
    Warn(String),
}

/// A reply that is waited for, by what was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Auth,
    Replconf(&'static str),
}

/// The machine; see the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    stage: Stage,
    /// When to connect next.
    due: Millis,
    heard: Millis,
    /// Since when the stream comes.
    follows_since: Millis,
    acknowledged: Millis,
    /// Replies that are to come, the first last.
    expected: Vec<Said>,
    promised: Option<(HistoryId, JournalPos)>,
    /// PSYNC asked to go on from somewhere.
    asked_to_continue: bool,
    /// PSYNC asked the other server to take over.
    hands_over: bool,
    /// The primary was told that the snapshot may come over a second connection.
    is_dual_offered: bool,
    /// The snapshot comes over a second connection, by this protocol; `main_client` is what the
    /// primary calls the first one.
    dual: Option<DualChannel>,
    /// See there.
    main_client: u64,
    /// PSYNC was refused, so SYNC was sent.
    asked_by_sync: bool,
    /// Failures since the stream last came.
    failures: u32,
    /// Snapshots that were of no use: the stream behind each could not be read, or ended soon.
    wasted_snapshots: u32,
    /// Streams in a row that were not one.
    corrupt_streams: u32,
    /// The stream that comes follows a snapshot.
    follows_snapshot: bool,
    /// The last reason that was logged: it is not logged again until the link works.
    last_reason: String,
}

fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    push_request(&mut out, words);
    out
}

/// Returns `REPLCONF ACK`, with the position on the replica's own disk if it has an append-only
/// file.
pub fn acknowledgement(applied: JournalPos, on_disk: Option<JournalPos>) -> Vec<u8> {
    acknowledged_with(applied, on_disk, &[])
}

/// Returns the acknowledgement of a copy in a cluster.
pub fn voted(applied: JournalPos, on_disk: Option<JournalPos>, vote: &Vote) -> Vec<u8> {
    acknowledged_with(applied, on_disk, &vote.words())
}

fn acknowledged_with(
    applied: JournalPos,
    on_disk: Option<JournalPos>,
    more: &[Vec<u8>],
) -> Vec<u8> {
    let applied = applied.0.to_string();
    let mut words: Vec<&[u8]> = vec![b"REPLCONF", b"ACK", applied.as_bytes()];
    let on_disk = on_disk.map(|position| position.0.to_string());
    if let Some(on_disk) = &on_disk {
        words.extend([&b"FACK"[..], on_disk.as_bytes()]);
    }
    words.extend(more.iter().map(Vec::as_slice));
    array(&words)
}

/// Returns the request that logs in, if that is wanted.
fn log_in(identity: &Identity) -> Vec<u8> {
    match (&identity.user[..], &identity.password[..]) {
        (_, b"") => Vec::new(),
        (b"", password) => array(&[b"AUTH", password]),
        (user, password) => array(&[b"AUTH", user, password]),
    }
}

/// Returns a line of the primary for the log.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(200)]);
    text.replace(char::is_control, " ")
}

impl Replica {
    /// Returns the stage of the link.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns when the primary last sent something.
    pub fn heard(&self) -> Millis {
        self.heard
    }

    /// Bytes came.
    pub fn note_heard(&mut self, now: Millis) {
        self.heard = now;
    }

    /// Begins anew, with another primary or the same one. It is tried at once.
    pub fn restart(&mut self, now: Millis) {
        *self = Replica { due: now, ..Replica::default() };
    }

    /// Returns what is due at this time.
    pub fn tick(&mut self, around: &Surroundings, now: Millis) -> Vec<Action> {
        match self.stage {
            Stage::Waiting if now >= self.due => {
                self.stage = Stage::Connecting;
                self.heard = now;
                vec![Action::Connect]
            }
            Stage::Waiting | Stage::Connecting | Stage::Receiving => Vec::new(),
            _ if now.0 - self.heard.0 > around.timeout_ms => {
                let what = match self.stage {
                    Stage::Following => "MASTER timeout: no data nor PING received...",
                    Stage::Heading => {
                        "Timeout receiving bulk data from MASTER... If the problem persists try to \
                         set the 'repl-timeout' parameter in redis.conf to a larger value."
                    }
                    _ => "Timeout connecting to the MASTER...",
                };
                self.lost(what, now)
            }
            Stage::Following if now.0 - self.acknowledged.0 >= ACK_PERIOD_MS => {
                self.acknowledged = now;
                vec![Action::Acknowledge]
            }
            _ => Vec::new(),
        }
    }

    /// Goes on when the connection is there.
    pub fn connected(&mut self, now: Millis) -> Vec<Action> {
        self.stage = Stage::Greeting;
        self.dual = None;
        self.heard = now;
        vec![Action::Send(Channel::Main, array(&[b"PING"]))]
    }

    /// Notes that there is no connection, for this reason.
    pub fn lost(&mut self, reason: &str, now: Millis) -> Vec<Action> {
        let failed_in = std::mem::replace(&mut self.stage, Stage::Waiting);
        self.expected.clear();
        let is_snapshot = matches!(failed_in, Stage::Joining | Stage::Heading | Stage::Receiving);
        self.failures = self.failures.saturating_add(1);
        let (first, longest) = if is_snapshot {
            (SNAPSHOT_WAIT_MS, LONGEST_SNAPSHOT_WAIT_MS)
        } else {
            (FIRST_WAIT_MS, LONGEST_WAIT_MS)
        };
        let mut wait = (first << (self.failures - 1).min(10)).min(longest);
        if failed_in == Stage::Following {
            let lasted = now.0 - self.follows_since.0;
            if lasted >= FIRST_WAIT_MS {
                (wait, self.failures) = (0, 0);
            } else if self.failures == 1 {
                wait = HANDOVER_WAIT_MS;
            }
            wait = wait.max(self.wait_behind_snapshot(lasted));
        }
        self.due = Millis(now.0 + wait);
        let mut actions = vec![Action::Close];
        if self.last_reason != reason {
            reason.clone_into(&mut self.last_reason);
            actions.push(Action::Warn(reason.to_owned()));
        }
        actions
    }

    /// Returns how long to wait when the stream has ended that had lasted for `lasted_ms`, so that
    /// one snapshot does not follow the other without a pause.
    fn wait_behind_snapshot(&mut self, lasted_ms: i64) -> i64 {
        if lasted_ms >= LONGEST_SNAPSHOT_WAIT_MS {
            self.wasted_snapshots = 0;
        } else if std::mem::take(&mut self.follows_snapshot) {
            self.wasted_snapshots = self.wasted_snapshots.saturating_add(1);
        }
        // One may be bad luck.
        match self.wasted_snapshots {
            0 | 1 => 0,
            _ => SNAPSHOT_WAIT_MS - lasted_ms,
        }
    }

    /// Gives up a stream that cannot be read. All data have to be fetched anew; each attempt waits
    /// longer than the last, because the next stream may be as bad.
    pub fn corrupt(&mut self, reason: &str, now: Millis) -> Vec<Action> {
        let lasted = now.0 - self.follows_since.0;
        let actions = self.lost(reason, now);
        if lasted < LONGEST_SNAPSHOT_WAIT_MS {
            self.corrupt_streams = self.corrupt_streams.saturating_add(1);
        } else {
            self.corrupt_streams = 1;
        }
        let wait = SNAPSHOT_WAIT_MS << (self.corrupt_streams - 1).min(10);
        self.due = Millis(now.0 + wait.min(LONGEST_SNAPSHOT_WAIT_MS));
        actions
    }

    /// Takes a line, without its end, that came over the connection that is [listened
    /// to](Replica::listens_to).
    pub fn line(&mut self, line: &[u8], around: &Surroundings, now: Millis) -> Vec<Action> {
        self.heard = now;
        match self.stage {
            // A line feed keeps the link alive.
            _ if line.is_empty() => Vec::new(),
            Stage::Greeting => self.greeted(line, around, now),
            Stage::Presenting => self.presented(line, around, now),
            Stage::Asking => self.answered(line, now),
            Stage::Branching => self.branched(line, now),
            Stage::Joining => self.joined(line, now),
            Stage::Heading => self.headed(line, now),
            _ => self.lost(&format!("Unexpected data from MASTER: {}", shown(line)), now),
        }
    }

    fn greeted(&mut self, line: &[u8], around: &Surroundings, now: Millis) -> Vec<Action> {
        // An error that asks for AUTH also shows that the primary answers. AUTH comes next.
        let is_alive = [&b"+"[..], b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted"]
            .iter()
            .any(|begin| line.starts_with(begin));
        if !is_alive {
            return self.lost(&format!("Error reply to PING from master: '{}'", shown(line)), now);
        }
        let mut actions = Vec::new();
        if self.last_reason.is_empty() {
            actions.push(Action::Log(
                "Master replied to PING, replication can continue...".to_owned(),
            ));
        }
        let identity = &around.identity;
        let mut out = log_in(identity);
        let mut expected = Vec::new();
        if !out.is_empty() {
            expected.push(Said::Auth);
        }
        let mut say = |what: &'static str, words: &[&[u8]]| {
            out.extend(array(&[&[&b"REPLCONF"[..]], words].concat()));
            expected.push(Said::Replconf(what));
        };
        let port = identity.port.to_string();
        say("listening-port", &[b"listening-port", port.as_bytes()]);
        if !identity.announced_ip.is_empty() {
            say("ip-address", &[b"ip-address", &identity.announced_ip]);
        }
        let mut capabilities: Vec<&[u8]> = vec![b"capa", b"eof", b"capa", b"psync2"];
        if around.dual.valkey {
            capabilities.extend([&b"capa"[..], b"dual-channel"]);
        }
        if around.dual.redis {
            capabilities.extend([&b"capa"[..], b"rdb-channel-repl"]);
        }
        say("capa", &capabilities);
        say("version", &[b"version", identity.version.as_bytes()]);
        expected.reverse();
        self.expected = expected;
        self.stage = Stage::Presenting;
        self.is_dual_offered = around.dual.is_any();
        actions.push(Action::Send(Channel::Main, out));
        actions
    }

    fn presented(&mut self, line: &[u8], around: &Surroundings, now: Millis) -> Vec<Action> {
        let is_error = line.starts_with(b"-");
        let said = self.expected.pop();
        let mut actions = Vec::new();
        match said {
            Some(Said::Auth) if is_error => {
                return self.lost(&format!("Unable to AUTH to MASTER: {}", shown(line)), now);
            }
            // Older primaries do not know all options, which does no harm. A peer that names no
            // version to Redis is one that Redis itself refuses.
            Some(Said::Replconf(what)) if is_error && what != "version" => {
                actions.push(Action::Log(format!(
                    "(Non critical) Master does not understand REPLCONF {what}: {}",
                    shown(line)
                )));
            }
            _ => {}
        }
        if self.expected.is_empty() {
            self.stage = Stage::Asking;
            self.asked_by_sync = false;
            self.hands_over = around.hands_over;
            self.asked_to_continue = around.has.is_some();
            let (id, offset) = match around.has {
                Some((id, position)) => (id.to_string(), (position.0 + 1).to_string()),
                None => ("?".to_owned(), "-1".to_owned()),
            };
            if self.last_reason.is_empty() {
                actions.push(Action::Log(match around.has {
                    Some(_) => {
                        format!("Trying a partial resynchronization (request {id}:{offset}).")
                    }
                    None => "Partial resynchronization not possible (no cached master)".to_owned(),
                }));
            }
            let mut words: Vec<&[u8]> = vec![b"PSYNC", id.as_bytes(), offset.as_bytes()];
            if self.hands_over {
                words.push(b"FAILOVER");
            }
            actions.push(Action::Send(Channel::Main, array(&words)));
        }
        actions
    }

    fn answered(&mut self, line: &[u8], now: Millis) -> Vec<Action> {
        if self.asked_by_sync {
            return self.headed(line, now);
        }
        let answer = Answer::parse(line);
        let hands_over = answer.is_some() && std::mem::take(&mut self.hands_over);
        match answer {
            None => Vec::new(),
            Some(Answer::Retry | Answer::Refused(_)) if hands_over => {
                // It has taken over, and its answer was lost. Leading again would make two primaries.
                let is_accepted = line.ends_with(b"PSYNC FAILOVER can't be sent to a master.");
                let what = if is_accepted {
                    "MASTER has taken over already"
                } else {
                    "MASTER does not take over"
                };
                let mut actions = self.lost(&format!("{what}: {}", shown(line)), now);
                actions.push(Action::HandedOver { is_accepted });
                actions
            }
            Some(Answer::FullResync(id, position)) => {
                self.stage = Stage::Heading;
                self.promised = Some((id, position));
                let mut actions = Vec::new();
                if self.is_dual_offered {
                    actions.push(Action::Log(
                        "The master takes no second connection for the snapshot: it comes over this one"
                            .to_owned(),
                    ));
                }
                actions.push(Action::Log(format!("Full resync from master: {id}:{}", position.0)));
                actions.extend(hands_over.then_some(Action::HandedOver { is_accepted: true }));
                actions
            }
            Some(Answer::OwnChannel | Answer::OwnChannelFor(_)) if !self.is_dual_offered => {
                self.lost("MASTER wants a second connection that was not offered", now)
            }
            Some(Answer::OwnChannel) => self.branch(DualChannel::Valkey, 0, hands_over),
            Some(Answer::OwnChannelFor(client)) => {
                self.branch(DualChannel::Redis, client, hands_over)
            }
            Some(Answer::Continue(_)) if !self.asked_to_continue => {
                self.lost("MASTER wants to continue what was never begun", now)
            }
            Some(Answer::Continue(id)) => {
                let mut actions = vec![
                    Action::Log("Successful partial resynchronization with master.".to_owned()),
                    Action::Follow(id),
                ];
                actions.extend(hands_over.then_some(Action::HandedOver { is_accepted: true }));
                actions.extend(self.follow(now));
                actions
            }
            Some(Answer::Retry) => {
                let text = shown(line);
                self.lost(
                    &format!(
                        "Master is currently unable to PSYNC but should be in the future: {text}"
                    ),
                    now,
                )
            }
            // For instance because of an invalid offset. What follows does not answer SYNC.
            Some(Answer::Refused(line)) if !line.starts_with(b"-") => {
                let text = shown(&line);
                self.lost(&format!("Unexpected reply to PSYNC from master: {text}"), now)
            }
            Some(Answer::Refused(line)) => {
                self.asked_by_sync = true;
                self.promised = None;
                let text = shown(&line);
                vec![
                    Action::Warn(format!(
                        "Master does not support PSYNC or is in error state (reply: {text}). \
                         Retrying with SYNC..."
                    )),
                    Action::Send(Channel::Main, b"SYNC\r\n".to_vec()),
                ]
            }
        }
    }

    fn headed(&mut self, line: &[u8], now: Millis) -> Vec<Action> {
        // From here on it is a snapshot that fails.
        self.stage = Stage::Heading;
        if line.starts_with(b"-") {
            let text = shown(line);
            return self.lost(&format!("MASTER aborted replication with an error: {text}"), now);
        }
        let Some(end) = SnapshotEnd::parse(line) else {
            let text = shown(line);
            return self.lost(
                &format!(
                    "Bad protocol from MASTER, the first byte is not '$' (we received '{text}'), are \
                     you sure the host and port are right?"
                ),
                now,
            );
        };
        self.stage = Stage::Receiving;
        let is_parallel = self.dual.is_some();
        vec![Action::Receive(Promise { end, from: self.promised.take(), is_parallel })]
    }

    /// Goes on when the snapshot is loaded.
    pub fn loaded(&mut self, now: Millis) -> Vec<Action> {
        self.follows_snapshot = true;
        self.follow(now)
    }

    /// Begins to follow the stream.
    fn follow(&mut self, now: Millis) -> Vec<Action> {
        self.stage = Stage::Following;
        (self.heard, self.acknowledged, self.follows_since) = (now, now, now);
        self.failures = 0;
        self.last_reason.clear();
        // The first acknowledgement tells the primary that the snapshot is over.
        vec![Action::Acknowledge]
    }
}
