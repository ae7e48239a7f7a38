//! Feeds replicas: at the end of each turn, a thread copies new parts of the journal into the
//! output of the replicas that are connected to it.
//!
//! The output that a replica has not taken yet is limited to a window. Everything beyond stays in
//! the journal, which all replicas share. The journal cuts off a replica that is too far behind.

use crate::log;
use engine::Engine;
use engine::clients::Client;
use engine::clock::now;
use engine::journal::{JournalPos, Reader};
use engine::replicas::Feed;
use net::{Close, ConnId, ConnIo, Consumed, Kind, Tag};
use replication::primary::{Behind, SoftLimit};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of output that may wait for a replica's socket.
const WINDOW: usize = 1 << 20;
/// The tag of connections that transfer snapshots ([`Bridge`]).
pub const BRIDGE: Tag = Tag(u32::MAX);

/// A replica that is connected to this thread.
#[derive(Default)]
pub struct Replica {
    /// The stream to copy from, or `None` before it begins.
    stream: Option<Reader<'static>>,
    has_caught_up: bool,
    behind: Behind,
    /// With TLS: the connection through which a snapshot arrives.
    bridge: Option<ConnId>,
}

/// A connection within this process. The sender of snapshots writes to its other end. What it
/// writes becomes output of a replica's TLS connection, because only the reactor can encrypt it.
pub struct Bridge {
    to: ConnId,
    client: Arc<Client>,
}

impl Bridge {
    /// Creates a bridge to a replica's connection.
    pub fn new(to: ConnId, client: Arc<Client>) -> Bridge {
        Bridge { to, client }
    }

    /// Returns the replica's connection.
    pub fn to(&self) -> ConnId {
        self.to
    }

    /// Passes bytes on to the replica. While the replica does not take its output, reading stops.
    /// The sender of the snapshot counts the bytes.
    pub fn cross(&self, io: &mut ConnIo<'_>, input: &[u8]) -> Consumed {
        let is_stuck = io.other(self.to).is_some_and(|mut replica| {
            replica.out().extend_from_slice(input);
            replica.backlog() > 0 && replica.pending_output() > WINDOW
        });
        if is_stuck {
            io.hold_back();
        }
        self.client.live.net_out.fetch_add(input.len() as u64, Relaxed);
        Consumed::read(input.len())
    }
}

/// What a replica got in a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FeedResult {
    /// Bytes of the stream, or of a snapshot.
    pub bytes: usize,
    /// The bridge that was created for a snapshot.
    pub bridge: Option<ConnId>,
    /// The journal does not have the next bytes any more.
    pub is_cut_off: bool,
}

impl Replica {
    /// Copies new parts of the stream, as far as the window allows. Before the stream begins,
    /// provides the socket for the snapshot once all earlier output has left.
    pub fn feed(
        &mut self,
        engine: &'static Engine,
        client: u64,
        io: &mut ConnIo<'_>,
    ) -> FeedResult {
        if self.bridge.is_some() {
            return FeedResult::default();
        }
        if self.stream.is_none() && engine.replicas.is_served(client) {
            io.close_after_flush();
            return FeedResult::default();
        }
        if self.stream.is_none() {
            self.stream = engine.take_stream(client);
            if self.stream.is_none() && io.pending_output() == 0 {
                self.provide_socket(engine, client, io);
            }
        }
        match &mut self.stream {
            Some(reader) => {
                let mut fed = copy(reader, io);
                let lag = reader.readable().0.saturating_sub(reader.position().0);
                fed.is_cut_off |= self.is_over_soft_limit(engine, client, lag);
                if !self.has_caught_up {
                    self.has_caught_up = engine.note_replica_lag(client, lag);
                }
                if fed.is_cut_off {
                    engine.replicas.primary().cut_off(client);
                }
                fed
            }
            None => FeedResult { bridge: self.bridge, ..FeedResult::default() },
        }
    }

    /// Returns the bridge through which a snapshot arrives, if there is one.
    pub fn bridge(&self) -> Option<ConnId> {
        self.bridge
    }

    /// Handles the end of the bridge: the snapshot has arrived, or the bridge has failed.
    pub fn bridge_ended(&mut self, why: Close, io: &mut ConnIo<'_>) {
        self.bridge = None;
        if let Close::Failed(errno) = why {
            let error = std::io::Error::from_raw_os_error(errno);
            log!(Warning, "Can't read a snapshot for a replica: {error}");
            io.close();
        }
    }

    /// Returns whether the replica has exceeded the backlog and the soft limit for too long.
    fn is_over_soft_limit(&mut self, engine: &Engine, client: u64, lag: u64) -> bool {
        let limit = engine.config.client_output_buffer_limit(config::ClientClass::Replica);
        let (bytes, seconds) = (limit.soft_bytes, limit.soft_seconds);
        let mut limit = SoftLimit { bytes, seconds, backlog: engine.config.repl_backlog_size() };
        if limit.is_exceeded(lag) {
            // A replica that was cut off before it had caught up gets more, or it would fail in the
            // same way again.
            let most = engine.most_allowance();
            limit.bytes = engine.replicas.primary().allowance(client, bytes, most);
        }
        self.behind.is_over(&limit, lag, now())
    }

    /// Passes a duplicate of the replica's socket to the thread that sends snapshots. With TLS it
    /// is one end of a bridge.
    fn provide_socket(&mut self, engine: &Engine, client: u64, io: &mut ConnIo<'_>) {
        if !engine.replicas.lacks_socket(client) {
            return;
        }
        let provided = if io.is_encrypted() {
            UnixStream::pair().and_then(|(near, far)| {
                near.set_nonblocking(true)?;
                self.bridge = Some(io.adopt(near.into(), Kind::Unix, BRIDGE));
                Ok(far.into())
            })
        } else {
            io.duplicate()
        };
        match provided {
            Ok(socket) => engine.replicas.put_socket(client, socket),
            Err(error) => {
                log!(Warning, "Can't make a socket for a replica's snapshot: {error}");
                io.close();
            }
        }
    }
}

fn copy(reader: &mut Reader<'static>, io: &mut ConnIo<'_>) -> FeedResult {
    let end = reader.readable();
    let mut room = WINDOW.saturating_sub(io.pending_output());
    let mut bytes = 0;
    while room > 0 {
        let Some(chunk) = reader.chunk(end) else { break };
        let now = chunk.len().min(room);
        io.out().extend_from_slice(&chunk[..now]);
        reader.advance(now);
        room -= now;
        bytes += now;
    }
    FeedResult { bytes, is_cut_off: reader.is_cut_off(), bridge: None }
}

/// The replicas that a thread feeds.
#[derive(Default)]
pub struct Feeding {
    connections: Vec<ConnId>,
    feed: Option<Arc<Feed>>,
    /// Where the journal ended when this thread last notified the other ones.
    notified_at: JournalPos,
}

impl Feeding {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Adds a replica.
    pub fn add(&mut self, engine: &Engine, thread: usize, connection: ConnId) {
        self.connections.push(connection);
        self.feed.get_or_insert_with(|| engine.replicas.add_feed(thread));
    }

    /// Returns the replicas to feed. After this call the thread is notified of new entries again.
    pub fn begin(&self, engine: &Engine) -> Vec<ConnId> {
        if let Some(feed) = &self.feed {
            // Of what is behind that, the thread that still copies it notifies when it is done.
            feed.looks(engine.journal.complete());
        }
        self.connections.clone()
    }

    /// Notifies the other threads that feed replicas, at the end of a turn of `thread`, if there
    /// are new entries. Turns that only read, which most are, take no lock for it.
    #[inline]
    pub fn notify_others(&mut self, engine: &Engine, thread: usize) {
        let position = engine.journal.position();
        if position != self.notified_at && engine.has_feeds() {
            self.notified_at = position;
            engine.nudge_feeds(thread);
        }
    }

    /// Removes a replica that is gone.
    pub fn remove(&mut self, engine: &Engine, connection: ConnId) {
        self.connections.retain(|other| *other != connection);
        if self.connections.is_empty()
            && let Some(feed) = self.feed.take()
        {
            engine.replicas.remove_feed(&feed);
        }
    }
}

/// Logs why a replica is closed.
pub fn log_cut_off(engine: &Engine, addr: &str) {
    engine.stats.output_buffer_disconnections.add(1);
    log!(
        Warning,
        "Replica {addr} is too far behind: it is closed for overcoming of output buffer limits. A \
         larger repl-backlog-size or replica class of client-output-buffer-limit would let it stay."
    );
}
