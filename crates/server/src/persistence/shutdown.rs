//! The last save, before the server goes down: by SHUTDOWN, SIGTERM or SIGINT.
//!
//! From the instant of the last snapshot on nothing may change: writes wait until the server is gone
//! or, if the snapshot cannot be written, until it is clear that it goes on.

use super::save;
use crate::log;
use crate::net::Net;
use crate::process::{signals, thread};
use engine::Engine;
use engine::engine::{OtherSnapshot, ShutdownRequest};
use engine::long::LateReply;
use engine::mailbox::Message;
use engine::snapshot::Beside;
use keyspace::snapshot::Shared;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static IS_GOING: AtomicBool = AtomicBool::new(false);

/// How far the shutdown is, for who wants to take it back.
static STAGE: Mutex<Stage> = Mutex::new(Stage::None);

enum Stage {
    /// There is none, or there is no way back any more.
    None,
    /// It will save.
    Begun,
    /// It saves this.
    Saves(Arc<Shared>),
    /// It was taken back.
    Aborted,
}

fn stage() -> MutexGuard<'static, Stage> {
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a shutdown back that has not begun, or whose last snapshot is not complete; `false` if there
/// is none.
pub fn abort() -> bool {
    let mut stage = stage();
    match &*stage {
        // A signal that nobody has followed yet.
        Stage::None => return !IS_GOING.load(Acquire) && signals::cancel(),
        Stage::Aborted => return false,
        Stage::Begun => {}
        Stage::Saves(snapshot) => snapshot.end(),
    }
    *stage = Stage::Aborted;
    true
}

/// What the client is told whose SHUTDOWN failed.
const FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

/// Begins the shutdown, on a thread of its own. `by` describes the client that asked for it, which
/// gets `reply` if the server does not go down.
pub fn begin(
    engine: &'static Engine,
    net: &Arc<Net>,
    request: ShutdownRequest,
    by: Option<&str>,
    reply: Option<LateReply>,
) {
    let refuse = |reply: Option<LateReply>| {
        if let Some(reply) = reply {
            reply.send(|reply| reply.error(FAILED));
        }
    };
    if IS_GOING.swap(true, AcqRel) {
        return refuse(reply);
    }
    match by {
        Some(by) => log!(Notice, "User requested shutdown... (user request from '{by}')"),
        None => log!(Notice, "User requested shutdown..."),
    }
    let stopping = Arc::clone(net);
    let started = thread::spawn("shutdown", move || {
        if save_last(engine, request) {
            engine.loading.cancel();
            stopping.stop();
        } else {
            signals::cancel();
            IS_GOING.store(false, Release);
            refuse(reply);
        }
    });
    if let Err(error) = started {
        log!(Warning, "Can't start a thread to shut down, so nothing is saved: {error}");
        net.stop();
    }
}

/// Saves if that is asked for; whether the server goes down.
fn save_last(engine: &'static Engine, request: ShutdownRequest) -> bool {
    let has_points = !engine.config.save_points().is_empty();
    if engine.loading.is_on() || !request.save.unwrap_or(has_points) {
        end_running(engine);
        return true;
    }
    log!(Notice, "Saving the final RDB snapshot before exiting.");
    *stage() = Stage::Begun;
    let before = engine.pause.until_ms.swap(i64::MAX, SeqCst);
    let was_for_writes = engine.pause.writes_only.swap(true, SeqCst);
    let saved = save_unless_aborted(engine);
    let is_aborted = matches!(std::mem::replace(&mut *stage(), Stage::None), Stage::Aborted);
    match saved {
        Ok(()) if !is_aborted => true,
        Err(_) if request.force && !is_aborted => {
            log!(Warning, "Error trying to save the DB. Exit anyway.");
            true
        }
        _ => {
            if !is_aborted {
                log!(Warning, "Error trying to save the DB, can't exit.");
            }
            engine.pause.writes_only.store(was_for_writes, SeqCst);
            engine.pause.until_ms.store(before, SeqCst);
            engine.mailboxes.iter().for_each(|mailbox| mailbox.post(Message::Recheck));
            false
        }
    }
}

/// Ends the snapshot under way, and gives it time to delete its temporary file.
fn end_running(engine: &Engine) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let until = Instant::now() + PATIENCE;
    if let Some(running) = engine.snapshots.current() {
        running.end();
    }
    while engine.snapshots.is_running() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes a snapshot of now; one that is under way gives way.
fn save_unless_aborted(engine: &'static Engine) -> Result<(), String> {
    let snapshot = save::begin(engine, OtherSnapshot::IsEnded);
    {
        let mut stage = stage();
        if matches!(*stage, Stage::Aborted) {
            return Err("aborted".to_owned());
        }
        *stage = Stage::Saves(Arc::clone(snapshot.progress()));
    }
    save::now(engine, snapshot, Beside::Clients)
}
