//! `rebalance`: moves slots until each primary has its share.

use super::nodes::Cluster;
use super::{SLOTS, bad, check, moves, plan, say, step, warn};
use crate::options::ClusterOptions;

pub fn run(cluster: &mut Cluster, wanted: &ClusterOptions) -> Result<(), String> {
    let mut weights = vec![1.0; cluster.nodes.len()];
    for (name, weight) in &wanted.weights {
        let word = cluster.nodes[0].primary_word();
        let missing = || format!("*** No such {word} node {name}");
        weights[cluster.by_abbreviated_id(name).ok_or_else(missing)?] = *weight;
    }
    let involved: Vec<usize> = cluster
        .primaries()
        .into_iter()
        .filter(|&at| wanted.use_empty || !cluster.nodes[at].slots.is_empty())
        .collect();
    check::head(cluster);
    if !check::look(cluster, wanted)?.is_fine() {
        return Err("*** Please fix your cluster problems before rebalancing".into());
    }
    let total: f64 = involved.iter().map(|&at| weights[at]).sum();
    if total <= 0.0 {
        return Err("*** All weights are 0".into());
    }
    let shares: Vec<(usize, f64)> =
        involved.iter().map(|&at| (cluster.nodes[at].slots.len(), weights[at])).collect();
    let Some(balance) = balance(&shares, wanted.threshold) else {
        warn(&format!(
            "*** No rebalancing needed! All nodes are within the {:.2}% threshold.",
            wanted.threshold
        ));
        return Ok(());
    };
    step(&format!(">>> Rebalancing across {} nodes. Total weight = {total:.2}", involved.len()));
    if cluster.nodes[0].session.options.verbose {
        for (&at, balance) in involved.iter().zip(&balance) {
            say(&format!("{} balance is {balance} slots", cluster.nodes[at]));
        }
    }
    for (from, to, count) in transfers(balance) {
        let (from, to) = (involved[from], involved[to]);
        let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
        say(&format!("Moving {count} slots from {source} to {target}"));
        if wanted.simulate {
            say(&"#".repeat(count));
            continue;
        }
        for one in plan::shares(cluster, &[from], to, count) {
            if let Err(why) = moves::run(cluster, wanted, &one, moves::Show::Marks) {
                bad(&why);
                return Err(String::new());
            }
        }
    }
    Ok(())
}

/// How many slots each node has beyond its share, of how many it has and its weight. Nothing if all
/// are near enough.
fn balance(nodes: &[(usize, f64)], threshold: f64) -> Option<Vec<i64>> {
    let total: f64 = nodes.iter().map(|(_, weight)| weight).sum();
    let expected = |weight: f64| (SLOTS as f64 / total * weight) as i64;
    let is_far = |&(count, weight): &(usize, f64)| match count {
        _ if threshold <= 0.0 => false,
        0 => expected(weight) > 1,
        _ => (100.0 - 100.0 * expected(weight) as f64 / count as f64).abs() > threshold,
    };
    if !nodes.iter().any(is_far) {
        return None;
    }
    let mut balance: Vec<i64> =
        nodes.iter().map(|&(count, weight)| count as i64 - expected(weight)).collect();
    // What rounding leaves goes to nodes that are to receive some.
    let mut left: i64 = balance.iter().sum();
    while left > 0 && balance.iter().any(|balance| *balance <= 0) {
        for one in balance.iter_mut().filter(|balance| **balance <= 0) {
            if left > 0 {
                *one -= 1;
                left -= 1;
            }
        }
    }
    Some(balance)
}

/// From, to and how many, until no node has too few or none has too many.
fn transfers(mut balance: Vec<i64>) -> Vec<(usize, usize, usize)> {
    let mut order: Vec<usize> = (0..balance.len()).collect();
    order.sort_by_key(|&at| balance[at]);
    let mut found = Vec::new();
    let (mut low, mut high) = (0, order.len().saturating_sub(1));
    while low < high {
        let (to, from) = (order[low], order[high]);
        let count = balance[from].max(0).min(-balance[to].min(0));
        if count > 0 {
            found.push((from, to, count as usize));
            balance[to] += count;
            balance[from] -= count;
        }
        if balance[to] >= 0 {
            low += 1;
        }
        if balance[from] <= 0 {
            high -= 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balance_moves_what_is_over_and_no_more() {
        let nodes = [(8192, 1.0), (8192, 1.0), (0, 1.0)];
        let moves = transfers(balance(&nodes, 2.0).unwrap());
        assert_eq!(moves, [(1, 2, 2731), (0, 2, 2731)]);
        let near = [(5461, 1.0), (5461, 1.0), (5462, 1.0)];
        assert_eq!(balance(&near, 2.0), None);
        let emptied = transfers(balance(&[(8192, 1.0), (8192, 0.0)], 2.0).unwrap());
        assert_eq!(emptied, [(1, 0, 8192)]);
        // The weights decide; what rounding leaves does not make a node the source and target.
        let weighted = balance(&[(8192, 2.0), (8192, 1.0)], 2.0).unwrap();
        assert_eq!(transfers(weighted), [(1, 0, 2731)]);
    }
}
