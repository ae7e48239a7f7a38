//! `XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count] [KEEPREF|DELREF|ACKED]`, and the trimming
//! that XADD does.

use super::aside;
use super::trim_options::{self, Options};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Db, Effort, Flags, Group, KeyFlags, KeySpec, Outcome,
    event,
};
use structs::stream::{Strategy, Stream};

/// `XTRIM`.
pub static XTRIM: Command = Command {
    name: "xtrim",
    arity: -4,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(N), with N being the number of evicted entries. Constant times are very small however, since entries are organized in macro nodes containing multiple entries that can be released with a single deallocation.",
    effort: Effort::Estimate(effort),
    summary: "Deletes messages from the beginning of a stream.",
    history: &[("6.2.0", "Added the `MINID` trimming strategy and the `LIMIT` option.")],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "trim",
            &[
                Arg::one_of(
                    "strategy",
                    &[Arg::token("maxlen", "MAXLEN"), Arg::token("minid", "MINID").since("6.2.0")],
                ),
                Arg::one_of(
                    "operator",
                    &[Arg::token("equal", "="), Arg::token("approximately", "~")],
                )
                .optional(),
                Arg::new("threshold", ArgKind::String),
                Arg::new("count", ArgKind::Integer).after("LIMIT").optional().since("6.2.0"),
            ],
        ),
    ],
    run: xtrim,
    ..Command::ROW
};

/// About how long a trim takes: a block of a hundred entries goes at once.
fn effort(db: &Db<'_>, args: Args<'_>) -> usize {
    /// Entries that go in the time of one small element's reply.
    const ENTRIES: u64 = 20;
    let max_entries = db.engine.config.stream_node_max_entries();
    let trim = trim_options::parse(args, false, max_entries).ok().and_then(|parsed| parsed.trim);
    let stream = db.glimpse(args.key(1)).and_then(|entry| entry.object::<Stream>());
    trim.zip(stream).map_or(0, |(trim, stream)| (stream.trim_effort(&trim) / ENTRIES) as usize)
}

fn xtrim(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = trim_options::parse(args, false, cx.engine.config.stream_node_max_entries())?;
    let Some(trim) = options.trim else { return Ok(()) };
    let key = args.key(1);
    let effort = cx.db.target_object::<Stream>(key)?.map_or(0, |stream| stream.trim_effort(&trim));
    let deleted = aside::edit(&mut cx.db, key, effort, |stream| {
        let deleted = stream.trim(&trim);
        (deleted, exact_threshold(&options, stream))
    })?;
    let (deleted, threshold) = deleted.unwrap_or_default();
    if deleted > 0 {
        cx.db.changed_in(key, event(Class::STREAM, "xtrim"), deleted);
        if threshold.is_some() {
            let words = options.exact_words(args, threshold, None);
            super::propagate_words(cx, &words);
        }
    }
    cx.reply.integer(deleted as i64);
    Ok(())
}

/// What an approximate threshold has come to.
pub(super) fn exact_threshold(options: &Options, stream: &Stream) -> Option<Vec<u8>> {
    let trim = options.trim.filter(|trim| trim.is_approximate)?;
    Some(match trim.strategy {
        Strategy::MaxLength(_) => stream.len().to_string().into_bytes(),
        Strategy::MinId(least) => {
            // An empty stream has lost everything below any ID.
            stream.first_trace().unwrap_or(least).with_text(<[u8]>::to_vec)
        }
    })
}
