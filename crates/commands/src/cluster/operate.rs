//! `CLUSTER` subcommands that change the cluster: they are read here, and are transactions at the
//! coordinator. The client waits for the reply; the thread that serves it does not.

use super::answers::{me, node};
use cluster::change::{self, Setting};
use cluster::id::{Epoch, Id};
use cluster::slots::Slots;
use engine::membership::{Definition, Request};
use engine::table::Resolved;
use engine::transaction::Multi;
use engine::{Args, Cx, DbIndex, Error, Group, Outcome, dispatch};

/// The error about a change of what all nodes have alike that is not a request by itself.
pub(crate) const SHARED: Error = Error::text(
    "ERR Users, functions and shared options of a cluster cannot be changed by a transaction or a \
     script",
);

/// Hands a change of what all nodes have alike to the thread that talks to the coordinator.
pub(crate) fn define(cx: &mut Cx<'_>, definition: Definition) -> Outcome {
    if cx.in_transaction || cx.script.is_some() {
        return Err(SHARED);
    }
    operate(cx, Request::Define(definition))
}

/// Hands a request to the thread that talks to the coordinator.
pub(super) fn operate(cx: &mut Cx<'_>, request: Request) -> Outcome {
    me(cx)?;
    if cx.in_transaction || cx.script.is_some() {
        return Err(Error::text("ERR The cluster cannot be changed by a transaction or a script"));
    }
    let Some(host) = cx.engine.host() else { return Err(super::DISABLED) };
    let reply = cx.late_reply();
    host.operate(request, reply);
    Ok(())
}

/// Commands that may be in a transaction of their own.
const TOGETHER: [&str; 6] =
    ["addslots", "addslotsrange", "bumpepoch", "delslots", "delslotsrange", "setslot"];

/// Hands over the queue of a transaction that changes the owners of slots, as `redis-cli --cluster
/// fix` sends it: all of it is one change at the coordinator. Returns whether it is such a queue.
///
/// # Errors
/// A word of it cannot be read; nothing is changed.
pub(crate) fn operate_together(cx: &mut Cx<'_>, multi: &Multi) -> Result<bool, Error> {
    let is_meant = |row: &Resolved| {
        row.command.group == Group::Cluster && TOGETHER.contains(&row.command.name)
    };
    if multi.is_empty() || !multi.queue().iter().all(|queued| is_meant(queued.row)) {
        return Ok(false);
    }
    let mut requests = Vec::new();
    for queued in multi.queue() {
        let words = queued.words();
        dispatch::check_queued(cx, queued.row, Args::new(&words))?;
        requests.push(read(cx, queued.row.command.name, Args::new(&words))?);
    }
    operate(cx, Request::Together(requests))?;
    Ok(true)
}

/// Reads one of [`TOGETHER`].
fn read(cx: &Cx<'_>, name: &str, args: Args<'_>) -> Result<Option<Request>, Error> {
    Ok(match name {
        "addslots" => Some(Request::AddSlots(single(args)?)),
        "addslotsrange" => Some(Request::AddSlots(ranges(args, "cluster|addslotsrange")?)),
        "delslots" => Some(Request::DeleteSlots(single(args)?)),
        "delslotsrange" => Some(Request::DeleteSlots(ranges(args, "cluster|delslotsrange")?)),
        "setslot" => Some(setting(cx, args)?),
        _ => None,
    })
}

fn has_keys(cx: &Cx<'_>) -> bool {
    (0..cx.engine.keyspace.databases()).any(|db| cx.db.key_count(DbIndex(db)) > 0)
}

fn refused(why: change::Refused) -> Error {
    Error::format(format!("ERR {why}"))
}

fn single(args: Args<'_>) -> Result<Slots, Error> {
    change::read_slots(args.from(2)).map_err(refused)
}

fn ranges(args: Args<'_>, name: &'static str) -> Result<Slots, Error> {
    let words = args.from(2);
    if !words.len().is_multiple_of(2) {
        return Err(Error::Arity(name.into()));
    }
    let pairs: Vec<(&[u8], &[u8])> = words.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    change::read_ranges(&pairs).map_err(refused)
}

/// `CLUSTER ADDSLOTS`.
pub(super) fn add_slots(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let slots = single(args)?;
    operate(cx, Request::AddSlots(slots))
}

/// `CLUSTER ADDSLOTSRANGE`.
pub(super) fn add_ranges(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let slots = ranges(args, "cluster|addslotsrange")?;
    operate(cx, Request::AddSlots(slots))
}

/// `CLUSTER DELSLOTS`.
pub(super) fn delete_slots(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let slots = single(args)?;
    operate(cx, Request::DeleteSlots(slots))
}

/// `CLUSTER DELSLOTSRANGE`.
pub(super) fn delete_ranges(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let slots = ranges(args, "cluster|delslotsrange")?;
    operate(cx, Request::DeleteSlots(slots))
}

/// `CLUSTER FLUSHSLOTS`.
pub(super) fn flush_slots(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    me(cx)?;
    if has_keys(cx) {
        return Err(Error::text("ERR DB must be empty to perform CLUSTER FLUSHSLOTS."));
    }
    operate(cx, Request::FlushSlots)
}

/// `CLUSTER SETSLOT`.
pub(super) fn set_slot(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let request = setting(cx, args)?;
    operate(cx, request)
}

fn setting(cx: &Cx<'_>, args: Args<'_>) -> Result<Request, Error> {
    let slot = super::answers::slot(args)?;
    let has_keys = (0..cx.engine.keyspace.databases()).any(|db| {
        let db = DbIndex(db);
        cx.db.visit(slot.stripe(), |stripe| stripe.slot_key_count(db, slot)) != Some(0)
    });
    check_timeout(args)?;
    let setting = match args.len() {
        4 | 6 if args.is(3, "stable") => Setting::Stable,
        5 | 7 if args.is(3, "importing") => {
            Setting::Importing(named(args, "I don't know about node")?)
        }
        5 | 7 if args.is(3, "migrating") => {
            Setting::Migrating(named(args, "I don't know about node")?)
        }
        5 | 7 if args.is(3, "node") => Setting::Node(named(args, "Unknown node")?),
        _ => {
            return Err(Error::text(
                "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP",
            ));
        }
    };
    // Keys that a loaded file has of it would be taken for keys that have arrived.
    if matches!(setting, Setting::Importing(_)) && cx.engine.membership.moves.is_stale(slot) {
        return Err(Error::format(format!(
            "ERR The node still drops its old copy of slot {}, please try again later.",
            slot.number()
        )));
    }
    Ok(Request::SetSlot { slot: slot.number(), setting, has_keys })
}

/// `TIMEOUT milliseconds` is for replicas that are waited for. The coordinator has the change, or it
/// is not made.
fn check_timeout(args: Args<'_>) -> Result<(), Error> {
    let at = if args.is(3, "stable") { 4 } else { 5 };
    if args.len() <= at || !args.is(at, "timeout") {
        return Ok(());
    }
    if args.len() == at + 1 {
        return Err(Error::text("ERR Missing timeout value"));
    }
    match args.integer(at + 1) {
        Ok(0..) => Ok(()),
        Ok(_) => Err(Error::text("ERR timeout is negative")),
        Err(_) => Err(Error::text("ERR timeout is not an integer or out of range")),
    }
}

fn named(args: Args<'_>, unknown: &str) -> Result<Id, Error> {
    let text = String::from_utf8_lossy(args[4]);
    text.parse().map_err(|_| Error::format(format!("ERR {unknown} {text}")))
}

/// `CLUSTER SET-CONFIG-EPOCH`.
pub(super) fn set_config_epoch(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let number = args.integer(2)?;
    let epoch = u64::try_from(number)
        .map_err(|_| Error::format(format!("ERR Invalid config epoch specified: {number}")))?;
    operate(cx, Request::SetConfigEpoch(Epoch(epoch)))
}

/// `CLUSTER MEET`.
pub(super) fn meet(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let host = String::from_utf8_lossy(args[2]).into_owned();
    let port = args.integer(3).ok().and_then(|port| u16::try_from(port).ok());
    let Some(port) = port.filter(|&port| port > 0 && !host.is_empty()) else {
        let port = String::from_utf8_lossy(args[3]);
        let text = format!("ERR Invalid node address specified: {host}:{port}");
        return Err(Error::format(text));
    };
    operate(cx, Request::Meet(host, port))
}

/// `CLUSTER REPLICATE`.
pub(super) fn replicate(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    match args.len() {
        3 => {}
        4 if args.is(2, "no") && args.is(3, "one") => return operate(cx, Request::StandAlone),
        _ => {
            return Err(Error::text(
                "ERR unknown subcommand or wrong number of arguments for 'REPLICATE'. Try CLUSTER HELP.",
            ));
        }
    }
    let primary = node(args[2])?;
    let has_keys = has_keys(cx);
    operate(cx, Request::Replicate { primary, has_keys })
}

/// `CLUSTER FORGET`.
pub(super) fn forget(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let id = node(args[2])?;
    operate(cx, Request::Forget(id))
}

/// `CLUSTER RESET`, soft or hard: the node keeps its name in both cases.
pub(super) fn reset(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    if args.len() > 3 || (args.len() == 3 && !args.is(2, "hard") && !args.is(2, "soft")) {
        return Err(Error::Syntax);
    }
    let has_keys = has_keys(cx);
    operate(cx, Request::Reset { has_keys })
}

/// `CLUSTER SAVECONFIG`: the coordinator has saved what there is.
pub(super) fn save_config(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    me(cx)?;
    cx.reply.ok();
    Ok(())
}

/// `CLUSTER BUMPEPOCH`: epochs are given by the coordinator, and no two shards have the same.
pub(super) fn bump_epoch(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    me(cx)?;
    let epoch = cx.membership().and_then(|published| Some(published.own_shard()?.epoch.0));
    cx.reply.simple(&format!("STILL {}", epoch.unwrap_or(0)));
    Ok(())
}

/// `CLUSTER FAILOVER`. FORCE and TAKEOVER do the same while the primary is there; if it is gone
/// they make this copy the primary, whatever the others have.
pub(super) fn failover(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let request = match args.len() {
        2 => Request::Switch,
        3 if args.is(2, "force") || args.is(2, "takeover") => Request::TakeOver,
        _ => return Err(Error::Syntax),
    };
    operate(cx, request)
}
