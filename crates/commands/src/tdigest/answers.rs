//! `TDIGEST.MIN key`, `TDIGEST.MAX key`, `TDIGEST.QUANTILE key quantile [quantile …]`, `TDIGEST.CDF
//! key value [value …]`, `TDIGEST.TRIMMED_MEAN key low_cut_quantile high_cut_quantile`,
//! `TDIGEST.RANK key value [value …]`, `TDIGEST.REVRANK …`, `TDIGEST.BYRANK key rank [rank …]`,
//! `TDIGEST.BYREVRANK …`, `TDIGEST.INFO key`

use super::NO_KEY;
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use sketches::tdigest::TDigest;
use structs::numbers::{parse_f64, parse_i64};

/// `TDIGEST.MIN`.
pub static TDIGEST_MIN: Command = Command {
    name: "tdigest.min",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    summary: "Returns the least number of a t-digest.",
    args: &[Arg::key("key", 0)],
    run: |cx, args| {
        let value = typed::read::<TDigest>(&cx.db, args.key(1))?.ok_or(NO_KEY)?.min();
        cx.reply.double(value);
        Ok(())
    },
    ..READS
};

/// `TDIGEST.MAX`.
pub static TDIGEST_MAX: Command = Command {
    name: "tdigest.max",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    summary: "Returns the largest number of a t-digest.",
    args: &[Arg::key("key", 0)],
    run: |cx, args| {
        let value = typed::read::<TDigest>(&cx.db, args.key(1))?.ok_or(NO_KEY)?.max();
        cx.reply.double(value);
        Ok(())
    },
    ..READS
};

/// `TDIGEST.QUANTILE`.
pub static TDIGEST_QUANTILE: Command = Command {
    name: "tdigest.quantile",
    arity: -3,
    summary: "Returns the numbers below which shares of all numbers are.",
    args: &[Arg::key("key", 0), Arg::new("quantile", ArgKind::Double).multiple()],
    run: |cx, args| answer(cx, args, quantile, |it, share| Answer::Double(it.quantile(share))),
    ..READS
};

/// `TDIGEST.CDF`.
pub static TDIGEST_CDF: Command = Command {
    name: "tdigest.cdf",
    arity: -3,
    summary: "Returns the shares of all numbers that are below values.",
    args: &[Arg::key("key", 0), Arg::new("value", ArgKind::Double).multiple()],
    run: |cx, args| answer(cx, args, cdf_value, |it, value| Answer::Double(it.cdf(value))),
    ..READS
};

/// `TDIGEST.TRIMMED_MEAN`.
pub static TDIGEST_TRIMMED_MEAN: Command = Command {
    name: "tdigest.trimmed_mean",
    arity: 4,
    summary: "Returns the mean of the numbers between two quantiles.",
    args: &[
        Arg::key("key", 0),
        Arg::new("low_cut_quantile", ArgKind::Double),
        Arg::new("high_cut_quantile", ArgKind::Double),
    ],
    run: trimmed_mean,
    ..READS
};

/// `TDIGEST.RANK`.
pub static TDIGEST_RANK: Command = Command {
    name: "tdigest.rank",
    arity: -3,
    summary: "Returns how many numbers are below values.",
    args: &[Arg::key("key", 0), Arg::new("value", ArgKind::Double).multiple()],
    run: |cx, args| answer(cx, args, value, |it, value| Answer::Integer(it.rank(value))),
    ..READS
};

/// `TDIGEST.REVRANK`.
pub static TDIGEST_REVRANK: Command = Command {
    name: "tdigest.revrank",
    arity: -3,
    summary: "Returns how many numbers are above values.",
    args: &[Arg::key("key", 0), Arg::new("value", ArgKind::Double).multiple()],
    run: |cx, args| answer(cx, args, value, |it, value| Answer::Integer(it.reverse_rank(value))),
    ..READS
};

/// `TDIGEST.BYRANK`.
pub static TDIGEST_BYRANK: Command = Command {
    name: "tdigest.byrank",
    arity: -3,
    summary: "Returns the numbers of ranks.",
    args: &[Arg::key("key", 0), Arg::new("rank", ArgKind::Integer).multiple()],
    run: |cx, args| answer(cx, args, rank, |it, rank| Answer::Double(it.by_rank(rank))),
    ..READS
};

/// `TDIGEST.BYREVRANK`.
pub static TDIGEST_BYREVRANK: Command = Command {
    name: "tdigest.byrevrank",
    arity: -3,
    summary: "Returns the numbers of ranks, counted from the largest.",
    args: &[Arg::key("key", 0), Arg::new("reverse_rank", ArgKind::Integer).multiple()],
    run: |cx, args| answer(cx, args, rank, |it, rank| Answer::Double(it.by_reverse_rank(rank))),
    ..READS
};

/// `TDIGEST.INFO`.
pub static TDIGEST_INFO: Command = Command {
    name: "tdigest.info",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    effort: Effort::Small,
    summary: "Describes a t-digest.",
    args: &[Arg::key("key", 0)],
    run: info,
    ..READS
};

/// What the rows have in common. Numbers that were not merged yet are merged in a copy.
const READS: Command = Command {
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["tdigest"],
    since: "2.4.0",
    effort: Effort::Words(20),
    ..Command::ROW
};

/// What is said of one word.
enum Answer {
    Double(f64),
    Integer(i64),
}

/// Answers each word behind the key.
fn answer<T>(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    parse: fn(&[u8]) -> Result<T, Error>,
    ask: fn(&TDigest, T) -> Answer,
) -> Outcome {
    let digest = typed::read::<TDigest>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let questions = args.from(2).iter().map(|word| parse(word));
    let questions = questions.collect::<Result<Vec<T>, Error>>()?;
    let digest = digest.merged();
    cx.reply.array(questions.len());
    for question in questions {
        match ask(&digest, question) {
            Answer::Double(number) => cx.reply.double(number),
            Answer::Integer(number) => cx.reply.integer(number),
        }
    }
    Ok(())
}

fn quantile(word: &[u8]) -> Result<f64, Error> {
    let share = parse_f64(word).ok_or(Error::text("ERR T-Digest: error parsing quantile"))?;
    let out_of_range = Error::text("ERR T-Digest: quantile should be in [0,1]");
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(out_of_range) }
}

fn cdf_value(word: &[u8]) -> Result<f64, Error> {
    parse_f64(word).ok_or(Error::text("ERR T-Digest: error parsing cdf"))
}

fn value(word: &[u8]) -> Result<f64, Error> {
    parse_f64(word).ok_or(Error::text("ERR T-Digest: error parsing value"))
}

fn rank(word: &[u8]) -> Result<u64, Error> {
    let rank = parse_i64(word).ok_or(Error::text("ERR T-Digest: error parsing rank"))?;
    u64::try_from(rank).map_err(|_| Error::text("ERR T-Digest: rank needs to be non negative"))
}

fn trimmed_mean(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let digest = typed::read::<TDigest>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let low = parse_f64(args[2]);
    let low = low.ok_or(Error::text("ERR T-Digest: error parsing low_cut_percentile"))?;
    let high = parse_f64(args[3]);
    let high = high.ok_or(Error::text("ERR T-Digest: error parsing high_cut_percentile"))?;
    if ![low, high].iter().all(|cut| (0.0..=1.0).contains(cut)) {
        return Err(Error::text(
            "ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]",
        ));
    }
    if low >= high {
        return Err(Error::text(
            "ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile",
        ));
    }
    let mean = digest.merged().trimmed_mean(low, high);
    cx.reply.double(mean);
    Ok(())
}

fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let digest = typed::read::<TDigest>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let (merged, others) = digest.nodes();
    let (merged_weight, other_weight) = digest.weights();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let fields = [
        ("Compression", i64::try_from(digest.compression()).unwrap_or(i64::MAX)),
        ("Capacity", count(digest.room())),
        ("Merged nodes", count(merged)),
        ("Unmerged nodes", count(others)),
        ("Merged weight", merged_weight),
        ("Unmerged weight", other_weight),
        ("Observations", digest.weight()),
        ("Total compressions", i64::try_from(digest.compressions()).unwrap_or(i64::MAX)),
        ("Memory usage", count(digest.reported_bytes())),
    ];
    cx.reply.map(fields.len());
    for (title, number) in fields {
        cx.reply.simple(title);
        cx.reply.integer(number);
    }
    Ok(())
}
