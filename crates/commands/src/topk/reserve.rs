//! `TOPK.RESERVE key topk [width depth decay]`

use super::RESERVED;
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use sketches::topk::TopK;
use structs::numbers::{parse_f64, parse_i64};

/// `TOPK.RESERVE`.
pub static TOPK_RESERVE: Command = Command {
    name: "topk.reserve",
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Module,
    categories: &["topk"],
    since: "2.0.0",
    summary: "Creates an empty list of the most frequent items.",
    args: &[
        Arg::key("key", 0),
        Arg::new("topk", ArgKind::Integer),
        Arg::block(
            "params",
            &[
                Arg::new("width", ArgKind::Integer),
                Arg::new("depth", ArgKind::Integer),
                Arg::new("decay", ArgKind::Double),
            ],
        )
        .optional(),
    ],
    run: reserve,
    ..Command::ROW
};

const WIDTH: u64 = 8;
const DEPTH: u64 = 7;
const DECAY: f64 = 0.9;

fn reserve(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() != 3 && args.len() != 6 {
        return Err(Error::Arity("topk.reserve".into()));
    }
    let key = args.key(1);
    if typed::read_for_write::<TopK>(&cx.db, key)?.is_some() {
        return Err(Error::text("TopK: key already exists"));
    }
    let dimension = |at: usize, error: &'static str| {
        let number = parse_i64(args[at]).and_then(|number| u32::try_from(number).ok());
        number.filter(|&number| number > 0).map(u64::from).ok_or(Error::text(error))
    };
    let k = dimension(2, "TopK: invalid k")?;
    let (width, depth, decay) = if args.len() == 6 {
        let width = dimension(3, "TopK: invalid width")?;
        let depth = dimension(4, "TopK: invalid depth")?;
        let decay = parse_f64(args[5]).filter(|&decay| decay > 0.0 && decay <= 1.0);
        let invalid = Error::text("TopK: invalid decay value. must be '<= 1' & '> 0'");
        (width, depth, decay.ok_or(invalid)?)
    } else {
        (WIDTH, DEPTH, DECAY)
    };
    let limit = typed::limit(&cx.db, &cx.engine.config);
    let topk = TopK::new(k, width, depth, decay, limit)
        .map_err(|_| Error::text("ERR Insufficient memory to create topk data structure"))?;
    typed::create(&mut cx.db, key, topk);
    cx.db.changed(key, RESERVED);
    cx.reply.ok();
    Ok(())
}
