//! `SWAPDB index1 index2`: every client of one database sees the other's keys.

use crate::connection::parse_db;
use engine::routing::{About, Applied, Merge, Routing};
use engine::{Arg, ArgKind, Args, Command, Cx, Databases, Error, Flags, Group, Outcome};

/// `SWAPDB`.
pub static SWAPDB: Command = Command {
    name: "swapdb",
    arity: 3,
    flags: Flags::WORLD.with(Flags::WRITE).with(Flags::FAST),
    group: Group::Server,
    categories: &["keyspace", "dangerous"],
    since: "4.0.0",
    complexity: "O(N) for N clients that watch or wait for keys of both",
    summary: "Lets two databases change places.",
    args: &[Arg::new("index1", ArgKind::Integer), Arg::new("index2", ArgKind::Integer)],
    databases: Databases::Named(|_, found| (1..3).for_each(found)),
    routing: Routing::all(Merge::First, About::AllKeys).applied(Applied::SwapDatabases),
    run: swapdb,
    ..Command::ROW
};

fn swapdb(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if cx.engine.membership.is_on() && !cx.db.repeats_history() {
        return Err(Error::text("ERR SWAPDB is not allowed in cluster mode"));
    }
    let number = |word, text: &'static str| {
        let number = structs::numbers::parse_i64(word);
        number.and_then(|number| i32::try_from(number).ok()).ok_or(Error::text(text))
    };
    // Both have to be numbers before either has to be a database.
    number(args[1], "ERR invalid first DB index")?;
    number(args[2], "ERR invalid second DB index")?;
    let (first, second) = (parse_db(cx, args[1])?, parse_db(cx, args[2])?);
    if first != second {
        engine::commit::databases_change(cx, &[(first, Some(second)), (second, Some(first))]);
        cx.db.for_each_stripe_mut(|_, stripe| stripe.swap_dbs(first, second));
        // Caches know keys by their names alone.
        engine::caching::invalidate_all(&mut cx.db);
    }
    cx.db.add_dirty(1);
    cx.reply.ok();
    Ok(())
}
