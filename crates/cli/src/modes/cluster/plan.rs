//! Which slots leave a node.

use super::nodes::Cluster;

/// Slots that go from a node to another, by their places.
#[derive(Debug, PartialEq, Eq)]
pub struct Move {
    pub from: usize,
    pub to: usize,
    /// Sorted.
    pub slots: Vec<u16>,
}

/// The first slots of each source, in shares of what the sources have. What rounding leaves comes
/// from the source with the most.
pub fn shares(cluster: &Cluster, sources: &[usize], to: usize, count: usize) -> Vec<Move> {
    let owned: Vec<&[u16]> = sources.iter().map(|&at| &cluster.nodes[at].slots[..]).collect();
    let taken = taken(&owned, count);
    taken.into_iter().map(|(at, slots)| Move { from: sources[at], to, slots }).collect()
}

fn taken(owned: &[&[u16]], count: usize) -> Vec<(usize, Vec<u16>)> {
    let all: usize = owned.iter().map(|slots| slots.len()).sum();
    let mut order: Vec<usize> = (0..owned.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(owned[at].len()));
    let mut found = Vec::new();
    for (rank, &at) in order.iter().enumerate() {
        let share = count as f64 / all.max(1) as f64 * owned[at].len() as f64;
        let share = if rank == 0 { share.ceil() } else { share.floor() } as usize;
        let slots = owned[at][..share.min(owned[at].len())].to_vec();
        if !slots.is_empty() {
            found.push((at, slots));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_give_in_shares_of_what_they_have() {
        let (a, b): (Vec<u16>, Vec<u16>) = ((0..10).collect(), (10..40).collect());
        assert_eq!(taken(&[&a, &b], 7), [(1, (10..16).collect()), (0, vec![0])]);
        let all = taken(&[&a, &b], 100);
        assert_eq!((all[0].1.len(), all[1].1.len()), (30, 10));
        assert_eq!(taken(&[&a[..0], &b], 1), [(1, vec![10])]);
        assert_eq!(taken(&[&[]], 5), []);
    }
}
