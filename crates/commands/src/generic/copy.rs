//! `COPY source destination [DB destination-db] [REPLACE]`
//!
//! A copy of a time series has no rules, and no rule writes to it.

use crate::connection::parse_db;
use crate::series::renaming;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Databases, Db, DbIndex, Effort, Error, Event, Flags,
    Group, KeyFlags, KeySpec, Outcome, event,
};

/// `COPY`.
pub static COPY: Command = Command {
    name: "copy",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::CROSSES_DATABASES),
    keys: &[
        KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS)),
        KeySpec::at(2, KeyFlags::OW.with(KeyFlags::UPDATE)),
    ],
    group: Group::Generic,
    since: "6.2.0",
    complexity: "O(1) for a string, O(N) for a collection of N elements",
    effort: Effort::Estimate(copied),
    summary: "Makes a second key with the same value.",
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::new("destination-db", ArgKind::Integer).after("DB").optional(),
        Arg::token("replace", "REPLACE").optional(),
    ],
    databases: Databases::Named(find_database),
    run: copy,
    ..Command::ROW
};

const TO: Event = event(Class::GENERIC, "copy_to");

struct CopyOptions {
    db: DbIndex,
    replace: bool,
}

fn parse(cx: &Cx<'_>, args: Args<'_>) -> Result<CopyOptions, Error> {
    let mut options = CopyOptions { db: cx.db.index, replace: false };
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "replace") {
            options.replace = true;
            at += 1;
        } else if args.is(at, "db") && at + 1 < args.len() {
            options.db = parse_db(cx, args[at + 1])?;
            at += 2;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(options)
}

/// How much there is to copy. A long command holds the keys of its own database alone, so a copy
/// into another one is made in place.
fn copied(db: &Db<'_>, args: Args<'_>) -> usize {
    let stays = !(3..args.len()).any(|at| args.is(at, "db"));
    if stays { db.size(args.key(1)).saturating_mul(3) } else { 0 }
}

/// The number behind each `DB`: the last one counts, but the user has to be allowed all of them.
fn find_database(words: &[&[u8]], found: &mut dyn FnMut(usize)) {
    let mut at = 3;
    while let Some(word) = words.get(at) {
        at += 1;
        if word.eq_ignore_ascii_case(b"db") {
            found(at);
            at += 1;
        }
    }
}

fn copy(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(cx, args)?;
    let (from, to) = (args.key(1), args.key(2));
    if from.bytes == to.bytes && options.db == cx.db.index {
        return Err(Error::text("ERR source and destination objects are the same"));
    }
    let access = cx.db.fresh_access();
    let Some(mut copy) =
        cx.db.lookup_read(from).map(|entry| entry.duplicate(to.bytes, entry.expiry(), access))
    else {
        cx.reply.integer(0);
        return Ok(());
    };
    renaming::cut(&mut copy);
    let done = cx.db.in_db(options.db, |db| {
        let free = options.replace || db.lookup_no_stats(to).is_none();
        if free {
            db.recreate(to, copy);
            db.changed(to, TO);
        }
        free
    });
    cx.reply.integer(i64::from(done));
    Ok(())
}
