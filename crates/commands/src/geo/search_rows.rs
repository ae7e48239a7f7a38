//! The rows of the searching commands: `GEOSEARCH`, `GEOSEARCHSTORE`, `GEORADIUS`, `GEORADIUSBYMEMBER` and
//! the read-only forms of the latter.

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

/// `GEORADIUS`.
pub static GEORADIUS: Command = Command {
    name: "georadius",
    arity: -6,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS)),
        KeySpec::new(
            KeyFlags::OW.with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE),
            Begin::Keyword("STORE", 6),
            Find::Range { last: 0, step: 1, limit: 0 },
        ),
        KeySpec::new(
            KeyFlags::OW.with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE),
            Begin::Keyword("STOREDIST", 6),
            Find::Range { last: 0, step: 1, limit: 0 },
        ),
    ],
    group: Group::Geo,
    since: "3.2.0",
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
    effort: Effort::Elements(2),
    summary: "Queries a geospatial index for members within a distance from a coordinate, optionally stores the result.",
    history: &[
        ("6.2.0", "Added the `ANY` option for `COUNT`."),
        ("7.0.0", "Added support for uppercase unit names."),
    ],
    args: &[
        Arg::key("key", 0),
        Arg::new("longitude", ArgKind::Double),
        Arg::new("latitude", ArgKind::Double),
        Arg::new("radius", ArgKind::Double),
        UNIT,
        Arg::token("withcoord", "WITHCOORD").optional(),
        Arg::token("withdist", "WITHDIST").optional(),
        Arg::token("withhash", "WITHHASH").optional(),
        COUNT_SINCE,
        ORDER,
        Arg::one_of(
            "store",
            &[
                Arg::key("storekey", 1).after("STORE").shown_as("key"),
                Arg::key("storedistkey", 2).after("STOREDIST").shown_as("key"),
            ],
        )
        .optional(),
    ],
    find_keys: Some(find_stored),
    run: georadius,
    ..Command::ROW
};

/// `GEORADIUS_RO`.
pub static GEORADIUS_RO: Command = Command {
    name: "georadius_ro",
    arity: -6,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Geo,
    since: "3.2.10",
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
    effort: Effort::Elements(2),
    summary: "Returns members from a geospatial index that are within a distance from a coordinate.",
    history: &[
        ("6.2.0", "Added the `ANY` option for `COUNT`."),
        ("7.0.0", "Added support for uppercase unit names."),
    ],
    args: &[
        Arg::key("key", 0),
        Arg::new("longitude", ArgKind::Double),
        Arg::new("latitude", ArgKind::Double),
        Arg::new("radius", ArgKind::Double),
        UNIT,
        Arg::token("withcoord", "WITHCOORD").optional(),
        Arg::token("withdist", "WITHDIST").optional(),
        Arg::token("withhash", "WITHHASH").optional(),
        COUNT_SINCE,
        ORDER,
    ],
    run: georadius_ro,
    ..Command::ROW
};

/// `GEORADIUSBYMEMBER`.
pub static GEORADIUSBYMEMBER: Command = Command {
    name: "georadiusbymember",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS)),
        KeySpec::new(
            KeyFlags::OW.with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE),
            Begin::Keyword("STORE", 5),
            Find::Range { last: 0, step: 1, limit: 0 },
        ),
        KeySpec::new(
            KeyFlags::OW.with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE),
            Begin::Keyword("STOREDIST", 5),
            Find::Range { last: 0, step: 1, limit: 0 },
        ),
    ],
    group: Group::Geo,
    since: "3.2.0",
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
    effort: Effort::Elements(2),
    summary: "Queries a geospatial index for members within a distance from a member, optionally stores the result.",
    history: &[
        ("6.2.0", "Added the `ANY` option for `COUNT`."),
        ("7.0.0", "Added support for uppercase unit names."),
    ],
    args: &[
        Arg::key("key", 0),
        Arg::new("member", ArgKind::String),
        Arg::new("radius", ArgKind::Double),
        UNIT,
        Arg::token("withcoord", "WITHCOORD").optional(),
        Arg::token("withdist", "WITHDIST").optional(),
        Arg::token("withhash", "WITHHASH").optional(),
        COUNT,
        ORDER,
        Arg::one_of(
            "store",
            &[
                Arg::key("storekey", 1).after("STORE").shown_as("key"),
                Arg::key("storedistkey", 2).after("STOREDIST").shown_as("key"),
            ],
        )
        .optional(),
    ],
    find_keys: Some(find_stored),
    run: georadiusbymember,
    ..Command::ROW
};

/// `GEORADIUSBYMEMBER_RO`.
pub static GEORADIUSBYMEMBER_RO: Command = Command {
    name: "georadiusbymember_ro",
    arity: -5,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Geo,
    since: "3.2.10",
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
    effort: Effort::Elements(2),
    summary: "Returns members from a geospatial index that are within a distance from a member.",
    history: &[
        ("6.2.0", "Added the `ANY` option for `COUNT`."),
        ("7.0.0", "Added support for uppercase unit names."),
    ],
    args: &[
        Arg::key("key", 0),
        Arg::new("member", ArgKind::String),
        Arg::new("radius", ArgKind::Double),
        UNIT,
        Arg::token("withcoord", "WITHCOORD").optional(),
        Arg::token("withdist", "WITHDIST").optional(),
        Arg::token("withhash", "WITHHASH").optional(),
        COUNT,
        ORDER,
    ],
    run: georadiusbymember_ro,
    ..Command::ROW
};

/// `GEOSEARCH`.
pub static GEOSEARCH: Command = Command {
    name: "geosearch",
    arity: -7,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Geo,
    since: "6.2.0",
    complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",
    effort: Effort::Elements(2),
    summary: "Queries a geospatial index for members inside an area of a box, circle, or a polygon.",
    history: &[
        ("7.0.0", "Added support for uppercase unit names."),
        ("9.0.0", "Added support for the BYPOLYGON option."),
    ],
    args: &[
        Arg::key("key", 0),
        FROM,
        BY,
        ORDER,
        COUNT,
        Arg::token("withcoord", "WITHCOORD").optional(),
        Arg::token("withdist", "WITHDIST").optional(),
        Arg::token("withhash", "WITHHASH").optional(),
    ],
    run: geosearch,
    ..Command::ROW
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
    group: Group::Geo,
    since: "6.2.0",
    complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",
    effort: Effort::Elements(2),
    summary: "Queries a geospatial index for members inside an area of a box, a circle, or a polygon, optionally stores the result.",
    history: &[
        ("7.0.0", "Added support for uppercase unit names."),
        ("9.0.0", "Added support for the BYPOLYGON option."),
    ],
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
    ..Command::ROW
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
