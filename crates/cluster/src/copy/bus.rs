//! The port that a copy has for others, and when it announces it.
//!
//! All copies use these ports as soon as all have announced theirs ([`crate::bus`]). So a copy says
//! it only when it has reached those of the others: a firewall that lets them through no more than
//! before must not cut links that work. It says it at once
//!
//! - if it is new, or was announced before, and all others that are alive announce theirs: the
//!   ports are in use, and others must not go back to what is without TLS because one has begun;
//! - if the view shows it with its port already.
//!
//! One that an earlier process of a version without such a port has left is not new, whether the
//! others are alive or not.

use super::Copy;
use crate::bus::OFFSET;
use crate::id::Id;
use crate::known::Known;
use crate::topology::{Address, Replica};
use crate::view::View;

/// See the head of this file.
#[derive(Clone, Copy, Default, Hash, Debug)]
pub(super) struct OwnPort {
    /// What this process listens on, as others are told; 0: it has none.
    port: u16,
    /// This process has reached the ports of all others that were alive then.
    has_reached: bool,
    /// The copy has had a lease without announcing a port.
    has_to_reach: bool,
    /// It is known whether an earlier process of the copy had one: from what that has left, or
    /// from the first look at the coordinator.
    knows_past: bool,
}

impl OwnPort {
    /// Takes what an earlier process of the copy knew. One of a version without such a port has
    /// announced none.
    pub(super) fn remember(&mut self, known: Option<&Known>) {
        self.has_to_reach = known.is_some_and(|known| !known.has_bus);
        self.knows_past = known.is_some();
    }

    /// The coordinator knows nothing of the copy yet.
    pub(super) fn begins(&mut self) {
        self.knows_past = true;
    }
}

/// Where the port of a copy for others is, or would be if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Door {
    /// The copy.
    pub copy: Id,
    /// Its host.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Copy {
    /// Takes the port for other copies that this process listens on now; 0: it has none.
    pub fn listens_on_bus(&mut self, port: u16) {
        self.bus.port = port;
    }

    /// All of [`Copy::unreached`] have been reached.
    pub fn reached_all(&mut self) {
        self.bus.has_reached = true;
    }

    /// Returns the ports of other copies that have to be reached before this one announces its own.
    /// `None`: it has none, or announces it, or no other copy is alive.
    pub fn unreached(&self) -> Option<Vec<Door>> {
        let view = self.view.as_ref()?;
        if self.bus.port == 0 || self.announced_bus() > 0 {
            return None;
        }
        let copies = view.topology.value.copies().filter(|copy| copy.id != self.me);
        let door = |copy: &Replica| {
            let announced = view.alive.get(&copy.id)?.value.bus_port;
            let Address { host, bus_port, .. } = &copy.address;
            // Where a copy would have it that announces none.
            let derived = copy.address.naming_port(false).checked_add(OFFSET);
            let ports = [announced, *bus_port, derived.unwrap_or(0)];
            let port = ports.into_iter().find(|&port| port > 0).unwrap_or(0);
            Some(Door { copy: copy.id, host: host.clone(), port })
        };
        let doors: Vec<Door> = copies.filter_map(door).collect();
        (!doors.is_empty()).then_some(doors)
    }

    /// Returns the port for others that this copy announces now; 0: none.
    pub(super) fn announced_bus(&self) -> u16 {
        let is_announced = match &self.view {
            _ if self.bus.has_reached => true,
            // It founds a database.
            None => !self.bus.has_to_reach,
            Some(view) if self.is_registered(view) => self.is_shown_with_bus(view),
            Some(view) => {
                let mut others = view.alive.iter().filter(|(id, _)| **id != self.me);
                !self.bus.has_to_reach && others.all(|(_, at)| at.value.bus_port > 0)
            }
        };
        if is_announced { self.bus.port } else { 0 }
    }

    /// Notes that the newest view shows this copy without a port, or that it was here before this
    /// process and nothing is known of that.
    pub(super) fn note_bus(&mut self) {
        let Some(view) = &self.view else { return };
        let shard = view.topology.value.shard_of(self.me);
        let was_member =
            shard.and_then(|shard| shard.copy(self.me)).is_some_and(|copy| copy.member.is_some());
        let is_of_past = !self.bus.knows_past && was_member;
        let lacks = self.is_registered(view) && !self.is_shown_with_bus(view);
        self.bus.has_to_reach |= is_of_past || lacks;
        self.bus.knows_past = true;
    }

    fn is_shown_with_bus(&self, view: &View) -> bool {
        view.alive.get(&self.me).is_some_and(|at| at.value.bus_port > 0)
    }
}
