//! `check` and `info`: what the nodes say, and whether they agree.

use super::node::primaries_word;
use super::nodes::Cluster;
use super::{SLOTS, bad, good, say, step};
use crate::flavor::Flavor;
use crate::options::ClusterOptions;
use std::collections::BTreeSet;

/// What is wrong with a cluster. All of it was printed.
#[derive(Default)]
pub struct Findings {
    /// How many faults were found. That nodes disagree is one, that slots have no owner is one, and
    /// so is each node with open slots in a state.
    pub errors: usize,
    /// Slots that a node gives or gets.
    pub open: BTreeSet<u16>,
    /// Slots that no node has.
    pub uncovered: Vec<u16>,
    /// Slots that several primaries own or have keys of, with these primaries' places in the list
    /// of nodes.
    pub contested: Vec<(u16, Vec<usize>)>,
}

impl Findings {
    /// Returns whether nothing is wrong.
    pub fn is_fine(&self) -> bool {
        self.errors == 0 && self.contested.is_empty()
    }

    fn error(&mut self, text: &str) {
        self.errors += 1;
        bad(text);
    }
}

/// Prints a line for each primary and the sum.
pub fn info(cluster: &mut Cluster) -> Result<(), String> {
    let flavor = cluster.nodes[0].session.options.flavor;
    let word = if flavor == Flavor::Redis { "slaves" } else { "replicas" };
    let mut keys = 0;
    let primaries = cluster.primaries();
    for &at in &primaries {
        let replicas = cluster.replicas_of(at);
        let node = &mut cluster.nodes[at];
        let size = node.number(&["DBSIZE"])?;
        keys += size;
        let name: String = node.id.chars().take(8).collect();
        say(&format!(
            "{node} ({name}...) -> {size} keys | {} slots | {replicas} {word}.",
            node.slots.len()
        ));
    }
    let word = primaries_word(flavor);
    good(&format!("[OK] {keys} keys in {} {word}.", primaries.len()));
    say(&format!("{:.2} keys per slot on average.", keys as f64 / SLOTS as f64));
    Ok(())
}

/// `check`
pub fn command(cluster: &mut Cluster, wanted: &ClusterOptions) -> Result<(), String> {
    info(cluster)?;
    ensure_fine(cluster, wanted, "")
}

/// Looks for faults and returns `refusal` as the error if there is one.
pub fn ensure_fine(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    refusal: &str,
) -> Result<(), String> {
    show(cluster);
    if look(cluster, wanted)?.is_fine() { Ok(()) } else { Err(refusal.into()) }
}

/// Prints the head of a check and all nodes.
pub fn show(cluster: &Cluster) {
    head(cluster);
    for at in 0..cluster.nodes.len() {
        say(&cluster.describe(at, 0));
    }
}

/// Prints the head of a check.
pub fn head(cluster: &Cluster) {
    step(&format!(">>> Performing Cluster Check (using node {})", cluster.nodes[0]));
}

/// Looks for what is wrong, and prints it.
pub fn look(cluster: &mut Cluster, wanted: &ClusterOptions) -> Result<Findings, String> {
    let mut findings = Findings::default();
    cluster.look()?;
    if cluster.agrees() {
        good("[OK] All nodes agree about slots configuration.");
    } else {
        findings.error("[ERR] Nodes don't agree about configuration!");
    }
    look_for_open(cluster, &mut findings);
    step(">>> Check slots coverage...");
    let mut covered = vec![false; SLOTS];
    for node in &cluster.nodes {
        node.slots.iter().for_each(|&slot| covered[usize::from(slot)] = true);
    }
    findings.uncovered = (0..SLOTS as u16).filter(|slot| !covered[usize::from(*slot)]).collect();
    if findings.uncovered.is_empty() {
        good(&format!("[OK] All {SLOTS} slots covered."));
    } else {
        findings.error(&format!("[ERR] Not all {SLOTS} slots are covered by nodes.\n"));
    }
    if wanted.search_owners {
        look_for_owners(cluster, &mut findings)?;
    }
    Ok(findings)
}

fn look_for_open(cluster: &Cluster, findings: &mut Findings) {
    step(">>> Check for open slots...");
    let list =
        |slots: &[u16]| slots.iter().map(|slot| slot.to_string()).collect::<Vec<_>>().join(",");
    for node in &cluster.nodes {
        for (open, state) in [(&node.migrating, "migrating"), (&node.importing, "importing")] {
            if open.is_empty() {
                continue;
            }
            let slots: Vec<u16> = open.iter().map(|(slot, _)| *slot).collect();
            findings.open.extend(&slots);
            findings.error(&format!(
                "[WARNING] Node {node} has slots in {state} state {}.",
                list(&slots)
            ));
        }
    }
    if !findings.open.is_empty() {
        let slots: Vec<u16> = findings.open.iter().copied().collect();
        bad(&format!("[WARNING] The following slots are open: {}.", list(&slots)));
    }
}

fn look_for_owners(cluster: &mut Cluster, findings: &mut Findings) -> Result<(), String> {
    step(">>> Check for multiple slot owners...");
    let primaries = cluster.primaries();
    for slot in 0..SLOTS as u16 {
        let mut owners = Vec::new();
        for &at in &primaries {
            let node = &mut cluster.nodes[at];
            // Keys of a slot make an owner, too.
            if node.has(slot) || node.count_keys(slot)? > 0 {
                owners.push(at);
            }
        }
        if owners.len() > 1 {
            bad(&format!("[WARNING] Slot {slot} has {} owners:", owners.len()));
            owners.iter().for_each(|&at| bad(&format!("    {}", cluster.nodes[at])));
            findings.contested.push((slot, owners));
        }
    }
    if findings.contested.is_empty() {
        good("[OK] No multiple owners found.");
    }
    Ok(())
}
