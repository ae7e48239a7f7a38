//! What a client may take: `client-output-buffer-limit`, `client-query-buffer-limit` and
//! `maxmemory-clients`.
//!
//! They are enforced after every batch of requests that leaves something behind, while a large
//! request arrives, with every message that is sent to a client, and by housekeeping.

use crate::log;
use config::{ClientClass, OutputLimit};
use engine::clients::Client;
use engine::{Engine, Millis, Session};
use keyspace::memory::block_size;
use net::{ConnIo, OutputSize};
use std::sync::atomic::Ordering::Relaxed;

/// Output below this is on its way and does not count, as a reply that fits Redis's fixed buffer
/// does not; nor is less input than this worth a look.
pub const SMALL: usize = 16 << 10;

/// What a client that has not authenticated may send at a time.
const UNAUTHENTICATED: usize = 1 << 20;

/// Bytes of the input that are shown in the log.
const SHOWN: usize = 64;

fn output_limit(engine: &Engine, session: &Session) -> OutputLimit {
    // What a replica has yet to get is in the journal, which has limits of its own.
    if session.is_replica() {
        return OutputLimit::default();
    }
    let class = if session.is_subscribed() { ClientClass::PubSub } else { ClientClass::Normal };
    engine.config.client_output_buffer_limit(class)
}

/// How many bytes of replies may be written to a client now, `backlog` bytes being unsent.
#[inline]
pub fn output_room(engine: &Engine, session: &Session, backlog: usize) -> usize {
    let limit = output_limit(engine, session);
    match usize::try_from(limit.hard_bytes) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(hard) => hard.max(SMALL).saturating_sub(backlog),
    }
}

/// Whether a client reads so slowly that it is to be closed. `since` is when its output began to
/// exceed the soft limit.
pub fn is_over_output_limit(
    engine: &Engine,
    session: &Session,
    pending: usize,
    since: &mut Option<Millis>,
    now: Millis,
) -> bool {
    let limit = output_limit(engine, session);
    let all = pending;
    let pending = if pending <= SMALL { 0 } else { pending as u64 };
    if limit.soft_bytes > 0 && pending > limit.soft_bytes {
        since.get_or_insert(now);
    } else {
        *since = None;
    }
    // In whole seconds of the clock, as Redis counts them.
    let soft_seconds = i64::try_from(limit.soft_seconds).unwrap_or(i64::MAX);
    let is_over = is_over_unauthenticated_limit(engine, session, all)
        || (limit.hard_bytes > 0 && pending > limit.hard_bytes)
        || since.is_some_and(|since| now.0 / 1000 - since.0 / 1000 > soft_seconds);
    if is_over {
        note_overflow(engine, &session.client);
    }
    is_over
}

/// Whether a client that has never authenticated has more output than errors that it reads take: it
/// could make the server keep as much as it likes.
fn is_over_unauthenticated_limit(engine: &Engine, session: &Session, pending: usize) -> bool {
    let free = if engine.debug.enforces_reply_list() { 0 } else { SMALL };
    pending > free && !session.was_authenticated && !engine.acl.is_open()
}

/// Says that a client is closed because of its output.
pub fn note_overflow(engine: &Engine, client: &Client) {
    engine.stats.output_buffer_disconnections.add(1);
    log!(
        Warning,
        "Client {} scheduled to be closed ASAP for overcoming of output buffer limits.",
        describe(engine, client)
    );
}

/// Says that a client is closed because it has used its connection for what it is not for.
pub fn note_misuse(engine: &Engine, client: &Client, misuse: &str) {
    log!(Warning, "{misuse}, disconnecting it: {}", describe(engine, client));
}

/// Whether a client has sent so much, `arrived` bytes that begin with `input`, without a request
/// becoming complete, or queued so much, that it is to be closed.
pub fn is_over_query_limit(
    engine: &Engine,
    session: &Session,
    input: &[u8],
    arrived: usize,
) -> bool {
    let bytes = arrived + session.supplied_bytes() + session.queued_bytes();
    let is_over = bytes > engine.config.client_query_buffer_limit()
        || (bytes > UNAUTHENTICATED && !session.is_authenticated());
    if is_over {
        engine.stats.query_buffer_disconnections.add(1);
        log!(
            Warning,
            "Closing client that reached max query buffer length: {} (qbuf initial bytes: \"{}\")",
            describe(engine, &session.client),
            input[..input.len().min(SHOWN)].escape_ascii()
        );
    }
    is_over
}

/// A client's input, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// What has come and waits to be run.
    pub arrived: usize,
    /// What that will be when the word that is arriving is complete; 0 if none is.
    pub announced: usize,
}

impl Input {
    /// What a connection keeps.
    pub fn of(io: &ConnIo<'_>) -> Input {
        Input { arrived: io.pending_input(), announced: io.announced_input() }
    }

    /// What it counts for. A word counts as soon as it is announced: at the
    /// last byte it would be too late, since all clients would have sent theirs.
    pub fn memory(self) -> usize {
        self.arrived.max(self.announced)
    }
}

/// Counts a client's memory. `true` if the client has to go because all of them together take too
/// much.
pub fn is_evicted(engine: &Engine, session: &Session, io: &ConnIo<'_>, input: Input) -> bool {
    let client = &session.client;
    let output = io.output_size();
    show_buffers(session, output, input);
    // A reply that is on its way when this is counted is gone when anybody looks.
    let buffered = if output.buffered <= SMALL { 0 } else { block_size(output.buffer) };
    let bytes = session.memory_bytes() + input.memory() + buffered + output.chunk_memory;
    engine.client_usage.count(client, bytes);
    engine.evict_clients();
    let is_evicted = client.live.is_evicted.load(Relaxed);
    if is_evicted {
        note_eviction(engine, client);
    }
    is_evicted
}

/// Says that a client is closed because clients take too much memory.
pub fn note_eviction(engine: &Engine, client: &Client) {
    log!(Notice, "Evicting client: {}", describe(engine, client));
}

/// Shows the registry what a client's buffers hold.
fn show_buffers(session: &Session, output: OutputSize, input: Input) {
    let live = &session.client.live;
    live.reply_buffer_bytes.store(output.buffer, Relaxed);
    live.buffered_bytes.store(output.buffered, Relaxed);
    live.output_chunks.store(output.chunks, Relaxed);
    live.output_bytes.store(output.chunk_memory, Relaxed);
    live.query_bytes.store(input.arrived.saturating_sub(session.parsed_bytes()), Relaxed);
    live.query_free_bytes.store(input.memory() - input.arrived, Relaxed);
    live.argv_bytes.store(session.pending_argument_bytes(), Relaxed);
}

fn describe(engine: &Engine, client: &Client) -> String {
    commands::client_line(engine, client, engine::clock::now().0).trim_end().to_owned()
}
