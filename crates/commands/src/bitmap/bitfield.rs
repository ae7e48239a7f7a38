//! `BITFIELD key [GET type offset | [OVERFLOW WRAP|SAT|FAIL] SET|INCRBY type offset value …]`,
//! `BITFIELD_RO`
//!
//! With nothing but GET nothing is created. Otherwise the string is first made long enough for the
//! furthest field that is written.

use super::field::{FieldType, Overflow};
use super::parse_offset;
use super::setbit::EVENT;
use engine::keys::InvalidKeys;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};

/// `BITFIELD`.
pub static BITFIELD: Command = Command {
    name: "bitfield",
    arity: -2,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(
        KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE),
    )
    .note("This command allows both access and modification of the key")],
    group: Group::Bitmap,
    since: "3.2.0",
    complexity: "O(N) for N operations",
    summary: "Reads, sets and adds to integers of any width within a string.",
    find_keys: Some(find_keys),
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "operation",
            &[
                Arg::block(
                    "get-block",
                    &[Arg::new("encoding", ArgKind::String), Arg::new("offset", ArgKind::Integer)],
                )
                .after("GET"),
                Arg::block(
                    "write",
                    &[
                        Arg::one_of(
                            "overflow-block",
                            &[
                                Arg::token("wrap", "WRAP"),
                                Arg::token("sat", "SAT"),
                                Arg::token("fail", "FAIL"),
                            ],
                        )
                        .after("OVERFLOW")
                        .optional(),
                        Arg::one_of(
                            "write-operation",
                            &[
                                Arg::block(
                                    "set-block",
                                    &[
                                        Arg::new("encoding", ArgKind::String),
                                        Arg::new("offset", ArgKind::Integer),
                                        Arg::new("value", ArgKind::Integer),
                                    ],
                                )
                                .after("SET"),
                                Arg::block(
                                    "incrby-block",
                                    &[
                                        Arg::new("encoding", ArgKind::String),
                                        Arg::new("offset", ArgKind::Integer),
                                        Arg::new("increment", ArgKind::Integer),
                                    ],
                                )
                                .after("INCRBY"),
                            ],
                        ),
                    ],
                ),
            ],
        )
        .optional()
        .multiple(),
    ],
    run: bitfield,
    ..Command::ROW
};

/// `BITFIELD_RO`.
pub static BITFIELD_RO: Command = Command {
    name: "bitfield_ro",
    arity: -2,
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Bitmap,
    since: "6.0.0",
    complexity: "O(N) for N operations",
    summary: "Reads integers of any width within a string.",
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "get-block",
            &[Arg::new("encoding", ArgKind::String), Arg::new("offset", ArgKind::Integer)],
        )
        .after("GET")
        .optional()
        .multiple_token(),
    ],
    run: bitfield_ro,
    ..Command::ROW
};

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64, Overflow),
    Increment(i64, Overflow),
}

#[derive(Clone, Copy)]
struct BitfieldStep {
    field: FieldType,
    offset: u64,
    action: Action,
}

impl BitfieldStep {
    /// Bytes that a string needs to hold what is written; 0 if nothing is.
    fn written_end(&self) -> usize {
        match self.action {
            Action::Get => 0,
            _ => ((self.offset + u64::from(self.field.bits) - 1) >> 3) as usize + 1,
        }
    }
}

/// BITFIELD with nothing but GET is a read.
fn find_keys(argv: &[&[u8]], found: &mut dyn FnMut(usize, KeyFlags)) -> Result<(), InvalidKeys> {
    let mut index = 2;
    let mut writes = false;
    while index < argv.len() {
        // `GET encoding offset`, `SET` and `INCRBY` with a value more, `OVERFLOW` with a word.
        let after = argv.len() - index - 1;
        index += match argv[index] {
            word if word.eq_ignore_ascii_case(b"get") && after >= 2 => 3,
            word if word.eq_ignore_ascii_case(b"overflow") && after >= 1 => 2,
            _ => {
                writes = true;
                break;
            }
        };
    }
    found(
        1,
        if writes {
            KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE)
        } else {
            KeyFlags::RO.with(KeyFlags::ACCESS)
        },
    );
    Ok(())
}

fn parse(cx: &Cx<'_>, args: Args<'_>) -> Result<Vec<BitfieldStep>, Error> {
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut at = 2;
    while at < args.len() {
        let following = args.len() - at - 1;
        if args.is(at, "overflow") && following >= 1 {
            overflow = parse_overflow(args, at + 1)?;
            at += 2;
            continue;
        }
        let is_get = args.is(at, "get") && following >= 2;
        let is_set = args.is(at, "set") && following >= 3;
        let is_increment = args.is(at, "incrby") && following >= 3;
        if !(is_get || is_set || is_increment) {
            return Err(Error::Syntax);
        }
        let field = FieldType::parse(args[at + 1])?;
        let offset = parse_offset(cx, args[at + 2], Some(field.bits))?;
        let action = if is_get {
            Action::Get
        } else {
            let value = args.integer(at + 3)?;
            if is_set { Action::Set(value, overflow) } else { Action::Increment(value, overflow) }
        };
        steps.push(BitfieldStep { field, offset, action });
        at += if is_get { 3 } else { 4 };
    }
    Ok(steps)
}

fn parse_overflow(args: Args<'_>, at: usize) -> Result<Overflow, Error> {
    if args.is(at, "wrap") {
        Ok(Overflow::Wrap)
    } else if args.is(at, "sat") {
        Ok(Overflow::Saturate)
    } else if args.is(at, "fail") {
        Ok(Overflow::Fail)
    } else {
        Err(Error::text("ERR Invalid OVERFLOW type specified"))
    }
}

fn bitfield(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let steps = parse(cx, args)?;
    let end = steps.iter().map(BitfieldStep::written_end).max().unwrap_or(0);
    if end == 0 { read(cx, args, &steps) } else { write(cx, args, &steps, end) }
}

fn bitfield_ro(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let steps = parse(cx, args)?;
    if steps.iter().any(|step| step.written_end() > 0) {
        return Err(Error::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read(cx, args, &steps)
}

fn read(cx: &mut Cx<'_>, args: Args<'_>, steps: &[BitfieldStep]) -> Outcome {
    let mut digits = [0; structs::numbers::INT_MAX_LEN];
    let string = cx.db.string(args.key(1))?;
    let bytes = string.as_ref().map_or(&b""[..], |string| string.bytes(&mut digits));
    cx.reply.array(steps.len());
    for step in steps {
        cx.reply.integer(step.field.read(bytes, step.offset));
    }
    Ok(())
}

fn write(cx: &mut Cx<'_>, args: Args<'_>, steps: &[BitfieldStep], end: usize) -> Outcome {
    let key = args.key(1);
    let Cx { db, reply, .. } = cx;
    let string = db.edit_string(key)?;
    let grows = string.len() < end;
    if grows {
        string.resize(end);
    }
    let bytes = string.as_mut_slice();
    let mut changes = 0;
    reply.array(steps.len());
    for &BitfieldStep { field, offset, action } in steps {
        let old = field.read(bytes, offset);
        let (new, answer) = match action {
            Action::Get => (None, Some(old)),
            Action::Set(value, overflow) => {
                let new = field.add(value, 0, overflow);
                (new, new.map(|_| old))
            }
            Action::Increment(by, overflow) => {
                let new = field.add(old, by, overflow);
                (new, new)
            }
        };
        if let Some(new) = new {
            field.write(bytes, offset, new);
            changes += u64::from(grows || new != old);
        }
        match answer {
            Some(number) => reply.integer(number),
            None => reply.null(),
        }
    }
    if changes > 0 {
        db.changed_in(key, EVENT, changes);
    } else if grows {
        // Every write overflowed, but the string is there now, or longer.
        db.changed_silently(key);
        db.add_dirty(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(request: &str, expected: KeyFlags) {
        let argv: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let mut found = Vec::new();
        find_keys(&argv, &mut |index, flags| found.push((index, flags))).expect("it is valid");
        assert_eq!(found, [(1, expected.with(KeyFlags::ACCESS))]);
    }

    #[test]
    fn it_writes_unless_it_only_gets() {
        let write = KeyFlags::RW.with(KeyFlags::UPDATE);
        check("bitfield k", KeyFlags::RO);
        check("bitfield k OVERFLOW WRAP GET u8 0", KeyFlags::RO);
        check("bitfield k GET u8 0 SET u8 0 1", write);
        check("bitfield k GET u8", write);
    }
}
