//! `SELECT index`

use engine::routing::{Applied, Local, Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Databases, DbIndex, Error, Flags, Group, Outcome};

/// `SELECT`.
pub static SELECT: Command = Command {
    name: "select",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Chooses the database of this connection.",
    args: &[Arg::new("index", ArgKind::Integer)],
    databases: Databases::Chosen,
    routing: Routing::by(Way::Local(Local::Select)).applied(Applied::Select),
    run: select,
    ..Command::ROW
};

fn select(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let index = parse_db(cx, args[1])?;
    cx.session.db = index;
    cx.db.index = index;
    cx.reply.ok();
    Ok(())
}

/// The index of a database, checked.
pub(crate) fn parse_db(cx: &Cx<'_>, word: &[u8]) -> Result<DbIndex, Error> {
    let number = structs::numbers::parse_i64(word).ok_or(Error::NotInteger)?;
    if i32::try_from(number).is_err() {
        return Err(Error::text(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    match u32::try_from(number) {
        Ok(index) if index < cx.engine.keyspace.databases() => Ok(DbIndex(index)),
        _ => Err(Error::text("ERR DB index is out of range")),
    }
}
