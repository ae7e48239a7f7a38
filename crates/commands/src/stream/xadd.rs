//! `XADD key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] [IDMPAUTO producer|IDMP producer id] [MAXLEN|MINID
//! …] *|id field value [field value …]`

use super::idempotency::Message;
use super::trim_options::{self, NewId, TrimOptions};
use super::trimming::{self, Trimmed};
use super::{aside, ids};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Error, Flags, Group, Key, KeyFlags, KeySpec, Outcome,
    event,
};
use structs::stream::{MAX_BYTES, Stream, StreamId};

/// `XADD`.
pub static XADD: Command = Command {
    name: "xadd",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))
        .note("UPDATE instead of INSERT because of the optional trimming feature")],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1), and O(N) for N entries that are trimmed",
    summary: "Adds an entry at the end of a stream.",
    history: &[
        ("6.2.0", "Takes `NOMKSTREAM`, `MINID` and `LIMIT`."),
        ("7.0.0", "An ID may be `<ms>-*`."),
    ],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::token("nomkstream", "NOMKSTREAM").optional().since("6.2.0"),
        Arg::one_of(
            "idempotency",
            &[
                Arg::new("producer-id", ArgKind::String).after("IDMPAUTO"),
                Arg::block(
                    "idmp",
                    &[
                        Arg::new("producer-id", ArgKind::String),
                        Arg::new("idempotent-id", ArgKind::String),
                    ],
                )
                .after("IDMP"),
            ],
        )
        .optional()
        .since("8.6.0"),
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
        )
        .optional(),
        Arg::one_of("id-selector", &[Arg::token("auto-id", "*"), Arg::new("id", ArgKind::String)]),
        Arg::block(
            "data",
            &[Arg::new("field", ArgKind::String), Arg::new("value", ArgKind::String)],
        )
        .multiple(),
    ],
    run: xadd,
    ..Command::ROW
};

/// The ID of the next entry.
fn next_id(asked: NewId, last: StreamId, now_ms: u64) -> Result<StreamId, Error> {
    let id = match asked {
        NewId::Exact(id) => Some(id),
        NewId::Auto if now_ms > last.ms => Some(StreamId::new(now_ms, 0)),
        NewId::Auto => last.next(),
        NewId::AutoSequence(ms) if ms == last.ms => {
            last.seq.checked_add(1).map(|seq| StreamId::new(ms, seq))
        }
        NewId::AutoSequence(ms) => Some(StreamId::new(ms, 0)),
    };
    if last == StreamId::MAX {
        return Err(Error::text(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    id.filter(|&id| id > last).ok_or(Error::text(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ))
}

fn xadd(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let limits = crate::limits::stream(&cx.engine.config);
    let mut options = trim_options::parse(args, true, limits.max_entries)?;
    let words = args.from(options.id_at + 1);
    if words.len() < 2 || words.len() % 2 == 1 {
        return Err(Error::Arity("xadd".into()));
    }
    if options.id == NewId::Exact(StreamId::MIN) {
        return Err(Error::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let (key, now_ms) = (args.key(1), cx.now().0 as u64);
    if let Some(message) = &mut options.message {
        message.make_id(words);
    }
    if answer_duplicate(cx, key, &options)? {
        return Ok(());
    }
    let too_large = words.iter().map(|word| word.len()).sum::<usize>() > MAX_BYTES;
    if let Some(trim) = options.trim {
        let stream = cx.db.object_for_write::<Stream>(key)?;
        let effort = stream.map_or(0, |stream| stream.trim_effort(&trim));
        if effort >= aside::MANY && cx.is_for_background(usize::MAX) {
            return Err(Error::TakesLong);
        }
    }
    let stream = match cx.db.write::<Stream>(key)? {
        Some(stream) => stream,
        None if options.no_mkstream => {
            cx.reply.null();
            return Ok(());
        }
        None => cx.db.write_or_create::<Stream>(key)?,
    };
    let id = next_id(options.id, stream.counters().last_id, now_ms)?;
    if too_large {
        return Err(Error::text("ERR Elements are too large to be stored"));
    }
    stream.append(id, words, &limits);
    if let Some(Message { producer, id: message, .. }) = &options.message {
        let ids = stream.idempotency_mut();
        ids.add(producer, message, id, now_ms as i64);
        ids.added += 1;
    }
    cx.db.changed(key, event(Class::STREAM, "xadd"));
    let trimmed = trim(cx, args, &options)?;
    if trimmed.as_ref().is_some_and(|trimmed| trimmed.is_rewritten(&options)) {
        cx.db.propagate_as(|p| {
            trimmed.iter().for_each(|trimmed| trimmed.write(p, args, &options, Some(id)));
        });
    } else if !matches!(options.id, NewId::Exact(_))
        || options.names_references()
        || options.message.as_ref().is_some_and(Message::is_auto)
    {
        propagate(cx, args, &options, id);
    }
    ids::write(&mut cx.reply, id);
    Ok(())
}

/// Answers with the entry that the message has become already. What the journal has was none then.
fn answer_duplicate(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    options: &TrimOptions<'_>,
) -> Result<bool, Error> {
    let Some(Message { producer, id: message, .. }) = &options.message else { return Ok(false) };
    if cx.db.repeats_history() {
        return Ok(false);
    }
    let now_ms = cx.now().0;
    let ids = cx.db.object_for_write::<Stream>(key)?.and_then(Stream::idempotency);
    let Some(id) = ids.and_then(|ids| ids.find(producer, message, now_ms)) else {
        return Ok(false);
    };
    if let Some(stream) = cx.db.write::<Stream>(key)? {
        stream.idempotency_mut().duplicates += 1;
    }
    ids::write(&mut cx.reply, id);
    Ok(true)
}

/// Trims as the request says.
fn trim(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    options: &TrimOptions<'_>,
) -> Result<Option<Trimmed>, Error> {
    let Some(trim) = options.trim else { return Ok(None) };
    let key = args.key(1);
    let effort =
        cx.db.object_for_write::<Stream>(key)?.map_or(0, |stream| stream.trim_effort(&trim));
    let trimmed =
        aside::edit(&mut cx.db, key, effort, |stream| trimming::apply(options, trim, stream))?;
    if trimmed.as_ref().is_some_and(|trimmed| trimmed.deleted > 0) {
        cx.db.notify(key, event(Class::STREAM, "xtrim"));
    }
    Ok(trimmed)
}

/// The journal gets the ID that was made up, and no KEEPREF and its like, which old servers lack.
fn propagate(cx: &mut Cx<'_>, args: Args<'_>, options: &TrimOptions<'_>, id: StreamId) {
    cx.db.propagate_as(|p| {
        let is_auto = options.message.as_ref().is_some_and(Message::is_auto);
        p.begin(args.len() + usize::from(is_auto) - usize::from(options.names_references()));
        for (at, word) in args.words().iter().enumerate() {
            let made = options.message.as_ref().and_then(|message| message.in_journal(at));
            if let Some(made) = made {
                made.into_iter().for_each(|word| p.word(word));
            } else if at == options.id_at {
                id.with_text(|text| p.word(text));
            } else if !options.is_references(at) {
                p.word(word);
            }
        }
    });
}
