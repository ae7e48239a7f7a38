//! The rows of the searching commands: `GEOSEARCH`, `GEOSEARCHSTORE`, `GEORADIUS`,
//! `GEORADIUSBYMEMBER` and the read-only forms of the latter.

use super::search::{
    georadius, georadius_ro, georadiusbymember, georadiusbymember_ro, geosearch, geosearchstore,
};
use engine::keys::InvalidKeys;
use engine::{Arg, ArgKind, Begin, Command, Effort, Find, Flags, Group, KeyFlags, KeySpec};

const UNIT: Arg = Arg::one_of(
    "unit",
    &[Arg::token("m", "M"), Arg::token("km", "KM"), Arg::token("ft", "FT"), Arg::token("mi", "MI")],
);
const ORDER: Arg =
    Arg::one_of("order", &[Arg::token("asc", "ASC"), Arg::token("desc", "DESC")]).optional();
const COUNT: Arg = Arg::block(
    "count-block",
    &[Arg::new("count", ArgKind::Integer).after("COUNT"), Arg::token("any", "ANY").optional()],
)
.optional();
const COUNT_SINCE: Arg = Arg::block(
    "count-block",
    &[
        Arg::new("count", ArgKind::Integer).after("COUNT"),
        Arg::token("any", "ANY").optional().since("6.2.0"),
    ],
)
.optional();
const FROM: Arg = Arg::one_of(
    "from",
    &[
        Arg::new("member", ArgKind::String).after("FROMMEMBER"),
        Arg::block(
            "fromlonlat",
            &[Arg::new("longitude", ArgKind::Double), Arg::new("latitude", ArgKind::Double)],
        )
        .after("FROMLONLAT"),
    ],
)
.optional();
const BY: Arg = Arg::one_of(
    "by",
    &[
        Arg::block("circle", &[Arg::new("radius", ArgKind::Double).after("BYRADIUS"), UNIT]),
        Arg::block(
            "box",
            &[
                Arg::new("width", ArgKind::Double).after("BYBOX"),
                Arg::new("height", ArgKind::Double),
                UNIT,
            ],
        ),
        Arg::block(
            "polygon",
            &[
                Arg::new("num-vertices", ArgKind::Integer).after("BYPOLYGON"),
                Arg::block(
                    "vertices",
                    &[
                        Arg::new("longitude", ArgKind::Double),
                        Arg::new("latitude", ArgKind::Double),
                    ],
                )
                .multiple(),
            ],
        )
        .since("9.0.0"),
    ],
);

const WITHCOORD: Arg = Arg::token("withcoord", "WITHCOORD").optional();
const WITHDIST: Arg = Arg::token("withdist", "WITHDIST").optional();
const WITHHASH: Arg = Arg::token("withhash", "WITHHASH").optional();
const STORE: Arg = Arg::one_of(
    "store",
    &[
        Arg::key("storekey", 1).after("STORE").shown_as("key"),
        Arg::key("storedistkey", 2).after("STOREDIST").shown_as("key"),
    ],
)
.optional();
const SOURCE: KeySpec = KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS));

/// The key behind an option, searched from this word on.
const fn stored(option: &'static str, from: i32) -> KeySpec {
    KeySpec::new(
        KeyFlags::OW.with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE),
        Begin::Keyword(option, from),
        Find::Range { last: 0, step: 1, limit: 0 },
    )
}

/// What the rows of the GEORADIUS commands have in common.
const RADIUS: Command = Command {
    group: Group::Geo,
    complexity: "O(N+log(M)) for N members in the square around the circle and M in the set",
    effort: Effort::Elements(2),
    history: &[("6.2.0", "`COUNT` takes `ANY`."), ("7.0.0", "Units may be in capitals.")],
    ..Command::ROW
};
/// What the rows of the GEOSEARCH commands have in common.
const SEARCH: Command = Command {
    group: Group::Geo,
    complexity: "O(N+log(M)) for N members in the box around the shape and M in the set",
    effort: Effort::Elements(2),
    history: &[("7.0.0", "Units may be in capitals."), ("9.0.0", "Takes `BYPOLYGON`.")],
    ..Command::ROW
};

/// `GEORADIUS`.
pub static GEORADIUS: Command = Command {
    name: "georadius",
    arity: -6,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[SOURCE, stored("STORE", 6), stored("STOREDIST", 6)],
    since: "3.2.0",
    summary: "Places within a circle around a point; can keep the result.",
    args: &[
        Arg::key("key", 0),
        Arg::new("longitude", ArgKind::Double),
        Arg::new("latitude", ArgKind::Double),
        Arg::new("radius", ArgKind::Double),
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT_SINCE,
        ORDER,
        STORE,
    ],
    find_keys: Some(find_stored),
    run: georadius,
    ..RADIUS
};

/// `GEORADIUS_RO`.
pub static GEORADIUS_RO: Command = Command {
    name: "georadius_ro",
    arity: -6,
    flags: Flags::READONLY,
    keys: &[SOURCE],
    since: "3.2.10",
    summary: "Places within a circle around a point, for reading.",
    args: &[
        Arg::key("key", 0),
        Arg::new("longitude", ArgKind::Double),
        Arg::new("latitude", ArgKind::Double),
        Arg::new("radius", ArgKind::Double),
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT_SINCE,
        ORDER,
    ],
    run: georadius_ro,
    ..RADIUS
};

/// `GEORADIUSBYMEMBER`.
pub static GEORADIUSBYMEMBER: Command = Command {
    name: "georadiusbymember",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[SOURCE, stored("STORE", 5), stored("STOREDIST", 5)],
    since: "3.2.0",
    summary: "Places within a circle around a place; can keep the result.",
    args: &[
        Arg::key("key", 0),
        Arg::new("member", ArgKind::String),
        Arg::new("radius", ArgKind::Double),
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
        STORE,
    ],
    find_keys: Some(find_stored),
    run: georadiusbymember,
    ..RADIUS
};

/// `GEORADIUSBYMEMBER_RO`.
pub static GEORADIUSBYMEMBER_RO: Command = Command {
    name: "georadiusbymember_ro",
    arity: -5,
    flags: Flags::READONLY,
    keys: &[SOURCE],
    since: "3.2.10",
    summary: "Places within a circle around a place, for reading.",
    args: &[
        Arg::key("key", 0),
        Arg::new("member", ArgKind::String),
        Arg::new("radius", ArgKind::Double),
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
    ],
    run: georadiusbymember_ro,
    ..RADIUS
};

/// `GEOSEARCH`.
pub static GEOSEARCH: Command = Command {
    name: "geosearch",
    arity: -7,
    flags: Flags::READONLY,
    keys: &[SOURCE],
    since: "6.2.0",
    summary: "Places within a circle, a box or a polygon.",
    args: &[Arg::key("key", 0), FROM, BY, ORDER, COUNT, WITHCOORD, WITHDIST, WITHHASH],
    run: geosearch,
    ..SEARCH
};

/// `GEOSEARCHSTORE`.
pub static GEOSEARCHSTORE: Command = Command {
    name: "geosearchstore",
    arity: -8,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::at(2, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    since: "6.2.0",
    summary: "Keeps the places within a circle, a box or a polygon.",
    args: &[
        Arg::key("destination", 0),
        Arg::key("source", 1),
        FROM,
        BY,
        ORDER,
        COUNT,
        Arg::token("storedist", "STOREDIST").optional(),
    ],
    run: geosearchstore,
    ..SEARCH
};

/// The source, and the key behind the last `STORE` or `STOREDIST`, which is the one that counts.
fn find_stored(argv: &[&[u8]], found: &mut dyn FnMut(usize, KeyFlags)) -> Result<(), InvalidKeys> {
    found(1, KeyFlags::RO.with(KeyFlags::ACCESS));
    let mut stored = None;
    let mut index = 5;
    while index + 1 < argv.len() {
        let stores = ["store", "storedist"];
        if stores.iter().any(|name| argv[index].eq_ignore_ascii_case(name.as_bytes())) {
            index += 1;
            stored = Some(index);
        }
        index += 1;
    }
    if let Some(stored) = stored {
        found(stored, KeyFlags::OW.with(KeyFlags::UPDATE));
    }
    Ok(())
}
