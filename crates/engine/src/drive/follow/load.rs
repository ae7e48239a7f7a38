//! Taking the data set away for a snapshot of the primary, and going on behind it.

use crate::args::Args;
use crate::caching;
use crate::commit;
use crate::cx::Cx;
use crate::dispatch;
use crate::engine::Engine;
use crate::journal::{History, JournalPos};
use crate::scripts::functions::Libraries;
use crate::thread::ThreadContext;
use keyspace::DbIndex;
use keyspace::keyspace::Taken;
use resp::Output;
use std::mem::take;
use structs::sync::lock;

/// The term in which something was begun is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over;

/// What follows a snapshot: its history and the position of its instant.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// The history.
    pub history: History,
    /// The position.
    pub position: JournalPos,
    /// Bytes of the snapshot that is going to be loaded; `None`: none is, the data set stays empty.
    pub bytes: Option<u64>,
}

/// How the stream goes on behind a snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub struct GoesOn {
    /// In this database.
    pub db: DbIndex,
    /// In this epoch, or the next that begins; 0 outside of a cluster.
    pub epoch: u64,
}

/// Takes all data away, with what depends on it, to load a snapshot of the primary: from then on
/// the journal is at its position, and clients are told that data is being loaded. What was taken
/// is returned, to be freed. The caller is outside the world, and no append-only file is written.
///
/// # Errors
/// Another term has begun. Nothing has happened.
pub fn begin_load(
    engine: &'static Engine,
    thread: &ThreadContext,
    term: u64,
    beginning: &Beginning,
) -> Result<Taken, Over> {
    replace(engine, thread, term, beginning, None)
}

/// The snapshot is loaded beside the data set ([`crate::loading::SecondDataSet`]): takes that away
/// as [`begin_load`] does, and puts the loaded one into its place at the same moment. The stream
/// goes on so.
///
/// # Errors
/// Another term has begun. Nothing has happened.
pub fn exchange(
    engine: &'static Engine,
    thread: &ThreadContext,
    term: u64,
    beginning: &Beginning,
    goes_on: GoesOn,
) -> Result<Taken, Over> {
    replace(engine, thread, term, beginning, Some(goes_on))
}

fn replace(
    engine: &'static Engine,
    thread: &ThreadContext,
    term: u64,
    beginning: &Beginning,
    loaded: Option<GoesOn>,
) -> Result<Taken, Over> {
    let mut session = engine.own_session(thread);
    let mut replies = Output::default();
    let mut cx = Cx::new(engine, thread, &mut session, engine.clock.wall(), &mut replies);
    cx.db.hold_world(dispatch::stop_world_patiently(engine));
    if engine.upstream.term() != term {
        return Err(Over);
    }
    let dbs: Vec<DbIndex> = engine.keyspace.used_databases().collect();
    let going: Vec<_> = dbs.iter().map(|&db| (db, None)).collect();
    cx.begin_transaction();
    commit::databases_change(&mut cx, &going);
    caching::invalidate_all(&mut cx.db);
    let mut taken = Taken::default();
    cx.db.for_each_stripe_mut(|_, stripe| {
        taken.take(stripe, dbs.iter().copied());
        stripe.written = 0;
    });
    let beside = loaded.map(|_| engine.loading.beside(&engine.keyspace));
    if let Some(beside) = beside {
        let keyspace = &beside.keyspace;
        cx.db.for_each_stripe_mut(|index, stripe| {
            stripe.exchange(&mut keyspace.stripe(index).lock());
        });
        // Watched keys that have come.
        commit::databases_change(&mut cx, &going);
    }
    let libraries =
        beside.map_or_else(Libraries::default, |beside| take(&mut lock(&beside.libraries)));
    let replaced = engine.scripts.functions.change(|all| {
        *all = libraries;
        Ok::<(), Over>(())
    });
    replaced?;
    match beginning.bytes {
        Some(bytes) => engine.loading.begin(bytes, cx.now()),
        None => engine.loading.end(),
    }
    engine.safe.begin_history();
    engine.give_up_all_writes();
    engine.journal.begin_history(beginning.history, beginning.position);
    engine.epochs.replace(loaded.unwrap_or_default().epoch, beginning.position);
    if let Some(GoesOn { db, .. }) = loaded {
        engine.journal.keep();
        engine.journal.note_db(db);
    }
    let mut link = engine.upstream.link();
    link.is_incomplete = loaded.is_none() && engine.upstream.is_replica();
    link.stream_db = loaded.unwrap_or_default().db;
    drop(link);
    cx.end_transaction();
    commit::commit(&mut cx, Args::new(&[]));
    // Clients may wait for what the other data set has.
    dispatch::serve_first(&mut cx);
    cx.db.locks.release();
    engine.disconnect_replicas();
    engine.flush_broadcasts();
    Ok(taken)
}

/// The snapshot is loaded: the data set is the one that the journal's position names, and the
/// stream goes on so.
///
/// # Errors
/// Another term has begun.
pub fn end_load(engine: &Engine, term: u64, goes_on: GoesOn) -> Result<(), Over> {
    let stopped = engine.keyspace.world().stop();
    if engine.upstream.term() != term {
        return Err(Over);
    }
    engine.journal.keep();
    engine.journal.note_db(goes_on.db);
    engine.epochs.replace(goes_on.epoch, engine.journal.position());
    let mut link = engine.upstream.link();
    link.is_incomplete = false;
    link.stream_db = goes_on.db;
    drop(link);
    engine.loading.end();
    drop(stopped);
    Ok(())
}
