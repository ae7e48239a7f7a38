//! `BF.INFO key [CAPACITY|SIZE|FILTERS|ITEMS|EXPANSION]`, `BF.CARD key`, `BF.DEBUG key`

use super::NOT_FOUND;
use crate::typed;
use engine::{Arg, Args, Command, Cx, Error, Flags, Group, KeyFlags, KeySpec, Outcome};
use sketches::bloom::Bloom;

/// `BF.INFO`.
pub static BF_INFO: Command = Command {
    name: "bf.info",
    arity: -2,
    summary: "Describes a Bloom filter.",
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "single_value",
            &[
                Arg::token("capacity", "CAPACITY"),
                Arg::token("size", "SIZE"),
                Arg::token("filters", "FILTERS"),
                Arg::token("items", "ITEMS"),
                Arg::token("expansion", "EXPANSION"),
            ],
        )
        .optional(),
    ],
    run: info,
    ..READS
};

/// `BF.CARD`.
pub static BF_CARD: Command = Command {
    name: "bf.card",
    arity: 2,
    since: "2.4.4",
    summary: "Returns how many items were added to a Bloom filter and were new.",
    args: &[Arg::key("key", 0)],
    run: card,
    ..READS
};

/// `BF.DEBUG`.
pub static BF_DEBUG: Command = Command {
    name: "bf.debug",
    arity: 2,
    summary: "Describes the layers of a Bloom filter, for tests.",
    args: &[Arg::key("key", 0)],
    run: debug,
    ..READS
};

/// What the rows have in common.
const READS: Command = Command {
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["bloom"],
    since: "1.0.0",
    ..Command::ROW
};

/// The fields of BF.INFO: the word that asks for one, its title, its value.
type Field = (&'static str, &'static str, fn(&Bloom) -> Option<u64>);

static FIELDS: [Field; 5] = [
    ("capacity", "Capacity", |bloom| Some(bloom.capacity())),
    ("size", "Size", |bloom| Some(bloom.reported_bytes() as u64)),
    ("filters", "Number of filters", |bloom| Some(bloom.layers().len() as u64)),
    ("items", "Number of items inserted", |bloom| Some(bloom.len())),
    ("expansion", "Expansion rate", |bloom| bloom.expansion().map(u64::from)),
];

fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(Error::Arity("bf.info".into()));
    }
    let bloom = typed::read::<Bloom>(&cx.db, args.key(1))?.ok_or(NOT_FOUND)?;
    let reply = &mut cx.reply;
    let fields = if args.len() == 3 {
        let field = FIELDS.iter().position(|(word, ..)| args.is(2, word));
        let field = field.ok_or(Error::text("Invalid information value"))?;
        &FIELDS[field..=field]
    } else {
        &FIELDS[..]
    };
    // RESP2 has no title for one value.
    let is_titled = args.len() == 2 || reply.is_resp3();
    if is_titled {
        reply.map(fields.len());
    } else {
        reply.array(1);
    }
    for (_, title, value) in fields {
        if is_titled {
            reply.simple(title);
        }
        match value(bloom) {
            Some(number) => reply.integer(i64::try_from(number).unwrap_or(i64::MAX)),
            None => reply.null(),
        }
    }
    Ok(())
}

fn card(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let items = typed::read::<Bloom>(&cx.db, args.key(1))?.map_or(0, Bloom::len);
    cx.reply.integer(i64::try_from(items).unwrap_or(i64::MAX));
    Ok(())
}

fn debug(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let bloom = typed::read::<Bloom>(&cx.db, args.key(1))?.ok_or(NOT_FOUND)?;
    cx.reply.array(1 + bloom.layers().len());
    cx.reply.simple(&format!("size:{}", bloom.len()));
    for layer in bloom.layers() {
        let (bytes, bits, hashes) = (layer.bytes(), layer.bits(), layer.hashes());
        let (capacity, size, ratio) = (layer.capacity(), layer.len(), short(layer.rate()));
        cx.reply.simple(&format!(
            "bytes:{bytes} bits:{bits} hashes:{hashes} hashwidth:64 capacity:{capacity} \
             size:{size} ratio:{ratio}"
        ));
    }
    Ok(())
}

/// Returns a rate with six digits, as C's `%g` does.
fn short(rate: f64) -> String {
    let scientific = format!("{rate:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 {
        return format!("{}e-{:02}", trimmed(digits), -exponent);
    }
    trimmed(&format!("{rate:.*}", usize::try_from(5 - exponent).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn rates_are_written_as_in_redis() {
        let rates = [0.005, 0.0025, 0.000_625, 6.25e-05, 1.5625e-05, 0.5, 1e-300];
        let expected = ["0.005", "0.0025", "0.000625", "6.25e-05", "1.5625e-05", "0.5", "1e-300"];
        assert_eq!(rates.map(short), expected);
    }
}
