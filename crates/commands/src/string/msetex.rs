//! `MSETEX numkeys key value [key value …] [NX|XX] [EX|PX|EXAT|PXAT time|KEEPTTL]`

use super::expiry::{EXPIRE_OR_KEEP, Expiry, ExpiryOptions};
use engine::routing::Routing;
use engine::{
    Arg, ArgKind, Args, Begin, Command, Cx, Effort, Error, Find, Flags, Group, Key, KeyFlags,
    KeySpec, Outcome, events,
};
use structs::numbers;

/// `MSETEX`.
pub static MSETEX: Command = Command {
    name: "msetex",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::new(
        KeyFlags::OW.with(KeyFlags::UPDATE),
        Begin::Index(1),
        Find::KeyNum { index: 0, first: 1, step: 2 },
    )],
    group: Group::String,
    since: "9.1.0",
    complexity: "O(N) for N keys",
    effort: Effort::Words(3),
    summary: "Sets several strings at once, with one expiry for all.",
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    args: &[
        Arg::new("numkeys", ArgKind::Integer),
        Arg::block("data", &[Arg::key("key", 0), Arg::new("value", ArgKind::String)]).multiple(),
        Arg::one_of("condition", &[Arg::token("nx", "NX"), Arg::token("xx", "XX")]).optional(),
        EXPIRE_OR_KEEP,
    ],
    routing: Routing::USUAL.whole_if(has_condition),
    run: msetex,
    ..Command::ROW
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    NonePresent,
    AllPresent,
}

struct MsetexOptions {
    /// The word behind the last value.
    end: usize,
    condition: Condition,
    expiry: Expiry,
}

fn parse(cx: &Cx<'_>, args: Args<'_>) -> Result<MsetexOptions, Error> {
    let most = i64::from(i32::MAX);
    let numkeys = args.integer_in(1, 1..=most, "invalid numkeys value or out of range")? as usize;
    let end = 2 + numkeys * 2;
    if end > args.len() {
        return Err(Error::Syntax);
    }
    let (mut condition, mut expiry) = (Condition::Always, ExpiryOptions::default());
    let mut at = end;
    while at < args.len() {
        if args.is(at, "nx") && condition != Condition::AllPresent {
            condition = Condition::NonePresent;
        } else if args.is(at, "xx") && condition != Condition::NonePresent {
            condition = Condition::AllPresent;
        } else {
            at += expiry.take(args, at, "keepttl").ok_or(Error::Syntax)?;
            continue;
        }
        at += 1;
    }
    let expiry = expiry.resolve(args, cx.now(), "msetex", Expiry::Keep)?;
    let expiry = expiry.unwrap_or(Expiry::Clear);
    Ok(MsetexOptions { end, condition, expiry })
}

/// Returns whether a request depends on which of its keys exist, so that it is about all of them at
/// once.
fn has_condition(words: &[&[u8]]) -> bool {
    let count = words.get(1).and_then(|word| numbers::parse_i64(word));
    let count = count.and_then(|count| usize::try_from(count).ok());
    let options = count.and_then(|count| words.get(count.checked_mul(2)?.checked_add(2)?..));
    let is_condition =
        |word: &&[u8]| word.eq_ignore_ascii_case(b"NX") || word.eq_ignore_ascii_case(b"XX");
    options.is_some_and(|options| options.iter().any(is_condition))
}

fn msetex(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(cx, args)?;
    let pairs = || (2..options.end).step_by(2).map(|at| (args.key(at), args[at + 1]));
    let allowed = match options.condition {
        Condition::Always => true,
        Condition::NonePresent => pairs().all(|(key, _)| cx.db.lookup_no_stats(key).is_none()),
        Condition::AllPresent => pairs().all(|(key, _)| cx.db.lookup_no_stats(key).is_some()),
    };
    if allowed {
        pairs().for_each(|(key, value)| store(cx, key, value, options.expiry));
        if let Expiry::At(at) = options.expiry {
            cx.db.propagate_as(|p| {
                p.begin(options.end + 2);
                args.words()[..options.end].iter().for_each(|word| p.word(word));
                p.word(b"PXAT");
                p.integer(at.0);
            });
        }
    }
    cx.reply.integer(i64::from(allowed));
    Ok(())
}

/// Sets the key even if its time has passed already; then it expires as any key does.
fn store(cx: &mut Cx<'_>, key: Key<'_>, value: &[u8], expiry: Expiry) {
    cx.db.set_string(key, value, expiry.into());
    cx.db.changed(key, events::SET);
    if let Expiry::At(_) = expiry {
        cx.db.notify(key, events::EXPIRE);
    }
}
