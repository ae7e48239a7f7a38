//! `DEBUG LOADAOF`, `DEBUG AOF-FAULT write|short|fsync|none`

use engine::debug::DiskFault;
use engine::{Args, Cx, Error, Outcome};
use std::sync::atomic::Ordering::*;

const FAILED: &str = "ERR Error trying to load the AOF files, check server logs.";

const REWRITING: &str =
    "ERR Background append only file rewriting in progress: try again when it is over";

/// Throws away the data set and loads it from the append-only file; others are told meanwhile that
/// it is loaded. It stays as it is if the file cannot be completed first.
pub(super) fn loadaof(cx: &mut Cx<'_>) -> Outcome {
    let engine = cx.engine;
    if cx.in_transaction {
        return Err(Error::text("ERR DEBUG LOADAOF is not allowed in a transaction"));
    }
    // A rewrite would delete the files that are being read, or waits for the world that is stopped
    // here and keeps from others what it needs; and a log that begins is that of what is in memory
    // now.
    let is_rewriting = &engine.append_log.figures.is_rewriting;
    if is_rewriting.swap(true, AcqRel) {
        return Err(Error::text(REWRITING));
    }
    // Without `appendonly` it loads what there is all the same.
    let Some(host) = engine.host().filter(|host| host.has_append_log()) else {
        is_rewriting.store(false, Release);
        return Err(Error::text(FAILED));
    };
    // Everybody is told at once, since only a command can: if it comes to nothing, clients have
    // forgotten and transactions repeat what they need not.
    let going: Vec<_> = engine.keyspace.used_databases().map(|db| (db, None)).collect();
    engine::commit::databases_change(cx, &going);
    engine::caching::invalidate_all(&mut cx.db);
    engine.loading.begin(0, cx.now());
    cx.reply_later(move |reply| {
        if let Err(why) = host.complete_append_log() {
            is_rewriting.store(false, Release);
            engine.loading.end();
            host.warn(&format!("DEBUG LOADAOF: the append-only file is incomplete: {why}"));
            reply.error(FAILED);
            return;
        }
        engine.background.free_tables(engine::replay::take_everything(engine));
        // It ends the process if it fails: half a data set must not be served. Nor is it when the
        // server goes down: to the end clients are told that it is loading, and nothing is
        // rewritten.
        if !host.reload_append_log() {
            reply.error(FAILED);
            return;
        }
        is_rewriting.store(false, Release);
        engine.loading.end();
        reply.ok();
    });
    Ok(())
}

/// Makes the disk fail, as far as the append-only file is concerned.
pub(super) fn fault(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let fault = match args[2].to_ascii_lowercase().as_slice() {
        b"none" => DiskFault::None,
        b"write" => DiskFault::Write,
        b"short" => DiskFault::ShortWrite,
        b"fsync" => DiskFault::Sync,
        _ => return Err(Error::Syntax),
    };
    cx.engine.debug.set_disk_fault(fault);
    cx.reply.ok();
    Ok(())
}
