//! `DELEX key [IFEQ value|IFNE value|IFDEQ digest|IFDNE digest]`, `DIGEST key`

use super::comparison::{self, Comparison, digest, is_comparison};
use engine::keys::InvalidKeys;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};

/// `DELEX`.
pub static DELEX: Command = Command {
    name: "delex",
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE).with(KeyFlags::VARIABLE))],
    group: Group::String,
    since: "8.4.0",
    complexity: "O(N) for a value of N bytes",
    summary: "Deletes a key if its value, or the digest of it, compares as asked.",
    find_keys: Some(find_keys),
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "condition",
            &[
                Arg::new("ifeq-value", ArgKind::String).after("IFEQ"),
                comparison::YOUNG[0],
                comparison::YOUNG[1],
                comparison::YOUNG[2],
            ],
        )
        .optional(),
    ],
    run: delex,
    ..Command::ROW
};

/// `DIGEST`.
pub static DIGEST: Command = Command {
    name: "digest",
    arity: 2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::String,
    since: "8.4.0",
    complexity: "O(N) for a value of N bytes",
    effort: Effort::Elements(1),
    summary: "Returns the XXH3 digest of a string as hexadecimal digits.",
    args: &[Arg::key("key", 0)],
    run: show_digest,
    ..Command::ROW
};

/// DELEX reads the value only to compare it.
fn find_keys(argv: &[&[u8]], found: &mut dyn FnMut(usize, KeyFlags)) -> Result<(), InvalidKeys> {
    let compares = argv.get(2).is_some_and(|word| is_comparison(word));
    let how = KeyFlags::RM.with(KeyFlags::DELETE);
    found(1, if compares { how.with(KeyFlags::COMPARES) } else { how });
    Ok(())
}

fn delex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let comparison = match args.len() {
        2 => None,
        4 => Some(Comparison::parse(args, 2)?.ok_or(Error::Syntax)?),
        _ => return Err(Error::Arity(cx.resolved.command.name.into())),
    };
    let holds = match comparison {
        None => true,
        Some(comparison) => {
            let mut digits = [0; structs::numbers::INT_MAX_LEN];
            cx.db
                .string_for_write(key)?
                .is_some_and(|value| comparison.holds(Some(value.bytes(&mut digits))))
        }
    };
    let is_deleted = holds && cx.db.delete(key);
    if is_deleted {
        cx.db.propagate_as(|p| p.command(&[b"DEL", key.bytes]));
    }
    cx.reply.integer(i64::from(is_deleted));
    Ok(())
}

fn show_digest(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut digits = [0; structs::numbers::INT_MAX_LEN];
    match cx.db.string(args.key(1))?.map(|value| digest(value.bytes(&mut digits))) {
        Some(digest) => cx.reply.bulk(format!("{digest:016x}").as_bytes()),
        None => cx.reply.null(),
    }
    Ok(())
}
