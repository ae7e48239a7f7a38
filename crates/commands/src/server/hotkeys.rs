//! `HOTKEYS START|STOP|GET|RESET|HELP`: which keys take most of the time and of the network
//!
//! A session counts commands until it is stopped ([`engine::hotkeys`]). Slots can be named in a cluster only.

use cluster::slots::{COUNT, Slots};
use engine::hotkeys::{CpuMs, Taken, Wanted};
use engine::routing::{Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);

/// `HOTKEYS GET`.
pub static HOTKEYS_GET: Command = Command {
    name: "get",
    arity: 2,
    categories: &["nodes"],
    flags: FLAGS,
    group: Group::Server,
    since: "8.6.0",
    complexity: "O(N) for N keys in the reply",
    summary: "Shows the keys that took most.",
    tips: &["nondeterministic_output"],
    run: hotkeys_get,
    ..Command::ROW
};

/// `HOTKEYS HELP`.
pub static HOTKEYS_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Server,
    since: "8.6.1",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `HOTKEYS RESET`.
pub static HOTKEYS_RESET: Command = Command {
    name: "reset",
    arity: 2,
    categories: &["nodes"],
    flags: FLAGS,
    group: Group::Server,
    since: "8.6.0",
    complexity: "O(1)",
    summary: "Forgets what the last session has counted.",
    run: hotkeys_reset,
    ..Command::ROW
};

/// `HOTKEYS START`.
pub static HOTKEYS_START: Command = Command {
    name: "start",
    arity: -2,
    categories: &["nodes"],
    flags: FLAGS,
    group: Group::Server,
    since: "8.6.0",
    complexity: "O(1)",
    summary: "Begins to count which keys take most.",
    args: &[
        Arg::block(
            "metrics",
            &[
                Arg::new("count", ArgKind::Integer),
                Arg::token("cpu", "CPU").optional(),
                Arg::token("net", "NET").optional(),
            ],
        )
        .after("METRICS"),
        Arg::new("k", ArgKind::Integer).after("COUNT").optional(),
        Arg::new("seconds", ArgKind::Integer).after("DURATION").optional(),
        Arg::new("ratio", ArgKind::Integer).after("SAMPLE").optional(),
        Arg::block(
            "slots",
            &[Arg::new("count", ArgKind::Integer), Arg::new("slot", ArgKind::Integer).multiple()],
        )
        .after("SLOTS")
        .optional(),
    ],
    run: hotkeys_start,
    ..Command::ROW
};

/// `HOTKEYS STOP`.
pub static HOTKEYS_STOP: Command = Command {
    name: "stop",
    arity: 2,
    categories: &["nodes"],
    flags: FLAGS,
    group: Group::Server,
    since: "8.6.0",
    complexity: "O(1)",
    summary: "Ends counting, and keeps what was counted.",
    run: hotkeys_stop,
    ..Command::ROW
};

/// `HOTKEYS`.
pub static HOTKEYS: Command = Command {
    name: "hotkeys",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Server,
    since: "8.6.0",
    complexity: "That of the subcommand",
    summary: "The commands about keys that take most of the server.",
    subcommands: &[&HOTKEYS_GET, &HOTKEYS_HELP, &HOTKEYS_RESET, &HOTKEYS_START, &HOTKEYS_STOP],
    help: &[
        "GET",
        "    Return what the present or the last session has counted.",
        "RESET",
        "    Forget what was counted. No session may run.",
        "START METRICS <count> [CPU] [NET] [COUNT <k>] [DURATION <seconds>] [SAMPLE <ratio>]",
        "    Begin to count time and bytes of commands by keys.",
        "STOP",
        "    End counting; GET shows what was counted.",
    ],
    routing: Routing::by(Way::OneServer),
    ..Command::ROW
};

/// Keys that are shown unless COUNT says otherwise, and at most.
const USUAL_COUNT: usize = 10;
const MAX_COUNT: i64 = 1000;

/// What the process has used so far, as INFO says it in seconds.
fn cpu(cx: &Cx<'_>) -> CpuMs {
    let facts = cx.engine.host().map_or_else(Vec::new, |host| host.facts("cpu"));
    let ms = |wanted: &str| {
        let fact = facts.iter().find(|(name, _)| name == wanted);
        let seconds = fact.and_then(|(_, value)| value.parse::<f64>().ok());
        seconds.map_or(0, |seconds| (seconds * 1000.0) as u64)
    };
    CpuMs { user: ms("used_cpu_user"), system: ms("used_cpu_sys") }
}

fn within(args: Args<'_>, at: usize, most: i64, wrong: &'static str) -> Result<i64, Error> {
    if at >= args.len() {
        return Err(Error::Syntax);
    }
    let number = args.integer(at)?;
    if (1..=most).contains(&number) { Ok(number) } else { Err(Error::text(wrong)) }
}

/// Reads `SLOTS count slot…`; `at` is the word of the count. Returns the slots, and where the last one is.
fn slots(args: Args<'_>, at: usize) -> Result<(Slots, usize), Error> {
    let count = within(args, at, i64::from(COUNT), "ERR SLOTS count must be from 1 to 16384")?;
    let last = at + usize::try_from(count).unwrap_or(usize::from(COUNT));
    let mut named = vec![false; usize::from(COUNT)];
    for place in at + 1..=last {
        if place >= args.len() {
            return Err(Error::Syntax);
        }
        let slot = usize::try_from(args.integer(place)?).ok();
        let Some(is_named) = slot.and_then(|slot| named.get_mut(slot)) else {
            return Err(Error::text("ERR Invalid or out of range slot"));
        };
        if std::mem::replace(is_named, true) {
            return Err(Error::text("ERR SLOTS names a slot twice"));
        }
    }
    Ok((Slots::from_fn(|slot| named[usize::from(slot)]), last))
}

fn parse(args: Args<'_>, has_cluster: bool) -> Result<Wanted, Error> {
    let mut wanted = Wanted {
        cpu: false,
        net: false,
        count: USUAL_COUNT,
        duration_ms: None,
        sample: 1,
        slots: Slots::default(),
    };
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "metrics") && !wanted.cpu && !wanted.net {
            let metrics = within(args, at + 1, 2, "ERR METRICS count must be 1 or 2")?;
            at += 1;
            for _ in 0..metrics {
                at += 1;
                let metric = if at < args.len() && args.is(at, "cpu") {
                    &mut wanted.cpu
                } else if at < args.len() && args.is(at, "net") {
                    &mut wanted.net
                } else {
                    return Err(Error::text("ERR METRICS must be CPU, NET or both"));
                };
                if std::mem::replace(metric, true) {
                    return Err(Error::text("ERR METRICS names a metric twice"));
                }
            }
        } else if args.is(at, "count") {
            at += 1;
            let count = within(args, at, MAX_COUNT, "ERR COUNT must be from 1 to 1000")?;
            wanted.count = usize::try_from(count).unwrap_or(USUAL_COUNT);
        } else if args.is(at, "duration") {
            at += 1;
            let wrong = "ERR DURATION must be a positive number of seconds";
            wanted.duration_ms = Some(within(args, at, i64::MAX / 1000, wrong)? * 1000);
        } else if args.is(at, "sample") {
            at += 1;
            let ratio = within(args, at, i64::MAX, "ERR SAMPLE must be a positive ratio")?;
            wanted.sample = ratio.unsigned_abs();
        } else if args.is(at, "slots") && !has_cluster {
            return Err(Error::text("ERR SLOTS needs cluster mode"));
        } else if args.is(at, "slots") && wanted.slots.is_empty() {
            (wanted.slots, at) = slots(args, at + 1)?;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    if wanted.cpu || wanted.net { Ok(wanted) } else { Err(Error::text("ERR METRICS is missing")) }
}

fn hotkeys_start(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let wanted = parse(args, cx.engine.membership.is_on())?;
    if !cx.engine.hotkeys.start(wanted, cx.now().0, cpu(cx)) {
        return Err(Error::text("ERR a session of HOTKEYS is running"));
    }
    cx.reply.ok();
    Ok(())
}

fn hotkeys_stop(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    if !cx.engine.hotkeys.stop(cx.now().0, cpu(cx)) {
        return Err(Error::text("ERR no session of HOTKEYS is running"));
    }
    cx.reply.ok();
    Ok(())
}

fn hotkeys_reset(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    if !cx.engine.hotkeys.reset(cx.now().0, cpu(cx)) {
        return Err(Error::text("ERR a session of HOTKEYS is running: stop it first"));
    }
    cx.reply.ok();
    Ok(())
}

fn hotkeys_get(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let Some(report) = cx.engine.hotkeys.report(cx.now().0, cpu(cx)) else {
        cx.reply.null();
        return Ok(());
    };
    let reply = &mut cx.reply;
    let wanted = &report.wanted;
    let has_slots = !wanted.slots.is_empty();
    let of_slots =
        if has_slots { 2 } else { 0 } + if has_slots && wanted.sample > 1 { 2 } else { 0 };
    reply.array(1);
    reply.map(7 + if wanted.cpu { 3 } else { 0 } + if wanted.net { 2 } else { 0 } + of_slots);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let head =
        [("tracking-active", i64::from(report.is_active)), ("sample-ratio", number(wanted.sample))];
    for (name, value) in head {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    }
    reply.bulk(b"selected-slots");
    reply.array(wanted.slots.ranges().len());
    for &(first, last) in wanted.slots.ranges() {
        reply.array(if first == last { 1 } else { 2 });
        reply.integer(first.into());
        if first != last {
            reply.integer(last.into());
        }
    }
    let mut figures = vec![
        ("all-commands-all-slots-us", number(report.total_us)),
        ("net-bytes-all-commands-all-slots", number(report.total_bytes)),
        ("collection-start-time-unix-ms", report.started_ms),
        ("collection-duration-ms", report.lasted_ms),
    ];
    if has_slots {
        let Taken { nanoseconds, bytes } = report.selected;
        figures.push(("all-commands-selected-slots-us", number(nanoseconds / 1000)));
        figures.push(("net-bytes-all-commands-selected-slots", number(bytes)));
    }
    if has_slots && wanted.sample > 1 {
        let Taken { nanoseconds, bytes } = report.sampled;
        figures.push(("sampled-commands-selected-slots-us", number(nanoseconds / 1000)));
        figures.push(("net-bytes-sampled-commands-selected-slots", number(bytes)));
    }
    if wanted.cpu {
        figures.push(("total-cpu-time-user-ms", number(report.cpu.user)));
        figures.push(("total-cpu-time-sys-ms", number(report.cpu.system)));
    }
    if wanted.net {
        figures.push(("total-net-bytes", number(report.total_bytes)));
    }
    for (name, value) in figures {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    }
    let lists = [
        (wanted.cpu, "by-cpu-time-us", &report.by_time),
        (wanted.net, "by-net-bytes", &report.by_bytes),
    ];
    for (_, name, keys) in lists.into_iter().filter(|(is_wanted, ..)| *is_wanted) {
        reply.bulk(name.as_bytes());
        reply.array(2 * keys.len());
        for (key, sum) in keys {
            reply.bulk(key);
            reply.integer(number(*sum));
        }
    }
    Ok(())
}
