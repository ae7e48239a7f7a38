//! `CMS.INITBYDIM key width depth`, `CMS.INITBYPROB key error probability`

use super::CREATED;
use crate::typed;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Key, KeyFlags, KeySpec, Outcome,
};
use sketches::cms::{Cms, DimensionError};
use structs::numbers::{parse_f64, parse_i64};

/// `CMS.INITBYDIM`.
pub static CMS_INITBYDIM: Command = Command {
    name: "cms.initbydim",
    arity: 4,
    summary: "Creates a count-min sketch by its dimensions.",
    args: &[
        Arg::key("key", 0),
        Arg::new("width", ArgKind::Integer),
        Arg::new("depth", ArgKind::Integer),
    ],
    run: by_dimensions,
    ..CREATES
};

/// `CMS.INITBYPROB`.
pub static CMS_INITBYPROB: Command = Command {
    name: "cms.initbyprob",
    arity: 4,
    summary: "Creates a count-min sketch by its error and the probability of larger ones.",
    args: &[
        Arg::key("key", 0),
        Arg::new("error", ArgKind::Double),
        Arg::new("probability", ArgKind::Double),
    ],
    run: by_probability,
    ..CREATES
};

/// What the rows have in common.
const CREATES: Command = Command {
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Module,
    categories: &["cms"],
    since: "2.0.0",
    ..Command::ROW
};

fn by_dimensions(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    check_absent(cx, args.key(1))?;
    let dimension = |at: usize| {
        let number = parse_i64(args[at]).and_then(|number| u64::try_from(number).ok());
        number.filter(|&number| number > 0)
    };
    let width = dimension(2).ok_or(Error::text("CMS: invalid width"))?;
    let depth = dimension(3).ok_or(Error::text("CMS: invalid depth"))?;
    create(cx, args.key(1), width, depth)
}

fn by_probability(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    check_absent(cx, args.key(1))?;
    let share = |at: usize| parse_f64(args[at]).filter(|&it| it > 0.0 && it < 1.0);
    let error = share(2).ok_or(Error::text("CMS: invalid overestimation value"))?;
    // One that is no different from 1 in single precision leaves no row.
    let probability = share(3).filter(|&probability| (probability as f32) < 1.0);
    let probability = probability.ok_or(Error::text("CMS: invalid prob value"))?;
    let (width, depth) = Cms::dimensions(error, probability);
    create(cx, args.key(1), width, depth)
}

fn check_absent(cx: &Cx<'_>, key: Key<'_>) -> Result<(), Error> {
    match typed::read_for_write::<Cms>(&cx.db, key)? {
        Some(_) => Err(Error::text("CMS: key already exists")),
        None => Ok(()),
    }
}

fn create(cx: &mut Cx<'_>, key: Key<'_>, width: u64, depth: u64) -> Outcome {
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let sketch = Cms::new(width, depth, limit).map_err(|error| match error {
        DimensionError::Invalid => Error::text("CMS: invalid init arguments"),
        DimensionError::TooLarge => Error::text("CMS: Insufficient memory to create the key"),
    })?;
    typed::create(&mut cx.db, key, sketch);
    cx.db.changed(key, CREATED);
    cx.reply.ok();
    Ok(())
}
