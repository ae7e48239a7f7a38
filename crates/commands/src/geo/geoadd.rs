//! `GEOADD key [NX|XX] [CH] longitude latitude member [longitude latitude member …]`
//!
//! It is a ZADD whose scores are made of coordinates, and reaches the journal as one.

use super::parse_point;
use crate::zset::zadd::zadd;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};

/// `GEOADD`.
pub static GEOADD: Command = Command {
    name: "geoadd",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Geo,
    since: "3.2.0",
    complexity: "O(M*log(N)) for M members that a set of N gets",
    effort: Effort::Words(5),
    summary: "Puts named places into an index.",
    history: &[("6.2.0", "Takes `CH`, `NX` and `XX`.")],
    args: &[
        Arg::key("key", 0),
        Arg::one_of("condition", &[Arg::token("nx", "NX"), Arg::token("xx", "XX")])
            .optional()
            .since("6.2.0"),
        Arg::token("change", "CH").optional().since("6.2.0"),
        Arg::block(
            "data",
            &[
                Arg::new("longitude", ArgKind::Double),
                Arg::new("latitude", ArgKind::Double),
                Arg::new("member", ArgKind::String),
            ],
        )
        .multiple(),
    ],
    run: geoadd,
    ..Command::ROW
};

fn geoadd(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let is_option = |index: &usize| ["nx", "xx", "ch"].iter().any(|name| args.is(*index, name));
    let first = (2..args.len()).find(|index| !is_option(index)).unwrap_or(args.len());
    let given = |name: &str| (2..first).any(|index| args.is(index, name));
    if !(args.len() - first).is_multiple_of(3) || (given("nx") && given("xx")) {
        return Err(Error::Syntax);
    }
    let mut scores = Vec::with_capacity((args.len() - first) / 3);
    for index in (first..args.len()).step_by(3) {
        scores.push(parse_point(args, index)?.score().to_string());
    }
    let mut words: Vec<&[u8]> = vec![b"ZADD"];
    words.extend_from_slice(&args.words()[1..first]);
    for (score, index) in scores.iter().zip((first..).step_by(3)) {
        words.extend([score.as_bytes(), args[index + 2]]);
    }
    zadd(cx, Args::new(&words))?;
    if cx.db.is_dirty() {
        cx.db.propagate_as(|p| p.command(&words));
    }
    Ok(())
}
