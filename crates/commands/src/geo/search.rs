//! Searching: which members of a sorted set of points lie inside a shape.

use super::options::{Form, GeoOptions, Order, parse};
use super::{write_distance, write_point};
use crate::limits;
use engine::{Args, Class, Cx, Outcome, event};
use keyspace::Value;
use std::ops::Bound;
use structs::geo::{Point, Search, Shape};
use structs::zset::{ScoreRange, Zset};

pub(super) fn georadius(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Form::Radius { stores: true })
}
pub(super) fn georadius_ro(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Form::Radius { stores: false })
}
pub(super) fn georadiusbymember(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Form::RadiusByMember { stores: true })
}
pub(super) fn georadiusbymember_ro(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Form::RadiusByMember { stores: false })
}
pub(super) fn geosearch(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Form::Search)
}
pub(super) fn geosearchstore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Form::SearchStore)
}

/// A member inside the shape.
struct Hit {
    member: Vec<u8>,
    score: f64,
    point: Point,
    /// From the center, in meters.
    distance: f64,
}

fn run(cx: &mut Cx<'_>, args: Args<'_>, form: Form) -> Outcome {
    let zset = cx.db.read::<Zset>(args.key(form.source()))?;
    let mut options = parse(args, form, zset)?;
    let hits = match (zset, options.shape.take()) {
        (Some(zset), Some(shape)) => search(zset, shape, &options),
        _ => Vec::new(),
    };
    match options.destination {
        Some(word) => store(cx, args, word, form, &hits, &options),
        None => answer(cx, &hits, &options),
    }
}

fn search(zset: &Zset, shape: Shape, options: &GeoOptions) -> Vec<Hit> {
    let search = Search::new(options.center.unwrap_or_default(), shape);
    // The first results found will do, unless the nearest ones are asked for.
    let most = if options.any { options.count } else { None };
    let mut hits = Vec::new();
    for cell in search.cells() {
        collect(zset, &search, cell.scores(), most.unwrap_or(usize::MAX), &mut hits);
    }
    let nearest_first = options.count.is_some() && !options.any;
    let order = options.order.or(nearest_first.then_some(Order::Ascending));
    match order {
        Some(Order::Ascending) => hits.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
        Some(Order::Descending) => hits.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
        None => {}
    }
    hits.truncate(options.count.unwrap_or(usize::MAX));
    hits
}

/// Adds the members of one cell, until there are so many hits.
fn collect(
    zset: &Zset,
    search: &Search,
    scores: std::ops::Range<u64>,
    most: usize,
    hits: &mut Vec<Hit>,
) {
    let range = ScoreRange {
        min: Bound::Included(scores.start as f64),
        max: Bound::Excluded(scores.end as f64),
    };
    for (member, score) in zset.range(zset.ranks_by_score(&range)) {
        if hits.len() >= most {
            return;
        }
        let point = Point::from_score(score);
        if let Some(distance) = search.distance(point) {
            let member = member.with_bytes(<[u8]>::to_vec);
            hits.push(Hit { member, score, point, distance });
        }
    }
}

fn answer(cx: &mut Cx<'_>, hits: &[Hit], options: &GeoOptions) -> Outcome {
    let GeoOptions { with_distance, with_hash, with_point, .. } = *options;
    let details = [with_distance, with_hash, with_point].iter().filter(|&&with| with).count();
    cx.reply.array(hits.len());
    for hit in hits {
        if details > 0 {
            cx.reply.array(details + 1);
        }
        cx.reply.bulk(&hit.member);
        if with_distance {
            write_distance(cx, hit.distance / options.unit);
        }
        if with_hash {
            cx.reply.integer(hit.score as i64);
        }
        if with_point {
            write_point(cx, hit.point);
        }
    }
    Ok(())
}

fn store(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    word: usize,
    form: Form,
    hits: &[Hit],
    options: &GeoOptions,
) -> Outcome {
    let destination = args.key(word);
    if hits.is_empty() {
        cx.db.delete(destination);
    } else {
        let limits = limits::zset(&cx.engine.config);
        let mut result = Zset::new();
        for hit in hits {
            let distance = hit.distance / options.unit;
            let score = if options.stores_distances { distance } else { hit.score };
            result.insert(&hit.member, score, &limits);
        }
        cx.db.put(destination, Value::Zset(result), None);
        let name = match form {
            Form::SearchStore => "geosearchstore",
            _ => "georadiusstore",
        };
        cx.db.changed_in(destination, event(Class::ZSET, name), hits.len() as u64);
    }
    cx.reply.integer(hits.len() as i64);
    Ok(())
}
