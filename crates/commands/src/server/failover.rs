//! `FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]`: hands the role of primary to a
//! replica
//!
//! The reply comes at once; `master_failover_state` in INFO says how far it is. Writes wait until
//! the replica has everything and has taken over, and are refused then, since this server is a
//! replica.

use super::replicaof::log;
use engine::failover::{Address, Plan, Stage};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use keyspace::Millis;
use replication::primary::Stage as Link;

/// `FAILOVER`.
pub static FAILOVER: Command = Command {
    name: "failover",
    arity: -1,
    // With the world at rest: from the reply on no write is still on its way.
    flags: Flags::WORLD
        .with(Flags::ADMIN)
        .with(Flags::NOSCRIPT)
        .with(Flags::STALE)
        .with(Flags::AUDITED),
    group: Group::Server,
    since: "6.2.0",
    summary: "Hands the role of the primary to a replica.",
    args: &[
        Arg::block(
            "target",
            &[
                Arg::new("host", ArgKind::String),
                Arg::new("port", ArgKind::Integer),
                Arg::token("force", "FORCE").optional(),
            ],
        )
        .after("TO")
        .optional(),
        Arg::token("abort", "ABORT").optional(),
        Arg::new("milliseconds", ArgKind::Integer).after("TIMEOUT").optional(),
    ],
    run: failover,
    ..Command::ROW
};

/// What was asked for.
#[derive(Default)]
struct FailoverOptions {
    target: Option<Address>,
    timeout_ms: Option<i64>,
    is_forced: bool,
    aborts: bool,
}

fn parse(args: Args<'_>) -> Result<FailoverOptions, Error> {
    let mut options = FailoverOptions::default();
    let mut at = 1;
    while at < args.len() {
        let left = args.len() - at - 1;
        if args.is(at, "abort") && args.len() == 2 {
            options.aborts = true;
        } else if args.is(at, "timeout") && left >= 1 && options.timeout_ms.is_none() {
            let timeout_ms = args.integer(at + 1)?;
            if timeout_ms <= 0 {
                return Err(Error::text("ERR FAILOVER timeout must be greater than 0"));
            }
            options.timeout_ms = Some(timeout_ms);
            at += 1;
        } else if args.is(at, "to") && left >= 2 && options.target.is_none() {
            let port = args.integer(at + 2)?;
            // A port that is none belongs to no replica.
            let port = u16::try_from(port).unwrap_or(0);
            let host = String::from_utf8_lossy(args[at + 1]).into_owned();
            options.target = Some(Address { host, port });
            at += 2;
        } else if args.is(at, "force") && !options.is_forced {
            options.is_forced = true;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    Ok(options)
}

fn failover(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    // A replica promoted this way would not lead its shard at the coordinator.
    if cx.engine.membership.is_on() {
        let text =
            "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.";
        return Err(Error::text(text));
    }
    let options = parse(args)?;
    let is_on = cx.engine.failover.stage() != Stage::Nothing;
    if options.aborts {
        if !is_on {
            return Err(Error::text("ERR No failover in progress."));
        }
        let lines = cx.engine.abort_failover("Failover manually aborted");
        lines.iter().for_each(|line| log(cx, line));
        cx.reply.ok();
        return Ok(());
    }
    if is_on {
        return Err(Error::text("ERR FAILOVER already in progress."));
    }
    if cx.engine.upstream.is_replica() {
        return Err(Error::text("ERR FAILOVER is not valid when server is a replica."));
    }
    check(cx, &options)?;
    let line = match &options.target {
        Some(to) => format!("FAILOVER requested to {}:{}.", to.host, to.port),
        None => "FAILOVER requested to any replica.".to_owned(),
    };
    log(cx, &line);
    let now = cx.now().0;
    cx.engine.begin_failover(Plan {
        target: options.target,
        deadline: options.timeout_ms.map(|timeout_ms| Millis(now.saturating_add(timeout_ms))),
        is_forced: options.is_forced,
    });
    cx.reply.ok();
    Ok(())
}

/// Whether there is a replica that can take over.
fn check(cx: &Cx<'_>, options: &FailoverOptions) -> Result<(), Error> {
    let primary = cx.engine.replicas.primary();
    if primary.replicas().next().is_none() {
        return Err(Error::text("ERR FAILOVER requires connected replicas."));
    }
    if options.is_forced && (options.timeout_ms.is_none() || options.target.is_none()) {
        return Err(Error::text(
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
        ));
    }
    let Some(target) = &options.target else { return Ok(()) };
    let found = primary
        .replicas()
        .find(|link| link.shown_ip() == target.host && link.facts.port == target.port);
    match found {
        None => Err(Error::text("ERR FAILOVER target HOST and PORT is not a replica.")),
        Some(link) if link.stage != Link::Online => {
            Err(Error::text("ERR FAILOVER target replica is not online."))
        }
        Some(_) => Ok(()),
    }
}
