//! What a stripe knows of its open collections: small ones that do not lie in their entries, since
//! they are being changed (`enclosing.rs`).

/// Collections that a stripe remembers. Of more it knows only that there are some.
const MAX_KNOWN: usize = 256;

/// A stripe in which more was opened since the last look is left alone: what would be taken into
/// entries might have to be opened again at once.
const MANY: u32 = 64;

/// The collections of a stripe that were opened and have not been taken in since. `K` names one.
pub(crate) struct Opened<K> {
    /// Their names, the oldest first.
    known: Vec<K>,
    /// So many of them were known at the last look.
    old: usize,
    /// There are others.
    has_more: bool,
    /// How many were opened since the last look.
    recent: u32,
}

/// What is to be taken into entries.
#[derive(PartialEq, Eq, Debug)]
pub enum Due<K> {
    /// Those with these names, of which there may be none.
    These(Vec<K>),
    /// All that can be.
    All,
}

impl<K> Default for Opened<K> {
    fn default() -> Opened<K> {
        Opened { known: Vec::new(), old: 0, has_more: false, recent: 0 }
    }
}

impl<K> Opened<K> {
    /// Remembers that the collection of a key is open.
    #[cold]
    pub fn note(&mut self, name: K) {
        self.recent = self.recent.saturating_add(1);
        if self.known.len() < MAX_KNOWN {
            self.known.push(name);
        } else {
            self.has_more = true;
        }
    }

    /// Returns whether [`Opened::due`] has something to look at.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns what was opened before the last look, and begins the next time.
    pub fn due(&mut self) -> Due<K> {
        if std::mem::take(&mut self.recent) > MANY {
            self.old = 0;
            return Due::These(Vec::new());
        }
        if std::mem::take(&mut self.has_more) {
            *self = Opened::default();
            return Due::All;
        }
        let due = self.known.drain(..self.old).collect();
        self.old = self.known.len();
        if self.known.is_empty() {
            self.known = Vec::new();
        }
        Due::These(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_much_is_opened_nothing_is_due() {
        let mut opened = Opened::default();
        let open = |opened: &mut Opened<u32>, count| (0..count).for_each(|name| opened.note(name));
        for _ in 0..2 {
            open(&mut opened, MANY + 1);
            assert_eq!(opened.due(), Due::These(Vec::new()));
        }
        open(&mut opened, MAX_KNOWN as u32);
        assert_eq!(opened.due(), Due::These(Vec::new()));
        assert_eq!(opened.due(), Due::All, "not all are known");
        assert!(opened.is_empty());
        open(&mut opened, 1);
        assert_eq!(opened.due(), Due::These(Vec::new()), "it may be changed again");
        assert_eq!(opened.due(), Due::These(vec![0]));
    }
}
