//! The lines of the replication protocol that are not commands: what a primary answers to PSYNC and
//! SYNC, and what precedes a snapshot.
//!
//! ```text
//!   replica  PSYNC <id> <offset>              offset: the first byte that it lacks, from 1
//!   primary  +CONTINUE <id>\r\n               the stream follows
//!        or  +FULLRESYNC <id> <offset>\r\n    a snapshot follows, then the stream behind <offset>
//!              $EOF:<40 characters>\r\n <RDB> <the same 40 characters>
//!          or  $<length>\r\n <RDB>
//! ```
//!
//! A snapshot can come over a connection of its own (the *RDB channel*), beside the stream. There
//! are two protocols for that; the primary proposes one to a replica that knows it, in place of
//! +FULLRESYNC:
//!
//! ```text
//!   Valkey   main  +DUALCHANNELSYNC
//!            RDB   SYNC  ▶  $ENDOFF:<offset> <id> <db> <client of the RDB channel>, then the snapshot
//!            main  REPLCONF set-rdb-client-id <client>, PSYNC <id> <offset + 1>  ▶  +CONTINUE, the stream
//!   Redis    main  +RDBCHANNELSYNC <client of the main channel>
//!            RDB   REPLCONF main-ch-client-id <client>, PSYNC ? -1  ▶  +FULLRESYNC, then the snapshot
//!            main  the stream, at once
//! ```
//!
//! Before the snapshot, bare line feeds keep the link alive. An offset in the protocol is one more
//! than a [`JournalPos`] where it names a byte, and equal to it where it counts bytes.

use journal::{HistoryId, JournalPos};
use structs::numbers::parse_i64;

/// Keeps a link alive while no snapshot is there yet.
pub const KEEPALIVE: &[u8] = b"\n";
/// Goes into the stream now and then, so that replicas notice a dead link.
pub const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// Goes into the stream when a client waits for acknowledgements.
pub const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

/// In front of the epoch in the entry that begins a leadership.
const EPOCH: &[u8] = b"dunlin-epoch:";

/// Goes into the stream of a cluster's primary when its leadership begins. It is a PING with a
/// message, which any server takes in a stream and in an append-only file without doing anything.
/// Clients' PINGs are in no stream.
pub fn epoch_entry(epoch: u64) -> Vec<u8> {
    let message = [EPOCH, epoch.to_string().as_bytes()].concat();
    let len = message.len();
    [format!("*2\r\n$4\r\nPING\r\n${len}\r\n").as_bytes(), &message, b"\r\n"].concat()
}

/// Returns the epoch that begins with a PING of this message, if it is such an entry.
pub fn epoch_of(message: &[u8]) -> Option<u64> {
    u64::try_from(parse_i64(message.strip_prefix(EPOCH)?)?).ok()
}

/// Positions of a primary from here on are none: they would not fit the journal's word for them.
const POSITIONS_END: u64 = 1 << 55;

/// Characters that mark the end of a snapshot of unknown length.
pub const MARK_LEN: usize = 40;

/// Returns `+FULLRESYNC`.
pub fn full_resync(id: &HistoryId, position: JournalPos) -> Vec<u8> {
    format!("+FULLRESYNC {id} {}\r\n", position.0).into_bytes()
}

/// Returns `+CONTINUE`, with the id for replicas that know of second ids.
pub fn resume(id: &HistoryId, knows_ids: bool) -> Vec<u8> {
    if knows_ids { format!("+CONTINUE {id}\r\n").into_bytes() } else { b"+CONTINUE\r\n".to_vec() }
}

/// Appends what precedes a snapshot that ends with a mark.
pub fn marked_header(mark: &[u8; MARK_LEN]) -> Vec<u8> {
    [b"$EOF:", &mark[..], b"\r\n"].concat()
}

/// Returns what precedes a snapshot of known length.
pub fn sized_header(len: u64) -> Vec<u8> {
    format!("${len}\r\n").into_bytes()
}

/// A protocol by which a snapshot comes over a connection of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DualChannel {
    /// That of Valkey 8 and later (`dual-channel-replication-enabled`).
    Valkey,
    /// That of Redis 8 (`repl-rdb-channel`).
    Redis,
}

/// The protocols of two channels that a server takes part in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DualChannels {
    /// See [`DualChannel::Valkey`].
    pub valkey: bool,
    /// See [`DualChannel::Redis`].
    pub redis: bool,
}

impl DualChannels {
    /// Returns whether there is one.
    pub fn is_any(self) -> bool {
        self.valkey || self.redis
    }

    /// Returns the protocol to use if both sides know it. That of Redis takes one round trip less.
    pub fn common(self, other: DualChannels) -> Option<DualChannel> {
        let redis = (self.redis && other.redis).then_some(DualChannel::Redis);
        redis.or((self.valkey && other.valkey).then_some(DualChannel::Valkey))
    }
}

/// Returns what proposes two channels to the replica on this client's connection.
pub fn propose(protocol: DualChannel, client: u64) -> Vec<u8> {
    match protocol {
        DualChannel::Valkey => b"+DUALCHANNELSYNC\r\n".to_vec(),
        DualChannel::Redis => format!("+RDBCHANNELSYNC {client}\r\n").into_bytes(),
    }
}

/// What precedes a snapshot on Valkey's RDB channel: where the stream goes on behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndOffset {
    /// The position of the snapshot.
    pub position: JournalPos,
    /// Its history.
    pub id: HistoryId,
    /// The client of the RDB channel, which the main channel is to name.
    pub client: u64,
}

impl EndOffset {
    /// Returns the line. No database is selected in the stream at that place.
    pub fn line(&self) -> Vec<u8> {
        format!("$ENDOFF:{} {} -1 {}\r\n", self.position.0, self.id, self.client).into_bytes()
    }

    /// Reads the line. Returns `None` if it is another one.
    pub fn parse(line: &[u8]) -> Option<EndOffset> {
        let words: Vec<&[u8]> = line.strip_prefix(b"$ENDOFF:")?.split(|&b| b == b' ').collect();
        let [offset, id, _db, client] = words.as_slice() else { return None };
        Some(EndOffset {
            position: parse_position(offset)?,
            id: HistoryId::parse(id)?,
            client: u64::try_from(parse_i64(client)?).ok()?,
        })
    }
}

/// Reads an offset that counts bytes.
fn parse_position(text: &[u8]) -> Option<JournalPos> {
    let position = u64::try_from(parse_i64(text)?).ok()?;
    (position < POSITIONS_END).then_some(JournalPos(position))
}

/// From where a replica asks for the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// It has nothing, or nothing that it wants to keep.
    Everything,
    /// It has everything before this position of this history.
    From(HistoryId, JournalPos),
}

impl Wanted {
    /// Returns the arguments of PSYNC; `None` if the offset is not a number. An id that cannot be
    /// one asks for everything.
    pub fn parse(id: &[u8], offset: &[u8]) -> Option<Wanted> {
        let offset = parse_i64(offset)?;
        let position = u64::try_from(offset).ok().and_then(|offset| offset.checked_sub(1));
        Some(match (HistoryId::parse(id), position) {
            (Some(id), Some(position)) => Wanted::From(id, JournalPos(position)),
            _ => Wanted::Everything,
        })
    }
}

/// What a primary answered to PSYNC, as a replica reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A snapshot follows, and then the stream from this position of this history.
    FullResync(HistoryId, JournalPos),
    /// The stream follows. The history may have another id now.
    Continue(Option<HistoryId>),
    /// The snapshot is to be fetched over a connection of its own, by the protocol of Valkey.
    OwnChannel,
    /// The same by that of Redis, where this client's number stands for the main channel.
    OwnChannelFor(u64),
    /// Not now: to be asked again later.
    Retry,
    /// It does not know PSYNC, or refuses it: SYNC may work.
    Refused(Vec<u8>),
}

impl Answer {
    /// Reads a line without its end. `None` for a bare keepalive.
    pub fn parse(line: &[u8]) -> Option<Answer> {
        if line.is_empty() {
            return None;
        }
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let refused = || Answer::Refused(line.to_vec());
        Some(match words.as_slice() {
            [b"+FULLRESYNC", id, offset] => match (HistoryId::parse(id), parse_position(offset)) {
                (Some(id), Some(position)) => Answer::FullResync(id, position),
                _ => refused(),
            },
            [b"+CONTINUE"] => Answer::Continue(None),
            [b"+CONTINUE", id] => Answer::Continue(HistoryId::parse(id)),
            [b"+DUALCHANNELSYNC"] => Answer::OwnChannel,
            [b"+RDBCHANNELSYNC", client] => match parse_i64(client).map(u64::try_from) {
                Some(Ok(client)) => Answer::OwnChannelFor(client),
                _ => refused(),
            },
            [b"-NOMASTERLINK" | b"-LOADING", ..] => Answer::Retry,
            _ => refused(),
        })
    }
}

/// Bytes of a snapshot without data: `REDIS` and its version, and the opcode of its end. The oldest
/// have no checksum.
const SHORTEST_SNAPSHOT: u64 = 10;

/// How the end of a snapshot is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotEnd {
    /// It has so many bytes.
    Length(u64),
    /// These bytes follow it.
    Mark([u8; MARK_LEN]),
}

impl SnapshotEnd {
    /// Reads the line before a snapshot, without its end. What is shorter than any snapshot is
    /// none.
    pub fn parse(line: &[u8]) -> Option<SnapshotEnd> {
        let text = line.strip_prefix(b"$")?;
        match text.strip_prefix(b"EOF:") {
            Some(mark) => mark.try_into().ok().map(SnapshotEnd::Mark),
            None => {
                let bytes = u64::try_from(parse_i64(text)?).ok()?;
                (bytes >= SHORTEST_SNAPSHOT).then_some(SnapshotEnd::Length(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_end(mut line: Vec<u8>) -> Vec<u8> {
        line.truncate(line.len() - 2);
        line
    }

    #[test]
    fn a_replica_reads_what_a_primary_writes() {
        let (id, position) = (HistoryId::random(), JournalPos(77));
        let answer = |line: Vec<u8>| Answer::parse(&without_end(line));
        assert_eq!(answer(full_resync(&id, position)), Some(Answer::FullResync(id, position)));
        assert_eq!(answer(resume(&id, true)), Some(Answer::Continue(Some(id))));
        assert_eq!(answer(resume(&id, false)), Some(Answer::Continue(None)));
        assert_eq!(Answer::parse(b""), None);
        assert_eq!(Answer::parse(b"-LOADING Dunlin is loading"), Some(Answer::Retry));
        let far = format!("+FULLRESYNC {id} {}", 1u64 << 55).into_bytes();
        assert_eq!(Answer::parse(&far), Some(Answer::Refused(far)));
        let error = b"-ERR unknown command".to_vec();
        assert_eq!(Answer::parse(&error), Some(Answer::Refused(error)));
        let end = |line| SnapshotEnd::parse(&without_end(line));
        assert_eq!(end(marked_header(&[b'm'; 40])), Some(SnapshotEnd::Mark([b'm'; 40])));
        assert_eq!(end(sized_header(10)), Some(SnapshotEnd::Length(10)));
        assert_eq!(end(sized_header(0)), None);
        assert_eq!(SnapshotEnd::parse(b"$EOF:short"), None);
        assert_eq!(SnapshotEnd::parse(b"$-1"), None);
    }

    #[test]
    fn a_replica_reads_what_two_channels_begin_with() {
        let answer = |protocol| Answer::parse(&without_end(propose(protocol, 12)));
        assert_eq!(answer(DualChannel::Valkey), Some(Answer::OwnChannel));
        assert_eq!(answer(DualChannel::Redis), Some(Answer::OwnChannelFor(12)));
        let bad = b"+RDBCHANNELSYNC -1".to_vec();
        assert_eq!(Answer::parse(&bad), Some(Answer::Refused(bad)));
        let end = EndOffset { position: JournalPos(77), id: HistoryId::random(), client: 12 };
        assert_eq!(EndOffset::parse(&without_end(end.line())), Some(end));
        let id = end.id;
        for line in [format!("$ENDOFF:x {id} -1 1"), format!("$ENDOFF:1 {id} 1"), "$EOF:".into()] {
            assert_eq!(EndOffset::parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_protocol_is_one_that_both_know() {
        let both = DualChannels { valkey: true, redis: true };
        let valkey = DualChannels { valkey: true, redis: false };
        let redis = DualChannels { valkey: false, redis: true };
        assert_eq!(both.common(both), Some(DualChannel::Redis));
        assert_eq!(both.common(valkey), Some(DualChannel::Valkey));
        assert_eq!(redis.common(valkey), None);
    }

    #[test]
    fn offsets_count_from_one() {
        let id = HistoryId::random();
        let text = id.to_string();
        let parse = |offset| Wanted::parse(text.as_bytes(), offset);
        assert_eq!(parse(b"1"), Some(Wanted::From(id, JournalPos(0))));
        assert_eq!(parse(b"78"), Some(Wanted::From(id, JournalPos(77))));
        assert_eq!(parse(b"0"), Some(Wanted::Everything));
        assert_eq!(parse(b"x"), None);
        assert_eq!(Wanted::parse(b"?", b"-1"), Some(Wanted::Everything));
    }
}
