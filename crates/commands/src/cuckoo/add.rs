//! `CF.ADD key item`, `CF.ADDNX key item`, `CF.INSERT key [CAPACITY capacity] [NOCREATE] ITEMS item
//! [item …]`, `CF.INSERTNX …`, `CF.DEL key item`
//!
//! Of several items each has a number in the reply: -1 if the filter is full.

use super::reserve::capacity;
use super::{ADDED, NOT_FOUND, REMOVED, options, refused, reservation};
use crate::typed::{self, Created};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::cuckoo::{self, Cuckoo, CuckooOptions, MAX_LAYERS};

/// `CF.ADD`.
pub static CF_ADD: Command = Command {
    name: "cf.add",
    arity: 3,
    summary: "Adds an item to a cuckoo filter, which is created if it is not there.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String)],
    run: |cx, args| add(cx, args, Adds::Always),
    ..WRITES
};

/// `CF.ADDNX`.
pub static CF_ADDNX: Command = Command {
    name: "cf.addnx",
    arity: 3,
    summary: "Adds an item to a cuckoo filter if it is not in it.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String)],
    run: |cx, args| add(cx, args, Adds::New),
    ..WRITES
};

/// `CF.INSERT`.
pub static CF_INSERT: Command = Command {
    name: "cf.insert",
    arity: -4,
    complexity: "O(n * (k + i)), where n is the number of items, k is the number of sub-filters \
        and i is maxIterations",
    effort: Effort::Words(5),
    summary: "Adds items to a cuckoo filter, which may be created with a capacity.",
    args: INSERT_ARGS,
    run: |cx, args| insert(cx, args, Adds::Always),
    ..WRITES
};

/// `CF.INSERTNX`.
pub static CF_INSERTNX: Command = Command {
    name: "cf.insertnx",
    arity: -4,
    complexity: "O(n * (k + i)), where n is the number of items, k is the number of sub-filters \
        and i is maxIterations",
    effort: Effort::Words(5),
    summary: "Adds items to a cuckoo filter if they are not in it.",
    args: INSERT_ARGS,
    run: |cx, args| insert(cx, args, Adds::New),
    ..WRITES
};

/// `CF.DEL`.
pub static CF_DEL: Command = Command {
    name: "cf.del",
    arity: 3,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    complexity: "O(k), where k is the number of sub-filters",
    summary: "Removes an item from a cuckoo filter once.",
    args: &[Arg::key("key", 0), Arg::new("item", ArgKind::String)],
    run: del,
    ..WRITES
};

/// What the rows have in common.
const WRITES: Command = Command {
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Module,
    categories: &["cuckoo"],
    since: "1.0.0",
    complexity: "O(k + i), where k is the number of sub-filters and i is maxIterations",
    ..Command::ROW
};

const INSERT_ARGS: &[Arg] = &[
    Arg::key("key", 0),
    Arg::new("capacity", ArgKind::Integer).after("CAPACITY").optional(),
    Arg::token("nocreate", "NOCREATE").optional(),
    Arg::token("items", "ITEMS"),
    Arg::new("item", ArgKind::String).multiple(),
];

/// Which items are added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adds {
    /// All, again and again.
    Always,
    /// Those that are not there.
    New,
}

impl Adds {
    fn add(self, filter: &mut Cuckoo, item: &[u8], limit: usize) -> Result<bool, cuckoo::Error> {
        match self {
            Adds::Always => filter.add(item, limit).map(|()| true),
            Adds::New => filter.add_new(item, limit),
        }
    }
}

fn add(cx: &mut Cx<'_>, args: Args<'_>, adds: Adds) -> Outcome {
    let key = args.key(1);
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let created = create_if_absent(cx, args, Ok)?;
    let filter = typed::write::<Cuckoo>(&mut cx.db, key)?.ok_or(NOT_FOUND)?;
    let is_added = adds.add(filter, args[2], limit).map_err(refused)?;
    if is_added {
        cx.db.changed(key, ADDED);
    }
    cx.reply.boolean(is_added);
    typed::propagate_creation(cx, args, created, reservation);
    Ok(())
}

/// Creates the filter if the key is absent.
fn create_if_absent(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    read: impl Fn(CuckooOptions) -> Result<CuckooOptions, Error>,
) -> Result<Created<CuckooOptions>, Error> {
    let make = |chosen, limit| Cuckoo::new(chosen, limit).map_err(refused);
    typed::create_if_absent(cx, args.key(1), |cx| options(cx, read), make)
}

fn insert(cx: &mut Cx<'_>, args: Args<'_>, adds: Adds) -> Outcome {
    let (_, creates, items) = parse(args, CuckooOptions::default())?;
    let key = args.key(1);
    let created = match creates {
        true => create_if_absent(cx, args, |usual| parse(args, usual).map(|read| read.0))?,
        false => None,
    };
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let filter = typed::write::<Cuckoo>(&mut cx.db, key)?.ok_or(NOT_FOUND)?;
    if filter.layers() >= MAX_LAYERS {
        return Err(refused(cuckoo::Error::Exhausted));
    }
    let mut added = 0;
    cx.reply.array(items.len());
    filter.fetch(items);
    for item in items {
        match adds.add(filter, item, limit) {
            // Redis has booleans for one of the two commands.
            Ok(is_added) if adds == Adds::Always => cx.reply.boolean(is_added),
            Ok(is_added) => cx.reply.integer(i64::from(is_added)),
            Err(cuckoo::Error::TooLarge) => {
                cx.reply.error_bytes(&refused(cuckoo::Error::TooLarge).line());
                continue;
            }
            Err(_) => {
                cx.reply.integer(-1);
                continue;
            }
        }
        added += 1;
    }
    if added > 0 {
        cx.db.changed_in(key, ADDED, added);
    }
    typed::propagate_creation(cx, args, created, reservation);
    Ok(())
}

/// Returns the options of CF.INSERT, whether it creates the key, and the items.
fn parse<'a>(
    args: Args<'a>,
    usual: CuckooOptions,
) -> Result<(CuckooOptions, bool, &'a [&'a [u8]]), Error> {
    let mut options = usual;
    let mut creates = true;
    let mut at = 2;
    while at < args.len() && !args.is(at, "items") {
        if args.is(at, "nocreate") {
            creates = false;
        } else if args.is(at, "capacity") {
            at += 1;
            options.capacity = capacity(args.get(at))?;
        } else {
            return Err(Error::text("Unknown argument received"));
        }
        at += 1;
    }
    let items = args.from(at + 1);
    if items.is_empty() {
        return Err(Error::Arity(String::from_utf8_lossy(args[0]).to_lowercase().into()));
    }
    if options.capacity < u64::from(options.bucket_size) * 2 {
        return Err(Error::text("Capacity must be at least (BucketSize * 2)"));
    }
    Ok((options, creates, items))
}

fn del(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let filter = typed::write::<Cuckoo>(&mut cx.db, key)?.ok_or(Error::text("Not found"))?;
    let is_removed = filter.remove(args[2]);
    if is_removed {
        cx.db.changed(key, REMOVED);
    }
    cx.reply.boolean(is_removed);
    Ok(())
}
