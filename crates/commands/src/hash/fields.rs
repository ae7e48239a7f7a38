//! `FIELDS numfields field [field …]`, as the commands about the expiry of fields have it.

use engine::{Arg, ArgKind, Args, Class, Cx, Error, Event, Key, Millis, event, events};
use structs::hash::Hash;

/// `numfields`, which the reference documents as if it were a key.
pub(super) const NUMFIELDS: Arg =
    Arg { key_spec: Some(0), ..Arg::new("numfields", ArgKind::Integer) };

/// `FIELDS numfields field [field …]`.
pub(super) const FIELDS: Arg =
    Arg::block("fields", &[NUMFIELDS, Arg::new("field", ArgKind::String).multiple()])
        .after("FIELDS");

/// Fields got an expiry.
pub(super) const HEXPIRE_EVENT: Event = event(Class::HASH, "hexpire");
/// Fields lost their expiry.
pub(super) const HPERSIST_EVENT: Event = event(Class::HASH, "hpersist");

pub(super) const WRONG_COUNT: Error =
    Error::text("ERR numfields should be greater than 0 and match the provided number of fields");

/// The words behind `numfields` at word `at`, which must be as many times `each` as it says.
pub(super) fn counted<'a>(args: Args<'a>, at: usize, each: usize) -> Result<&'a [&'a [u8]], Error> {
    if at >= args.len() {
        return Err(WRONG_COUNT);
    }
    let count = args.integer(at)?;
    let fields = args.from(at + 1);
    let is_right = count > 0 && fields.len().is_multiple_of(each);
    if is_right && count as u64 == (fields.len() / each) as u64 {
        Ok(fields)
    } else {
        Err(WRONG_COUNT)
    }
}

/// The fields of a request that has `FIELDS` at word 2.
pub(super) fn plain(args: Args<'_>) -> Result<&[&[u8]], Error> {
    if args.is(2, "fields") { counted(args, 3, 1) } else { Err(Error::Syntax) }
}

/// The place of the word `FIELDS` at or after word `from`.
pub(super) fn find_fields(args: Args<'_>, from: usize) -> Option<usize> {
    (from..args.len() - 1).find(|&at| args.is(at, "fields"))
}

/// Reports that fields were removed because their new expiry has passed.
pub(super) fn report_passed(cx: &mut Cx<'_>, key: Key<'_>, removed: &[&[u8]]) {
    cx.db.list_fields(key);
    cx.db.changed_in(key, events::HASH_FIELDS_EXPIRED, removed.len() as u64);
    cx.db.notify_fields(key, events::HASH_FIELDS_EXPIRED, removed.iter().copied());
    cx.engine.stats.expired_fields.add(removed.len() as u64);
    cx.db.remove_if_empty::<Hash>(key);
    cx.db.propagate_as(|p| {
        if !removed.is_empty() {
            p.begin(2 + removed.len());
            p.word(b"HDEL");
            p.word(key.bytes);
            removed.iter().for_each(|field| p.word(field));
        }
    });
}

/// Reports that fields expire now at this time, or no longer.
pub(super) fn report_expiries(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    changed: &[&[u8]],
    expiry: Option<Millis>,
) {
    cx.db.list_fields(key);
    let event = if expiry.is_some() { HEXPIRE_EVENT } else { HPERSIST_EVENT };
    cx.db.changed_in(key, event, changed.len() as u64);
    cx.db.notify_fields(key, event, changed.iter().copied());
    cx.db.propagate_as(|p| {
        p.begin(changed.len() + if expiry.is_some() { 5 } else { 4 });
        p.word(if expiry.is_some() { b"HPEXPIREAT" } else { b"HPERSIST" });
        p.word(key.bytes);
        if let Some(at) = expiry {
            p.integer(at.0);
        }
        p.word(b"FIELDS");
        p.integer(changed.len() as i64);
        changed.iter().for_each(|field| p.word(field));
    });
}
