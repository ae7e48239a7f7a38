//! `GEOPOS key [member …]`, `GEOHASH key [member …]`, `GEODIST key member1 member2 [M|KM|FT|MI]`

use super::{parse_unit, point_of, write_distance, write_point};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use structs::geo::Point;
use structs::zset::Zset;

/// `GEOPOS`.
pub static GEOPOS: Command = Command {
    name: "geopos",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Geo,
    since: "3.2.0",
    complexity: "O(N) for N members",
    effort: Effort::Words(10),
    summary: "The coordinates of places.",
    args: &[Arg::key("key", 0), Arg::new("member", ArgKind::String).optional().multiple()],
    run: geopos,
    ..Command::ROW
};

/// `GEOHASH`.
pub static GEOHASH: Command = Command {
    name: "geohash",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Geo,
    since: "3.2.0",
    complexity: "O(N) for N members",
    effort: Effort::Words(5),
    summary: "The standard geohash texts of places.",
    args: &[Arg::key("key", 0), Arg::new("member", ArgKind::String).optional().multiple()],
    run: geohash,
    ..Command::ROW
};

/// `GEODIST`.
pub static GEODIST: Command = Command {
    name: "geodist",
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Geo,
    since: "3.2.0",
    complexity: "O(1)",
    summary: "How far two places are from each other.",
    args: &[
        Arg::key("key", 0),
        Arg::new("member1", ArgKind::String),
        Arg::new("member2", ArgKind::String),
        Arg::one_of(
            "unit",
            &[
                Arg::token("m", "M"),
                Arg::token("km", "KM"),
                Arg::token("ft", "FT"),
                Arg::token("mi", "MI"),
            ],
        )
        .optional(),
    ],
    run: geodist,
    ..Command::ROW
};

fn points(cx: &Cx<'_>, args: Args<'_>, members: &[&[u8]]) -> Result<Vec<Option<Point>>, Error> {
    let zset = cx.db.read::<Zset>(args.key(1))?;
    Ok(members.iter().map(|member| point_of(zset?, member)).collect())
}

fn geopos(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let points = points(cx, args, &args.words()[2..])?;
    cx.reply.array(points.len());
    for point in points {
        match point {
            Some(point) => write_point(cx, point),
            None => cx.reply.null_array(),
        }
    }
    Ok(())
}

fn geohash(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let points = points(cx, args, &args.words()[2..])?;
    cx.reply.array(points.len());
    for point in points {
        let text = point.map(Point::geohash);
        cx.reply.bulk_or_null(text.as_ref().map(|text| &text[..]));
    }
    Ok(())
}

fn geodist(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let meters = match args.len() {
        4 => 1.0,
        5 => parse_unit(args[4])?,
        _ => return Err(Error::Syntax),
    };
    match points(cx, args, &args.words()[2..4])?[..] {
        [Some(from), Some(to)] => write_distance(cx, from.distance(to) / meters),
        _ => cx.reply.null(),
    }
    Ok(())
}
