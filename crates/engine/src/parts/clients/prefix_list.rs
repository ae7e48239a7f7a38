//! The prefixes of which a client with CLIENT TRACKING BCAST is told.

/// Bytes that the index of all prefixes has for one: a node and a client.
const IN_INDEX: usize = 24;

/// The prefixes of a client in lexical order, as one text. The client, the table of caching clients
/// and the index share it.
#[derive(Default, Debug)]
pub struct PrefixList {
    text: Box<[u8]>,
    /// Where each ends.
    ends: Box<[usize]>,
}

impl PrefixList {
    /// From prefixes in lexical order.
    pub fn new(sorted: &[&[u8]]) -> PrefixList {
        let mut end = 0;
        let ends = sorted.iter().map(|prefix| {
            end += prefix.len();
            end
        });
        PrefixList { ends: ends.collect(), text: sorted.concat().into() }
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One of them, by its place.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[number]]
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Bytes of memory it takes, with what the index of all prefixes has of it.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_each = size_of::<usize>() + IN_INDEX;
        self.text.len() + self.len() * of_each
    }
}
