//! Which broadcasting clients are told of a key: the prefixes of all clients in lexical order.
//!
//! ```text
//!  prefix   ""   "a"   "ab"   "b"   "ba"
//!  parent    –    0     1      0     3      the longest other prefix that it begins with
//! ```
//!
//! The prefixes of a key are a chain of parents. The last prefix in order that is not behind the
//! key is in a chain with the longest of them, so one binary search and the chain find all, however
//! many other prefixes there are. A hash table by length would cost a look-up for every length that
//! occurs; Valkey compares the key with every prefix.

use crate::clients::prefix_list::PrefixList;
use std::num::NonZeroU32;
use std::sync::Arc;

/// A prefix. Numbers have 32 bits: that many prefixes do not fit into requests.
struct Node {
    /// Where its text is: which list, and which prefix of that.
    list: u32,
    number: u32,
    parent: Option<NonZeroU32>,
    /// Where its clients begin; they end where those of the next begin.
    clients: u32,
}

/// The prefixes of all clients; see the module's documentation.
pub(crate) struct PrefixIndex {
    lists: Vec<Arc<PrefixList>>,
    nodes: Vec<Node>,
    /// The clients that asked for each prefix, in the order of the prefixes.
    clients: Vec<u64>,
}

impl PrefixIndex {
    /// From the clients and their prefixes.
    pub(crate) fn new<'p>(lists: impl Iterator<Item = (&'p Arc<PrefixList>, u64)>) -> PrefixIndex {
        let (lists, owners): (Vec<_>, Vec<_>) =
            lists.map(|(list, client)| (Arc::clone(list), client)).unzip();
        let numbers = lists.iter().enumerate();
        let mut pairs: Vec<(u32, u32)> = numbers
            .flat_map(|(list, of)| (0..of.len() as u32).map(move |number| (list as u32, number)))
            .collect();
        let text = |&(list, number): &(u32, u32)| lists[list as usize].get(number as usize);
        pairs.sort_unstable_by(|one, other| text(one).cmp(text(other)).then(one.cmp(other)));
        let mut nodes: Vec<Node> = Vec::with_capacity(pairs.len());
        let mut clients = Vec::with_capacity(pairs.len());
        let mut open: Vec<usize> = Vec::new();
        let text_of = |node: &Node| text(&(node.list, node.number));
        for pair in &pairs {
            if nodes.last().is_none_or(|node| text_of(node) != text(pair)) {
                while open.pop_if(|node| !text(pair).starts_with(text_of(&nodes[*node]))).is_some()
                {
                }
                nodes.push(Node {
                    list: pair.0,
                    number: pair.1,
                    parent: open.last().and_then(|parent| NonZeroU32::new(*parent as u32 + 1)),
                    clients: clients.len() as u32,
                });
                open.push(nodes.len() - 1);
            }
            clients.push(owners[pair.0 as usize]);
        }
        nodes.shrink_to_fit();
        PrefixIndex { lists, nodes, clients }
    }

    fn text(&self, node: &Node) -> &[u8] {
        self.lists[node.list as usize].get(node.number as usize)
    }

    /// Number of different prefixes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The clients of a prefix that [`PrefixIndex::of_key`] has found.
    pub(crate) fn clients(&self, prefix: usize) -> &[u64] {
        let start = self.nodes[prefix].clients as usize;
        let end = self.nodes.get(prefix + 1).map(|next| next.clients as usize);
        &self.clients[start..end.unwrap_or(self.clients.len())]
    }

    /// Visits the prefixes of a key, by their places in lexical order; the longest first.
    pub(crate) fn of_key(&self, key: &[u8], mut visit: impl FnMut(usize)) {
        let mut next = self.nodes.partition_point(|node| self.text(node) <= key).checked_sub(1);
        while let Some(at) = next {
            let node = &self.nodes[at];
            if key.starts_with(self.text(node)) {
                visit(at);
            }
            next = node.parent.map(|parent| parent.get() as usize - 1);
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
            let lists: Vec<(Arc<PrefixList>, u64)> = (0..4)
                .map(|client| {
                    let own = prefixes.iter().filter(|(_, of)| *of == client);
                    let mut own: Vec<&[u8]> = own.map(|(text, _)| &text[..]).collect();
                    own.sort_unstable();
                    (Arc::new(PrefixList::new(&own)), client)
                })
                .collect();
            let index = PrefixIndex::new(lists.iter().map(|(list, client)| (list, *client)));
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

    #[test]
    fn prefixes_take_little_more_than_their_text() {
        let words: Vec<String> =
            (0..10_240).map(|i| format!("PREFIX-{i:05}-{i}-{i}-{i}")).collect();
        let text: usize = words.iter().map(String::len).sum();
        let list = PrefixList::new(&words.iter().map(String::as_bytes).collect::<Vec<_>>());
        assert!(list.memory_bytes() <= text + 32 * words.len());
        let list = Arc::new(list);
        let index = PrefixIndex::new([(&list, 1)].into_iter());
        let nodes = index.nodes.capacity() * size_of::<Node>();
        let index_bytes = nodes + index.clients.capacity() * size_of::<u64>();
        assert!(text + list.len() * size_of::<usize>() + index_bytes <= list.memory_bytes());
    }
}
