//! `DUMP key`, `RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ
//! frequency]`
//!
//! The payload is Redis's; one from elsewhere is validated in full before anything changes.

use crate::{limits, value};
use config::RdbVersionCheck;
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec, Millis,
    Outcome, event,
};
use keyspace::access::{self, Policy};
use rdb::Object;

/// Bytes of a payload that take a unit of effort to make a value of: an element of some ten bytes
/// takes ten units, an allocation and a place in a table.
const BYTES_PER_UNIT: usize = 2;

/// `DUMP`.
pub static DUMP: Command = Command {
    name: "dump",
    arity: 2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Generic,
    since: "2.6.0",
    complexity: "O(N) for a value of N bytes",
    effort: Effort::Elements(3),
    summary: "The value of a key as bytes that RESTORE reads.",
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: dump,
    ..Command::ROW
};

/// `RESTORE`.
pub static RESTORE: Command = Command {
    name: "restore",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::OW.with(KeyFlags::UPDATE))],
    group: Group::Generic,
    categories: &["dangerous"],
    since: "2.6.0",
    complexity: "O(N) for a payload of N bytes, O(N*log(N)) for a sorted set",
    effort: Effort::Estimate(|_, args| args.get(3).map_or(0, <[u8]>::len) / BYTES_PER_UNIT),
    summary: "Makes a key from what DUMP gave.",
    history: &[
        ("3.0.0", "Takes `REPLACE`."),
        ("5.0.0", "Takes `ABSTTL`."),
        ("5.0.0", "Takes `IDLETIME` and `FREQ`."),
    ],
    args: &[
        Arg::key("key", 0),
        Arg::new("ttl", ArgKind::Integer),
        Arg::new("serialized-value", ArgKind::String),
        Arg::token("replace", "REPLACE").optional().since("3.0.0"),
        Arg::token("absttl", "ABSTTL").optional().since("5.0.0"),
        Arg::new("seconds", ArgKind::Integer).after("IDLETIME").optional().since("5.0.0"),
        Arg::new("frequency", ArgKind::Integer).after("FREQ").optional().since("5.0.0"),
    ],
    run: restore,
    ..Command::ROW
};

/// `RESTORE-ASKING`: RESTORE into a slot that is arriving.
pub static RESTORE_ASKING: Command = Command {
    name: "restore-asking",
    flags: RESTORE.flags.with(Flags::ASKING).with(Flags::SYSCMD),
    group: Group::Server,
    categories: &["keyspace", "dangerous"],
    since: "3.0.0",
    history: &[
        ("3.0.0", "Takes `REPLACE`."),
        ("5.0.0", "Takes `ABSTTL`."),
        ("5.0.0", "Takes `IDLETIME` and `FREQ`."),
    ],
    summary: "Makes a key in a slot that is arriving from what DUMP gave.",
    ..RESTORE
};

fn dump(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    match cx.db.lookup_read(args.key(1)).map(value::view) {
        Some(view) => {
            let payload = rdb::dump(view.object(), value::compression(&cx.engine.config));
            cx.reply.bulk(&payload);
        }
        None => cx.reply.null(),
    }
    Ok(())
}

#[derive(Default)]
struct DumpOptions {
    replace: bool,
    is_absolute: bool,
    idle_s: Option<i64>,
    frequency: Option<u8>,
}

fn parse(args: Args<'_>) -> Result<DumpOptions, Error> {
    let mut options = DumpOptions::default();
    let mut at = 4;
    while at < args.len() {
        if args.is(at, "replace") {
            options.replace = true;
        } else if args.is(at, "absttl") {
            options.is_absolute = true;
        } else if args.is(at, "idletime") && at + 1 < args.len() && options.frequency.is_none() {
            at += 1;
            let seconds = args.integer(at)?;
            if seconds < 0 {
                return Err(Error::OutOfRange("Invalid IDLETIME value, must be >= 0"));
            }
            options.idle_s = Some(seconds);
        } else if args.is(at, "freq") && at + 1 < args.len() && options.idle_s.is_none() {
            at += 1;
            let frequency = args.integer(at)?;
            let frequency = u8::try_from(frequency)
                .map_err(|_| Error::OutOfRange("Invalid FREQ value, must be >= 0 and <= 255"))?;
            options.frequency = Some(frequency);
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    Ok(options)
}

fn restore(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args)?;
    let key = args.key(1);
    if !options.replace {
        // A deletion that the history has: what repeats it must not find the key either.
        cx.db.remove_expired(key);
        if cx.db.lookup_no_effects(key).is_some() {
            return Err(Error::text("BUSYKEY Target key name already exists."));
        }
    }
    let ttl = args.integer(2)?;
    if ttl < 0 {
        return Err(Error::text("ERR Invalid TTL value, must be >= 0"));
    }
    let object = load(cx, args[3])?;
    let base = if options.is_absolute { 0 } else { cx.now().0 };
    // A time beyond the last one wraps round into the past, as it does in the reference.
    let expiry = (ttl > 0).then(|| Millis(ttl.wrapping_add(base)));
    if expiry.is_some_and(|at| at < cx.now() && cx.db.has_passed(at)) {
        if cx.db.delete(key) {
            cx.db.propagate_as_deletion(key, cx.engine.config.lazyfree_lazy_server_del());
        }
        cx.reply.ok();
        return Ok(());
    }
    let now = cx.now().0;
    // What the policy does not use is accepted, and forgotten.
    let access = match (cx.db.access_policy(), options.idle_s, options.frequency) {
        (policy @ (Policy::Lru | Policy::Clock), Some(seconds), _) => {
            access::with_idle(policy, u32::try_from(seconds).unwrap_or(u32::MAX), now)
        }
        (Policy::Lfu { .. }, _, Some(frequency)) => access::with_frequency(frequency, now),
        _ => cx.db.fresh_access(),
    };
    let entry = value::entry(key.bytes, object, expiry, access);
    cx.db.recreate(key, entry);
    cx.db.changed(key, event(Class::GENERIC, "restore"));
    if let Some(at) = expiry.filter(|_| !options.is_absolute) {
        cx.db.propagate_as(|p| {
            p.begin(args.len() + 1);
            args.words()[..2].iter().for_each(|word| p.word(word));
            p.integer(at.0);
            args.from(3).iter().for_each(|word| p.word(word));
            p.word(b"ABSTTL");
        });
    }
    cx.reply.ok();
    Ok(())
}

fn load(cx: &Cx<'_>, payload: &[u8]) -> Result<Object, Error> {
    let limits = limits::all(&cx.engine.config, &cx.engine.debug);
    if !cx.engine.debug.skips_checksums() {
        let verified = match cx.engine.config.rdb_version_check() {
            RdbVersionCheck::Strict => rdb::verify(payload),
            RdbVersionCheck::Relaxed => rdb::verify_relaxed(payload),
        };
        verified.map_err(|_| Error::text("ERR DUMP payload version or checksum are wrong"))?;
    }
    let object = rdb::restore_unverified(payload, &limits);
    object.map_err(|error| {
        if let Some(host) = cx.engine.host() {
            host.verbose(&format!("RESTORE was given a payload that is not sound: {error}"));
        }
        Error::text("ERR Bad data format")
    })
}
