//! Requests for slots that wait, which a link between nodes, or from a proxy, gets back.
//!
//! A link carries the requests of many clients in one order. If one of them waited on it, those of
//! all other clients would wait behind it, for other slots, too. So a link that says `CLIENT CAPA
//! again` gets such a request back with an error (`-TRYAGAIN PAUSED`), and the node, or the proxy,
//! at its other end sends it again.
//!
//! A client's requests keep their order although one of them came back and the next one is on the
//! link already, and the slot goes on in between: once a request has come back, all later ones on
//! this link that concern one of its slots come back, too. That ends when the link says `CLIENT
//! CAPA again` anew. The node says so when nothing that it has sent before is unanswered.

use keyspace::Slot;

/// What a link has got back since it said last that nothing of it is under way.
#[derive(Default, Debug)]
pub struct Returned {
    /// Something about all keys.
    all: bool,
    /// The slots of the requests.
    slots: Vec<Slot>,
}

impl Returned {
    /// Returns whether nothing has come back.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.all && self.slots.is_empty()
    }

    /// Returns whether a request for this slot comes back.
    pub fn has(&self, slot: Slot) -> bool {
        self.all || self.slots.contains(&slot)
    }

    /// Notes a request with a key of this slot that comes back.
    pub fn add(&mut self, slot: Slot) {
        if !self.has(slot) {
            self.slots.push(slot);
        }
    }

    /// Notes a request about all keys that comes back.
    pub fn add_all(&mut self) {
        self.all = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_behind_one_that_came_back_come_back() {
        let slot = |number| Slot::new(number).expect("there is such a slot");
        let mut returned = Returned::default();
        assert!(returned.is_empty() && !returned.has(slot(1)));
        returned.add(slot(1));
        returned.add(slot(1));
        assert!(returned.has(slot(1)) && !returned.has(slot(2)) && !returned.is_empty());
        returned.add_all();
        assert!(returned.has(slot(2)));
    }
}
