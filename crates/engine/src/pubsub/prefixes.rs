//! Which broadcasting clients are told of a key: the prefixes of all clients in lexical order.
//!
//! ```text
//!  prefix   ""   "a"   "ab"   "b"   "ba"
//!  parent    –    0     1      0     3      the longest other prefix that it begins with
//! ```
//!
//! The prefixes of a key are a chain of parents. The last prefix in order that is not behind the key is
//! in a chain with the longest of them, so one binary search and the chain find all, however many
//! other prefixes there are. A hash table by length would cost a look-up for every length that
//! occurs; Valkey compares the key with every prefix.

use std::sync::Arc;

/// A prefix.
struct Node {
    text: Arc<[u8]>,
    parent: Option<usize>,
    /// The clients that asked for it.
    clients: Vec<u64>,
}

/// The prefixes of all clients; see the module's documentation.
pub(crate) struct PrefixIndex(Vec<Node>);

impl PrefixIndex {
    /// From pairs of a prefix and a client.
    pub(crate) fn new<'p>(pairs: impl Iterator<Item = (&'p Arc<[u8]>, u64)>) -> PrefixIndex {
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_unstable();
        let mut nodes: Vec<Node> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        for (text, client) in pairs {
            if let Some(node) = nodes.last_mut().filter(|node| node.text == *text) {
                node.clients.push(client);
                continue;
            }
            while open.pop_if(|node| !text.starts_with(&nodes[*node].text)).is_some() {}
            nodes.push(Node {
                text: Arc::clone(text),
                parent: open.last().copied(),
                clients: vec![client],
            });
            open.push(nodes.len() - 1);
        }
        PrefixIndex(nodes)
    }

    /// Number of different prefixes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The clients of a prefix that [`PrefixIndex::of_key`] has found.
    pub(crate) fn clients(&self, prefix: usize) -> &[u64] {
        &self.0[prefix].clients
    }

    /// Visits the prefixes of a key, by their places in lexical order; the longest first.
    pub(crate) fn of_key(&self, key: &[u8], mut visit: impl FnMut(usize)) {
        let mut next = self.0.partition_point(|node| *node.text <= *key).checked_sub(1);
        while let Some(at) = next {
            let node = &self.0[at];
            if key.starts_with(&node.text) {
                visit(at);
            }
            next = node.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use structs::random::Rng;

    fn word(rng: &mut Rng) -> Vec<u8> {
        (0..rng.index(6)).map(|_| b"ab\xff"[rng.index(3)]).collect()
    }

    #[test]
    fn finds_what_a_comparison_with_all_finds() {
        let mut rng = Rng::seeded(1);
        for _ in 0..500 {
            let prefixes: Vec<(Vec<u8>, u64)> =
                (0..rng.index(30)).map(|_| (word(&mut rng), rng.index(4) as u64)).collect();
            let shared: Vec<(Arc<[u8]>, u64)> =
                prefixes.iter().map(|(text, client)| (Arc::from(&text[..]), *client)).collect();
            let index = PrefixIndex::new(shared.iter().map(|(text, client)| (text, *client)));
            let mut different: Vec<_> = prefixes.iter().map(|(text, _)| text).collect();
            different.sort();
            different.dedup();
            assert_eq!(index.len(), different.len());
            for _ in 0..20 {
                let key = word(&mut rng);
                let mut found = Vec::new();
                index.of_key(&key, |prefix| found.extend_from_slice(index.clients(prefix)));
                let expected = prefixes.iter().filter(|(text, _)| key.starts_with(text));
                let mut expected: Vec<u64> = expected.map(|(_, client)| *client).collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "{key:?} of {prefixes:?}");
            }
        }
    }
}
