//! Making connections, and what happens when they end.
//!
//! A connection that is not at work is on the thread's list `down`, whether it waits for its next
//! attempt or is being made; `opening` counts the latter.

use super::{MILLISECOND_NS, Worker};
use crate::generator::connection::LifeState;
use std::io::ErrorKind;

/// Connections that are being made at the same time; more would overrun a listener's backlog.
const OPENING: usize = 100;

/// A connection that takes longer than this to be made will not be.
const CONNECT_NS: u64 = 5_000_000_000;

impl Worker<'_> {
    /// The socket is a step further, or is not going to be connected.
    pub(super) fn connected(&mut self, index: usize) {
        let now_ns = self.shared.now_ns();
        match self.connections[index].greet(self.target) {
            Err(error) => self.lost(index, &error.to_string()),
            Ok(()) if self.connections[index].state == LifeState::Ready => {
                self.ready(index, now_ns)
            }
            Ok(()) => {}
        }
    }

    pub(super) fn ready(&mut self, index: usize, now_ns: u64) {
        let connection = &mut self.connections[index];
        connection.failures = 0;
        connection.greeted = true;
        if self.workload.in_order {
            connection.turn = self.workload.start(connection.number);
        }
        self.opening -= 1;
        self.up += 1;
        self.last_up_ns = now_ns;
        self.down.retain(|&other| other != index);
        self.next_batch(index, now_ns);
    }

    /// A new connection in place of one that has done its share.
    pub(super) fn renew(&mut self, index: usize, now_ns: u64) {
        self.connections[index].close(now_ns);
        self.recorder.counts.reconnections += 1;
        self.up -= 1;
        self.down.push(index);
        if !self.exhausted {
            self.open(index, now_ns);
        }
    }

    /// The connection ended unasked, or could not be made.
    pub(super) fn lost(&mut self, index: usize, why: &str) {
        let now_ns = self.shared.now_ns();
        let connection = &mut self.connections[index];
        let address = &self.topology.nodes[connection.node];
        if !self.running {
            self.shared.fail(format!("{address}: {why}"));
        }
        let was_up = connection.greeted;
        let wait = ((10 * MILLISECOND_NS) << connection.failures.min(7)).min(1_000_000_000);
        connection.failures += 1;
        let lost = connection.close(now_ns + wait);
        self.under_way -= lost;
        let counts = &mut self.recorder.counts;
        counts.lost_requests += lost;
        if counts.first_loss.is_none() {
            counts.first_loss = Some(format!("{address}: {why}"));
        }
        if was_up {
            counts.lost_connections += 1;
            self.up -= 1;
            self.down.push(index);
        } else {
            self.opening -= 1;
        }
    }

    /// Makes connections that are not there, as far as it is time.
    pub(super) fn reconnect(&mut self) {
        let now_ns = self.shared.now_ns();
        let mut place = 0;
        while place < self.down.len() && !self.exhausted {
            let index = self.down[place];
            match self.connections[index].state {
                LifeState::Down { retry_ns } if retry_ns <= now_ns && self.opening < OPENING => {
                    if self.running {
                        self.recorder.counts.reconnections += 1;
                    }
                    self.open(index, now_ns);
                }
                LifeState::Connecting { since_ns } if now_ns - since_ns > CONNECT_NS => {
                    self.lost(index, "connecting takes too long");
                }
                _ => {}
            }
            // Making one can take it off the list.
            if self.down.get(place) == Some(&index) {
                place += 1;
            }
        }
    }

    fn open(&mut self, index: usize, now_ns: u64) {
        let connection = &mut self.connections[index];
        let target = self.target.at(self.topology.nodes[connection.node].clone());
        self.opening += 1;
        connection.greeted = false;
        let opened = connection.open(&target, now_ns).and_then(|()| match &connection.transport {
            Some(transport) => self.epoll.add(transport, index as u64),
            None => Ok(()),
        });
        match opened {
            Ok(()) => {}
            // A Unix socket's backlog is full: nothing is wrong.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.close(now_ns + MILLISECOND_NS);
                self.opening -= 1;
            }
            Err(error) => self.lost(index, &error.to_string()),
        }
    }

    /// The cluster has changed: connections to nodes that are gone lead elsewhere.
    pub(super) fn follow_topology(&mut self, now_ns: u64) {
        let (topology, version) = self.shared.topology();
        let before = std::mem::replace(&mut self.topology, topology);
        self.topology_version = version;
        let nodes = self.topology.nodes_for(self.load.clients as u64);
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            let address = &before.nodes[connection.node];
            if let Some(node) = self.topology.nodes.iter().position(|node| node == address) {
                connection.node = node;
                continue;
            }
            connection.node = nodes[connection.number as usize];
            if connection.transport.is_none() {
                continue;
            }
            let lost = connection.close(now_ns);
            self.under_way -= lost;
            self.recorder.counts.lost_requests += lost;
            if connection.greeted {
                self.up -= 1;
                self.down.push(index);
            } else {
                self.opening -= 1;
            }
        }
    }
}
