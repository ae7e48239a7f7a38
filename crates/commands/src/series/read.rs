//! `TS.READ key timestamp [MAX_COUNT count]`
//!
//! The form that waits (BLOCK) is refused.

use super::{READS, replies, whole};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Effort, Error, Outcome};
use series::Series;
use series::range::Query;

/// `TS.READ`.
pub static READ: Command = Command {
    name: "ts.read",
    arity: -3,
    since: "8.10.0",
    complexity: "O(log(n)+k) where n is the number of samples in the series and k is the number of \
                 returned samples",
    effort: Effort::Elements(1),
    summary: "Returns the samples from a time on.",
    args: &[
        Arg::key("key", 0),
        Arg::new("timestamp", ArgKind::String),
        Arg::new("max_count", ArgKind::Integer).after("MAX_COUNT").optional(),
    ],
    run: read,
    ..READS
};

fn read(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut count = None;
    let mut at = 3;
    while at < args.len() {
        if !args.is(at, "max_count") {
            let text = "ERR TSDB: TS.READ does not wait here; leave BLOCK out and ask again";
            let waits = args.is(at, "block");
            return Err(if waits { Error::text(text) } else { Error::Arity("ts.read".into()) });
        }
        let word = args.get(at + 1).ok_or(Error::Arity("ts.read".into()))?;
        let most = whole(word).filter(|&most| most > 0);
        let most = most.ok_or(Error::text("ERR TSDB: invalid MAX_COUNT"))?;
        count = Some(usize::try_from(most).unwrap_or(usize::MAX));
        at += 2;
    }
    let series = typed::read::<Series>(&cx.db, args.key(1))?;
    let last = series.and_then(Series::last).map(|last| last.time);
    let from = match args[2] {
        b"-" => 0,
        b"+" => last.unwrap_or(0),
        b"$" => last.map_or(0, |last| last + 1),
        word => whole(word).ok_or(Error::text("ERR TSDB: invalid timestamp"))?,
    };
    let Some(series) = series else {
        cx.reply.array(0);
        return Ok(());
    };
    let query = Query {
        from,
        to: u64::MAX,
        times: None,
        values: None,
        aggregation: None,
        count,
        is_reverse: false,
    };
    let rows = query.run(series, None).map_err(|_| super::query::TOO_MANY)?;
    replies::rows(&mut cx.reply, &rows);
    Ok(())
}
