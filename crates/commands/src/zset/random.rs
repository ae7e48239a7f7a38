//! `ZRANDMEMBER key [count [WITHSCORES]]`

use crate::draw::draw_repeated;
use crate::list::write;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use resp::Reply;
use structs::listpack::Element;
use structs::random::Rng;
use structs::zset::Zset;

/// `ZRANDMEMBER`.
pub static ZRANDMEMBER: Command = Command {
    name: "zrandmember",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::SortedSet,
    since: "6.2.0",
    complexity: "O(N) for N members in the reply",
    effort: Effort::Estimate(crate::effort::sampled),
    summary: "Some members of a sorted set, by chance.",
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "options",
            &[
                Arg::new("count", ArgKind::Integer),
                Arg::token("withscores", "WITHSCORES").optional(),
            ],
        )
        .optional(),
    ],
    run: zrandmember,
    ..Command::ROW
};

fn zrandmember(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let mut rng = Rng::seeded(cx.db.random());
    let room = cx.session.output_room;
    let Cx { db, reply, .. } = cx;
    if args.len() == 2 {
        match db.read::<Zset>(key)?.and_then(|zset| zset.random(&mut rng)) {
            Some((member, _)) => write(reply, member),
            None => reply.null(),
        }
        return Ok(());
    }
    let count = args.integer(2)?;
    let with_scores = match args.len() {
        3 => false,
        4 if args.is(3, "withscores") => true,
        _ => return Err(Error::Syntax),
    };
    let most = if with_scores { i64::MAX / 2 } else { i64::MAX };
    if count == i64::MIN {
        return Err(Error::text(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ));
    }
    if !(-most..=most).contains(&count) {
        return Err(Error::OutOfRange("value is out of range"));
    }
    let Some(zset) = db.read::<Zset>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let is_nested = with_scores && reply.is_resp3();
    let drawn =
        if count < 0 { count.unsigned_abs() as usize } else { (count as usize).min(zset.len()) };
    reply.array(if with_scores && !is_nested { drawn * 2 } else { drawn });
    let show = |reply: &mut Reply<'_>, member: Element<'_>, score: f64| {
        if is_nested {
            reply.array(2);
        }
        write(reply, member);
        if with_scores {
            reply.double(score);
        }
    };
    if count < 0 {
        draw_repeated(drawn, reply, room, |part, reply| {
            zset.sample_repeated(part, &mut rng, |member, score| show(reply, member, score));
        });
    } else if drawn == zset.len() {
        zset.iter().rev().for_each(|(member, score)| show(reply, member, score));
    } else {
        zset.sample_distinct(drawn, &mut rng, |member, score| show(reply, member, score));
    }
    Ok(())
}
