//! `XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count] [KEEPREF|DELREF|ACKED]`, and the trimming
//! that XADD does.

use super::aside;
use super::references::Taken;
use super::trim_options::{self, TrimOptions};
use engine::journal::Effect;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Db, Effort, Flags, Group, KeyFlags, KeySpec, Outcome,
    event,
};
use structs::stream::{References, Strategy, Stream, StreamId, Trim};

/// `XTRIM`.
pub static XTRIM: Command = Command {
    name: "xtrim",
    arity: -4,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(N) for N entries that are removed, which go in blocks",
    effort: Effort::Estimate(effort),
    summary: "Drops the oldest entries of a stream.",
    history: &[("6.2.0", "Takes `MINID` and `LIMIT`.")],
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
    let stream = db.lookup_no_effects(args.key(1)).and_then(|entry| entry.object::<Stream>());
    trim.zip(stream).map_or(0, |(trim, stream)| (stream.trim_effort(&trim) / ENTRIES) as usize)
}

fn xtrim(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = trim_options::parse(args, false, cx.engine.config.stream_node_max_entries())?;
    let Some(trim) = options.trim else { return Ok(()) };
    let key = args.key(1);
    let effort =
        cx.db.object_for_write::<Stream>(key)?.map_or(0, |stream| stream.trim_effort(&trim));
    let trimmed = aside::edit(&mut cx.db, key, effort, |stream| apply(&options, trim, stream))?;
    let Some(trimmed) = trimmed.filter(|trimmed| trimmed.deleted > 0) else {
        cx.reply.integer(0);
        return Ok(());
    };
    cx.db.changed_in(key, event(Class::STREAM, "xtrim"), trimmed.deleted);
    if trimmed.is_rewritten(&options) {
        cx.db.propagate_as(|p| trimmed.write(p, args, &options, None));
    }
    cx.reply.integer(trimmed.deleted as i64);
    Ok(())
}

/// What a trim has done.
pub(super) struct Trimmed {
    /// How many entries went.
    pub deleted: u64,
    /// What an approximate threshold has come to.
    threshold: Option<Vec<u8>>,
    taken: Taken,
}

/// Trims a stream.
pub(super) fn apply(options: &TrimOptions<'_>, trim: Trim, stream: &mut Stream) -> Trimmed {
    // A copy costs next to nothing, but a change after it does.
    let before = (trim.references != References::Keep).then(|| stream.clone());
    let deleted = stream.trim(&trim);
    let taken = before.map(|before| Taken::of_trim(&before, stream, trim.references, deleted));
    Trimmed {
        deleted,
        threshold: exact_threshold(options, stream),
        taken: taken.unwrap_or_default(),
    }
}

impl Trimmed {
    /// Whether the request itself would not do in the journal.
    pub fn is_rewritten(&self, options: &TrimOptions<'_>) -> bool {
        self.threshold.is_some() || options.names_references()
    }

    /// Writes what the journal gets in place of the request; `id` is what XADD made up.
    pub fn write(
        &self,
        p: &mut Effect<'_>,
        args: Args<'_>,
        options: &TrimOptions<'_>,
        id: Option<StreamId>,
    ) {
        let words = options.exact_words(args, self.threshold.as_deref(), id);
        // Entries that were chosen one by one are deleted one by one: no XTRIM.
        if options.id_at < args.len() || !options.deletes_singly() {
            p.begin(words.len());
            words.iter().for_each(|word| p.word(word));
        }
        self.taken.write(p, args[1]);
    }
}

/// What an approximate threshold has come to.
fn exact_threshold(options: &TrimOptions<'_>, stream: &Stream) -> Option<Vec<u8>> {
    let trim = options.trim.filter(|trim| trim.is_approximate)?;
    Some(match trim.strategy {
        Strategy::MaxLength(_) => stream.len().to_string().into_bytes(),
        Strategy::MinId(least) => {
            // An empty stream has lost everything below any ID.
            stream.first_trace().unwrap_or(least).with_text(<[u8]>::to_vec)
        }
    })
}
