//! A machine gives its copies away: one look at a job of the kinds `switch`, `drain`, `replace` and
//! `remove`. Beside it, `fill`: a machine gets copies of others.
//!
//! Each copy goes the same way: what it leads is handed over to a member elsewhere; if there are
//! not enough copies elsewhere one is placed; when all of these are members the old one is ended;
//! when it is gone it is taken out of the shard. What is true says how far it is, so nothing is
//! noted and any node can go on.

mod fill;

pub use fill::plan as plan_fill;

use crate::change::{self, Step, placed};
use crate::members::Of;
use crate::plan;
use crate::site::{Database, Job, JobKind, Placed, Site, Stage};
use crate::store::{Problem, Store, put};
use crate::switch;
use cluster::coordinator::{Change, Transaction};
use cluster::view::{At, View};

/// What is known of a copy that is given away.
struct Case<'a> {
    name: &'a str,
    at: &'a At<Database>,
    old: &'a Placed,
    view: View,
}

/// What becomes of a machine that has given its copies away.
enum Afterwards {
    Stays,
    IsForgotten,
    EndsAndIsForgotten,
}

/// Does what is next. Each kind but `fill` gives the copies of the machine away.
///
/// # Errors
/// etcd is away.
pub fn look(store: &mut Store, site: &Site, job: &Job) -> Result<Step, Problem> {
    let afterwards = match job.kind {
        JobKind::Fill => return fill::look(store, site, job),
        JobKind::Switch | JobKind::Drain => Afterwards::Stays,
        JobKind::Replace => Afterwards::IsForgotten,
        JobKind::Remove => Afterwards::EndsAndIsForgotten,
        JobKind::Create
        | JobKind::Update
        | JobKind::Rebalance
        | JobKind::Move
        | JobKind::Delete
        | JobKind::Import
        | JobKind::Export
        | JobKind::Backup
        | JobKind::Verify
        | JobKind::Restore
        | JobKind::Restart => {
            return Ok(Step::Fails("a job of this kind is about a database".into()));
        }
    };
    if job.is_cancelled {
        let keys = [store.keys.draining(&job.machine), store.keys.removed(&job.machine)];
        let changes = keys.into_iter().map(|key| Change::Delete { key }).collect();
        return Ok(Step::Done(Transaction { changes, ..Transaction::default() }));
    }
    let mut waits = Vec::new();
    let mut count = 0;
    for (name, _, old) in site.placed_on(&job.machine) {
        let at = change::database(site, name)?;
        if at.value.stage != Stage::Ready {
            waits.push(format!("database '{name}' is not ready"));
            continue;
        }
        let Some(view) = store.view(at.value.id)? else { continue };
        count += 1;
        match give_away(store, site, job.kind, &Case { name, at, old, view })? {
            Step::Waits(_, text) => waits.push(text),
            // There is no copy that has to go any further.
            Step::Done(_) => count -= 1,
            step => return Ok(step),
        }
    }
    if let Some(first) = waits.first() {
        return Ok(Step::Waits(0, format!("{count} copies to go: {first}")));
    }
    let keys = &store.keys;
    Ok(match afterwards {
        // Its node ends itself when it sees that.
        Afterwards::EndsAndIsForgotten if site.is_alive(&job.machine) => {
            let known = site.machines.get(&job.machine);
            match known.is_some_and(|known| known.is_removed) {
                true => Step::Waits(99, "the node ends".into()),
                false => Step::Changes(Transaction {
                    changes: vec![put(keys.removed(&job.machine), Vec::new())],
                    ..Transaction::default()
                }),
            }
        }
        Afterwards::IsForgotten | Afterwards::EndsAndIsForgotten => {
            match change::forget(site, keys, &job.machine) {
                Ok(transaction) => Step::Done(transaction),
                Err(why) => Step::Fails(why.to_string()),
            }
        }
        Afterwards::Stays => Step::Done(Transaction::default()),
    })
}

fn give_away(
    store: &mut Store,
    site: &Site,
    kind: JobKind,
    case: &Case<'_>,
) -> Result<Step, Problem> {
    let Case { name, at, old, view } = case;
    let what = format!("shard {} of '{name}'", old.shard + 1);
    let waits = |text: String| Ok(Step::Waits(0, text));
    // What has just left is not in the topology any more.
    let keys = store.keys.clone();
    let of = Of { keys: &keys, name, at, view };
    let Some(shard) = of.shard(old.shard) else { return waits(format!("{what} is not known")) };
    let leads = shard.holder.id == old.copy;
    let others: Vec<&Placed> =
        at.value.copies.iter().filter(|it| is_kept(site, case, it)).collect();
    let successor = others.iter().find(|it| view.has_member(it.copy));
    if let (true, Some(to)) = (leads, successor) {
        if !view.is_alive(shard.holder) {
            return waits(format!("{what} elects a primary"));
        }
        return match switch::hand_over(store, &at.value, to) {
            Ok(()) => {
                store.note(&format!("copy {:?} of database '{name}' leads its shard", to.copy));
                waits(format!("{what} was handed over"))
            }
            Err(why) => waits(format!("{what}: {why}")),
        };
    }
    if leads && !view.is_alive(shard.holder) {
        let text = format!(
            "{what} has lost its data with this machine: no other copy has synchronised. Start the machine, or delete \
             the database"
        );
        return Ok(Step::Fails(text));
    }
    if kind == JobKind::Switch {
        return Ok(match leads {
            true => Step::Fails(format!("{what} has no other copy that can lead it")),
            false => Step::Done(Transaction::default()),
        });
    }
    if others.len() <= at.value.settings.replicas {
        return match plan::place_another(site, &at.value, old.shard) {
            Ok(planned) => Ok(match of.add(site, &placed(&planned, at.value.layout)) {
                Some(transaction) => Step::Changes(transaction),
                None => Step::Fails("the topology has no such shard".into()),
            }),
            Err(why) => waits(format!("{what}: {}", why.0)),
        };
    }
    if others.iter().any(|it| !view.has_member(it.copy)) {
        return waits(format!("a new copy of {what} synchronises"));
    }
    if !old.is_leaving {
        return Ok(of.let_go(old.copy, 0));
    }
    if site.report(old).is_some() || view.alive.contains_key(&old.copy) {
        return waits(format!("the old copy of {what} ends"));
    }
    Ok(match of.take_out(site, old.copy) {
        Some(transaction) => Step::Changes(transaction),
        None => Step::Waits(0, format!("{what} has no primary")),
    })
}

/// Whether a copy of the same shard stays: it is on a machine that keeps its copies.
fn is_kept(site: &Site, case: &Case<'_>, it: &Placed) -> bool {
    let machine = site.machines.get(&it.machine);
    let keeps = machine.is_some_and(|known| !known.is_draining);
    it.shard == case.old.shard && it.copy != case.old.copy && !it.is_leaving && keeps
}
