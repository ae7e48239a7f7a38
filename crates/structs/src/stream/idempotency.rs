//! Which messages of which producers a stream has got already (XADD IDMP).
//!
//! ```text
//!  Idempotency ─┬─ how long an ID is remembered, and how many of each producer
//!               └─ producer ─┬─ ID of a message ─▶ ID of its entry, when it was added
//!                            └─ IDs of messages, the oldest first
//! ```
//!
//! An ID is forgotten when its time is over or when its producer has sent as many newer ones as are
//! kept. That is found out when the producer comes again; those that do not come are swept after a
//! while, so producers that are used once do not add up. Finding and adding cost O(log n).

use super::{Malformed, StreamId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bytes that an ID of a message takes beside its own.
const ID_BYTES: usize = 112;
/// Bytes that a producer takes beside its name.
const PRODUCER_BYTES: usize = 96;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// How long an ID is remembered.
    pub duration_s: u32,
    /// How many are remembered of each producer.
    pub max_ids: u32,
    /// Entries that were added with such an ID.
    pub added: u64,
    /// Messages that were there already.
    pub duplicates: u64,
    producers: BTreeMap<Box<[u8]>, Producer>,
    bytes: usize,
    sweep_at_ms: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Producer {
    found: BTreeMap<Arc<[u8]>, Added>,
    order: VecDeque<Arc<[u8]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Added {
    entry: StreamId,
    at_ms: i64,
}

impl Default for Idempotency {
    fn default() -> Self {
        Idempotency {
            duration_s: 100,
            max_ids: 100,
            added: 0,
            duplicates: 0,
            producers: BTreeMap::new(),
            bytes: 0,
            sweep_at_ms: 0,
        }
    }
}

impl Producer {
    fn forget_oldest(&mut self) -> usize {
        let Some(id) = self.order.pop_front() else { return 0 };
        self.found.remove(&id);
        id.len() + ID_BYTES
    }

    /// Forgets what was added up to this time; returns the bytes that were freed.
    fn forget(&mut self, up_to_ms: i64) -> usize {
        let mut freed = 0;
        while let Some(oldest) = self.order.front()
            && self.found.get(oldest).is_none_or(|added| added.at_ms <= up_to_ms)
        {
            freed += self.forget_oldest();
        }
        freed
    }
}

impl Idempotency {
    /// Sets how long and how many IDs are remembered. If that is something new, all are forgotten;
    /// returns whether it is.
    pub fn configure(&mut self, duration_s: Option<u32>, max_ids: Option<u32>) -> bool {
        let duration_s = duration_s.unwrap_or(self.duration_s);
        let max_ids = max_ids.unwrap_or(self.max_ids);
        let is_new = (duration_s, max_ids) != (self.duration_s, self.max_ids);
        if is_new {
            (self.duration_s, self.max_ids) = (duration_s, max_ids);
            self.producers.clear();
            self.bytes = 0;
        }
        is_new
    }

    fn oldest_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(i64::from(self.duration_s) * 1000)
    }

    /// The entry that this message became, if that is still remembered.
    pub fn find(&self, producer: &[u8], id: &[u8], now_ms: i64) -> Option<StreamId> {
        let added = self.producers.get(producer)?.found.get(id)?;
        (added.at_ms > self.oldest_ms(now_ms)).then_some(added.entry)
    }

    /// Remembers that this message has become this entry.
    pub fn add(&mut self, producer: &[u8], id: &[u8], entry: StreamId, now_ms: i64) {
        let up_to_ms = self.oldest_ms(now_ms);
        if now_ms >= self.sweep_at_ms {
            self.sweep(up_to_ms);
            self.sweep_at_ms = now_ms.saturating_add(i64::from(self.duration_s) * 250);
        }
        if !self.producers.contains_key(producer) {
            self.producers.insert(producer.into(), Producer::default());
            self.bytes += producer.len() + PRODUCER_BYTES;
        }
        let Some(state) = self.producers.get_mut(producer) else { return };
        let mut freed = state.forget(up_to_ms);
        if state.found.remove(id).is_some() {
            state.order.retain(|other| **other != *id);
            freed += id.len() + ID_BYTES;
        }
        while state.order.len() >= self.max_ids.max(1) as usize {
            freed += state.forget_oldest();
        }
        let id: Arc<[u8]> = id.into();
        state.order.push_back(Arc::clone(&id));
        self.bytes = self.bytes + id.len() + ID_BYTES - freed;
        state.found.insert(id, Added { entry, at_ms: now_ms });
    }

    fn sweep(&mut self, up_to_ms: i64) {
        let mut freed = 0;
        self.producers.retain(|name, producer| {
            freed += producer.forget(up_to_ms);
            let stays = !producer.order.is_empty();
            if !stays {
                freed += name.len() + PRODUCER_BYTES;
            }
            stays
        });
        self.bytes -= freed;
    }

    /// How many producers and how many IDs are remembered.
    pub fn counts(&self, now_ms: i64) -> (usize, usize) {
        let up_to_ms = self.oldest_ms(now_ms);
        let live = |producer: &Producer| {
            producer.found.values().filter(|added| added.at_ms > up_to_ms).count()
        };
        let counts = self.producers.values().map(live).filter(|&count| count > 0);
        counts.fold((0, 0), |(producers, ids), count| (producers + 1, ids + count))
    }

    /// Visits producers, IDs of messages and entries, of each producer the oldest first.
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8], StreamId)) {
        for (name, producer) in &self.producers {
            for id in &producer.order {
                if let Some(added) = producer.found.get(id) {
                    visit(name, id, added.entry);
                }
            }
        }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }

    pub(super) fn free_effort(&self) -> usize {
        self.bytes / ID_BYTES
    }

    /// All of it in the form of snapshots: version, settings and counters, then each producer with
    /// its IDs.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let numbers = [u64::from(self.duration_s), u64::from(self.max_ids)];
        let more = [self.added, self.duplicates, self.producers.len() as u64];
        numbers.iter().chain(&more).for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        let text = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        for (name, producer) in &self.producers {
            text(&mut out, name);
            out.extend_from_slice(&(producer.order.len() as u64).to_le_bytes());
            for id in &producer.order {
                let Some(added) = producer.found.get(id) else { continue };
                text(&mut out, id);
                for number in [added.entry.ms, added.entry.seq, added.at_ms as u64] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
        }
        out
    }

    /// What [`Idempotency::to_bytes`] has written.
    pub fn from_bytes(bytes: &[u8]) -> Result<Idempotency, Malformed> {
        read(&mut Reader(bytes)).ok_or(Malformed("Stream idempotency"))
    }
}

const VERSION: u8 = 1;

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text)
    }
}

fn read(from: &mut Reader<'_>) -> Option<Idempotency> {
    let (&VERSION, rest) = from.0.split_first()? else { return None };
    from.0 = rest;
    let mut made = Idempotency {
        duration_s: u32::try_from(from.number()?).ok()?,
        max_ids: u32::try_from(from.number()?).ok()?,
        added: from.number()?,
        duplicates: from.number()?,
        sweep_at_ms: i64::MAX,
        ..Idempotency::default()
    };
    for _ in 0..from.number()? {
        let name = from.text()?;
        for _ in 0..from.number()? {
            let id = from.text()?;
            let entry = StreamId::new(from.number()?, from.number()?);
            made.add(name, id, entry, from.number()? as i64);
        }
    }
    made.sweep_at_ms = 0;
    from.0.is_empty().then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> StreamId {
        StreamId::new(ms, 0)
    }

    #[test]
    fn ids_are_forgotten_by_time_and_by_number() {
        let mut made = Idempotency::default();
        assert!(made.configure(Some(10), Some(2)));
        assert!(!made.configure(Some(10), None));
        (1..=3).for_each(|at| made.add(b"p", &[at], id(at.into()), i64::from(at) * 1000));
        assert_eq!(made.find(b"p", &[1], 3000), None);
        assert_eq!(made.find(b"p", &[2], 3000), Some(id(2)));
        assert_eq!(made.find(b"q", &[2], 3000), None);
        assert_eq!(made.counts(3000), (1, 2));
        assert_eq!(made.find(b"p", &[2], 12_000), None);
        assert_eq!(made.counts(12_000), (1, 1));
        // Producers that do not come again are swept.
        made.add(b"q", b"x", id(9), 60_000);
        assert_eq!(made.producers.len(), 1);
        assert_eq!(made.bytes, 1 + PRODUCER_BYTES + 1 + ID_BYTES);
        // The same ID once more, after its time.
        made.add(b"q", b"x", id(10), 90_000);
        assert_eq!(made.find(b"q", b"x", 90_000), Some(id(10)));
        assert_eq!(made.bytes, 1 + PRODUCER_BYTES + 1 + ID_BYTES);
        assert!(made.configure(None, Some(3)));
        assert_eq!((made.counts(90_000), made.bytes), ((0, 0), 0));
    }

    #[test]
    fn bytes_come_back_and_damage_is_found() {
        let mut made = Idempotency::default();
        for number in 0..20u8 {
            made.add(&[number % 3], &[number; 9], id(number.into()), i64::from(number));
        }
        (made.added, made.duplicates) = (20, 4);
        let bytes = made.to_bytes();
        let again = Idempotency::from_bytes(&bytes).expect("sound");
        assert_eq!(again.producers, made.producers);
        assert_eq!((again.added, again.duplicates, again.bytes), (20, 4, made.bytes));
        for len in 0..bytes.len() {
            assert!(Idempotency::from_bytes(&bytes[..len]).is_err());
        }
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0xff;
            let _ = Idempotency::from_bytes(&broken);
        }
    }
}
