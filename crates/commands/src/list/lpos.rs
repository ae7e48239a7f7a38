//! `LPOS key element [RANK rank] [COUNT num-matches] [MAXLEN len]`

use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use std::ops::ControlFlow;
use structs::list::{End, List};

/// `LPOS`.
pub static LPOS: Command = Command {
    name: "lpos",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::List,
    since: "6.0.6",
    complexity: "O(N) for N elements up to the last match, at most MAXLEN",
    effort: Effort::Elements(1),
    summary: "Where a value stands in a list.",
    args: &[
        Arg::key("key", 0),
        Arg::new("element", ArgKind::String),
        Arg::new("rank", ArgKind::Integer).after("RANK").optional(),
        Arg::new("num-matches", ArgKind::Integer).after("COUNT").optional(),
        Arg::new("len", ArgKind::Integer).after("MAXLEN").optional(),
    ],
    run: lpos,
    ..Command::ROW
};

struct LposOptions {
    rank: i64,
    count: Option<usize>,
    max_compared: usize,
}

fn parse(args: Args<'_>) -> Result<LposOptions, Error> {
    let mut options = LposOptions { rank: 1, count: None, max_compared: usize::MAX };
    let mut at = 3;
    while at < args.len() {
        if at + 1 >= args.len() {
            return Err(Error::Syntax);
        }
        if args.is(at, "rank") {
            options.rank = super::negatable(args, at + 1)?;
            if options.rank == 0 {
                return Err(Error::text(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                     second ... or use negative to start from the end of the list",
                ));
            }
        } else if args.is(at, "count") {
            let count = args.integer_in(at + 1, 0..=i64::MAX, "COUNT can't be negative")?;
            options.count = Some(if count == 0 { usize::MAX } else { count as usize });
        } else if args.is(at, "maxlen") {
            let most = args.integer_in(at + 1, 0..=i64::MAX, "MAXLEN can't be negative")?;
            options.max_compared = if most == 0 { usize::MAX } else { most as usize };
        } else {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    Ok(options)
}

fn lpos(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args)?;
    let mut found = Vec::new();
    if let Some(list) = cx.db.read::<List>(args.key(1))? {
        let end = if options.rank < 0 { End::Right } else { End::Left };
        let mut skip = options.rank.unsigned_abs() - 1;
        let most = options.count.unwrap_or(1);
        list.positions(end, args[2], options.max_compared, |index| {
            if skip > 0 {
                skip -= 1;
                return ControlFlow::Continue(());
            }
            found.push(index);
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }
    if options.count.is_some() {
        cx.reply.array(found.len());
        found.iter().for_each(|&index| cx.reply.integer(index as i64));
    } else {
        match found.first() {
            Some(&index) => cx.reply.integer(index as i64),
            None => cx.reply.null(),
        }
    }
    Ok(())
}
