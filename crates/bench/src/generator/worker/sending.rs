//! What is sent next, and when: at once in a closed loop, when it is due where a rate is given.

use super::Worker;
use crate::generator::connection::{Connection, LifeState, Sent};
use crate::options::{Limit, Pacing};
use crate::workload::Effect;
use crate::workload::template::{Draw, Route, ValueWriter};
use std::sync::atomic::Ordering;

/// What a limited rate may catch up after a pause.
const CATCH_UP_NS: u64 = 20_000_000;

impl Worker<'_> {
    /// Lets a connection that has nothing under way have its next requests.
    pub(super) fn next_batch(&mut self, index: usize, now_ns: u64) {
        if !self.running {
            return;
        }
        if self.load.reconnect_after.is_some_and(|limit| self.connections[index].sent >= limit) {
            self.renew(index, now_ns);
            return;
        }
        if self.schedule.is_some() {
            self.enqueue(index);
            return;
        }
        self.idle.push(index);
    }

    /// Sends the next requests of the connections whose replies are there.
    pub(super) fn send_batches(&mut self) {
        let mut batch = self.load.pipeline as u64;
        if self.workload.in_order {
            batch *= self.workload.cycle_length();
        }
        let mut idle = std::mem::take(&mut self.idle);
        for index in idle.drain(..) {
            // It may have been lost since.
            if self.connections[index].state != LifeState::Ready {
                continue;
            }
            let now_ns = self.shared.now_ns();
            let granted = self.grant(index, batch, now_ns);
            if granted > 0 {
                self.fill(index, granted, now_ns);
                self.flush(index);
            }
        }
        // Sending makes no connection idle.
        self.idle = idle;
    }

    pub(super) fn enqueue(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !connection.queued {
            connection.queued = true;
            self.queue.push_back(index);
        }
    }

    /// How many of `wanted` requests a connection may send. When it may send none, the run may be
    /// over.
    fn grant(&mut self, index: usize, wanted: u64, now_ns: u64) -> u64 {
        if self.exhausted || self.shared.stopped() {
            self.exhaust(now_ns);
            return 0;
        }
        let granted = match (self.load.limit, &mut self.connections[index].left) {
            _ if now_ns < self.counted_from_ns => return wanted,
            (Limit::Time(_), _) if self.schedule.is_some() || now_ns < self.end_ns => {
                return wanted;
            }
            (Limit::Time(_), _) => 0,
            (Limit::Requests(_), Some(left)) => {
                let granted = wanted.min(*left);
                *left -= granted;
                self.shared.granted.fetch_add(granted, Ordering::Relaxed);
                self.shares_left -= u64::from(granted > 0 && *left == 0);
                if granted == 0 && self.shares_left > 0 {
                    // Only this one has done its share.
                    return 0;
                }
                granted
            }
            (Limit::Requests(total), None) => {
                let before = self.shared.granted.fetch_add(wanted, Ordering::Relaxed);
                wanted.min(total.saturating_sub(before))
            }
        };
        if granted == 0 {
            self.exhaust(now_ns);
        }
        granted
    }

    /// Paced: sends what is due.
    pub(super) fn dispatch(&mut self) {
        let now_ns = self.shared.now_ns();
        let open = matches!(self.load.pacing, Pacing::Open(_));
        let batch = if open { 1 } else { self.load.pipeline as u64 };
        let mut touched = std::mem::take(&mut self.touched);
        touched.clear();
        while !self.exhausted {
            let Some(schedule) = &mut self.schedule else { break };
            let due_ns = schedule.due_ns();
            if due_ns >= self.end_ns {
                self.exhaust(now_ns);
                break;
            }
            if due_ns > now_ns {
                self.starved = false;
                break;
            }
            let Some(index) = self.queue.pop_front() else {
                self.starved = true;
                if !open {
                    schedule.forgive(now_ns.saturating_sub(CATCH_UP_NS));
                }
                break;
            };
            self.connections[index].queued = false;
            if self.connections[index].state != LifeState::Ready {
                continue;
            }
            let granted = self.grant(index, batch, now_ns);
            if granted == 0 {
                continue;
            }
            self.fill(index, granted, if open { due_ns } else { now_ns });
            if let Some(schedule) = &mut self.schedule {
                (0..granted).for_each(|_| schedule.advance());
            }
            if open && !self.starved {
                self.recorder.late.saturating_record((now_ns - due_ns).max(1));
            }
            if self.connections[index].under_way.len() < self.load.pipeline {
                self.enqueue(index);
            }
            touched.push(index);
        }
        for &index in &touched {
            self.flush(index);
        }
        self.touched = touched;
    }

    /// Writes requests; sending comes after.
    fn fill(&mut self, index: usize, count: u64, at_ns: u64) {
        let workload = self.workload;
        let connection = &mut self.connections[index];
        connection.sent += count;
        let node = connection.node;
        let Connection { rng, cursors, versions, turn, drawn, under_way, out, .. } = connection;
        let mut left = count;
        while left > 0 {
            // In a cluster every request has a tag of its own.
            let limit = if self.target.cluster { 1 } else { left };
            let (operation, times) = workload.next(turn, limit);
            left -= times;
            let detail = &workload.operations[operation];
            let topology = &self.topology;
            let serves = |key: &[u8]| topology.serves(node, key);
            let route = self
                .target
                .cluster
                .then(|| Route { serves: &serves, tag: topology.tag(node, rng.next_u64()) });
            let noted = self.checker.is_some() && detail.effect != Effect::Other;
            self.numbers.clear();
            let mut write;
            let value: Option<&mut ValueWriter<'_>> = match versions.as_mut() {
                Some(versions) => {
                    let size = workload.places.values.sizes.largest() as usize;
                    write = move |key: u64, out: &mut Vec<u8>| versions.write(out, key, size);
                    Some(&mut write)
                }
                None => None,
            };
            let mut draw = Draw {
                rng,
                cursor: &mut cursors[operation],
                pattern: &detail.pattern,
                route,
                drawn: noted.then_some(&mut self.numbers),
                value,
            };
            detail.template.append(out, &workload.places, &mut draw, times);
            if noted {
                drawn.extend(&self.numbers);
            }
            under_way.push(Sent { at_ns, operation: operation as u32, count: times as u32 });
        }
        self.under_way += count;
    }

    pub(super) fn flush(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let before = connection.unsent();
        match connection.flush() {
            Ok(()) => self.recorder.counts.bytes_out += (before - connection.unsent()) as u64,
            Err(error) => self.lost(index, &error.to_string()),
        }
    }
}
