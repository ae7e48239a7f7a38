//! `PFDEBUG GETREG|DECODE|ENCODING|TODENSE key`: looks into a HyperLogLog, for tests.
//!
//! Valkey's `PFDEBUG SIMD ON|OFF`, which chooses between its two implementations, is refused: here
//! there is one.

use super::{checked, corrupted, store};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::hyperloglog::{self, Encoding, REGISTERS, Registers, sparse};

/// `PFDEBUG`.
pub static PFDEBUG: Command = Command {
    name: "pfdebug",
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::ADMIN).with(Flags::SYSCMD),
    keys: &[KeySpec::at(2, KeyFlags::RW.with(KeyFlags::ACCESS))],
    group: Group::Hyperloglog,
    since: "2.8.9",
    complexity: "N/A",
    summary: "Looks into a HyperLogLog, for tests.",
    args: &[Arg::new("subcommand", ArgKind::String), Arg::key("key", 0)],
    run: pfdebug,
    ..Command::ROW
};

fn pfdebug(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(2);
    let found = checked(cx.db.string_for_write(key)?)?;
    let (encoding, bytes) = found.ok_or(Error::text("ERR The specified key does not exist"))?;
    if args.is(1, "encoding") {
        cx.reply.simple(if encoding == Encoding::Dense { "dense" } else { "sparse" });
    } else if args.is(1, "decode") {
        if encoding == Encoding::Dense {
            return Err(Error::text("ERR HLL encoding is not sparse"));
        }
        let text = sparse::describe(hyperloglog::registers_of(bytes)).map_err(corrupted)?;
        cx.reply.bulk(text.as_bytes());
    } else if args.is(1, "getreg") {
        let mut registers: Box<Registers> = Box::new([0; REGISTERS]);
        hyperloglog::merge(&mut registers, bytes).map_err(corrupted)?;
        make_dense(cx, args)?;
        cx.reply.array(REGISTERS);
        registers.iter().for_each(|&value| cx.reply.integer(i64::from(value)));
    } else if args.is(1, "todense") {
        let is_changed = make_dense(cx, args)?;
        cx.reply.integer(i64::from(is_changed));
    } else {
        let name = String::from_utf8_lossy(args[1]);
        return Err(Error::format(format!("ERR Unknown PFDEBUG subcommand '{name}'")));
    }
    Ok(())
}

/// Says whether the value was sparse. The change of the encoding is repeated elsewhere, too.
fn make_dense(cx: &mut Cx<'_>, args: Args<'_>) -> Result<bool, Error> {
    let key = args.key(2);
    let Some((_, bytes)) = checked(cx.db.string_for_write(key)?)? else { return Ok(false) };
    let mut bytes = bytes.to_vec();
    let is_changed = hyperloglog::to_dense(&mut bytes).map_err(corrupted)?;
    if is_changed {
        store(cx, key, &bytes)?;
        cx.db.changed_silently(key);
        cx.db.add_dirty(1);
    }
    Ok(is_changed)
}
