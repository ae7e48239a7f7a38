//! `PFMERGE destkey [sourcekey [sourcekey …]]`: the union of all, the destination included.

use super::{EVENT, checked, corrupted, store};
use engine::{Arg, Args, Command, Cx, Effort, Flags, Group, KeyFlags, KeySpec, Outcome};
use structs::hyperloglog::{self, Encoding, REGISTERS, Registers};

/// `PFMERGE`.
pub static PFMERGE: Command = Command {
    name: "pfmerge",
    arity: -2,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::INSERT)),
        KeySpec::rest(2, 1, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    group: Group::Hyperloglog,
    since: "2.8.9",
    complexity: "O(N) for N keys, each of which costs much",
    effort: Effort::Words(100),
    summary: "Joins what several keys have counted.",
    args: &[Arg::key("destkey", 0), Arg::key("sourcekey", 1).optional().multiple()],
    run: pfmerge,
    ..Command::ROW
};

fn pfmerge(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut registers: Box<Registers> = Box::new([0; REGISTERS]);
    let mut is_dense = false;
    for index in 1..args.len() {
        if let Some((encoding, bytes)) = checked(cx.db.string(args.key(index))?)? {
            is_dense |= encoding == Encoding::Dense;
            hyperloglog::merge(&mut registers, bytes).map_err(corrupted)?;
        }
    }
    let key = args.key(1);
    let max_sparse = cx.engine.config.hll_sparse_max_bytes();
    let found = checked(cx.db.string_for_write(key)?)?;
    let mut bytes = found.map_or_else(hyperloglog::empty, |(_, bytes)| bytes.to_vec());
    if is_dense {
        hyperloglog::to_dense(&mut bytes).map_err(corrupted)?;
        hyperloglog::set_dense(&mut bytes, &registers);
    } else {
        let places = registers.iter().enumerate().filter(|&(_, &value)| value > 0);
        for (index, &value) in places {
            hyperloglog::raise(&mut bytes, (index, value), max_sparse).map_err(corrupted)?;
        }
    }
    hyperloglog::invalidate(&mut bytes);
    store(cx, key, &bytes)?;
    cx.db.changed(key, EVENT);
    cx.reply.ok();
    Ok(())
}
