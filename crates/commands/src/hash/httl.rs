//! `HTTL key FIELDS numfields field [field …]`, `HPTTL`, `HEXPIRETIME`, `HPEXPIRETIME`: for each
//! field −2 if there is none, −1 if it does not expire.

use super::fields::FIELDS;
use crate::generic::ttl;
use engine::{
    Arg, Args, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Millis, Outcome,
};
use structs::hash::Hash;

/// What the four rows have in common.
const TIME: Command = Command {
    arity: -5,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Hash,
    since: "9.0.0",
    complexity: "O(N) for N fields",
    effort: Effort::Words(3),
    args: &[Arg::key("key", 0), FIELDS],
    ..Command::ROW
};

/// `HTTL`.
pub static HTTL: Command =
    Command { name: "httl", summary: "Seconds until fields expire.", run: httl, ..TIME };

/// `HPTTL`.
pub static HPTTL: Command =
    Command { name: "hpttl", summary: "Milliseconds until fields expire.", run: hpttl, ..TIME };

/// `HEXPIRETIME`.
pub static HEXPIRETIME: Command = Command {
    name: "hexpiretime",
    summary: "The seconds of Unix time at which fields expire.",
    run: hexpiretime,
    ..TIME
};

/// `HPEXPIRETIME`.
pub static HPEXPIRETIME: Command = Command {
    name: "hpexpiretime",
    summary: "The milliseconds of Unix time at which fields expire.",
    run: hpexpiretime,
    ..TIME
};

fn httl(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, ttl::seconds_left)
}
fn hpttl(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, ttl::milliseconds_left)
}
fn hexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, ttl::seconds)
}
fn hpexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    answer(cx, args, ttl::milliseconds)
}

fn answer(cx: &mut Cx<'_>, args: Args<'_>, figure: ttl::Figure) -> Outcome {
    if !args.is(2, "fields") {
        return Err(Error::Syntax);
    }
    let fields = args.from(4);
    if args.integer(3)? != fields.len() as i64 {
        return Err(Error::Syntax);
    }
    let (now, horizon) = (cx.now(), cx.db.horizon().0);
    let Cx { db, reply, .. } = cx;
    let live = db.read::<Hash>(args.key(1))?.map(|hash| hash.live(horizon));
    reply.array(fields.len());
    for field in fields {
        reply.integer(match live.and_then(|live| live.expiry(field)) {
            None => -2,
            Some(None) => -1,
            Some(Some(at)) => figure(Millis(at), now),
        });
    }
    Ok(())
}
