//! `LMOVEM source destination LEFT|RIGHT LEFT|RIGHT [COUNT count|EXACTLY count OBO|BULK]`, blocking
//! `BLMOVEM`
//!
//! OBO moves the elements one by one, so that they arrive reversed at the end they came from; BULK
//! keeps their order. Servers before Redis 8.10 know neither, so the journal holds pops and a push.

use super::lmove::parse_end;
use super::pop::popped;
use super::push::push_event;
use crate::limits;
use engine::blocking::{TimeoutReply, parse_timeout};
use engine::{
    Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Flags, Group, Key, KeyFlags, KeySpec,
    Outcome,
};
use structs::list::{End, List};

const HOW_MANY: Arg = Arg::block(
    "how-many",
    &[
        Arg::one_of(
            "selector",
            &[
                Arg::new("count", ArgKind::Integer).after("COUNT"),
                Arg::new("exactly", ArgKind::Integer).after("EXACTLY"),
            ],
        ),
        Arg::one_of("ordering", &[Arg::token("obo", "OBO"), Arg::token("bulk", "BULK")]),
    ],
)
.optional();

/// `LMOVEM`.
pub static LMOVEM: Command = Command {
    name: "lmovem",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.with(KeyFlags::INSERT)),
    ],
    group: Group::List,
    since: "8.10.0",
    complexity: "O(N) for N elements that are moved",
    effort: Effort::Estimate(effort),
    summary: "Moves several elements from one list to another and returns them.",
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::one_of("wherefrom", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
        Arg::one_of("whereto", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
        HOW_MANY,
    ],
    run: lmovem,
    ..Command::ROW
};

/// `BLMOVEM`.
pub static BLMOVEM: Command = Command {
    name: "blmovem",
    arity: -6,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::BLOCKING),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.with(KeyFlags::INSERT)),
    ],
    group: Group::List,
    since: "8.10.0",
    complexity: "O(N) for N elements that are moved",
    effort: Effort::Estimate(effort),
    summary: "LMOVEM that waits until there are enough elements.",
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::one_of("wherefrom", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
        Arg::one_of("whereto", &[Arg::token("left", "LEFT"), Arg::token("right", "RIGHT")]),
        Arg::new("timeout", ArgKind::Double),
        HOW_MANY,
    ],
    run: blmovem,
    ..Command::ROW
};

struct Request {
    from: End,
    to: End,
    count: usize,
    /// Fewer elements are none.
    is_exact: bool,
    is_reversed: bool,
}

/// Reads the request; its last part begins at word `at`.
fn parse(args: Args<'_>, at: usize) -> Result<Request, Error> {
    let (from, to) = (parse_end(args, 3)?, parse_end(args, 4)?);
    let mut request = Request { from, to, count: 1, is_exact: false, is_reversed: false };
    if args.len() == at {
        return Ok(request);
    }
    if args.len() != at + 3 {
        return Err(Error::Syntax);
    }
    request.is_exact = args.is(at, "exactly");
    let is_one_by_one = args.is(at + 2, "obo");
    let has_order = is_one_by_one || args.is(at + 2, "bulk");
    if !has_order || !(request.is_exact || args.is(at, "count")) {
        return Err(Error::Syntax);
    }
    request.is_reversed = is_one_by_one && from == to;
    let count = args.integer_in(at + 1, 1..=i64::MAX, "value is out of range, must be positive")?;
    request.count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(request)
}

/// A few cache misses for each element.
fn effort(db: &Db<'_>, args: Args<'_>) -> usize {
    let at = if args.is(0, "blmovem") { 6 } else { 5 };
    let wanted = parse(args, at).map_or(1, |request| request.count);
    wanted.min(db.size(args.key(1))).saturating_mul(8)
}

fn lmovem(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let request = parse(args, 5)?;
    if !move_elements(cx, args, &request)? {
        answer_none(cx, &request);
    }
    Ok(())
}

fn blmovem(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let request = parse(args, 6)?;
    let deadline = parse_timeout(args[5], cx.now())?;
    if move_elements(cx, args, &request)? {
        return Ok(());
    }
    if cx.in_transaction {
        cx.reply.null();
        return Ok(());
    }
    cx.block(&[args[1]], deadline, TimeoutReply::NullArray)
}

/// Answers that nothing was moved.
fn answer_none(cx: &mut Cx<'_>, request: &Request) {
    if request.is_exact {
        cx.reply.null();
    } else {
        cx.reply.array(0);
    }
}

/// Moves the elements and answers with them; `false` if there are not enough.
fn move_elements(cx: &mut Cx<'_>, args: Args<'_>, request: &Request) -> Result<bool, Error> {
    let (source, destination) = (args.key(1), args.key(2));
    let limits = limits::list(&cx.engine.config, &cx.engine.debug);
    let len = cx.db.object_for_write::<List>(source)?.map_or(0, List::len);
    if len == 0 || (request.is_exact && len < request.count) {
        return Ok(false);
    }
    cx.db.object_for_write::<List>(destination)?;
    let Some(list) = cx.db.write::<List>(source)? else { return Ok(false) };
    // In the order in which they were popped.
    let mut moved: Vec<Vec<u8>> = Vec::new();
    while moved.len() < request.count
        && let Some(element) = list.pop(request.from, &limits, |element| element.to_vec())
    {
        moved.push(element);
    }
    // From head to tail, as they will stand in the destination.
    if (request.from == End::Right) != request.is_reversed {
        moved.reverse();
    }
    let list = cx.db.write_or_create::<List>(destination)?;
    match request.to {
        End::Left => moved.iter().rev().for_each(|element| list.push(End::Left, element, &limits)),
        End::Right => moved.iter().for_each(|element| list.push(End::Right, element, &limits)),
    }
    cx.db.changed_in(destination, push_event(request.to), moved.len() as u64);
    popped(cx, source, request.from, moved.len());
    propagate(cx, source, destination, request, &moved);
    cx.reply.array(moved.len());
    moved.iter().for_each(|element| cx.reply.bulk(element));
    Ok(true)
}

/// Elements of one command in the journal.
const ELEMENTS_OF_EFFECT: usize = 64;

/// Hands on the move as a pop and pushes, which every server knows.
fn propagate(
    cx: &mut Cx<'_>,
    source: Key<'_>,
    destination: Key<'_>,
    request: &Request,
    moved: &[Vec<u8>],
) {
    let (source, destination) = (source.bytes, destination.bytes);
    cx.db.propagate_as(|p| {
        p.begin(3);
        p.word(if request.from == End::Left { b"LPOP" } else { b"RPOP" });
        p.word(source);
        p.integer(moved.len() as i64);
        let mut push = |name: &[u8], elements: &mut dyn Iterator<Item = &Vec<u8>>, count: usize| {
            p.begin(2 + count);
            p.word(name);
            p.word(destination);
            elements.for_each(|element| p.word(element));
        };
        match request.to {
            End::Left => moved
                .rchunks(ELEMENTS_OF_EFFECT)
                .for_each(|part| push(b"LPUSH", &mut part.iter().rev(), part.len())),
            End::Right => moved
                .chunks(ELEMENTS_OF_EFFECT)
                .for_each(|part| push(b"RPUSH", &mut part.iter(), part.len())),
        }
    });
}
