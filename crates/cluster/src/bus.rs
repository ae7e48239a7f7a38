//! The bus: the ports that copies of a database have for each other, and whether they use them.
//!
//! A copy says its bus port in its key `alive`, so the process that runs now says it. Not in the
//! topology, which keeps what a later version has written: it would go on naming the port of a copy
//! that was started again by a version that has none. `docs/internals/node.md` has the design.

use crate::id::Id;
use crate::view::View;
use std::collections::BTreeMap;

/// The bus port is the port of clients and this number unless it is announced, as in Redis.
pub const OFFSET: u16 = 10_000;

/// See the head of this file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Bus {
    /// What each copy has announced last; 0: it has none.
    ports: BTreeMap<Id, u16>,
    is_whole: bool,
}

impl Bus {
    /// Returns the bus as a view shows it. `before` has the ports of copies that have no lease at
    /// the moment: how they are reached does not change by that.
    pub fn of(view: &View, before: Option<&Bus>) -> Bus {
        let mut bus = Bus::default();
        let (mut is_one_alive, mut lacks_one) = (false, false);
        for copy in view.topology.value.copies() {
            let port = view.alive.get(&copy.id).map(|at| at.value.bus_port);
            is_one_alive |= port.is_some();
            let known = || before?.ports.get(&copy.id).copied();
            let port = port.or_else(known);
            // One that is away for a moment would change how all others are reached, twice.
            lacks_one |= port == Some(0);
            bus.ports.extend(port.map(|port| (copy.id, port)));
        }
        bus.is_whole = !lacks_one && (is_one_alive || before.is_none_or(|before| before.is_whole));
        bus
    }

    /// Returns whether all copies that are alive have a bus port, and none has gone that had said
    /// that it has none.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the bus port of a copy. `None`: the bus is not used, or the copy has never said.
    pub fn port_of(&self, copy: Id) -> Option<u16> {
        self.ports.get(&copy).copied().filter(|&port| self.is_whole && port > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;
    use crate::topology::{Address, Shard, Topology};
    use crate::view::{Alive, At, Keys};

    const ONE: Id = Id::new([1; 20]);
    const TWO: Id = Id::new([2; 20]);

    /// A database of two copies, those of them with a port here being alive.
    fn view(alive: &[(Id, u16)]) -> View {
        let address = |port| Address { host: "10.0.0.1".into(), port, ..Address::default() };
        let mut topology = Topology::new(Shard::new(ONE, address(1), Incarnation(1)));
        topology.shards.push(Shard::new(TWO, address(2), Incarnation(2)));
        let alive = alive.iter().map(|&(id, bus_port)| {
            let value = Alive { incarnation: Incarnation(1), lease: 1, bus_port };
            (id, At { value, revision: 1 })
        });
        View {
            keys: Keys::new("t"),
            database: ONE,
            revision: 1,
            topology: At { value: topology, revision: 1 },
            alive: alive.collect(),
            fences: BTreeMap::new(),
            switches: BTreeMap::new(),
            rolled_back: None,
            history: Default::default(),
        }
    }

    #[test]
    fn it_is_used_while_all_that_are_alive_have_one() {
        let mixed = Bus::of(&view(&[(ONE, 101), (TWO, 0)]), None);
        assert!(!mixed.is_whole() && mixed.port_of(ONE).is_none());
        let whole = Bus::of(&view(&[(ONE, 101), (TWO, 102)]), Some(&mixed));
        assert_eq!((whole.port_of(ONE), whole.port_of(TWO)), (Some(101), Some(102)));
        // It is started again by a version that has no bus.
        let back = Bus::of(&view(&[(ONE, 101), (TWO, 0)]), Some(&whole));
        assert!(!back.is_whole() && back.port_of(TWO).is_none());
    }

    #[test]
    fn a_copy_that_has_none_counts_without_its_lease_too() {
        let mixed = Bus::of(&view(&[(ONE, 101), (TWO, 0)]), None);
        let one = Bus::of(&view(&[(ONE, 101)]), Some(&mixed));
        assert!(!one.is_whole() && one.port_of(ONE).is_none());
        let none = Bus::of(&view(&[]), Some(&one));
        assert!(!none.is_whole());
        let back = Bus::of(&view(&[(ONE, 101), (TWO, 0)]), Some(&none));
        assert!(!back.is_whole());
        assert!(Bus::of(&view(&[(ONE, 101), (TWO, 102)]), Some(&one)).is_whole());
        // It leaves the database.
        let mut alone = view(&[(ONE, 101)]);
        alone.topology.value.shards.truncate(1);
        assert!(Bus::of(&alone, Some(&one)).is_whole());
    }

    #[test]
    fn a_copy_without_a_lease_keeps_its_port() {
        let whole = Bus::of(&view(&[(ONE, 101), (TWO, 102)]), None);
        let one = Bus::of(&view(&[(ONE, 101)]), Some(&whole));
        assert_eq!((one.port_of(ONE), one.port_of(TWO)), (Some(101), Some(102)));
        let none = Bus::of(&view(&[]), Some(&one));
        assert_eq!(none.port_of(TWO), Some(102));
        // A server that has just been started knows nothing of those that are away.
        let new = Bus::of(&view(&[(ONE, 101)]), None);
        assert_eq!((new.port_of(ONE), new.port_of(TWO)), (Some(101), None));
        let empty = Bus::of(&view(&[]), None);
        assert!(empty.is_whole() && empty.port_of(ONE).is_none());
    }
}
