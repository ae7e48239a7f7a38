//! The primary's I/O of replication. [`feed`] writes the stream to replicas, on the threads that
//! they are connected to. [`full_sync`] sends snapshots, on its own thread. This file runs their
//! periodic work.
//!
//! `docs/internals/replication.md` describes the design.

pub mod catch_up;
pub mod feed;
mod full_sync;
mod sockets;
mod upstream;

pub use sockets::has_unread;

use crate::log;
use crate::persistence::aof::Aof;
use engine::clock::now;
use engine::journal::backlog::BacklogExpiry;
use engine::mailbox::Message;
use engine::{Engine, Millis};
use process::thread;
use replication::primary::Action;
use replication::wire;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two checks of what is due.
const ROUND: Duration = Duration::from_millis(50);

/// The same while writes wait for a quorum or the role is handed over.
const LOOK: Duration = Duration::from_millis(5);

/// Starts the thread for periodic work, and the thread that follows a primary.
///
/// # Errors
/// The system cannot start a thread.
pub fn start(engine: &'static Engine, aof: &Arc<Aof>) -> io::Result<()> {
    upstream::start(engine, aof)?;
    thread::spawn("replication", move || {
        let mut expiry = BacklogExpiry::default();
        let began = Instant::now();
        let mut next_round = ROUND;
        loop {
            let awaits_quorum = engine.awaits_quorum();
            let is_watchful = awaits_quorum || engine.failover.is_on();
            std::thread::sleep(if is_watchful { LOOK } else { ROUND });
            let elapsed = began.elapsed();
            if awaits_quorum {
                engine.give_up_late_writes(Millis(elapsed.as_millis() as i64));
            }
            if engine.failover.is_on() {
                engine.tick_failover(now()).iter().for_each(|line| log!(Notice, "{line}"));
            }
            if elapsed >= next_round {
                next_round = elapsed + ROUND;
                round(engine, &mut expiry);
            }
        }
    })
    .map(drop)
}

fn round(engine: &'static Engine, expiry: &mut BacklogExpiry) {
    let now = now();
    let ttl_s = engine.config.repl_backlog_ttl();
    // Writes that wait for a quorum are identified by their positions. A replica keeps the part of
    // the journal that its followers may ask for.
    let is_wanted = engine.wants_quorum() || engine.upstream.is_replica();
    if !is_wanted
        && engine.journal.is_keeping()
        && expiry.is_due(now, engine.replicas.count(), ttl_s)
    {
        engine.journal.stop_keeping();
        log!(Notice, "Replication backlog freed after {ttl_s} seconds without connected replicas.");
    }
    engine.replicas.count_again(now, engine.config.min_replicas_max_lag(), &engine.votes);
    engine.journal.check_limits();
    for client in engine.replicas.cut_off_early() {
        engine.replicas.primary().cut_off(client);
        feed::log_cut_off(engine, &name(engine, client));
        disconnect(engine, client);
    }
    engine.hear_loading_replicas();
    let actions = engine.replicas.primary().tick(&engine.replication_settings(), now);
    for action in actions {
        act(engine, action);
    }
}

fn act(engine: &'static Engine, action: Action) {
    match action {
        Action::Ping if engine.stream_stands_still() => {}
        Action::Ping => engine.append_to_stream(wire::PING),
        Action::Keepalive(client) => engine.replicas.keep_alive(client),
        Action::Disconnect(client) => {
            log!(
                Warning,
                "Disconnecting timedout replica (streaming sync): {}",
                name(engine, client)
            );
            disconnect(engine, client);
        }
        Action::Send(group) => full_sync::start(engine, group),
        Action::CallOff => engine.replicas.call_off_snapshot(),
    }
}

/// Posts a message to a client's thread.
fn post(engine: &Engine, client: u64, message: fn(u64) -> Message) {
    if let Some(known) = engine.clients.get(client) {
        engine.mailboxes[known.thread].post(message(client));
    }
}

fn disconnect(engine: &Engine, client: u64) {
    post(engine, client, Message::Kill);
}

/// Returns a replica's name for the log.
fn name(engine: &Engine, client: u64) -> String {
    let primary = engine.replicas.primary();
    primary.link(client).map_or_else(
        || format!("client id #{client}"),
        |link| format!("{}:{}", link.shown_ip(), link.facts.port),
    )
}
