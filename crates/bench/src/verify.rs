//! `--verify`: are the values that come back those that were written?
//!
//! A value is a function of its key ([`Content::OfKey`]), so every reader knows what it must be,
//! however many clients write at the same time. What was acknowledged is remembered, one bit a key,
//! and read back when the run is over: it must be there.
//!
//! [`Content::OfKey`]: crate::workload::values::Content::OfKey

use crate::generator::cluster::Topology;
use crate::generator::connection::Connection;
use crate::measure::Counts;
use crate::options::{Target, unexpected};
use crate::workload::template::Placeholders;
use crate::workload::{Effect, Workload};
use client::Client;
use resp::Value;
use resp::count::Kind;
use std::io;
use std::sync::Arc;
use structs::crc16::key_slot;
use structs::random::Rng;

/// Keys read back in one pipeline.
const BATCH: usize = 1000;

/// What one thread, and in the end all of them, know of the keys.
#[derive(Clone, Debug)]
pub struct Checker {
    places: Arc<Placeholders>,
    first: u64,
    /// By key, from the first on: an acknowledgement came for a write.
    written: Vec<u64>,
    effects: Vec<(Effect, u32)>,
    expected: Vec<u8>,
    rng: Rng,
}

impl Checker {
    /// For a workload's keys.
    pub fn new(workload: &Workload) -> Checker {
        let (first, last) = workload.keys;
        let effects = workload.operations.iter();
        Checker {
            places: Arc::clone(&workload.places),
            first,
            written: vec![0; ((last - first) / 64 + 1) as usize],
            effects: effects
                .map(|operation| (operation.effect, operation.template.keys()))
                .collect(),
            expected: Vec::new(),
            // The values of this kind need no randomness.
            rng: Rng::seeded(0),
        }
    }

    /// Looks at a reply that the connection has captured.
    pub fn check(
        &mut self,
        connection: &mut Connection,
        operation: usize,
        kind: Kind,
        counts: &mut Counts,
    ) {
        let (effect, keys) = self.effects[operation];
        if effect != Effect::Other {
            let drawn: Vec<u64> = connection.drawn.drain(..keys as usize).collect();
            match (effect, kind) {
                (_, Kind::Error) => {}
                (Effect::Writes, _) => drawn.iter().for_each(|&key| self.note(key)),
                _ => {
                    let capture = std::mem::take(&mut connection.capture);
                    for (&key, value) in drawn.iter().zip(values(&capture)) {
                        if let Some(value) = value {
                            self.compare(key, value, counts);
                        }
                    }
                    connection.capture = capture;
                }
            }
        }
        connection.capture.clear();
    }

    fn note(&mut self, key: u64) {
        let bit = key - self.first;
        self.written[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    fn compare(&mut self, key: u64, value: &[u8], counts: &mut Counts) {
        self.expected.clear();
        self.places.values.append(&mut self.expected, key, &mut self.rng);
        counts.checked += 1;
        if self.expected != value {
            let shown =
                |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
            self.wrong(
                key,
                counts,
                &format!("{:?} instead of {:?}", shown(value), shown(&self.expected)),
            );
        }
    }

    fn wrong(&self, key: u64, counts: &mut Counts, what: &str) {
        counts.wrong += 1;
        if counts.first_wrong.is_none() {
            let mut name = Vec::new();
            self.places.append_key(&mut name, key);
            counts.first_wrong = Some(format!("{}: {what}", String::from_utf8_lossy(&name)));
        }
    }

    /// Adds what another thread knows.
    pub fn merge(&mut self, other: &Checker) {
        for (bits, more) in self.written.iter_mut().zip(&other.written) {
            *bits |= more;
        }
    }

    /// Reads back every key whose write was acknowledged. `may_be_gone`: values expire.
    pub fn read_back(
        &mut self,
        target: &Target,
        may_be_gone: bool,
        counts: &mut Counts,
    ) -> io::Result<()> {
        let topology =
            if target.cluster { Topology::ask(target)? } else { Topology::single(target) };
        let mut clients = Vec::new();
        for address in &topology.nodes {
            clients.push(target.at(address.clone()).connect()?);
        }
        let mut waiting: Vec<Vec<u64>> = vec![Vec::new(); clients.len()];
        for word in 0..self.written.len() {
            let mut bits = self.written[word];
            while bits != 0 {
                let key = self.first + word as u64 * 64 + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                let mut name = Vec::new();
                self.places.append_key(&mut name, key);
                let slot = usize::from(key_slot(&name));
                let node = usize::from(topology.slots[slot]).min(clients.len() - 1);
                waiting[node].push(key);
                if waiting[node].len() == BATCH {
                    let keys = std::mem::take(&mut waiting[node]);
                    self.read_batch(&mut clients[node], &keys, may_be_gone, counts)?;
                }
            }
        }
        for (client, keys) in clients.iter_mut().zip(&waiting) {
            self.read_batch(client, keys, may_be_gone, counts)?;
        }
        Ok(())
    }

    fn read_batch(
        &mut self,
        client: &mut Client,
        keys: &[u64],
        may_be_gone: bool,
        counts: &mut Counts,
    ) -> io::Result<()> {
        for &key in keys {
            let mut name = Vec::new();
            self.places.append_key(&mut name, key);
            client.queue(&[b"GET", &name[..]]);
        }
        client.flush()?;
        for &key in keys {
            match client.reply()? {
                Value::Bulk(value) => self.compare(key, &value, counts),
                Value::Null if may_be_gone => {}
                Value::Null => {
                    counts.checked += 1;
                    self.wrong(key, counts, "is not there, though its write was acknowledged");
                }
                other => return Err(unexpected("GET", &other)),
            }
        }
        Ok(())
    }
}

/// The strings of a whole reply: of a string itself, or of an array's elements.
fn values(reply: &[u8]) -> Vec<Option<&[u8]>> {
    let mut values = Vec::new();
    let mut rest = reply;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let (line, after) = (&rest[..end], &rest[end + 2..]);
        rest = after;
        let length =
            line.get(1..).and_then(|text| std::str::from_utf8(text).ok()?.parse::<i64>().ok());
        match (line.first(), length.map(usize::try_from)) {
            (Some(b'$'), Some(Ok(length))) if rest.len() >= length + 2 => {
                values.push(Some(&rest[..length]));
                rest = &rest[length + 2..];
            }
            (Some(b'$' | b'_'), _) => values.push(None),
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_replies() {
        assert_eq!(values(b"$3\r\na\r\n\r\n"), [Some(&b"a\r\n"[..])]);
        assert_eq!(
            values(b"*3\r\n$1\r\nx\r\n$-1\r\n$0\r\n\r\n"),
            [Some(&b"x"[..]), None, Some(b"")]
        );
        assert_eq!(values(b"_\r\n"), [None]);
    }
}
