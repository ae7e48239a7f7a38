//! `TDIGEST.MERGE destination-key numkeys source-key [source-key …] [COMPRESSION compression]
//! [OVERRIDE]`
//!
//! A destination that is there is merged too and keeps its compression, unless it is overridden. A
//! new one has the largest compression of the sources.

use super::{MERGED, NO_KEY, compression, refused};
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::tdigest::TDigest;
use structs::numbers::parse_i64;

/// `TDIGEST.MERGE`.
pub static TDIGEST_MERGE: Command = Command {
    name: "tdigest.merge",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT)),
        KeySpec::counted(2, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::Module,
    categories: &["tdigest"],
    since: "2.4.0",
    complexity: "O(N*K), where N is the number of centroids and K the number of sketches",
    effort: Effort::Words(500),
    summary: "Merges t-digests into one.",
    args: &[
        Arg::key("destination-key", 0),
        Arg::new("numkeys", ArgKind::Integer),
        Arg::key("source-key", 1).multiple(),
        Arg::new("compression", ArgKind::Integer).after("COMPRESSION").optional(),
        Arg::token("override", "OVERRIDE").optional(),
    ],
    run: merge,
    ..Command::ROW
};

/// What a request asks for beside its keys.
struct TdigestMergeOptions {
    sources: usize,
    compression: Option<u64>,
    overrides: bool,
}

fn merge(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args)?;
    let key = args.key(1);
    let target = typed::read_for_write::<TDigest>(&cx.db, key)?;
    let kept = target.filter(|_| !options.overrides);
    let mut digests: Vec<&TDigest> = kept.into_iter().collect();
    let mut largest = 0;
    for at in 3..3 + options.sources {
        let source = typed::read::<TDigest>(&cx.db, args.key(at))?.ok_or(NO_KEY)?;
        largest = largest.max(source.compression());
        digests.push(source);
    }
    let compression = options.compression.or(kept.map(TDigest::compression)).unwrap_or(largest);
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let mut merged = TDigest::new(compression, limit).map_err(refused)?;
    digests.into_iter().try_for_each(|digest| merged.merge(digest)).map_err(refused)?;
    merged.settle();
    match typed::write::<TDigest>(&mut cx.db, key)? {
        Some(target) => *target = merged,
        None => typed::create(&mut cx.db, key, merged),
    }
    cx.db.changed(key, MERGED);
    cx.reply.ok();
    Ok(())
}

fn parse(args: Args<'_>) -> Result<TdigestMergeOptions, Error> {
    let count = parse_i64(args[2]).ok_or(Error::text("ERR T-Digest: error parsing numkeys"))?;
    let count = usize::try_from(count).ok().filter(|&count| count > 0);
    let sources =
        count.ok_or(Error::text("ERR T-Digest: numkeys needs to be a positive integer"))?;
    let arity = || Error::Arity("tdigest.merge".into());
    if args.len() - 3 < sources {
        return Err(arity());
    }
    let mut options = TdigestMergeOptions { sources, compression: None, overrides: false };
    let mut at = 3 + sources;
    while at < args.len() {
        if args.is(at, "compression") {
            at += 1;
            options.compression = Some(compression(args.get(at).ok_or_else(arity)?)?);
        } else if args.is(at, "override") {
            options.overrides = true;
        } else {
            return Err(Error::text("ERR T-Digest: wrong keyword"));
        }
        at += 1;
    }
    Ok(options)
}
