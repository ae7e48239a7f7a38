//! Shuts down after SHUTDOWN, SIGTERM or SIGINT: waits until replicas have everything, then writes
//! the last snapshot.
//!
//! While it waits for replicas, and from the instant of the last snapshot on, nothing may change.
//! Writes wait until the server has ended, or until it is clear that it continues.

use super::save;
use crate::cluster::leave;
use crate::log;
use crate::replication::catch_up::{self, Target};
use engine::append_log::LogState;
use engine::clock::now;
use engine::engine::{OnConflict, ShutdownRequest};
use engine::long::LateReply;
use engine::mailbox::recheck_all;
use engine::snapshot::Beside;
use engine::{Engine, Millis};
use keyspace::snapshot::Shared;
use net::Net;
use process::audit;
use process::signals::{self, ShutdownSignal};
use process::thread;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use structs::sync::{lock, wait_timeout};

/// The stage of the only shutdown. It is begun, aborted and ended under this lock, so after an
/// ABORT that was answered OK there is no shutdown.
static STAGE: Mutex<Stage> = Mutex::new(Stage::None);
/// Notified when the stage has changed.
static CHANGED: Condvar = Condvar::new();
/// Time between two checks of the replicas' acknowledgements.
const LOOK: Duration = Duration::from_millis(5);

/// Whether the data set has been loaded. Before that, a last snapshot would replace the file that
/// contains it.
static IS_COMPLETE: AtomicBool = AtomicBool::new(false);

/// Number of successful saves at the time when a shutdown by a signal failed. `None`: none has
/// failed, or the last one was aborted.
static FAILED_AFTER: Mutex<Option<u64>> = Mutex::new(None);

enum Stage {
    /// There is no shutdown, although a signal may have requested one.
    None,
    /// It waits until replicas have everything.
    Waits(ShutdownRequest),
    /// It will save.
    Begun,
    /// It writes this snapshot.
    Saves(Arc<Shared>),
    /// It was aborted. Work that it began still has to end.
    Aborted,
    /// It cannot be aborted any more.
    Final,
}

fn stage() -> MutexGuard<'static, Stage> {
    lock(&STAGE)
}

/// Aborts a shutdown that has not begun, or whose last snapshot is not complete. Returns `false` if
/// there is none. Earlier signals are forgotten. A later signal counts, even before the aborted
/// shutdown has ended.
pub fn abort() -> bool {
    let mut stage = stage();
    match &*stage {
        // Forget a signal that was not handled yet.
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

/// Declares the data set complete. From now on a shutdown may save it.
pub fn data_set_is_complete() {
    IS_COMPLETE.store(true, SeqCst);
}

/// The error for a client whose SHUTDOWN failed.
const FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

fn refuse(reply: LateReply) {
    reply.send(|reply| reply.error(FAILED));
}

/// Begins a shutdown that a client requested. `by` describes the client. It gets `reply` if the
/// server does not end. If a shutdown waits for replicas already, the client waits with the earlier
/// ones. With NOW the shutdown stops waiting.
pub fn begin(engine: &'static Engine, request: ShutdownRequest, by: &str, reply: LateReply) {
    let mut stage = stage();
    match &mut *stage {
        Stage::None => {
            log!(Notice, "User requested shutdown... (user request from '{by}')");
            engine.last_wait.add(reply);
            start(stage, request);
        }
        Stage::Waits(waiting) => {
            engine.last_wait.add(reply);
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

/// Begins a shutdown that a signal requested, unless it was aborted. First waits for the end of a
/// running one. After that the signal still counts if it came after an ABORT.
pub fn follow_signal(engine: &'static Engine) {
    let is_going = |stage: &mut Stage| !matches!(stage, Stage::None);
    let stage = CHANGED.wait_while(stage(), is_going).unwrap_or_else(PoisonError::into_inner);
    let options = match signals::requested() {
        Some(ShutdownSignal::Term) => engine.config.shutdown_on_sigterm(),
        Some(ShutdownSignal::Int) => engine.config.shutdown_on_sigint(),
        None => return,
    };
    let save = match (options.save(), options.nosave()) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    // The last signal failed, and no save has succeeded since.
    let is_second = *lock(&FAILED_AFTER) == Some(engine.persistence.saves());
    let force = options.force() || is_second;
    let request = ShutdownRequest { save, now: options.now(), force, safe: options.safe() };
    log!(Notice, "User requested shutdown...");
    audit::record(&audit::Entry {
        source: audit::Source::Server,
        user: b"",
        address: "",
        id: 0,
        action: "signal",
        target: &[b"shutdown"],
        outcome: audit::Outcome::Begun,
    });
    start(stage, request);
}

/// Starts the thread that shuts down. It exists from the beginning, because the system may not be
/// able to start a thread when it is needed.
///
/// # Errors
/// The system cannot start a thread.
pub fn prepare(engine: &'static Engine, net: &Arc<Net>) -> io::Result<()> {
    let stopping = Arc::clone(net);
    thread::spawn("shutdown", move || {
        loop {
            let is_idle = |stage: &mut Stage| matches!(stage, Stage::None);
            drop(CHANGED.wait_while(stage(), is_idle).unwrap_or_else(PoisonError::into_inner));
            let may_wait =
                |stage: &Stage| matches!(stage, Stage::Waits(it) if !it.now && !it.force);
            // An endless script would have to end first.
            let is_held_up = engine.scripts.running.is_busy();
            let waits = || !is_held_up && may_wait(&self::stage());
            leave::hand_over(engine, waits);
            if is_refused(engine) {
                go_on(engine, stage());
                continue;
            }
            leave::send_clients_away(engine, waits);
            leave::end_links(engine, waits);
            let target = wait_for_replicas(engine);
            match begin_to_end(engine, target) {
                Some(request) if is_ended(engine, request) => return stop(engine, &stopping),
                // The server has continued, and the next shutdown may have begun.
                Some(_) => {}
                None => go_on(engine, stage()),
            }
        }
    })
    .map(drop)
}

/// Returns whether the server is not to end because it leads a shard that has slots (SAFE).
fn is_refused(engine: &Engine) -> bool {
    let stage = stage();
    let is_safe = matches!(&*stage, Stage::Waits(request) if request.safe && !request.force);
    let is_refused = is_safe && leave::leads_slots(engine);
    if is_refused {
        log!(
            Warning,
            "Cluster: this node leads a shard that has slots, so SHUTDOWN SAFE is refused"
        );
        log_failure();
    }
    is_refused
}

/// Passes the shutdown to its thread.
fn start(mut stage: MutexGuard<'static, Stage>, request: ShutdownRequest) {
    *stage = Stage::Waits(request);
    CHANGED.notify_all();
}

/// Waits until the replicas have everything, for `shutdown-timeout` at most. Returns the position
/// that they have to reach.
fn wait_for_replicas(engine: &Engine) -> Target {
    let timeout = Duration::from_secs(engine.config.shutdown_timeout().into());
    let waits = |stage: &Stage| matches!(stage, Stage::Waits(request) if !request.now);
    // Pausing writes would wait for the script, which may be endless.
    let is_held_up = engine.scripts.running.is_busy();
    if is_held_up || timeout.is_zero() || !catch_up::has_replicas(engine) || !waits(&stage()) {
        return Target::now(engine);
    }
    // Before the first look: a write that is acknowledged behind it would be on no replica.
    let target = Target::pause(engine);
    if target.is_reached(engine) {
        return target;
    }
    let until = Instant::now() + timeout;
    engine.last_wait.begin(Millis(now().0.saturating_add(timeout.as_millis() as i64)));
    let mut stage = stage();
    while waits(&stage) && Instant::now() < until && !target.is_reached(engine) {
        stage = wait_timeout(&CHANGED, stage, LOOK, |stage| waits(stage));
    }
    drop(stage);
    engine.last_wait.end();
    target
}

/// Stops waiting for replicas. Decides whether there will be a last snapshot. Returns the request
/// to carry out, or `None` if the server continues.
fn begin_to_end(engine: &Engine, target: Target) -> Option<ShutdownRequest> {
    let mut stage = stage();
    let Stage::Waits(mut request) = *stage else { return None };
    target.log(engine);
    if engine.append_log.state() == LogState::Beginning {
        // The log may wait for an endless script. If the script has written, only NOSAVE ends it.
        let ends_script = request.save == Some(false) && engine.scripts.running.is_busy();
        if !request.force && !ends_script {
            log!(Warning, "Writing initial AOF, can't exit.");
            log_failure();
            return None;
        }
        log!(Warning, "Writing initial AOF. Exit anyway.");
    }
    let has_points = !engine.config.save_points().is_empty();
    let is_complete = IS_COMPLETE.load(SeqCst) && !engine.loading.is_on();
    let lacks_data = engine.upstream.is_incomplete();
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

/// Carries out the request. Returns whether the server ends.
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

/// Continues the server: notifies the waiting clients and resumes writes.
fn go_on(engine: &Engine, mut stage: MutexGuard<'static, Stage>) {
    // Do this before the failure becomes visible: the next signal counts as the first again.
    if !matches!(*stage, Stage::Aborted) {
        signals::cancel();
    }
    // Do this before the lock is released: the next shutdown may begin then, and pauses by itself.
    engine.pause.end_shutdown();
    leave::keep_links(engine);
    *stage = Stage::None;
    let replies = engine.last_wait.take_replies();
    drop(stage);
    CHANGED.notify_all();
    replies.into_iter().for_each(refuse);
    recheck_all(&engine.mailboxes);
}

/// Ends a present or later load, and the reactors.
fn stop(engine: &Engine, net: &Net) {
    engine.loading.cancel();
    net.stop();
}

/// Writes the last snapshot. Returns whether the server ends.
fn save_last(engine: &'static Engine, is_forced: bool) -> bool {
    log!(Notice, "Saving the final RDB snapshot before exiting.");
    engine.pause.begin_shutdown();
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
            *lock(&FAILED_AFTER) = Some(engine.persistence.saves());
        }
    }
    go_on(engine, stage);
    false
}

/// Ends the running snapshot, and gives it time to delete its temporary file.
fn end_running(engine: &Engine) {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let until = Instant::now() + TIMEOUT;
    if let Some(running) = engine.snapshots.current() {
        running.end();
    }
    while engine.snapshots.is_running() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes a snapshot of the present data. Cancels a running one.
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
