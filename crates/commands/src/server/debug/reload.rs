//! `DEBUG RELOAD [MERGE] [NOFLUSH] [NOSAVE]`
//!
//! There are no files yet, so every value goes to the form it has in files and back within memory:
//! what is checked is the codec and the encodings that values get when they are loaded.

use crate::value;
use engine::{Args, Cx, DbIndex, Error, Outcome};
use keyspace::{Entry, Key};

/// The options.
#[derive(Default)]
struct Options {
    merge: bool,
    no_flush: bool,
    no_save: bool,
}

fn parse(args: Args<'_>) -> Result<Options, Error> {
    let mut options = Options::default();
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
    let dbs: Vec<DbIndex> = (0..cx.engine.keyspace.databases()).map(DbIndex).collect();
    if options.no_save {
        return Err(Error::text("ERR There is no file to load"));
    }
    let has_keys = dbs.iter().any(|&db| cx.engine.key_count(db, &cx.db) > 0);
    if options.no_flush && !options.merge && has_keys {
        return Err(Error::text("ERR Every key would be loaded twice, which takes MERGE"));
    }
    if !options.no_flush {
        let going: Vec<_> = dbs.iter().map(|&db| (db, None)).collect();
        engine::commit::databases_change(cx, &going);
        cx.engine.tracking.invalidate_all(&cx.db);
    }
    for db in dbs {
        reload_db(cx, db)?;
    }
    if let Some(host) = cx.engine.host() {
        host.warn("DB reloaded by DEBUG RELOAD");
    }
    cx.reply.ok();
    Ok(())
}

fn reload_db(cx: &mut Cx<'_>, db: DbIndex) -> Outcome {
    for stripe in 0..cx.engine.keyspace.stripes().len() {
        // Loading may fail, so all of a stripe is read before any of it is replaced.
        let mut loaded = Vec::new();
        let mut outcome = Ok(());
        cx.db.with_stripe(stripe, |data| {
            for entry in data.db(db).entries().iter() {
                match reload_entry(cx, entry) {
                    Ok(entry) => loaded.push(entry),
                    Err(error) => outcome = Err(error),
                }
            }
        });
        outcome?;
        cx.db.with_stripe(stripe, |data| {
            for (hash, entry) in loaded {
                if entry.is_expired(cx.now()) {
                    // A file's keys whose time has come are not loaded.
                    drop(data.remove(db, Key { bytes: entry.key(), hash }));
                } else {
                    drop(data.put(db, hash, entry));
                }
            }
        });
    }
    Ok(())
}

/// The entry as it comes back, with the hash of its key.
fn reload_entry(cx: &Cx<'_>, entry: &Entry) -> Result<(u64, Entry), Error> {
    let failed = |why: &str| {
        let key = String::from_utf8_lossy(entry.key());
        Error::format(format!("ERR Error trying to load the key '{key}': {why}"))
    };
    let view = value::view(entry).ok_or_else(|| failed("its value is not in memory"))?;
    let payload = rdb::dump(view, value::compression(cx.engine));
    let object = rdb::restore(&payload, &value::limits(cx.engine))
        .map_err(|error| failed(&error.to_string()))?;
    // How recently a key was used is in a file only where the policy needs it.
    let policy = cx.engine.config.maxmemory_policy().name();
    let keeps_access = policy.ends_with("lru") || policy.ends_with("lfu");
    let access = if keeps_access { entry.access() } else { cx.db.fresh_access() };
    let key = Key::new(entry.key());
    Ok((key.hash, value::entry(key.bytes, object, entry.expiry(), access)))
}
