//! The change of a database's hashing rules, as a part of a job: what is at etcd says what is
//! missing. The primaries of the database move the keys.

use crate::change::Step;
use crate::site::{Database, now_ms};
use crate::talk;
use cluster::change::rehash;
use cluster::topology::{Phase, Rehash};
use cluster::view::View;
use std::collections::BTreeMap;

/// Does what is next until keys are where the database's rules have them. `None`: they are.
pub(crate) fn next(database: &Database, view: &View) -> Option<Step> {
    let topology = &view.topology.value;
    let wanted = &database.settings.hashing;
    let step = match &topology.rehash {
        None if topology.hashing == *wanted => return None,
        None => rehash::begin(view, wanted, BTreeMap::new(), now_ms() / 1000),
        Some(change) if change.is_cancelled || change.rules == *wanted => {
            return Some(waits(database, view, change));
        }
        Some(_) => rehash::cancel(view),
    };
    Some(match step {
        Ok(transaction) => Step::Changes(transaction),
        // Slots that move have arrived some time.
        Err(why) => Step::Waits(0, why.to_string()),
    })
}

/// Says how far a change is.
pub(crate) fn waits(database: &Database, view: &View, change: &Rehash) -> Step {
    let shards = view.topology.value.shards.len();
    let through = change.reached.len();
    let percent = match change.phase {
        Phase::Opening => 5,
        Phase::Moving => 10 + u8::try_from(through * 80 / shards.max(1)).unwrap_or(80),
        Phase::Turning => 10,
        Phase::Settling => 95,
    };
    let what = if change.slots.is_empty() { "hashing rules" } else { "slots by hashing rules" };
    let back = if change.is_cancelled { ", back to what was before" } else { "" };
    let mut text =
        format!("{what}: {}{back}, {through} of {shards} shards are through", change.phase.name());
    if change.phase == Phase::Moving {
        let (moved, obstacle) = progress(database, view);
        text += &format!(", {moved} keys have moved");
        if let Some(obstacle) = obstacle {
            text += &format!("; {obstacle}");
        }
    }
    Step::Waits(percent, text)
}

/// Asks the primaries how many keys they have sent, and what holds them up.
fn progress(database: &Database, view: &View) -> (u64, Option<String>) {
    let (mut moved, mut obstacle) = (0, None);
    for shard in &view.topology.value.shards {
        let Some(placed) = database.primary(shard) else { continue };
        let place = (&*placed.host, placed.port);
        let Ok(info) = talk::info(place, database.login(), &["replication"], talk::ANSWER) else {
            obstacle = Some(format!("the primary of shard {} does not answer", placed.shard + 1));
            continue;
        };
        let number =
            talk::field(&info, "cluster_hashing_keys_moved").and_then(|it| it.parse().ok());
        moved += number.unwrap_or(0_u64);
        if let Some(why) =
            talk::field(&info, "cluster_hashing_obstacle").filter(|why| !why.is_empty())
        {
            obstacle = Some(format!("shard {} waits: {why}", placed.shard + 1));
        }
    }
    (moved, obstacle)
}
