//! `SPOP key [count]`, `SRANDMEMBER key [count]`: every member is equally likely.

use crate::draw::draw_repeated;
use crate::list::{negatable, write};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Error, Flags, Group, Key, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::random::Rng;
use structs::set::Set;

/// `SPOP`.
pub static SPOP: Command = Command {
    name: "spop",
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(1), O(N) with a count of N",
    effort: Effort::Estimate(crate::effort::popped),
    summary: "Takes some members out of a set, by chance.",
    history: &[("3.2.0", "Takes `count`.")],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0), Arg::new("count", ArgKind::Integer).optional().since("3.2.0")],
    run: spop,
    ..Command::ROW
};

/// `SRANDMEMBER`.
pub static SRANDMEMBER: Command = Command {
    name: "srandmember",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Set,
    since: "1.0.0",
    complexity: "O(1), O(N) with a count of N or -N",
    effort: Effort::Estimate(crate::effort::sampled),
    summary: "Some members of a set, by chance.",
    history: &[("2.6.0", "Takes `count`.")],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0), Arg::new("count", ArgKind::Integer).optional().since("2.6.0")],
    run: srandmember,
    ..Command::ROW
};

fn spop(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let count = match args.len() {
        2 => None,
        3 => Some(args.integer_in(2, 0..=i64::MAX, "value is out of range, must be positive")?),
        _ => return Err(Error::Syntax),
    };
    let mut rng = Rng::seeded(cx.db.random());
    let Cx { db, reply, .. } = cx;
    let is_journaled = db.engine.journal.is_recording();
    let Some(set) = db.write::<Set>(key)? else {
        if count.is_some() {
            reply.set(0);
        } else {
            reply.null();
        }
        return Ok(());
    };
    let mut popped = Vec::new();
    let wanted = count.map_or(1, |count| (count as usize).min(set.len()));
    let is_read_whole = count.is_some() && wanted == set.len();
    // Of a set that is popped whole the journal has the deletion.
    let journals = is_journaled && !is_read_whole;
    if count.is_some() {
        reply.set(wanted);
    }
    for _ in 0..wanted {
        set.pop_random(&mut rng, |member| {
            if journals {
                popped.push(member.to_vec());
            }
            write(reply, member);
        });
    }
    if is_read_whole {
        // Redis reads such a set and deletes it: a hit, which popping some members is not.
        db.lookup_no_notify(key);
    }
    if wanted > 0 {
        report(cx, key, wanted, popped, is_read_whole);
    }
    Ok(())
}

/// `popped` is for the journal, if anybody reads it.
fn report(cx: &mut Cx<'_>, key: Key<'_>, count: usize, popped: Vec<Vec<u8>>, is_whole: bool) {
    cx.db.changed_in(key, event(Class::SET, "spop"), count as u64);
    if is_whole {
        cx.db.propagate_as_deletion(key, cx.engine.config.lazyfree_lazy_server_del());
    } else {
        cx.db.propagate_as(|p| {
            p.begin(2 + popped.len());
            p.word(b"SREM");
            p.word(key.bytes);
            popped.iter().for_each(|member| p.word(member));
        });
    }
    cx.db.remove_if_empty::<Set>(key);
}

fn srandmember(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(1);
    let mut rng = Rng::seeded(cx.db.random());
    let room = cx.session.output_room;
    let Cx { db, reply, .. } = cx;
    if args.len() == 2 {
        match db.read::<Set>(key)?.and_then(|set| set.random(&mut rng)) {
            Some(member) => write(reply, member),
            None => reply.null(),
        }
        return Ok(());
    }
    if args.len() > 3 {
        return Err(Error::Syntax);
    }
    let count = negatable(args, 2)?;
    let Some(set) = db.read::<Set>(key)? else {
        reply.array(0);
        return Ok(());
    };
    if count < 0 {
        let count = count.unsigned_abs() as usize;
        reply.array(count);
        draw_repeated(count, reply, room, |part, reply| {
            set.sample_repeated(part, &mut rng, |member| write(reply, member));
        });
    } else {
        let count = (count as usize).min(set.len());
        reply.array(count);
        set.sample_distinct(count, &mut rng, |member| write(reply, member));
    }
    Ok(())
}
