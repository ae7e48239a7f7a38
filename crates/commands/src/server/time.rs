//! `TIME`: seconds and microseconds.

use engine::{Args, Command, Cx, Flags, Group, Outcome};

/// `TIME`.
pub static TIME: Command = Command {
    name: "time",
    arity: 1,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "2.6.0",
    complexity: "O(1)",
    summary: "The server's clock, in seconds and microseconds.",
    tips: &["nondeterministic_output"],
    run: time,
    ..Command::ROW
};

fn time(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let now = || cx.engine.clock.since_epoch();
    let since = match &mut cx.script {
        Some(rules) if rules.is_overdue => now(),
        Some(rules) => *rules.time.get_or_insert_with(now),
        None => now(),
    };
    cx.reply.array(2);
    cx.reply.bulk_integer(since.as_secs() as i64);
    cx.reply.bulk_integer(i64::from(since.subsec_micros()));
    Ok(())
}
