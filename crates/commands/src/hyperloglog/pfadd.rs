//! `PFADD key [element [element …]]`: 1 if the estimate may have changed.

use super::{EVENT, checked, corrupted, store};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use structs::hyperloglog::{self, Encoding};

/// `PFADD`.
pub static PFADD: Command = Command {
    name: "pfadd",
    arity: -2,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Hyperloglog,
    since: "2.8.9",
    complexity: "O(N) for N elements",
    effort: Effort::Words(5),
    summary: "Adds elements to what is counted.",
    args: &[Arg::key("key", 0), Arg::new("element", ArgKind::String).optional().multiple()],
    run: pfadd,
    ..Command::ROW
};

fn pfadd(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let changes = match checked(cx.db.string_for_write(args.key(1))?)?.map(|(encoding, _)| encoding)
    {
        Some(Encoding::Dense) => add_in_place(cx, args)?,
        Some(Encoding::Sparse) | None => add_to_copy(cx, args)?,
    };
    if changes > 0 {
        cx.db.changed_in(args.key(1), EVENT, changes);
    }
    cx.reply.integer(i64::from(changes > 0));
    Ok(())
}

/// Where an element belongs, and with which value.
fn places<'a>(args: Args<'a>) -> impl Iterator<Item = (usize, u8)> + 'a {
    args.words()[2..].iter().map(|element| hyperloglog::place(element))
}

/// Raises dense registers where they are: 12 KB are too much to copy for one element, and most
/// elements raise none.
fn add_in_place(cx: &mut Cx<'_>, args: Args<'_>) -> Result<u64, Error> {
    let Some((_, bytes)) = checked(cx.db.string_for_write(args.key(1))?)? else { return Ok(0) };
    if places(args).all(|(index, value)| hyperloglog::dense_register(bytes, index) >= value) {
        return Ok(0);
    }
    let bytes = cx.db.edit_string(args.key(1))?.as_mut_slice();
    let raised = places(args).filter(|&place| hyperloglog::raise_dense(bytes, place));
    Ok(raised.count() as u64)
}

/// Raises the registers of a sparse value, which changes its length, or of a new one.
fn add_to_copy(cx: &mut Cx<'_>, args: Args<'_>) -> Result<u64, Error> {
    let key = args.key(1);
    let max_sparse = cx.engine.config.hll_sparse_max_bytes();
    let found = checked(cx.db.string_for_write(key)?)?;
    let mut changes = u64::from(found.is_none());
    let mut bytes = found.map_or_else(hyperloglog::empty, |(_, bytes)| bytes.to_vec());
    for place in places(args) {
        let is_raised = hyperloglog::raise(&mut bytes, place, max_sparse).map_err(corrupted)?;
        changes += u64::from(is_raised);
    }
    if changes > 0 {
        hyperloglog::invalidate(&mut bytes);
        store(cx, key, &bytes)?;
    }
    Ok(changes)
}
