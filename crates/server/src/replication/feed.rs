//! Feeding replicas: at the end of each turn, a thread copies what the journal has for the replicas
//! that are connected to it into their output.
//!
//! A replica has a window of output that it has not taken yet; what is beyond stays in the journal,
//! which all replicas share. A replica that is too far behind is cut off by the journal.

use crate::log;
use crate::net::{ConnId, ConnIo};
use engine::Engine;
use engine::journal::Reader;
use engine::replicas::Feed;
use std::sync::Arc;

/// Bytes of output that may wait for a replica's socket.
const WINDOW: usize = 1 << 20;

/// A replica that is connected to this thread.
#[derive(Default)]
pub struct Replica {
    /// What it is to get; `None` before the stream begins.
    stream: Option<Reader<'static>>,
}

/// What a replica has got in a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FeedResult {
    /// Bytes of the stream.
    pub bytes: usize,
    /// The journal does not have what comes next.
    pub is_cut_off: bool,
}

impl Replica {
    /// Copies what there is and what there is room for. Before the stream begins, provides the socket for
    /// the snapshot once all earlier output has left.
    pub fn feed(
        &mut self,
        engine: &'static Engine,
        client: u64,
        io: &mut ConnIo<'_>,
    ) -> FeedResult {
        if self.stream.is_none() {
            self.stream = engine.take_stream(client);
            if self.stream.is_none() && io.pending_output() == 0 {
                provide_socket(engine, client, io);
            }
        }
        self.stream.as_mut().map_or_else(FeedResult::default, |reader| copy(reader, io))
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
    FeedResult { bytes, is_cut_off: reader.is_cut_off() }
}

/// Gives a second descriptor of the socket to the thread that sends snapshots.
fn provide_socket(engine: &Engine, client: u64, io: &mut ConnIo<'_>) {
    if engine.replicas.lacks_socket(client) {
        match io.duplicate() {
            Ok(socket) => engine.replicas.put_socket(client, socket),
            Err(error) => {
                log!(Warning, "Can't duplicate the socket of a replica: {error}");
                io.close();
            }
        }
    }
}

/// The replicas that a thread feeds.
#[derive(Default)]
pub struct Feeding {
    connections: Vec<ConnId>,
    feed: Option<Arc<Feed>>,
}

impl Feeding {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// One more.
    pub fn add(&mut self, engine: &Engine, thread: usize, connection: ConnId) {
        self.connections.push(connection);
        self.feed.get_or_insert_with(|| engine.replicas.add_feed(thread));
    }

    /// They are looked at now: from here on the thread is to be told of new entries again.
    pub fn begin(&self, engine: &Engine) -> Vec<ConnId> {
        if let Some(feed) = &self.feed {
            feed.looks(engine.journal.position());
        }
        self.connections.clone()
    }

    /// One that is gone.
    pub fn remove(&mut self, engine: &Engine, connection: ConnId) {
        self.connections.retain(|other| *other != connection);
        if self.connections.is_empty()
            && let Some(feed) = self.feed.take()
        {
            engine.replicas.remove_feed(&feed);
        }
    }
}

/// Says why a replica is closed.
pub fn log_cut_off(engine: &Engine, addr: &str) {
    engine.stats.output_buffer_disconnections.add(1);
    log!(
        Warning,
        "Replica {addr} is too far behind: it is closed for overcoming of output buffer limits. A \
         larger repl-backlog-size or replica class of client-output-buffer-limit would let it stay."
    );
}
