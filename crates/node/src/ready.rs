//! Whether a machine may get clients, and whether the next machine may be stopped: what `/readyz`
//! says.
//!
//! Each copy here answers, and leads its shard or is in step with its primary. While etcd is away
//! the copies' own word counts: data are served then, and a machine that counts as not ready would
//! get no clients.

use crate::shared::Shared;
use crate::site::{Database, Placed, Stage};
use crate::store::Store;
use crate::talk::{self, field};
use cluster::view::View;

/// Returns why the machine is not ready. `None`: it is.
pub fn trouble(shared: &Shared, store: &mut Store) -> Option<String> {
    let site = shared.site();
    if shared.is_leaving() || site.is_draining(&shared.machine) {
        return Some("draining".into());
    }
    if !shared.was_read() {
        return Some("etcd was not read yet".into());
    }
    let is_etcd_there = shared.trouble().is_none();
    for (name, database, placed) in site.placed_on(&shared.machine) {
        if database.stage != Stage::Ready || placed.is_leaving {
            continue;
        }
        let view = if is_etcd_there { store.view(database.id).ok().flatten() } else { None };
        if let Some(why) = copy_trouble(database, placed, view.as_ref()) {
            return Some(format!("shard {} of '{name}' {why}", placed.shard + 1));
        }
    }
    None
}

fn copy_trouble(database: &Database, placed: &Placed, view: Option<&View>) -> Option<&'static str> {
    let address = (&*placed.host, placed.port);
    let info = talk::info(address, database.login(), &["replication"], talk::ANSWER);
    let Ok(info) = info else { return Some("does not answer") };
    if let Some(view) = view {
        let shard = view.topology.value.shard_of(placed.copy);
        let leads = shard.is_some_and(|shard| shard.holder.id == placed.copy);
        return match (view.alive.contains_key(&placed.copy), leads || view.has_member(placed.copy))
        {
            (false, _) => Some("has no lease"),
            (true, false) => Some("synchronises"),
            (true, true) => None,
        };
    }
    let is_linked = field(&info, "master_link_status").is_none_or(|status| status == "up");
    (!is_linked).then_some("has lost its primary")
}
