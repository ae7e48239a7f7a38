//! Loads a snapshot for `repl-diskless-load swapdb`: into a second data set, which replaces the
//! first one when all of it has arrived. If the transfer fails, the first one stays as it is.
//!
//! If the snapshot belongs to the same history, the first data set is an earlier state of the same
//! data, and is served meanwhile. Otherwise clients get LOADING errors, as in Redis.

use super::{
    Failure, Loaded, SnapshotInput, Target, Watcher, before_discard, begun_at, end_writers,
    load_snapshot, read_end,
};
use crate::log;
use crate::persistence::load::Report;
use crate::replication::upstream::Uplink;
use engine::DbIndex;
use engine::follow::{Beginning, GoesOn, exchange};
use process::signals;
use replication::replica::Promise;
use std::io::Read;

/// Receives and loads a snapshot.
///
/// # Errors
/// The transfer or the load failed. The data set is unchanged.
pub fn receive(
    uplink: &Uplink<'_>,
    promise: &Promise,
    input: SnapshotInput<'_, impl Read, impl Watcher>,
    total_bytes: Option<u64>,
) -> Result<Loaded, Failure> {
    let outcome = load(uplink, promise, input, total_bytes)
        .and_then(|(report, rest)| install(uplink, promise, &report, rest));
    signals::set_loading(false);
    if outcome.is_err() {
        let engine = uplink.engine;
        engine.loading.end();
        engine
            .background
            .free_tables(engine.loading.beside(&engine.keyspace).take(&engine.keyspace));
        uplink.aof.resume();
        if engine.upstream.term() != uplink.term {
            return Err(Failure::Over);
        }
    }
    outcome
}

/// Loads the whole snapshot into the second data set.
fn load(
    uplink: &Uplink<'_>,
    promise: &Promise,
    mut input: SnapshotInput<'_, impl Read, impl Watcher>,
    total_bytes: Option<u64>,
) -> Result<(Report, Vec<u8>), Failure> {
    let engine = uplink.engine;
    let at = engine::clock::now();
    let has_history = engine.journal.is_history_known() && !engine.upstream.is_incomplete();
    let own = has_history.then(|| engine.journal.history().id);
    let is_same = promise.from.is_some_and(|(id, _)| own == Some(id));
    if is_same {
        log!(
            Notice,
            "MASTER <-> REPLICA sync: Loading DB in memory, the old data is served meanwhile"
        );
        engine.loading.begin_beside(total_bytes.unwrap_or(0), at);
    } else {
        log!(Notice, "MASTER <-> REPLICA sync: Loading DB in memory");
        signals::set_loading(true);
        engine.loading.begin(total_bytes.unwrap_or(0), at);
    }
    let name = "the stream from the master";
    let report = load_snapshot(engine, &mut input, name, total_bytes, Target::Beside)?;
    let rest = read_end(input)?;
    Ok((report, rest))
}

/// Replaces the data set by the loaded one.
fn install(
    uplink: &Uplink<'_>,
    promise: &Promise,
    report: &Report,
    rest: Vec<u8>,
) -> Result<Loaded, Failure> {
    let engine = uplink.engine;
    before_discard(engine)?;
    log!(Notice, "MASTER <-> REPLICA sync: Swapping active DB with loaded DB");
    end_writers(uplink);
    let (history, position) = begun_at(promise);
    let stream_db = DbIndex(report.stream_db.unwrap_or(0));
    let beginning = Beginning { history, position, bytes: None };
    let goes_on = GoesOn { db: stream_db, epoch: report.epoch };
    let old = exchange(engine, uplink.thread, uplink.term, &beginning, goes_on)?;
    engine.background.free_tables(old);
    uplink.aof.resume();
    Ok(Loaded { stream_db, rest })
}
