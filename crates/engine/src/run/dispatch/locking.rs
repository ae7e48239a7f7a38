//! Checks, before a command runs, whether something holds one of its keys.

use crate::args::Args;
use crate::command::Flags;
use crate::cx::Cx;
use crate::request_keys::KeyUse;
use crate::table::Resolved;
use keyspace::snapshot::Urgency;

/// Returns whether the command, whose stripes are locked, has to wait because of one of its keys.
/// This is so if a long command holds a key that the command may change, if a long command that
/// changes its keys holds a key that the command reads, or if a snapshot has no memory left for a
/// key's present value. If so, the thread is notified when that ends.
#[cold]
pub(crate) fn is_held_back(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    if !finds_hold(cx, row, args) {
        return false;
    }
    // Check again after registering, so that the end of the obstacle cannot be missed.
    cx.engine.holds.wait();
    if cx.engine.snapshots.is_running() {
        cx.engine.snapshots.wait();
    }
    finds_hold(cx, row, args)
}

/// Returns whether a key of this command is held at this moment.
fn finds_hold(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    cx.find_keys(row, args);
    let is_snapshot_running = cx.engine.snapshots.is_running();
    let only_reads = row.command.flags.has(Flags::READONLY);
    let changer = cx.engine.holds.changer();
    // A command that walks over keys meets keys that it does not name. INFO must not wait.
    let walks = row.command.flags.has(Flags::WALKS.with(Flags::READONLY));
    let mut is_held = changer != 0 && walks;
    let db = cx.db.index;
    for key in cx.keys.iter() {
        is_held |= cx.db.with_stripe_mut(key.stripe(), |data| {
            let is_in_the_way =
                if only_reads { data.is_held_by(key.hash, changer) } else { data.want(key.hash) };
            is_in_the_way
                || (is_snapshot_running
                    && key.usage() != KeyUse::Read
                    && data.is_delayed(db, key.hash, key.touch(), Urgency::Waiting))
        });
    }
    is_held
}
