//! Before a command runs: whether something holds one of its keys, and fetching keys into the cache.

use crate::args::Args;
use crate::command::Flags;
use crate::cx::Cx;
use crate::request_keys::KeyUse;
use crate::table::Resolved;
use keyspace::snapshot::Urgency;

/// Whether a key that this command, whose stripes are locked, may change is held by a long command, or one
/// that it reads by a long command that changes it, or a snapshot has no room for what it holds. If so, the thread is told when that ends.
#[cold]
pub(crate) fn is_held_back(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    if !finds_hold(cx, row, args) {
        return false;
    }
    // A second look, so that the end of what is in the way cannot be missed.
    cx.engine.holds.wait();
    if cx.engine.snapshots.is_running() {
        cx.engine.snapshots.wait();
    }
    finds_hold(cx, row, args)
}

/// Whether a key of this command is held just now.
fn finds_hold(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    cx.find_keys(row, args);
    let is_snapshot_running = cx.engine.snapshots.is_running();
    let only_reads = row.command.flags.has(Flags::READONLY);
    let changer = cx.engine.holds.changer();
    // A walk over keys comes to some that it does not name; INFO is not to wait.
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
