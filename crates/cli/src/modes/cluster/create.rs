//! `create`: gives slots to nodes that know no other, and makes them a cluster.

use super::node::{Node, primary_word};
use super::nodes::Cluster;
use super::{SLOTS, check, confirm, good, misused, parse_address, say, step, warn};
use crate::flavor::Flavor;
use crate::options::{ClusterOptions, Options};
use std::collections::VecDeque;

/// Primaries that a cluster needs: a majority of them decides.
const LEAST_PRIMARIES: usize = 3;

/// Which node becomes what.
struct Plan {
    /// Places of the primaries, each with its slots.
    primaries: Vec<(usize, (u16, u16))>,
    /// Places of the replicas, each with that of its primary.
    replicas: Vec<(usize, usize)>,
    /// How many of the replicas, at the end, are beyond each primary's share.
    extra: usize,
}

pub fn run(options: &Options, wanted: &ClusterOptions, addresses: &[String]) -> Result<(), String> {
    let mut nodes = Vec::new();
    for address in addresses {
        let (host, port) = parse_address(address)
            .ok_or_else(|| misused(&format!("Invalid address format: {address}")))?;
        let mut node = Node::connect(options, &host, port)?;
        node.ensure_empty()?;
        nodes.push(node);
    }
    let primaries = nodes.len() / (wanted.replicas + 1);
    ensure_enough(options.flavor, wanted, nodes.len(), primaries)?;
    step(&format!(">>> Performing hash slots allocation on {} nodes...", nodes.len()));
    let hosts: Vec<&str> = nodes.iter().map(|node| node.host.as_str()).collect();
    let mut plan = plan(&hosts, primaries, wanted.replicas);
    show_allocation(&nodes, &plan);
    improve(&mut plan, &hosts);
    let mut cluster = Cluster { nodes, away: Vec::new() };
    show_nodes(&mut cluster, &plan);
    if !wanted.yes && !confirm("Can I set the above configuration?") {
        return Err(String::new());
    }
    carry_out(&mut cluster, &plan)?;
    check::ensure_fine(&mut cluster, wanted, "")
}

fn ensure_enough(
    flavor: Flavor,
    wanted: &ClusterOptions,
    nodes: usize,
    primaries: usize,
) -> Result<(), String> {
    let replicas = wanted.replicas;
    if primaries == 0 || flavor == Flavor::Redis && primaries < LEAST_PRIMARIES {
        let least = if flavor == Flavor::Redis { LEAST_PRIMARIES } else { 1 };
        let word = primary_word(flavor);
        return Err(format!(
            "*** ERROR: Invalid configuration for cluster creation.\n\
             *** A cluster requires at least {least} {word} nodes.\n\
             *** This is not possible with {nodes} nodes and {replicas} replicas per node.\n\
             *** At least {} nodes are required.",
            least * (replicas + 1)
        ));
    }
    if primaries >= LEAST_PRIMARIES {
        return Ok(());
    }
    step(&format!(
        "Requested to create a cluster with {primaries} primaries and {replicas} replicas per \
         primary."
    ));
    let server = if flavor == Flavor::Valkey { "Valkey" } else { "The" };
    let question = format!(
        "{server} cluster requires at least 3 primary nodes for automatic failover. Are you sure?"
    );
    if wanted.yes || confirm(&question) { Ok(()) } else { Err(String::new()) }
}

/// Spreads the primaries over the hosts, and the replicas over other hosts than their primaries'.
fn plan(hosts: &[&str], count: usize, replicas: usize) -> Plan {
    // One of each host in turn.
    let turn = |at: usize| hosts[..at].iter().filter(|host| **host == hosts[at]).count();
    let mut order: Vec<usize> = (0..hosts.len()).collect();
    order.sort_by_key(|&at| turn(at));
    let mut rest = VecDeque::from(order.split_off(count));
    let share = SLOTS as f64 / count as f64;
    let end = |number: usize| (share * number as f64 - 1.0).round() as u16;
    let slots = (1..=count).map(|number| {
        let first = if number == 1 { 0 } else { end(number - 1) + 1 };
        (first, end(number))
    });
    let primaries: Vec<(usize, (u16, u16))> = order.iter().copied().zip(slots).collect();
    // So the first primary's replica is seldom its neighbour.
    if !rest.is_empty() {
        rest.rotate_left(1);
    }
    let extra = rest.len() - count * replicas;
    let regular = order.iter().flat_map(|&primary| std::iter::repeat_n(primary, replicas));
    let beyond = order.iter().copied().cycle().take(extra);
    let mut pairs = Vec::new();
    for primary in regular.chain(beyond) {
        let elsewhere = rest.iter().position(|&at| hosts[at] != hosts[primary]);
        pairs.extend(rest.remove(elsewhere.unwrap_or(0)).map(|replica| (replica, primary)));
    }
    Plan { primaries, replicas: pairs, extra }
}

/// How many replicas are on the host of their primary, and how many on that of another replica.
fn beside(pairs: &[(usize, usize)], hosts: &[&str]) -> (usize, usize) {
    let mut found = (0, 0);
    for (at, &(replica, primary)) in pairs.iter().enumerate() {
        let is_same = |other: usize| hosts[other] == hosts[replica];
        found.0 += usize::from(is_same(primary));
        let mut siblings = pairs[..at].iter().filter(|(_, other)| *other == primary);
        found.1 += usize::from(siblings.any(|(other, _)| is_same(*other)));
    }
    found
}

/// Exchanges replicas as long as that leaves fewer beside their primary, or beside each other.
fn improve(plan: &mut Plan, hosts: &[&str]) {
    let pairs = &mut plan.replicas;
    let mut least = beside(pairs, hosts);
    if least == (0, 0) {
        return;
    }
    step(">>> Trying to optimize replicas allocation for anti-affinity");
    loop {
        let before = least;
        for one in 0..pairs.len() {
            for other in one + 1..pairs.len() {
                let exchange = |pairs: &mut [(usize, usize)]| {
                    (pairs[one].0, pairs[other].0) = (pairs[other].0, pairs[one].0);
                };
                exchange(pairs);
                let now = beside(pairs, hosts);
                if now < least { least = now } else { exchange(pairs) }
            }
        }
        if least == before {
            break;
        }
    }
    match least {
        (0, 0) => good("[OK] Perfect anti-affinity obtained!"),
        (0, _) => warn("[WARNING] Some replicas of the same primary are in the same host"),
        _ => warn("[WARNING] Some replicas are in the same host as their primary"),
    }
}

fn show_allocation(nodes: &[Node], plan: &Plan) {
    for (number, (at, (first, last))) in plan.primaries.iter().enumerate() {
        let word = if nodes[*at].primary_word() == "master" { "Master" } else { "Primary" };
        say(&format!("{word}[{number}] -> Slots {first} - {last}"));
    }
    for (number, &(replica, primary)) in plan.replicas.iter().enumerate() {
        if number + plan.extra == plan.replicas.len() {
            say("Adding extra replicas...");
        }
        say(&format!("Adding replica {} to {}", nodes[replica], nodes[primary]));
    }
}

/// Prints the nodes as they will be, and notes the slots.
fn show_nodes(cluster: &mut Cluster, plan: &Plan) {
    for &(at, (first, last)) in &plan.primaries {
        cluster.nodes[at].slots = (first..=last).collect();
    }
    for at in 0..cluster.nodes.len() {
        let node = &cluster.nodes[at];
        match plan.replicas.iter().find(|(replica, _)| *replica == at) {
            Some((_, primary)) => {
                let primary = &cluster.nodes[*primary].id;
                say(&format!("S: {} {node}\n   replicates {primary}", node.id));
            }
            None => say(&node.describe(0, 0)),
        }
    }
}

fn carry_out(cluster: &mut Cluster, plan: &Plan) -> Result<(), String> {
    for (at, (first, last)) in &plan.primaries {
        let mut words = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
        words.extend((*first..=*last).map(|slot| slot.to_string()));
        cluster.nodes[*at].ask(&words)?;
    }
    step(">>> Nodes configuration updated");
    step(">>> Assign a different config epoch to each node");
    for (number, node) in cluster.nodes.iter_mut().enumerate() {
        // A node that has an epoch already keeps it.
        node.ask_any(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
    }
    step(">>> Sending CLUSTER MEET messages to join the cluster");
    let place = cluster.nodes[0].meeting_place()?;
    cluster.nodes[1..].iter_mut().try_for_each(|node| node.meet(&place))?;
    cluster.wait_until_joined()?;
    for &(replica, primary) in &plan.replicas {
        let id = cluster.nodes[primary].id.clone();
        cluster.nodes[replica].replicate(&id)?;
    }
    cluster.wait_until(|cluster| {
        let is_done = |&(replica, primary): &(usize, usize)| {
            cluster.nodes[replica].primary.as_ref() == Some(&cluster.nodes[primary].id)
        };
        cluster.agrees() && plan.replicas.iter().all(is_done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_on_other_hosts_than_their_primaries() {
        let hosts = ["a", "a", "b", "b", "c", "c", "c"];
        let mut plan = plan(&hosts, 3, 1);
        improve(&mut plan, &hosts);
        let slots: Vec<(u16, u16)> = plan.primaries.iter().map(|(_, slots)| *slots).collect();
        assert_eq!(slots, [(0, 5460), (5461, 10922), (10923, 16383)]);
        let of: Vec<&str> = plan.primaries.iter().map(|(at, _)| hosts[*at]).collect();
        assert_eq!(of, ["a", "b", "c"]);
        assert_eq!((plan.replicas.len(), plan.extra), (4, 1));
        assert_eq!(beside(&plan.replicas, &hosts), (0, 0));
    }

    #[test]
    fn nodes_of_one_host_are_taken_in_the_order_of_redis_cli() {
        let plan = plan(&["a"; 6], 3, 1);
        assert_eq!(plan.replicas, [(4, 0), (5, 1), (3, 2)]);
        assert_eq!(super::plan(&["a"; 3], 3, 0).replicas, []);
    }

    #[test]
    fn too_few_nodes_are_refused() {
        let wanted = ClusterOptions { replicas: 1, yes: true, ..ClusterOptions::default() };
        let refusal = ensure_enough(Flavor::Redis, &wanted, 5, 2);
        assert!(refusal.is_err_and(|why| why.contains("At least 6 nodes")));
        assert_eq!(ensure_enough(Flavor::Valkey, &wanted, 5, 2), Ok(()));
        assert!(ensure_enough(Flavor::Dunlin, &wanted, 1, 0).is_err());
    }
}
