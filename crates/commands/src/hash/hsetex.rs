//! `HSETEX key [NX|XX] [FNX|FXX] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL] FIELDS numfields field value
//! …`
//!
//! All fields are set or none. An expiry that has passed removes them again.

use super::fields::{HEXPIRE_EVENT, NUMFIELDS, WRONG_COUNT, counted, find_fields, report_passed};
use super::set_fields::HSET_EVENT;
use crate::limits;
use crate::string::expiry::{EXPIRE_OR_KEEP, Expiry, ExpiryOptions};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, Key, KeyFlags, KeySpec, Outcome,
};
use structs::hash::Hash;

/// `HSETEX`.
pub static HSETEX: Command = Command {
    name: "hsetex",
    arity: -6,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::INSERT))],
    group: Group::Hash,
    since: "9.0.0",
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    summary: "Sets fields, with one expiry for all of them.",
    args: &[
        Arg::key("key", 0),
        Arg::one_of("key-condition", &[Arg::token("nx", "NX"), Arg::token("xx", "XX")]).optional(),
        Arg::one_of("fields-condition", &[Arg::token("fnx", "FNX"), Arg::token("fxx", "FXX")])
            .optional(),
        EXPIRE_OR_KEEP,
        Arg::block(
            "fields",
            &[
                NUMFIELDS,
                Arg::block(
                    "data",
                    &[Arg::new("field", ArgKind::String), Arg::new("value", ArgKind::String)],
                )
                .multiple(),
            ],
        )
        .after("FIELDS"),
    ],
    run: hsetex,
    ..Command::ROW
};

/// What has to be there, or must not be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Any,
    Absent,
    Present,
}

impl Presence {
    fn is_met(self, is_there: bool) -> bool {
        match self {
            Presence::Any => true,
            Presence::Absent => !is_there,
            Presence::Present => is_there,
        }
    }

    /// Takes an option's word; false if the other one was given.
    fn take(&mut self, wanted: Presence) -> bool {
        let may = *self == Presence::Any || *self == wanted;
        *self = wanted;
        may
    }
}

struct Request<'a> {
    of_key: Presence,
    of_fields: Presence,
    expiry: ExpiryOptions,
    /// Fields and values.
    words: &'a [&'a [u8]],
}

impl<'a> Request<'a> {
    fn parse(args: Args<'a>) -> Result<Request<'a>, Error> {
        // Without the fields nothing else is looked at.
        let end = find_fields(args, 2).ok_or(WRONG_COUNT)?;
        let (mut of_key, mut of_fields) = (Presence::Any, Presence::Any);
        let (mut expiry, mut at) = (ExpiryOptions::default(), 2);
        while at < end {
            let (is_fine, words) = if args.is(at, "nx") {
                (of_key.take(Presence::Absent), 1)
            } else if args.is(at, "xx") {
                (of_key.take(Presence::Present), 1)
            } else if args.is(at, "fnx") {
                (of_fields.take(Presence::Absent), 1)
            } else if args.is(at, "fxx") {
                (of_fields.take(Presence::Present), 1)
            } else {
                let words = expiry.take(args, at, "keepttl");
                (words.is_some(), words.unwrap_or(1))
            };
            if !is_fine {
                return Err(Error::Syntax);
            }
            at += words;
        }
        // `FIELDS` is no time.
        if at > end {
            return Err(Error::Syntax);
        }
        Ok(Request { of_key, of_fields, expiry, words: counted(args, end + 1, 2)? })
    }

    fn fields(&self) -> impl Iterator<Item = &'a [u8]> {
        self.words.iter().step_by(2).copied()
    }
}

fn hsetex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let request = Request::parse(args)?;
    let (key, horizon) = (args.key(1), cx.db.horizon().0);
    let live = cx.db.object_for_write::<Hash>(key)?.map(|hash| hash.live(horizon));
    if !request.of_key.is_met(live.is_some()) {
        cx.reply.integer(0);
        return Ok(());
    }
    let expiry = request.expiry.resolve_for_fields(args, cx.now(), "hsetex", Expiry::Keep)?;
    let is_there = |field: &[u8]| live.is_some_and(|live| live.contains(field));
    if !request.fields().all(|field| request.of_fields.is_met(is_there(field))) {
        cx.reply.integer(0);
        return Ok(());
    }
    match expiry {
        Some(Expiry::At(at)) if cx.db.has_passed(at) => pass_by(cx, key, &request)?,
        _ => set_all(cx, key, &request, expiry.unwrap_or(Expiry::Clear))?,
    }
    cx.reply.integer(1);
    Ok(())
}

fn set_all(cx: &mut Cx<'_>, key: Key<'_>, request: &Request<'_>, expiry: Expiry) -> Outcome {
    let words = request.words;
    let limits = limits::hash(&cx.engine.config);
    let horizon = cx.db.horizon().0;
    let hash = cx.db.write_or_create::<Hash>(key)?;
    hash.will_grow(words.iter().copied(), &limits);
    let mut revived = Vec::new();
    for pair in words.chunks_exact(2) {
        let (field, value) = (pair[0], pair[1]);
        let before = if hash.is_timed() { hash.expiry(field).flatten() } else { None };
        let has_expired = before.is_some_and(|before| before < horizon);
        if has_expired {
            revived.push(field);
        }
        match (expiry, before) {
            (Expiry::At(at), _) => {
                hash.set_timed(field, value, at.0);
            }
            (Expiry::Keep, Some(before)) if !has_expired => {
                hash.set_timed(field, value, before);
            }
            _ => {
                hash.set(field, value, &limits);
            }
        }
    }
    if !revived.is_empty() {
        cx.db.fields_expired(key, &revived);
    }
    cx.db.list_fields(key);
    cx.db.changed_in(key, HSET_EVENT, words.len() as u64 / 2);
    cx.db.notify_fields(key, HSET_EVENT, request.fields());
    if matches!(expiry, Expiry::At(_)) {
        cx.db.notify(key, HEXPIRE_EVENT);
        cx.db.notify_fields(key, HEXPIRE_EVENT, request.fields());
    }
    cx.db.propagate_as(|p| {
        if expiry == Expiry::Keep {
            // A reader of the journal takes none of the fields for expired.
            for field in revived {
                p.command(&[b"HSET", key.bytes, field, b""]);
            }
        }
        let head: &[&[u8]] = match expiry {
            Expiry::Clear => &[],
            Expiry::Keep => &[b"KEEPTTL"],
            Expiry::At(_) => &[b"PXAT"],
        };
        let has_time = matches!(expiry, Expiry::At(_));
        p.begin(2 + head.len() + usize::from(has_time) + 2 + words.len());
        p.word(b"HSETEX");
        p.word(key.bytes);
        head.iter().for_each(|word| p.word(word));
        if let Expiry::At(at) = expiry {
            p.integer(at.0);
        }
        p.word(b"FIELDS");
        p.integer(words.len() as i64 / 2);
        words.iter().for_each(|word| p.word(word));
    });
    Ok(())
}

/// Nothing is set, since it would be gone at once; but fields that are there go, and the events are
/// those of both.
fn pass_by(cx: &mut Cx<'_>, key: Key<'_>, request: &Request<'_>) -> Outcome {
    let hash = cx.db.write_or_create::<Hash>(key)?;
    let removed: Vec<&[u8]> = request.fields().filter(|field| hash.remove(field)).collect();
    cx.db.changed_in(key, HSET_EVENT, request.words.len() as u64 / 2);
    cx.db.notify_fields(key, HSET_EVENT, request.fields());
    cx.db.notify(key, HEXPIRE_EVENT);
    cx.db.notify_fields(key, HEXPIRE_EVENT, request.fields());
    // A field that was not there counts as set and expired.
    cx.engine.stats.expired_fields.add((request.fields().count() - removed.len()) as u64);
    report_passed(cx, key, &removed);
    Ok(())
}
