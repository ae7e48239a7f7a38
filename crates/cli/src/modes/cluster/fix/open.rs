//! Closes a slot that a node gives or gets.
//!
//! | migrating at | importing at | what is done |
//! |---|---|---|
//! | one node | one node | 1: the slot moves there |
//! | no node | some nodes | 2: their keys go to the owner |
//! | one node | several, none with keys | 3: the slot moves to the one that was meant, or is closed |
//! | the owner, or a node without keys | no node | 4: it is closed |
//!
//! A node with keys of a slot that it does not own counts as importing. Before that, one node is
//! made the owner if it is not clear which one is.

use super::super::nodes::Cluster;
use super::super::{bad, moves, say, step, warn};
use super::{close, disown, own, with_most_keys};
use crate::options::ClusterOptions;

/// Nodes that have to do with an open slot, by their places.
struct Open {
    slot: u16,
    owner: usize,
    migrating: Vec<usize>,
    importing: Vec<usize>,
}

/// Closes a slot.
pub fn fix(cluster: &mut Cluster, wanted: &ClusterOptions, slot: u16) -> Result<(), String> {
    step(&format!(">>> Fixing open slot {slot}"));
    let mut owners = Vec::new();
    for at in cluster.primaries() {
        let node = &mut cluster.nodes[at];
        if node.has(slot) {
            owners.push(at);
        } else if node.count_keys(slot)? > 0 {
            warn(&format!("*** Found keys about slot {slot} in non-owner node {node}!"));
            owners.push(at);
        }
    }
    let clear = if let [owner] = owners[..] { Some(owner) } else { None };
    let (migrating, importing) = sides(cluster, slot, clear)?;
    let mut open = Open { slot, owner: 0, migrating, importing };
    show(cluster, &open);
    open.owner = match clear {
        Some(owner) => owner,
        None => choose_owner(cluster, &mut open)?,
    };
    if owners.len() > 1 {
        leave_one_owner(cluster, &mut open, &owners)?;
    }
    close_by_case(cluster, wanted, &open)
}

/// Where the slot is migrating and where importing.
fn sides(
    cluster: &mut Cluster,
    slot: u16,
    owner: Option<usize>,
) -> Result<(Vec<usize>, Vec<usize>), String> {
    let (mut migrating, mut importing) = (Vec::new(), Vec::new());
    for at in cluster.primaries() {
        let node = &mut cluster.nodes[at];
        let is_in = |open: &[(u16, String)]| open.iter().any(|(other, _)| *other == slot);
        if is_in(&node.migrating) {
            migrating.push(at);
        } else if is_in(&node.importing) {
            importing.push(at);
        } else if owner != Some(at) && node.count_keys(slot)? > 0 {
            warn(&format!("*** Found keys about slot {slot} in node {node}!"));
            importing.push(at);
        }
    }
    Ok((migrating, importing))
}

fn addresses(cluster: &Cluster, places: &[usize]) -> String {
    places.iter().map(|&at| cluster.nodes[at].to_string()).collect::<Vec<_>>().join(",")
}

fn show(cluster: &Cluster, open: &Open) {
    for (places, state) in [(&open.migrating, "migrating"), (&open.importing, "importing")] {
        if !places.is_empty() {
            say(&format!("Set as {state} in: {}", addresses(cluster, places)));
        }
    }
}

/// Makes the node with the most keys the owner.
fn choose_owner(cluster: &mut Cluster, open: &mut Open) -> Result<usize, String> {
    step(">>> No single clear owner for the slot, selecting an owner by # of keys...");
    let primaries = cluster.primaries();
    let owner = with_most_keys(cluster, &primaries, open.slot)?;
    let node = &mut cluster.nodes[owner];
    warn(&format!("*** Configuring {node} as the slot owner"));
    close(node, open.slot)?;
    own(node, open.slot, false)?;
    open.migrating.retain(|at| *at != owner);
    open.importing.retain(|at| *at != owner);
    Ok(owner)
}

/// Makes the other owners nodes that import, whose keys are moved afterwards.
fn leave_one_owner(cluster: &mut Cluster, open: &mut Open, owners: &[usize]) -> Result<(), String> {
    let id = cluster.nodes[open.owner].id.clone();
    for &at in owners.iter().filter(|at| **at != open.owner) {
        let node = &mut cluster.nodes[at];
        disown(node, open.slot)?;
        moves::set(node, open.slot, "NODE", &id)?;
        moves::set(node, open.slot, "IMPORTING", &id)?;
        open.migrating.retain(|other| *other != at);
        open.importing.retain(|other| *other != at);
        open.importing.push(at);
    }
    Ok(())
}

fn close_by_case(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    open: &Open,
) -> Result<(), String> {
    match (&open.migrating[..], &open.importing[..]) {
        (&[from], &[to]) => move_to(cluster, wanted, open, (from, to)),
        ([], [_, ..]) => gather(cluster, wanted, open),
        (&[from], [_, _, ..]) => move_to_intended(cluster, wanted, open, from),
        (&[from], []) if open.owner == from || cluster.nodes[from].count_keys(open.slot)? == 0 => {
            let node = &mut cluster.nodes[from];
            step(&format!(">>> Case 4: Closing slot {} on {node}", open.slot));
            close(node, open.slot)
        }
        _ => unknown_case(cluster, open),
    }
}

fn move_to(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    open: &Open,
    (from, to): (usize, usize),
) -> Result<(), String> {
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    step(&format!(">>> Case 1: Moving slot {} from {source} to {target}", open.slot));
    moves::slot_by_keys(cluster, wanted, open.slot, (from, to), moves::Show::EachSlot)
}

fn gather(cluster: &mut Cluster, wanted: &ClusterOptions, open: &Open) -> Result<(), String> {
    let (slot, owner) = (open.slot, open.owner);
    let (id, shown) = (cluster.nodes[owner].id.clone(), cluster.nodes[owner].to_string());
    step(&format!(">>> Case 2: Moving all the {slot} slot keys to its owner {shown}"));
    for &at in open.importing.iter().filter(|at| **at != owner) {
        moves::keys_alone(cluster, wanted, slot, (at, owner))?;
        let node = &mut cluster.nodes[at];
        step(&format!(">>> Setting {slot} as STABLE in {node}"));
        close(node, slot)?;
    }
    // No node was told of the owner while the keys moved.
    for at in cluster.primaries().into_iter().filter(|at| *at != owner) {
        moves::set(&mut cluster.nodes[at], slot, "NODE", &id)?;
    }
    if open.importing.contains(&owner) {
        close(&mut cluster.nodes[owner], slot)?;
    }
    Ok(())
}

fn move_to_intended(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    open: &Open,
    from: usize,
) -> Result<(), String> {
    let slot = open.slot;
    for &at in &open.importing {
        if cluster.nodes[at].count_keys(slot)? > 0 {
            return unknown_case(cluster, open);
        }
    }
    let source = &cluster.nodes[from];
    let meant = source.migrating.iter().find(|(other, _)| *other == slot).map(|(_, id)| id);
    let target = open.importing.iter().copied().find(|&at| Some(&cluster.nodes[at].id) == meant);
    match target {
        Some(to) => {
            let target = &cluster.nodes[to];
            step(&format!(
                ">>> Case 3: Moving slot {slot} from {source} to {target} and closing it on all \
                 the other importing nodes."
            ));
            moves::slot_by_keys(cluster, wanted, slot, (from, to), moves::Show::EachSlot)?;
        }
        None => {
            step(&format!(
                ">>> Case 3: Closing slot {slot} on both migrating and importing nodes."
            ));
            close(&mut cluster.nodes[from], slot)?;
        }
    }
    for &at in open.importing.iter().filter(|at| Some(**at) != target) {
        close(&mut cluster.nodes[at], slot)?;
    }
    Ok(())
}

fn unknown_case(cluster: &Cluster, open: &Open) -> Result<(), String> {
    bad(&format!(
        "[ERR] Sorry, {} can't fix this slot yet. Slot is set as migrating in {}, as importing in \
         {}, owner is {}",
        cluster.nodes[0].session.options.flavor.program(),
        addresses(cluster, &open.migrating),
        addresses(cluster, &open.importing),
        cluster.nodes[open.owner]
    ));
    Err(String::new())
}
