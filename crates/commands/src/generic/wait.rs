//! `WAIT numreplicas timeout`, `WAITAOF numlocal numreplicas timeout`
//!
//! Both answer when the client's last write is as safe as it asks for, or when so many milliseconds
//! are over, with what is so by then.

use engine::acks::Wanted;
use engine::blocking::parse_timeout_ms;
use engine::routing::{Merge, Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};

/// `WAIT`.
pub static WAIT: Command = Command {
    name: "wait",
    arity: 3,
    flags: Flags::BLOCKING,
    group: Group::Generic,
    categories: &["-keyspace", "connection"],
    since: "3.0.0",
    complexity: "O(1)",
    summary: "Waits until so many replicas have this connection's writes.",
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    args: &[Arg::new("numreplicas", ArgKind::Integer), Arg::new("timeout", ArgKind::Integer)],
    routing: Routing::by(Way::Written(Merge::Min)),
    run: wait,
    ..Command::ROW
};

/// `WAITAOF`.
pub static WAITAOF: Command = Command {
    name: "waitaof",
    arity: 4,
    flags: Flags::BLOCKING,
    group: Group::Generic,
    categories: &["-keyspace", "connection"],
    since: "7.2.0",
    complexity: "O(1)",
    summary: "Waits until this connection's writes are on disk, here or on replicas.",
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    args: &[
        Arg::new("numlocal", ArgKind::Integer),
        Arg::new("numreplicas", ArgKind::Integer),
        Arg::new("timeout", ArgKind::Integer),
    ],
    routing: Routing::by(Way::Written(Merge::Min)),
    run: waitaof,
    ..Command::ROW
};

fn wait(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if cx.engine.upstream.is_replica() {
        return Err(Error::text(
            "ERR WAIT cannot be used with replica instances. Please also note that if a replica is \
             configured to be writable (which is not the default) writes to replicas are just local \
             and are not propagated.",
        ));
    }
    // A negative number is always reached.
    let replicas = args.integer(1)?;
    let deadline = parse_timeout_ms(args[2], cx.now())?;
    cx.wait_for_acks(Wanted::Replicas(replicas), deadline)
}

fn waitaof(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if cx.engine.upstream.is_replica() {
        return Err(Error::text(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to \
             replicas are just local and are not propagated.",
        ));
    }
    let local = match args.integer(1)? {
        0 => false,
        1 => true,
        _ => return Err(Error::OutOfRange("value is out of range, value must between 0 and 1")),
    };
    let replicas = args.integer_in(2, 0..=i64::MAX, "value is out of range, must be positive")?;
    let deadline = parse_timeout_ms(args[3], cx.now())?;
    cx.wait_for_acks(Wanted::Disks { local, replicas }, deadline)
}
