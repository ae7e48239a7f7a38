//! `XNACK key group SILENT|FAIL|FATAL IDS numids id [id …] [RETRYCOUNT count] [FORCE]`: gives
//! entries back.
//!
//! An entry that was given back belongs to the consumer with the empty name, since time 0. That is
//! how XPENDING shows an entry without a consumer; the oldest entries are claimed first; and files,
//! logs and replicas of every version hold it. XINFO shows that consumer, which Redis 8.8 does not
//! have. An entry that is no longer in the stream stays with its consumer: a claim would only drop
//! it.

use super::ids;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::stream::{Stream, StreamId};

/// `XNACK`.
pub static XNACK: Command = Command {
    name: "xnack",
    arity: -7,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Stream,
    since: "8.8.0",
    complexity: "O(N) for N entries",
    summary: "Gives pending entries back to their group, for any consumer to claim at once.",
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        Arg::one_of(
            "mode",
            &[
                Arg::token("silent", "SILENT"),
                Arg::token("fail", "FAIL"),
                Arg::token("fatal", "FATAL"),
            ],
        ),
        Arg::block(
            "ids",
            &[Arg::new("numids", ArgKind::Integer), Arg::new("id", ArgKind::String).multiple()],
        )
        .after("IDS"),
        Arg::new("count", ArgKind::Integer).after("RETRYCOUNT").optional(),
        Arg::token("force", "FORCE").optional(),
    ],
    run: xnack,
    ..Command::ROW
};

/// The name of what has no consumer.
pub(super) const NOBODY: &[u8] = b"";

/// What becomes of the number of deliveries.
#[derive(Clone, Copy)]
enum Mode {
    /// This delivery does not count.
    Silent,
    /// It stays.
    Fail,
    /// No consumer is to try again.
    Fatal,
}

struct Request {
    mode: Mode,
    ids: Vec<StreamId>,
    deliveries: Option<u64>,
    is_forced: bool,
}

impl Request {
    /// The number of deliveries of an entry that had so many; `None`: that was not pending.
    fn deliveries(&self, before: Option<u64>) -> u64 {
        let by_mode = match self.mode {
            Mode::Fatal => i64::MAX as u64,
            Mode::Silent => before.unwrap_or(0).saturating_sub(1),
            Mode::Fail => before.unwrap_or(0),
        };
        self.deliveries.unwrap_or(by_mode)
    }
}

fn parse(args: Args<'_>) -> Result<Request, Error> {
    let mode = if args.is(3, "silent") {
        Mode::Silent
    } else if args.is(3, "fail") {
        Mode::Fail
    } else if args.is(3, "fatal") {
        Mode::Fatal
    } else {
        return Err(Error::Syntax);
    };
    if !args.is(4, "ids") {
        return Err(Error::Syntax);
    }
    let count = args.integer_in(5, 1..=i64::MAX, "Number of IDs must be a positive integer")?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let words = args
        .from(6)
        .get(..count)
        .ok_or(Error::text("ERR The `numids` parameter must match the number of arguments"))?;
    let mut request = Request { mode, ids: ids::all(words)?, deliveries: None, is_forced: false };
    let mut at = 6 + count;
    while at < args.len() {
        if args.is(at, "retrycount") && at + 1 < args.len() {
            let count = args.integer_in(
                at + 1,
                0..=i64::MAX,
                "Invalid RETRYCOUNT option argument for XNACK",
            )?;
            request.deliveries = Some(count as u64);
            at += 2;
        } else if args.is(at, "force") {
            request.is_forced = true;
            at += 1;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(request)
}

fn xnack(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (key, name, now) = (args.key(1), args[2], cx.now().0);
    let request = parse(args)?;
    let is_there = cx.db.read::<Stream>(key)?.is_some_and(|stream| stream.group(name).is_some());
    if !is_there {
        return Err(super::no_key_or_group(args[1], name));
    }
    let mut released = Vec::new();
    if let Some(stream) = cx.db.write::<Stream>(key)? {
        for &id in &request.ids {
            if release(stream, name, id, &request, now) {
                released.push(id);
            }
        }
    }
    cx.db.add_dirty(released.len() as u64);
    super::propagate_claims(cx, key, name, |p, group| {
        for pending in released.iter().filter_map(|&id| group.pending(id)) {
            super::claim_effect(p, key.bytes, name, group, pending);
        }
    });
    cx.reply.integer(released.len() as i64);
    Ok(())
}

/// Gives an entry back; says whether it did.
fn release(stream: &mut Stream, name: &[u8], id: StreamId, request: &Request, now: i64) -> bool {
    if !stream.contains(id) {
        return false;
    }
    let Some(group) = stream.group_mut(name) else { return false };
    let before = group.pending(id).map(|pending| pending.deliveries);
    if before.is_none() && !request.is_forced {
        return false;
    }
    let number = group.find_consumer(NOBODY).or_else(|| group.create_consumer(NOBODY, now));
    let Some(number) = number else { return false };
    group.assign(id, number, 0, request.deliveries(before));
    true
}
