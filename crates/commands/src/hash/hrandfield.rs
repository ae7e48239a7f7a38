//! `HRANDFIELD key [count [WITHVALUES]]`

use super::read;
use crate::draw::draw_repeated;
use crate::list::{negatable, write};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use resp::Reply;
use structs::listpack::Element;
use structs::random::Rng;

/// `HRANDFIELD`.
pub static HRANDFIELD: Command = Command {
    name: "hrandfield",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Hash,
    since: "6.2.0",
    complexity: "O(N) for N fields in the reply",
    effort: Effort::Estimate(crate::effort::sampled),
    summary: "Some fields of a hash, with their values if asked.",
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "options",
            &[
                Arg::new("count", ArgKind::Integer),
                Arg::token("withvalues", "WITHVALUES").optional(),
            ],
        )
        .optional(),
    ],
    run: hrandfield,
    ..Command::ROW
};

fn hrandfield(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let mut rng = Rng::seeded(cx.db.random());
    let room = cx.session.output_room;
    let Cx { db, reply, .. } = cx;
    if args.len() == 2 {
        match read(db, key)?.and_then(|hash| hash.random(&mut rng)) {
            Some((field, _)) => write(reply, field),
            None => reply.null(),
        }
        return Ok(());
    }
    let count = negatable(args, 2)?;
    let with_values = match args.len() {
        3 => false,
        4 if args.is(3, "withvalues") => true,
        _ => return Err(Error::Syntax),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(Error::OutOfRange("value is out of range"));
    }
    let Some(hash) = read(db, key)? else {
        reply.array(0);
        return Ok(());
    };
    let is_nested = with_values && reply.is_resp3();
    // Nothing can be drawn where every field has expired.
    let is_vain = count < 0 && hash.random(&mut rng).is_none();
    let drawn = match count {
        _ if is_vain => 0,
        ..0 => count.unsigned_abs() as usize,
        0.. => (count as usize).min(hash.count()),
    };
    reply.array(if with_values && !is_nested { drawn * 2 } else { drawn });
    let show = |reply: &mut Reply<'_>, field: Element<'_>, value: Element<'_>| {
        if is_nested {
            reply.array(2);
        }
        write(reply, field);
        if with_values {
            write(reply, value);
        }
    };
    if count < 0 {
        draw_repeated(drawn, reply, room, |part, reply| {
            hash.sample_repeated(part, &mut rng, |field, value| show(reply, field, value));
        });
    } else {
        hash.sample_distinct(drawn, &mut rng, |field, value| show(reply, field, value));
    }
    Ok(())
}
