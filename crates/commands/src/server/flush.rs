//! `FLUSHALL [ASYNC|SYNC]`, `FLUSHDB [ASYNC|SYNC]`
//!
//! The world stands still only while the tables are taken out of the stripes; they are freed by a
//! background thread. With SYNC, which is the default if `lazyfree-lazy-user-flush` is off, the
//! client gets its reply when that is done; inside MULTI, where waiting is impossible, at once.
//!
//! If there are save points, FLUSHALL saves that there is nothing any more, so that a restart does
//! not bring it back, and its client waits for that too.

use engine::engine::OnConflict;
use engine::routing::{Applied, Routing};
use engine::{Arg, Args, Command, Cx, Databases, DbIndex, Error, Flags, Group, Outcome};
use keyspace::keyspace::Taken;

/// `FLUSHALL`.
pub static FLUSHALL: Command = Command {
    name: "flushall",
    arity: -1,
    flags: Flags::WORLD.with(Flags::WRITE).with(Flags::AUDITED),
    group: Group::Server,
    categories: &["keyspace", "dangerous"],
    since: "1.0.0",
    complexity: "O(N) for N keys in all databases",
    summary: "Deletes the keys of all databases.",
    history: &[("4.0.0", "Takes `ASYNC`."), ("6.2.0", "Takes `SYNC`.")],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "flush-type",
        &[Arg::token("async", "ASYNC").since("4.0.0"), Arg::token("sync", "SYNC").since("6.2.0")],
    )
    .optional()],
    databases: Databases::All,
    routing: Routing::USUAL.applied(Applied::FlushAll),
    run: flushall,
    ..Command::ROW
};

/// `FLUSHDB`.
pub static FLUSHDB: Command = Command {
    name: "flushdb",
    arity: -1,
    flags: Flags::WORLD.with(Flags::WRITE).with(Flags::AUDITED),
    group: Group::Server,
    categories: &["keyspace", "dangerous"],
    since: "1.0.0",
    complexity: "O(N) for N keys in the database",
    summary: "Deletes the keys of this database.",
    history: &[("4.0.0", "Takes `ASYNC`."), ("6.2.0", "Takes `SYNC`.")],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "flush-type",
        &[Arg::token("async", "ASYNC").since("4.0.0"), Arg::token("sync", "SYNC").since("6.2.0")],
    )
    .optional()],
    routing: Routing::USUAL.applied(Applied::FlushDatabase),
    run: flushdb,
    ..Command::ROW
};

fn flushall(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let in_background = parse(cx, args)?;
    let engine = cx.engine;
    let dbs: Vec<DbIndex> = engine.keyspace.used_databases().collect();
    // What is being loaded is not all there is yet.
    let saves = !engine.config.save_points().is_empty() && !engine.loading.is_on();
    let Some(host) = engine.host().filter(|_| saves) else {
        // A file with what is going now is of no use to anybody.
        engine.persistence.end_running();
        flush(cx, &dbs, in_background);
        return Ok(());
    };
    let (taken, _) = take(cx, &dbs);
    // It waits for the world, and so until this command, or its transaction, is over.
    if cx.in_transaction {
        engine.background.free_tables(taken);
        cx.reply.ok();
        host.save_apart(OnConflict::Cancel, Box::new(|_| {}));
        return Ok(());
    }
    let now = if in_background {
        engine.background.free_tables(taken);
        None
    } else {
        Some(taken)
    };
    let reply = cx.late_reply();
    let done = move |_| {
        drop(now);
        // As in Redis, that the file could not be written is for the log.
        reply.send(|reply| reply.ok());
    };
    host.save_apart(OnConflict::Cancel, Box::new(done));
    Ok(())
}

fn flushdb(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let in_background = parse(cx, args)?;
    let db = cx.db.index;
    flush(cx, &[db], in_background);
    Ok(())
}

/// Whether to free in the background.
fn parse(cx: &Cx<'_>, args: Args<'_>) -> Result<bool, Error> {
    match args.len() {
        1 => Ok(cx.engine.config.lazyfree_lazy_user_flush()),
        2 if args.is(1, "async") => Ok(true),
        2 if args.is(1, "sync") => Ok(false),
        _ => Err(Error::Syntax),
    }
}

fn flush(cx: &mut Cx<'_>, dbs: &[DbIndex], in_background: bool) {
    // What was copied of slots that arrive goes, too, and is sent again.
    cx.engine.membership.moves.end_imports(|_| true);
    let (taken, keys) = take(cx, dbs);
    if in_background || cx.in_transaction || keys == 0 {
        cx.engine.background.free_tables(taken);
        cx.reply.ok();
    } else {
        cx.reply_later(|reply| {
            drop(taken);
            reply.ok();
        });
    }
}

/// Takes the tables of some databases away; also how many keys were in them.
fn take(cx: &mut Cx<'_>, dbs: &[DbIndex]) -> (Taken, u64) {
    let going: Vec<_> = dbs.iter().map(|&db| (db, None)).collect();
    engine::commit::databases_change(cx, &going);
    let mut taken = Taken::default();
    let mut keys = 0;
    cx.db.for_each_stripe_mut(|_, stripe| {
        keys += dbs.iter().map(|&db| stripe.key_count(db) as u64).sum::<u64>();
        taken.take(stripe, dbs.iter().copied());
    });
    engine::caching::invalidate_all(&mut cx.db);
    cx.db.add_dirty(keys.max(1));
    (taken, keys)
}
