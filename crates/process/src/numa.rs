//! The order in which `server-cpulist` is given to reactors, on machines whose processors are not
//! all alike.
//!
//! Reactor 0 gets the first processor of the order, reactor 1 the second, and so on. All reactors
//! work on the same keyspace, so those that run should be close: the processors of one node (one
//! socket's memory) come one after the other, and the next node is begun when they are used up.
//! Within a node whole cores come first, their hyper-threads last, so that four reactors on eight
//! hyper-threads have four cores. Otherwise the order is the list's own.

use super::cpulist;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Puts `cpus` in the order in which reactors should be given them, for the machine below `root`.
pub fn order(root: &Path, cpus: &[usize]) -> Vec<usize> {
    let nodes = nodes(root);
    let mut node_ranks: HashMap<Option<usize>, usize> = HashMap::new();
    let mut threads_of_core: HashMap<usize, usize> = HashMap::new();
    let mut ranked: Vec<(usize, usize, usize)> = Vec::new();
    for cpu in cpus {
        let next_rank = node_ranks.len();
        let node = *node_ranks.entry(nodes.get(cpu).copied()).or_insert(next_rank);
        let siblings = threads_of_core.entry(core(root, *cpu)).or_insert(0);
        ranked.push((node, *siblings, *cpu));
        *siblings += 1;
    }
    ranked.sort_by_key(|(node, sibling, _)| (*node, *sibling));
    ranked.into_iter().map(|(_, _, cpu)| cpu).collect()
}

/// The node of each processor.
fn nodes(root: &Path) -> HashMap<usize, usize> {
    let mut nodes = HashMap::new();
    let folder = root.join("sys/devices/system/node");
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<usize>().ok());
        let list = fs::read_to_string(entry.path().join("cpulist"));
        if let (Some(number), Ok(list)) = (number, list) {
            // A node without processors has an empty list.
            let cpus = cpulist::parse(&list).unwrap_or_default();
            nodes.extend(cpus.into_iter().map(|cpu| (cpu, number)));
        }
    }
    nodes
}

/// The core of a processor, named by the first of its hyper-threads.
fn core(root: &Path, cpu: usize) -> usize {
    let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let siblings =
        fs::read_to_string(root.join(path)).ok().and_then(|list| cpulist::parse(&list).ok());
    siblings.and_then(|siblings| siblings.into_iter().min()).unwrap_or(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    fn machine(nodes: &[&str], siblings: &[&str]) -> Directory {
        let machine = Directory::new("numa");
        for (number, cpus) in nodes.iter().enumerate() {
            machine.file(&format!("sys/devices/system/node/node{number}/cpulist"), cpus);
        }
        machine.file("sys/devices/system/node/online", "0");
        for list in siblings {
            for cpu in cpulist::parse(list).unwrap() {
                let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
                machine.file(&path, list);
            }
        }
        machine
    }

    #[test]
    fn a_node_is_filled_before_the_next() {
        let even_and_odd = machine(&["0,2,4,6\n", "1,3,5,7\n", "\n"], &[]);
        let all: Vec<_> = (0..8).collect();
        assert_eq!(order(even_and_odd.path(), &all), [0, 2, 4, 6, 1, 3, 5, 7]);
        // The node named first comes first, and the list's order stays within a node.
        assert_eq!(order(even_and_odd.path(), &[3, 0, 1, 2]), [3, 1, 0, 2]);
    }

    #[test]
    fn whole_cores_come_before_hyper_threads() {
        let pairs = machine(&["0-3", "4-7"], &["0-1", "2-3", "4-5", "6-7"]);
        let all: Vec<_> = (0..8).collect();
        assert_eq!(order(pairs.path(), &all), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(order(pairs.path(), &[1, 0]), [1, 0]);
    }

    #[test]
    fn an_unknown_machine_keeps_the_list() {
        assert_eq!(order(Path::new("/nonexistent-folder"), &[5, 1, 3]), [5, 1, 3]);
    }
}
