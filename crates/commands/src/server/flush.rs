//! `FLUSHALL [ASYNC|SYNC]`, `FLUSHDB [ASYNC|SYNC]`
//!
//! The world stands still only while the tables are taken out of the stripes; they are freed by a
//! background thread. With SYNC, which is the default if `lazyfree-lazy-user-flush` is off, the
//! client gets its reply when that is done; inside MULTI, where nobody can wait, at once.

use engine::snapshot::Snapshots;
use engine::{Arg, Args, Command, Cx, DbIndex, Error, Flags, Group, Outcome};
use keyspace::keyspace::take_all;

/// `FLUSHALL`.
pub static FLUSHALL: Command = Command {
    name: "flushall",
    arity: -1,
    flags: Flags::WORLD.with(Flags::WRITE),
    group: Group::Server,
    categories: &["keyspace", "dangerous"],
    since: "1.0.0",
    complexity: "O(N) where N is the total number of keys in all databases",
    summary: "Removes all keys from all databases.",
    history: &[
        ("4.0.0", "Added the `ASYNC` flushing mode modifier."),
        ("6.2.0", "Added the `SYNC` flushing mode modifier."),
    ],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "flush-type",
        &[Arg::token("async", "ASYNC").since("4.0.0"), Arg::token("sync", "SYNC").since("6.2.0")],
    )
    .optional()],
    run: flushall,
    ..Command::ROW
};

/// `FLUSHDB`.
pub static FLUSHDB: Command = Command {
    name: "flushdb",
    arity: -1,
    flags: Flags::WORLD.with(Flags::WRITE),
    group: Group::Server,
    categories: &["keyspace", "dangerous"],
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys in the selected database",
    summary: "Removes all keys from the current database.",
    history: &[
        ("4.0.0", "Added the `ASYNC` flushing mode modifier."),
        ("6.2.0", "Added the `SYNC` flushing mode modifier."),
    ],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "flush-type",
        &[Arg::token("async", "ASYNC").since("4.0.0"), Arg::token("sync", "SYNC").since("6.2.0")],
    )
    .optional()],
    run: flushdb,
    ..Command::ROW
};

fn flushall(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let in_background = parse(cx, args)?;
    let dbs: Vec<DbIndex> = (0..cx.engine.keyspace.databases()).map(DbIndex).collect();
    flush(cx, &dbs, in_background);
    if !cx.engine.config.save_points().is_empty() {
        save_nothing(cx);
    }
    Ok(())
}

fn flushdb(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let in_background = parse(cx, args)?;
    let db = cx.db.index;
    flush(cx, &[db], in_background);
    Ok(())
}

/// Saves that there is nothing any more, so that a restart does not bring it back. What is being
/// saved at the moment is of no use; the empty file comes behind it.
fn save_nothing(cx: &mut Cx<'_>) {
    let engine = cx.thread.engine;
    if engine.persistence.running_seconds().is_some() {
        if let Some(running) = engine.snapshots.current() {
            running.end();
        }
        engine.persistence.schedule();
    } else if let Ok(snapshot) = Snapshots::begin_in_stopped_world(engine, &cx.db)
        && let Some(host) = engine.host()
    {
        host.save_in_background(snapshot, Box::new(|_| {}));
    }
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
    let going: Vec<_> = dbs.iter().map(|&db| (db, None)).collect();
    engine::commit::databases_change(cx, &going);
    let mut taken = keyspace::keyspace::Taken(Vec::new());
    let mut keys = 0;
    cx.db.for_each_stripe(|_, stripe| {
        keys += dbs.iter().map(|&db| stripe.db(db).entries().len() as u64).sum::<u64>();
        let part = take_all(std::iter::once(stripe), dbs.iter().copied());
        taken.0.extend(part.0);
    });
    cx.engine.tracking.invalidate_all(&cx.db);
    cx.db.add_dirty(keys.max(1));
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
