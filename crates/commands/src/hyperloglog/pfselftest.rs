//! `PFSELFTEST`: checks that registers hold what is put into them and that estimates are near the
//! truth.

use engine::{Args, Command, Cx, Effort, Error, Flags, Group, Outcome};
use structs::hyperloglog::{self, REGISTERS, Registers, dense};

/// `PFSELFTEST`.
pub static PFSELFTEST: Command = Command {
    name: "pfselftest",
    arity: 1,
    flags: Flags::ADMIN.with(Flags::SYSCMD),
    group: Group::Hyperloglog,
    since: "2.8.9",
    complexity: "N/A",
    effort: Effort::Small,
    summary: "Has no effect; kept for old test suites.",
    run: pfselftest,
    ..Command::ROW
};

/// Elements of the second test.
const ELEMENTS: u64 = 50_000;

fn pfselftest(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    test_registers(cx)?;
    test_estimates(cx)?;
    cx.reply.ok();
    Ok(())
}

fn test_registers(cx: &Cx<'_>) -> Result<(), Error> {
    let mut values: Box<Registers> = Box::new([0; REGISTERS]);
    values.iter_mut().for_each(|value| *value = (cx.db.random() & 63) as u8);
    let mut packed = vec![0; dense::BYTES];
    dense::pack(&values, &mut packed);
    for (index, &value) in values.iter().enumerate() {
        if dense::get(&packed, index) != value {
            let text = format!("TESTFAILED Register {index} should be {value}");
            return Err(Error::format(text));
        }
    }
    Ok(())
}

fn test_estimates(cx: &Cx<'_>) -> Result<(), Error> {
    let failed = |text: &str| Error::format(format!("TESTFAILED {text}"));
    let seed = cx.db.random();
    let (mut sparse, mut dense) = (hyperloglog::empty(), hyperloglog::empty());
    hyperloglog::to_dense(&mut dense).map_err(|_| failed("no dense form"))?;
    let mut checkpoint = 1;
    for number in 1..=ELEMENTS {
        let place = hyperloglog::place(&(seed ^ number).to_le_bytes());
        for bytes in [&mut sparse, &mut dense] {
            hyperloglog::raise(bytes, place, 3000).map_err(|_| failed("corrupted"))?;
        }
        if number == checkpoint {
            let count = estimate(&dense).ok_or_else(|| failed("no estimate"))?;
            if estimate(&sparse) != Some(count) {
                return Err(failed("dense/sparse disagree"));
            }
            // Six standard errors, and one more for the few.
            let allowed = (1.04 / 128.0 * 6.0 * number as f64).ceil() as u64 + 1;
            if count.abs_diff(number) > allowed {
                return Err(failed(&format!("Too big error. card:{number} abserr:{allowed}")));
            }
            checkpoint *= 10;
        }
    }
    Ok(())
}

fn estimate(bytes: &[u8]) -> Option<u64> {
    let mut registers: Box<Registers> = Box::new([0; REGISTERS]);
    hyperloglog::merge(&mut registers, bytes).ok()?;
    Some(hyperloglog::estimate(&registers))
}
