//! `DEBUG RELOAD [MERGE] [NOFLUSH] [NOSAVE]`
//!
//! Saves everything into the configured file, empties the server and loads the file, while the
//! world is stopped. Where there is no sound snapshot to load nothing is thrown away.

use engine::{Args, Cx, DbIndex, Error, Outcome};
use keyspace::keyspace::Taken;

/// The options.
#[derive(Default)]
struct ReloadOptions {
    merge: bool,
    no_flush: bool,
    no_save: bool,
}

fn parse(args: Args<'_>) -> Result<ReloadOptions, Error> {
    let mut options = ReloadOptions::default();
    for at in 2..args.len() {
        if args.is(at, "merge") {
            options.merge = true;
        } else if args.is(at, "noflush") {
            options.no_flush = true;
        } else if args.is(at, "nosave") {
            options.no_save = true;
        } else {
            return Err(Error::text(
                "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
            ));
        }
    }
    Ok(options)
}

pub(super) fn reload(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args)?;
    let engine = cx.engine;
    let Some(host) = engine.host() else { return Err(Error::text("ERR There is no disk")) };
    if !options.no_save {
        let snapshot = cx
            .db
            .begin_snapshot()
            .map_err(|_| Error::text("ERR Background save already in progress"))?;
        host.save_now(snapshot).map_err(|_| Error::text("ERR"))?;
    }
    let mut make_room = || empty(cx);
    let make_room: Option<&mut dyn FnMut()> =
        if options.no_flush { None } else { Some(&mut make_room) };
    if let Err(why) = host.load_now(options.merge, make_room) {
        host.warn(&format!("DEBUG RELOAD: {why}"));
        return Err(Error::text("ERR Error trying to load the RDB dump, check server logs."));
    }
    host.warn("DB reloaded by DEBUG RELOAD");
    cx.reply.ok();
    Ok(())
}

/// Takes all keys away, as FLUSHALL does, and libraries, but without a word to the journal.
fn empty(cx: &mut Cx<'_>) {
    let dbs: Vec<DbIndex> = cx.engine.keyspace.used_databases().collect();
    let going: Vec<_> = dbs.iter().map(|&db| (db, None)).collect();
    engine::commit::databases_change(cx, &going);
    engine::caching::invalidate_all(&mut cx.db);
    let mut taken = Taken::default();
    cx.db.for_each_stripe_mut(|_, stripe| taken.take(stripe, dbs.iter().copied()));
    cx.engine.scripts.functions.flush();
    cx.engine.background.free_tables(taken);
}
