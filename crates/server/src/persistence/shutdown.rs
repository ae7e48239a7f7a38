//! Going down by SHUTDOWN, SIGTERM or SIGINT: replicas get what they lack, then the last snapshot is
//! written.
//!
//! While replicas are waited for, and from the instant of the last snapshot on, nothing may change: writes
//! wait until the server is gone or, if it cannot go down, until it is clear that it goes on.

use super::save;
use crate::cluster::leave;
use crate::log;
use crate::replication::catch_up::Target;
use engine::append_log::LogState;
use engine::clock::now;
use engine::engine::{OnConflict, ShutdownRequest};
use engine::long::LateReply;
use engine::mailbox::recheck_all;
use engine::snapshot::Beside;
use engine::{Engine, Millis};
use keyspace::snapshot::Shared;
use net::Net;
use process::signals::{self, ShutdownSignal};
use process::thread;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use structs::sync::{lock, wait_timeout};

/// The one shutdown there may be. It is begun, taken back and ended under this lock,
/// so that an ABORT that was answered OK has no shutdown behind it.
static STAGE: Mutex<Stage> = Mutex::new(Stage::None);
/// Told when the stage has changed.
static CHANGED: Condvar = Condvar::new();
/// Between two looks at what replicas have acknowledged.
const LOOK: Duration = Duration::from_millis(5);

/// The data set has been loaded: before, a last snapshot would replace the file that it is in.
static IS_COMPLETE: AtomicBool = AtomicBool::new(false);

/// How many saves had succeeded when a shutdown that a signal had asked for failed; `None`: none has failed, or the last
/// one was taken back.
static FAILED_AFTER: Mutex<Option<u64>> = Mutex::new(None);

enum Stage {
    /// There is none, though a signal may have asked for one.
    None,
    /// Replicas are to get what they lack first.
    Waits(ShutdownRequest),
    /// It will save.
    Begun,
    /// It saves this.
    Saves(Arc<Shared>),
    /// It was taken back; what it began still has to end.
    Aborted,
    /// There is no way back.
    Final,
}

fn stage() -> MutexGuard<'static, Stage> {
    lock(&STAGE)
}

/// Takes a shutdown back that has not begun, or whose last snapshot is not complete; `false` if there
/// is none. Signals so far are forgotten with it; a later one counts, even before the end of this one.
pub fn abort() -> bool {
    let mut stage = stage();
    match &*stage {
        // A signal that was not acted on yet.
        Stage::None | Stage::Aborted => return signals::cancel(),
        Stage::Final => return false,
        Stage::Begun | Stage::Waits(_) => {}
        Stage::Saves(snapshot) => snapshot.end(),
    }
    signals::cancel();
    *lock(&FAILED_AFTER) = None;
    *stage = Stage::Aborted;
    CHANGED.notify_all();
    true
}

/// The data set is there: from now on a shutdown may save it.
pub fn data_set_is_complete() {
    IS_COMPLETE.store(true, SeqCst);
}

/// What the client is told whose SHUTDOWN failed.
const FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

fn refuse(reply: LateReply) {
    reply.send(|reply| reply.error(FAILED));
}

/// Begins the shutdown that a client asked for. `by` describes that client, which gets `reply` if the
/// server does not go down. While replicas are waited for, the client waits with those that asked before;
/// with NOW nothing is waited for any longer.
pub fn begin(engine: &'static Engine, request: ShutdownRequest, by: &str, reply: LateReply) {
    let mut stage = stage();
    match &mut *stage {
        Stage::None => {
            log!(Notice, "User requested shutdown... (user request from '{by}')");
            engine.last_wait().add(reply);
            start(stage, request);
        }
        Stage::Waits(waiting) => {
            engine.last_wait().add(reply);
            if request.now {
                *waiting = request;
                CHANGED.notify_all();
            }
        }
        _ => {
            drop(stage);
            refuse(reply);
        }
    }
}

/// Begins the shutdown that a signal asked for, unless it was taken back. Waits for the end of one
/// that is going, after which the signal still counts if it came after an ABORT.
pub fn follow_signal(engine: &'static Engine) {
    let is_going = |stage: &mut Stage| !matches!(stage, Stage::None);
    let stage = CHANGED.wait_while(stage(), is_going).unwrap_or_else(PoisonError::into_inner);
    let options = match signals::requested() {
        Some(ShutdownSignal::Term) => engine.config().shutdown_on_sigterm(),
        Some(ShutdownSignal::Int) => engine.config().shutdown_on_sigint(),
        None => return,
    };
    let save = match (options.save(), options.nosave()) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    // The last signal was in vain, and no save has succeeded since.
    let is_second = *lock(&FAILED_AFTER) == Some(engine.persistence().saves());
    let force = options.force() || is_second;
    let request = ShutdownRequest { save, now: options.now(), force };
    log!(Notice, "User requested shutdown...");
    start(stage, request);
}

/// Starts the thread that shuts down. It is there from the beginning, as the system may not be able to start one when
/// it is needed.
///
/// # Errors
/// The system can start no thread.
pub fn prepare(engine: &'static Engine, net: &Arc<Net>) -> io::Result<()> {
    let stopping = Arc::clone(net);
    thread::spawn("shutdown", move || {
        loop {
            let is_idle = |stage: &mut Stage| matches!(stage, Stage::None);
            drop(CHANGED.wait_while(stage(), is_idle).unwrap_or_else(PoisonError::into_inner));
            let may_wait =
                |stage: &Stage| matches!(stage, Stage::Waits(it) if !it.now && !it.force);
            // A script without an end would have to end first.
            let is_held_up = engine.scripts().running.is_busy();
            let waits = || !is_held_up && may_wait(&self::stage());
            leave::hand_over(engine, waits);
            leave::send_clients_away(engine, waits);
            let target = wait_for_replicas(engine);
            match begin_to_end(engine, target) {
                Some(request) if is_ended(engine, request) => return stop(engine, &stopping),
                // It has gone on, and the next one may have begun.
                Some(_) => {}
                None => go_on(engine, stage()),
            }
        }
    })
    .map(drop)
}

/// Hands the shutdown to its thread.
fn start(mut stage: MutexGuard<'static, Stage>, request: ShutdownRequest) {
    *stage = Stage::Waits(request);
    CHANGED.notify_all();
}

/// Waits until the replicas have everything, for `shutdown-timeout` at most. Returns what they are to have.
fn wait_for_replicas(engine: &Engine) -> Target {
    let timeout = Duration::from_secs(engine.config().shutdown_timeout().into());
    let waits = |stage: &Stage| matches!(stage, Stage::Waits(request) if !request.now);
    let target = Target::now(engine);
    // To pause writes would be to wait for the script, which may have no end.
    let is_held_up = engine.scripts().running.is_busy();
    if is_held_up || timeout.is_zero() || target.is_reached(engine) || !waits(&stage()) {
        return target;
    }
    let until = Instant::now() + timeout;
    engine.last_wait().begin(Millis(now().0.saturating_add(timeout.as_millis() as i64)));
    let target = Target::pause(engine);
    let mut stage = stage();
    while waits(&stage) && Instant::now() < until && !target.is_reached(engine) {
        stage = wait_timeout(&CHANGED, stage, LOOK, |stage| waits(stage));
    }
    drop(stage);
    engine.last_wait().end();
    target
}

/// Replicas are waited for no longer. Decides whether there will be a last snapshot, and returns what
/// there is to do; `None`: the server goes on.
fn begin_to_end(engine: &Engine, target: Target) -> Option<ShutdownRequest> {
    let mut stage = stage();
    let Stage::Waits(mut request) = *stage else { return None };
    target.log(engine);
    if engine.append_log().state() == LogState::Beginning {
        // The log may wait for a script without an end, which nothing but NOSAVE ends if it has written.
        let ends_script = request.save == Some(false) && engine.scripts().running.is_busy();
        if !request.force && !ends_script {
            log!(Warning, "Writing initial AOF, can't exit.");
            log_failure();
            return None;
        }
        log!(Warning, "Writing initial AOF. Exit anyway.");
    }
    let has_points = !engine.config().save_points().is_empty();
    let is_complete = IS_COMPLETE.load(SeqCst) && !engine.loading().is_on();
    let lacks_data = engine.upstream().is_incomplete();
    if lacks_data && has_points && request.save.is_none() {
        log!(
            Warning,
            "The data of the master was not loaded to its end, so the last snapshot is kept and none is \
             saved"
        );
    }
    let saves = is_complete && request.save.unwrap_or(has_points && !lacks_data);
    request.save = Some(saves);
    *stage = if saves { Stage::Begun } else { Stage::Final };
    Some(request)
}

/// Does what there is to do; whether the server goes down.
fn is_ended(engine: &'static Engine, request: ShutdownRequest) -> bool {
    if request.save == Some(true) {
        return save_last(engine, request.force);
    }
    end_running(engine);
    true
}

fn log_failure() {
    log!(Warning, "Errors trying to shut down the server. Check the logs for more information.");
}

/// The server goes on: clients learn that, and writes need not wait any longer.
fn go_on(engine: &Engine, mut stage: MutexGuard<'static, Stage>) {
    // Before anybody can see that it failed: the next signal counts as the first again.
    if !matches!(*stage, Stage::Aborted) {
        signals::cancel();
    }
    // Before the lock is free: the next shutdown may begin then, and pauses by itself.
    engine.pause().end_shutdown();
    *stage = Stage::None;
    let replies = engine.last_wait().take_replies();
    drop(stage);
    CHANGED.notify_all();
    replies.into_iter().for_each(refuse);
    recheck_all(engine.mailboxes());
}

/// Ends the load, be it under way or still to come, and the reactors.
fn stop(engine: &Engine, net: &Net) {
    engine.loading().cancel();
    net.stop();
}

/// Saves; whether the server goes down.
fn save_last(engine: &'static Engine, is_forced: bool) -> bool {
    log!(Notice, "Saving the final RDB snapshot before exiting.");
    engine.pause().begin_shutdown();
    let saved = save_unless_aborted(engine);
    let mut stage = stage();
    if !matches!(*stage, Stage::Aborted) {
        if saved.is_ok() || is_forced {
            if saved.is_err() {
                log!(Warning, "Error trying to save the DB. Exit anyway.");
            }
            *stage = Stage::Final;
            return true;
        }
        log!(Warning, "Error trying to save the DB, can't exit.");
        log_failure();
        if signals::requested().is_some() {
            log!(
                Warning,
                "The server goes on with all its data. A second signal ends it, saved or not."
            );
            *lock(&FAILED_AFTER) = Some(engine.persistence().saves());
        }
    }
    go_on(engine, stage);
    false
}

/// Ends the snapshot under way, and gives it time to delete its temporary file.
fn end_running(engine: &Engine) {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let until = Instant::now() + TIMEOUT;
    if let Some(running) = engine.snapshots().current() {
        running.end();
    }
    while engine.snapshots().is_running() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes a snapshot of now; one that is under way gives way.
fn save_unless_aborted(engine: &'static Engine) -> Result<(), String> {
    let snapshot = save::begin(engine, OnConflict::Cancel);
    {
        let mut stage = stage();
        if matches!(*stage, Stage::Aborted) {
            return Err("aborted".to_owned());
        }
        *stage = Stage::Saves(Arc::clone(snapshot.progress()));
    }
    save::now(engine, snapshot, Beside::Clients)
}
