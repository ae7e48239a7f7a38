//! `fix`: closes open slots, gives slots without an owner to one, and leaves each slot one owner.

mod open;

use super::node::Node;
use super::nodes::Cluster;
use super::{bad, check, confirm, moves, say, step};
use crate::options::ClusterOptions;
use resp::Value;
use std::hash::{BuildHasher, RandomState};

/// Checks a cluster and mends what is wrong.
pub fn command(cluster: &mut Cluster, wanted: &ClusterOptions) -> Result<(), String> {
    check::info(cluster)?;
    check::show(cluster);
    let findings = check::look(cluster, wanted)?;
    if findings.is_fine() {
        return Ok(());
    }
    let mut is_fixed = true;
    for &slot in &findings.open {
        ensure_all_reachable(cluster, wanted, "open slots")?;
        open::fix(cluster, wanted, slot)?;
    }
    if !findings.uncovered.is_empty() {
        ensure_all_reachable(cluster, wanted, "slots coverage")?;
        cluster.look()?;
        is_fixed &= cover(cluster, wanted, &findings.uncovered)?;
    }
    for (slot, owners) in &findings.contested {
        ensure_all_reachable(cluster, wanted, "slots with several owners")?;
        leave_one_owner(cluster, wanted, *slot, owners).inspect_err(|_| {
            bad(&format!("Failed to fix multiple owners for slot {slot}"));
        })?;
    }
    if is_fixed && (findings.open.len() + findings.uncovered.len() > 0) {
        // Nodes that hear of it from each other need a moment.
        cluster.wait_until(Cluster::agrees)?;
    }
    let disagree = !cluster.agrees();
    if is_fixed && !disagree { Ok(()) } else { Err(String::new()) }
}

fn ensure_all_reachable(
    cluster: &Cluster,
    wanted: &ClusterOptions,
    what: &str,
) -> Result<(), String> {
    let count = cluster.unreachable_primaries();
    if count == 0 || wanted.fix_unreachable {
        return Ok(());
    }
    let program = cluster.nodes[0].session.options.flavor.program();
    let (word, words) = match cluster.nodes[0].primary_word() {
        "master" => ("masters", "--cluster-fix-with-unreachable-masters"),
        _ => ("primaries", "--cluster-fix-with-unreachable-primaries"),
    };
    Err(format!(
        "*** Fixing {what} with {count} unreachable {word} is dangerous: {program} will assume \
         that slots about {word} that are not reachable are not covered, and will try to reassign \
         them to the reachable nodes. This can cause data loss and is rarely what you want to do. \
         If you really want to proceed use the {words} option."
    ))
}

/// Gives slots without an owner to a node that has keys of them, else to any. Returns whether all
/// have an owner now; the user may not want that.
fn cover(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    uncovered: &[u16],
) -> Result<bool, String> {
    step(">>> Fixing slots coverage...");
    // Open slots that were mended have an owner by now.
    let uncovered =
        uncovered.iter().filter(|slot| !cluster.nodes.iter().any(|node| node.has(**slot)));
    let (mut none, mut single, mut several) = (Vec::new(), Vec::new(), Vec::new());
    for &slot in uncovered.collect::<Vec<_>>() {
        let holders = holders(cluster, slot)?;
        match holders[..] {
            [] => none.push((slot, Vec::new())),
            [_] => single.push((slot, holders)),
            _ => several.push((slot, holders)),
        }
    }
    let mut is_fixed = true;
    let cases = [
        (
            none,
            "The following uncovered slots have no keys across the cluster:",
            "Fix these slots by covering with a random node?",
        ),
        (
            single,
            "The following uncovered slots have keys in just one node:",
            "Fix these slots by covering with those nodes?",
        ),
        (
            several,
            "The following uncovered slots have keys in multiple nodes:",
            "Fix these slots by moving keys into a single node?",
        ),
    ];
    for (slots, head, question) in cases {
        if slots.is_empty() {
            continue;
        }
        say(head);
        say(&super::node::listed(&slots.iter().map(|(slot, _)| *slot).collect::<Vec<_>>()));
        // --cluster-yes does not answer this: each of these may lose data.
        if !confirm(question) {
            is_fixed = false;
            continue;
        }
        for (slot, holders) in slots {
            cover_slot(cluster, wanted, slot, &holders)?;
        }
    }
    Ok(is_fixed)
}

/// Primaries that have keys of a slot.
fn holders(cluster: &mut Cluster, slot: u16) -> Result<Vec<usize>, String> {
    let mut found = Vec::new();
    for at in cluster.primaries() {
        if cluster.nodes[at].count_keys(slot)? > 0 {
            found.push(at);
        }
    }
    Ok(found)
}

fn cover_slot(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    slot: u16,
    holders: &[usize],
) -> Result<(), String> {
    let primaries = cluster.primaries();
    let any = RandomState::new().hash_one(slot) as usize % primaries.len().max(1);
    let candidates = if holders.is_empty() { &primaries[any..=any] } else { holders };
    let owner = with_most_keys(cluster, candidates, slot)?;
    let how = if holders.len() > 1 { " moving keys to" } else { " with" };
    step(&format!(">>> Covering slot {slot}{how} {}", cluster.nodes[owner]));
    own(&mut cluster.nodes[owner], slot, holders.len() > 1)?;
    let id = cluster.nodes[owner].id.clone();
    for &source in holders.iter().filter(|at| **at != owner) {
        let node = &mut cluster.nodes[source];
        moves::set(node, slot, "NODE", &id)?;
        // It lets MIGRATE have the keys, instead of sending it to the owner.
        moves::set(node, slot, "IMPORTING", &id)?;
        moves::keys_alone(cluster, wanted, slot, (source, owner))?;
        close(&mut cluster.nodes[source], slot)?;
    }
    Ok(())
}

/// The node with the most keys of a slot; the first of them.
fn with_most_keys(cluster: &mut Cluster, among: &[usize], slot: u16) -> Result<usize, String> {
    let mut best: Option<(usize, usize)> = None;
    for &at in among {
        let count = cluster.nodes[at].count_keys(slot)?;
        if best.is_none_or(|(most, _)| count > most) {
            best = Some((count, at));
        }
    }
    best.map(|(_, at)| at)
        .ok_or_else(|| "[ERR] Can't select a slot owner. Impossible to fix.".into())
}

/// Makes a node the owner of a slot, with an epoch that others believe.
fn own(node: &mut Node, slot: u16, closes: bool) -> Result<(), String> {
    let slot = slot.to_string();
    node.ask(&["MULTI"])?;
    // Without an owner there is nothing to delete, and the epoch may be the newest already.
    node.ask(&["CLUSTER", "DELSLOTS", &slot])?;
    node.ask(&["CLUSTER", "ADDSLOTS", &slot])?;
    if closes {
        node.ask(&["CLUSTER", "SETSLOT", &slot, "STABLE"])?;
    }
    node.ask(&["CLUSTER", "BUMPEPOCH"])?;
    let replies = node.ask(&["EXEC"])?;
    match replies.items().get(1) {
        Some(reply) if !reply.is_error() => {}
        Some(reply) => return Err(node.refused(reply)),
        None => return Err(format!("Node {node} did not run the transaction.")),
    }
    node.note(slot.parse().unwrap_or_default(), true);
    Ok(())
}

/// Takes a slot from a node that may have it.
fn disown(node: &mut Node, slot: u16) -> Result<(), String> {
    let reply = node.ask_any(&["CLUSTER", "DELSLOTS", &slot.to_string()])?;
    if reply.is_error() && super::keys::is_served(node, slot)? {
        return Err(node.refused(&reply));
    }
    node.note(slot, false);
    Ok(())
}

/// Ends that a slot is open at a node.
fn close(node: &mut Node, slot: u16) -> Result<(), String> {
    let reply: Value = node.ask(&["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"])?;
    drop(reply);
    Ok(())
}

/// Leaves a slot to the node with the most keys of it, and moves the keys of others there.
fn leave_one_owner(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    slot: u16,
    owners: &[usize],
) -> Result<(), String> {
    step(&format!(">>> Fixing multiple owners for slot {slot}..."));
    let owner = with_most_keys(cluster, owners, slot)?;
    step(&format!(">>> Setting slot {slot} owner: {}", cluster.nodes[owner]));
    own(&mut cluster.nodes[owner], slot, false)?;
    let id = cluster.nodes[owner].id.clone();
    for at in cluster.primaries().into_iter().filter(|at| *at != owner) {
        let node = &mut cluster.nodes[at];
        let count = node.count_keys(slot)?;
        disown(node, slot)?;
        moves::set(node, slot, "NODE", &id)?;
        if count > 0 {
            moves::set(node, slot, "IMPORTING", &id)?;
            moves::keys_alone(cluster, wanted, slot, (at, owner))?;
            close(&mut cluster.nodes[at], slot)?;
        }
    }
    Ok(())
}
