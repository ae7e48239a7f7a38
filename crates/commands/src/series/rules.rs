//! `TS.CREATERULE source destination AGGREGATION aggregator bucketDuration [alignTimestamp]`,
//! `TS.DELETERULE source destination`

use super::query::{BAD_AGGREGATOR, duration};
use super::{NO_KEY, WRITES, compaction, series_event, whole};
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Error, Event, Flags, Key, KeyFlags, KeySpec, Outcome,
};
use series::aggregate::Aggregator;
use series::buckets::Buckets;
use series::{Rule, Series};

/// `TS.CREATERULE`.
pub static CREATERULE: Command = Command {
    name: "ts.createrule",
    arity: -6,
    summary: "Adds a rule that reduces a time series to another.",
    args: &[
        Arg::key("sourceKey", 0),
        Arg::key("destKey", 1),
        Arg::new("aggregator", ArgKind::String).after("AGGREGATION"),
        Arg::new("bucketDuration", ArgKind::Integer),
        Arg::new("alignTimestamp", ArgKind::Integer).optional(),
    ],
    run: create,
    ..OF_TWO
};

/// `TS.DELETERULE`.
pub static DELETERULE: Command = Command {
    name: "ts.deleterule",
    arity: 3,
    flags: Flags::WRITE.with(Flags::FAST),
    summary: "Removes a rule of a time series.",
    args: &[Arg::key("sourceKey", 0), Arg::key("destKey", 1)],
    run: delete,
    ..OF_TWO
};

const OF_TWO: Command = Command {
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::REACHES),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE)),
        KeySpec::at(2, KeyFlags::RW.with(KeyFlags::UPDATE)),
    ],
    ..WRITES
};

const CREATED: [Event; 2] = [series_event("ts.createrule:src"), series_event("ts.createrule:dest")];
const DELETED: [Event; 2] = [series_event("ts.deleterule:src"), series_event("ts.deleterule:dest")];

fn create(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    // Only the journal has `AFTER time`, of a rule that was there before (see `renaming`).
    let is_old = args.len() == 9 && args.is(7, "after") && cx.db.repeats_history();
    if args.len() > 7 && !is_old {
        return Err(Error::Arity("ts.createrule".into()));
    }
    if !args.is(3, "aggregation") {
        return Err(Error::text("ERR TSDB: Couldn't parse AGGREGATION"));
    }
    let aggregator = Aggregator::named(args[4]).ok_or(BAD_AGGREGATOR)?;
    let align = match args.get(6) {
        Some(word) => whole(word).ok_or(Error::text("ERR TSDB: Couldn't parse alignTimestamp"))?,
        None => 0,
    };
    let buckets = Buckets { duration: duration(args[5])?, align };
    let (source, target) = (args.key(1), args.key(2));
    if source.bytes == target.bytes {
        return Err(Error::text(
            "ERR TSDB: the source key and destination key should be different",
        ));
    }
    let of_source = typed::read_for_write::<Series>(&cx.db, source)?.ok_or(NO_KEY)?;
    let of_target = typed::read_for_write::<Series>(&cx.db, target)?.ok_or(NO_KEY)?;
    if !cx.db.repeats_history() {
        check_ends(cx, (source.bytes, of_source), (target.bytes, of_target))?;
    }
    let after = match is_old {
        true => whole(args[8]),
        false => of_source.last().map(|last| last.time),
    };
    let rule = Rule { target: target.bytes.into(), aggregator, buckets, after };
    tie(cx, source, target, rule)?;
    cx.db.changed(source, CREATED[0]);
    cx.db.changed(target, CREATED[1]);
    cx.reply.ok();
    Ok(())
}

/// Gives a series a rule for a target, in place of one that it has. Reports nothing.
///
/// # Errors
/// One of them is no series.
pub(super) fn tie(
    cx: &mut Cx<'_>,
    source: Key<'_>,
    target: Key<'_>,
    rule: Rule,
) -> Result<(), Error> {
    let of_source = typed::write::<Series>(&mut cx.db, source)?.ok_or(NO_KEY)?;
    of_source.set_source(None);
    of_source.rules_mut().retain(|rule| *rule.target != *target.bytes);
    of_source.rules_mut().push(Rule { target: target.bytes.into(), ..rule });
    let of_target = typed::write::<Series>(&mut cx.db, target)?.ok_or(NO_KEY)?;
    of_target.rules_mut().clear();
    of_target.set_source(Some(source.bytes));
    Ok(())
}

/// Takes the rule for a target from a series. Returns whether the target has changed, too: it may
/// be another key by now. Reports nothing.
///
/// # Errors
/// The source is no series.
pub(super) fn untie(cx: &mut Cx<'_>, source: Key<'_>, target: Key<'_>) -> Result<bool, Error> {
    let of_source = typed::write::<Series>(&mut cx.db, source)?.ok_or(NO_KEY)?;
    of_source.rules_mut().retain(|rule| *rule.target != *target.bytes);
    let Ok(Some(of_target)) = typed::write::<Series>(&mut cx.db, target) else { return Ok(false) };
    let is_its = of_target.source() == Some(source.bytes);
    if is_its {
        of_target.set_source(None);
    }
    Ok(is_its)
}

/// Refuses a rule whose ends are those of other rules. A reference to a key that does not refer
/// back counts for nothing.
fn check_ends(
    cx: &Cx<'_>,
    (source, of_source): (&[u8], &Series),
    (target, of_target): (&[u8], &Series),
) -> Result<(), Error> {
    if compaction::true_source(cx, source, of_source)?.is_some() {
        return Err(Error::text("ERR TSDB: the source key already has a source rule"));
    }
    for rule in of_target.rules() {
        if compaction::is_of(cx, &rule.target, |other| other.source() == Some(target))? {
            return Err(Error::text("ERR TSDB: the destination key already has a dst rule"));
        }
    }
    if compaction::true_source(cx, target, of_target)?.is_some() {
        return Err(Error::text("ERR TSDB: the destination key already has a src rule"));
    }
    Ok(())
}

fn delete(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (source, target) = (args.key(1), args.key(2));
    let none = Error::text("ERR TSDB: compaction rule does not exist");
    let of_source = typed::read_for_write::<Series>(&cx.db, source)?.ok_or(NO_KEY)?;
    if !of_source.rules().iter().any(|rule| *rule.target == *target.bytes) {
        return Err(none);
    }
    let was_its = untie(cx, source, target)?;
    cx.db.changed(source, DELETED[0]);
    if was_its {
        cx.db.changed(target, DELETED[1]);
    }
    cx.reply.ok();
    Ok(())
}
