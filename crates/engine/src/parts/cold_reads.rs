//! The values that are being read, and the clients that wait for them.
//!
//! A read is known by its value: the key's hash and the cold reference. A location alone is not
//! enough, since it may hold another value by the time that a client comes back. A client is told
//! when the last of the reads that it has asked for is over. Those of a pipeline are under way
//! together, and to begin again after each of them would cost more than to wait for the slowest.
//!
//! A value whose key was used lately is *admitted*: it arrives to be put back. Another one is
//! *shown* to the clients that asked for it and dropped. Such values wait for their clients, so they have
//! a limit in bytes, beyond which the oldest go; a client whose value has gone asks again.
//!
//! A failure is kept for the clients that waited, so that each is told once. Another client, or the
//! same one later, begins a new read. A client that has gone in between leaves its failure behind,
//! so old ones are dropped.

use keyspace::{ColdError, ColdLocation, ColdRef, DbIndex, Key, Record, Value};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use structs::sync::lock;

/// For how many seconds a failure waits for the clients that are to be told.
const KEPT_S: i64 = 10;

/// A cold value that a request needs.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub db: DbIndex,
    pub key: Box<[u8]>,
    pub cold: ColdRef,
    /// The command reads, so that the key counts as a hit of the keyspace too.
    pub reads: bool,
    /// The value is to be put back.
    pub is_admitted: bool,
}

impl Wanted {
    /// What becomes of its record when it is put back. A command that changes the value has no use
    /// for it.
    pub fn record(&self) -> Record {
        if self.reads { Record::Stays } else { Record::Goes }
    }

    fn id(&self) -> Id {
        (Key::new(&self.key).hash, self.cold.location, self.cold.version)
    }
}

/// How a value is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// By the request that is to run now.
    Now,
    /// By one further on in a pipeline.
    Ahead,
}

/// What a read is known by.
type Id = (u64, ColdLocation, u8);

/// A client that waits, and its thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Reader {
    pub thread: usize,
    pub client: u64,
}

enum Read {
    UnderWay {
        readers: Vec<Reader>,
        is_admitted: bool,
    },
    /// The value has been read and is not in its place yet. A client that asks now must not begin
    /// another read.
    Arriving(Vec<Reader>),
    Shown {
        value: Vec<u8>,
        readers: Vec<Reader>,
    },
    Failed {
        error: ColdError,
        untold: Vec<Reader>,
        since_s: i64,
    },
}

/// Reads that are to begin.
pub(crate) struct ToRead {
    /// The values.
    pub wanted: Vec<Wanted>,
    /// Values that the request has found cold, once for each client that waits for one.
    pub misses: u64,
    /// One of the values has been read, and is put into its place by the next thread that takes
    /// requests apart if none does so now.
    pub is_arriving: bool,
}

/// The values that are being read, and those that have arrived.
#[derive(Default)]
pub struct ColdReads {
    reads: Mutex<HashMap<Id, Read>>,
    /// How many reads each client waits for; changed while `reads` is locked.
    waits: Mutex<HashMap<Reader, usize>>,
    arrived: Mutex<Vec<(Wanted, Value)>>,
    has_arrived: AtomicBool,
    /// Values that are shown, in the order in which they came, with some that are not any more.
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    order: VecDeque<Id>,
    bytes: usize,
}

impl Shown {
    /// Drops the oldest values if there are too many bytes of them.
    fn limit(&mut self, reads: &mut HashMap<Id, Read>) {
        while self.bytes > MAX_SHOWN_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            if let Some(Read::Shown { value, .. }) = reads.get(&oldest) {
                self.bytes -= value.len();
                reads.remove(&oldest);
            }
        }
        if self.order.len() > 2 * reads.len() + 64 {
            let mut known = HashSet::new();
            let is_shown = |id: &Id| matches!(reads.get(id), Some(Read::Shown { .. }));
            self.order.retain(|id| is_shown(id) && known.insert(*id));
        }
    }
}

/// Bytes of values that wait to be shown, at most.
const MAX_SHOWN_BYTES: usize = 4 << 20;

impl ColdReads {
    /// Tells a reader that a value could not be read when it asked for it before.
    ///
    /// # Errors
    /// Why.
    pub(crate) fn check(&self, wanted: &[Wanted], reader: Reader) -> Result<(), ColdError> {
        let mut reads = lock(&self.reads);
        wanted.iter().try_for_each(|one| tell_failure(&mut reads, one.id(), reader))
    }

    /// Notes that these values are wanted, and returns those whose reads are to begin: they are not
    /// under way. The reader is told when all are over. The caller holds the locks of the keys.
    pub(crate) fn want(&self, wanted: Vec<Wanted>, reader: Reader, need: Need) -> ToRead {
        let (mut to_read, mut misses, mut is_arriving) = (Vec::new(), 0, false);
        let mut reads = lock(&self.reads);
        for one in wanted {
            match reads.get_mut(&one.id()) {
                Some(Read::UnderWay { readers, is_admitted }) => {
                    *is_admitted |= one.is_admitted;
                    if !readers.contains(&reader) {
                        misses += u64::from(one.reads);
                        readers.push(reader);
                        self.count_wait(reader);
                    }
                }
                Some(Read::Arriving(readers)) => {
                    if !readers.contains(&reader) {
                        is_arriving = true;
                        readers.push(reader);
                        self.count_wait(reader);
                    }
                }
                Some(Read::Shown { .. }) if need == Need::Ahead => {}
                _ => {
                    misses += u64::from(one.reads);
                    self.count_wait(reader);
                    let readers = vec![reader];
                    let under_way = Read::UnderWay { readers, is_admitted: one.is_admitted };
                    self.forget_shown(reads.insert(one.id(), under_way));
                    to_read.push(one);
                }
            }
        }
        ToRead { wanted: to_read, misses, is_arriving }
    }

    fn count_wait(&self, reader: Reader) {
        *lock(&self.waits).entry(reader).or_insert(0) += 1;
    }

    /// Those of the readers that wait for nothing more.
    fn end_waits(&self, mut readers: Vec<Reader>) -> Vec<Reader> {
        let mut waits = lock(&self.waits);
        readers.retain(|reader| {
            let Some(left) = waits.get_mut(reader) else { return true };
            *left -= 1;
            let is_last = *left == 0;
            if is_last {
                waits.remove(reader);
            }
            is_last
        });
        readers
    }

    /// Notes the end of a read. Returns the clients that waited for it and wait for nothing more.
    pub(crate) fn end(
        &self,
        one: Wanted,
        value: Result<Value, ColdError>,
        now_s: i64,
    ) -> Vec<Reader> {
        let mut reads = lock(&self.reads);
        let id = one.id();
        let Some(Read::UnderWay { readers, is_admitted }) = reads.remove(&id) else {
            return Vec::new();
        };
        match value {
            Ok(Value::String(value)) if !is_admitted => {
                self.show(&mut reads, id, value, readers.clone());
            }
            Ok(value) => {
                reads.insert(id, Read::Arriving(Vec::new()));
                lock(&self.arrived).push((one, value));
            }
            Err(error) => {
                let is_recent = |read: &Read| match read {
                    Read::UnderWay { .. } | Read::Arriving(_) | Read::Shown { .. } => true,
                    Read::Failed { since_s, .. } => now_s - since_s <= KEPT_S,
                };
                reads.retain(|_, read| is_recent(read));
                if !readers.is_empty() {
                    let untold = readers.clone();
                    reads.insert(id, Read::Failed { error, untold, since_s: now_s });
                }
            }
        }
        self.end_waits(readers)
    }

    /// A value that had arrived is in its place, or was not wanted any more. Returns the clients
    /// that have come to wait for it since.
    pub(crate) fn end_arrival(&self, one: &Wanted) -> Vec<Reader> {
        match lock(&self.reads).remove(&one.id()) {
            Some(Read::Arriving(readers)) => self.end_waits(readers),
            _ => Vec::new(),
        }
    }

    /// Keeps a value for the clients that wait for it.
    fn show(&self, reads: &mut HashMap<Id, Read>, id: Id, value: Vec<u8>, readers: Vec<Reader>) {
        let mut shown = lock(&self.shown);
        shown.bytes += value.len();
        shown.order.push_back(id);
        reads.insert(id, Read::Shown { value, readers });
        shown.limit(reads);
    }

    fn forget_shown(&self, read: Option<Read>) {
        if let Some(Read::Shown { value, .. }) = read {
            lock(&self.shown).bytes -= value.len();
        }
    }

    /// The value of a key, if it has been read and is not put back. The last of the clients that
    /// asked for it takes it away.
    pub(crate) fn take_shown(
        &self,
        key: Key<'_>,
        cold: ColdRef,
        reader: Reader,
    ) -> Option<Vec<u8>> {
        let id = (key.hash, cold.location, cold.version);
        let mut reads = lock(&self.reads);
        let Some(Read::Shown { value, readers }) = reads.get_mut(&id) else { return None };
        readers.retain(|&other| other != reader);
        if !readers.is_empty() {
            return Some(value.clone());
        }
        let Some(Read::Shown { value, .. }) = reads.remove(&id) else { return None };
        lock(&self.shown).bytes -= value.len();
        Some(value)
    }

    /// Values have arrived: the next thread that takes requests apart is to install them.
    pub(crate) fn note_arrival(&self) {
        self.has_arrived.store(true, Release);
    }

    /// The values that have arrived since this was last asked.
    #[inline]
    pub(crate) fn take_arrived(&self) -> Vec<(Wanted, Value)> {
        if !self.has_arrived.load(Relaxed) {
            return Vec::new();
        }
        self.has_arrived.store(false, Relaxed);
        std::mem::take(&mut *lock(&self.arrived))
    }

    /// Keeps a value that has arrived for another attempt to put it back.
    pub(crate) fn arrive_later(&self, one: Wanted, value: Value) {
        lock(&self.arrived).push((one, value));
        self.has_arrived.store(true, Relaxed);
    }
}

/// The failure of a read that this reader waited for; the last of those that waited forgets it.
fn tell_failure(reads: &mut HashMap<Id, Read>, id: Id, reader: Reader) -> Result<(), ColdError> {
    let Some(Read::Failed { error, untold, .. }) = reads.get_mut(&id) else { return Ok(()) };
    let Some(at) = untold.iter().position(|&waiting| waiting == reader) else { return Ok(()) };
    let error = error.clone();
    untold.swap_remove(at);
    if untold.is_empty() {
        reads.remove(&id);
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Reader = Reader { thread: 0, client: 1 };
    const SECOND: Reader = Reader { thread: 1, client: 2 };

    fn wanted(version: u8) -> Wanted {
        let cold = ColdRef { location: ColdLocation(7), version };
        let key = Box::from(&b"k"[..]);
        Wanted { db: DbIndex(0), key, cold, reads: true, is_admitted: true }
    }

    fn failed(reads: &ColdReads, one: Wanted, readers: &[Reader], now_s: i64) {
        let readers_of = readers.to_vec();
        let under_way = Read::UnderWay { readers: readers_of, is_admitted: true };
        lock(&reads.reads).insert(one.id(), under_way);
        let error = Err(ColdError("broken".into()));
        assert_eq!(reads.end(one, error, now_s), readers);
    }

    fn told(reads: &ColdReads, one: &Wanted, reader: Reader) -> bool {
        tell_failure(&mut lock(&reads.reads), one.id(), reader).is_err()
    }

    #[test]
    fn each_client_that_waited_is_told_once() {
        let reads = ColdReads::default();
        failed(&reads, wanted(1), &[FIRST, SECOND], 5);
        assert!(told(&reads, &wanted(1), FIRST) && !told(&reads, &wanted(1), FIRST));
        assert!(told(&reads, &wanted(1), SECOND));
        assert!(lock(&reads.reads).is_empty());
    }

    #[test]
    fn a_failure_is_not_that_of_a_later_value_at_the_same_place() {
        let reads = ColdReads::default();
        failed(&reads, wanted(1), &[FIRST], 5);
        assert!(!told(&reads, &wanted(2), FIRST));
        assert!(!told(&reads, &wanted(1), SECOND), "it did not wait");
        // What is left by a client that has gone is dropped by and by.
        failed(&reads, wanted(3), &[SECOND], 6 + KEPT_S);
        assert_eq!(lock(&reads.reads).len(), 1);
        failed(&reads, wanted(4), &[], 7);
        assert_eq!(lock(&reads.reads).len(), 1);
    }

    fn text(bytes: &[u8]) -> Result<Value, ColdError> {
        Ok(Value::String(bytes.to_vec()))
    }

    fn take(reads: &ColdReads, version: u8, reader: Reader) -> Option<Vec<u8>> {
        let cold = wanted(version).cold;
        reads.take_shown(Key::new(b"k"), cold, reader)
    }

    #[test]
    fn a_value_that_is_not_admitted_is_shown_to_each_client_once() {
        let reads = ColdReads::default();
        let passed = |version| Wanted { is_admitted: false, ..wanted(version) };
        let begun = |one, reader| reads.want(vec![one], reader, Need::Now).wanted.len();
        assert_eq!((begun(passed(1), FIRST), begun(passed(1), SECOND)), (1, 0));
        assert_eq!(take(&reads, 1, FIRST), None, "it is under way");
        assert_eq!(reads.end(passed(1), text(b"v"), 0), [FIRST, SECOND]);
        assert_eq!(take(&reads, 2, FIRST), None, "that is a later value");
        assert_eq!(take(&reads, 1, FIRST), Some(b"v".to_vec()));
        assert_eq!(take(&reads, 1, SECOND), Some(b"v".to_vec()));
        assert!(lock(&reads.reads).is_empty() && lock(&reads.shown).bytes == 0);
        // One that wants it back is enough.
        assert_eq!((begun(passed(3), FIRST), begun(wanted(3), SECOND)), (1, 0));
        reads.end(passed(3), text(b"v"), 0);
        reads.note_arrival();
        assert_eq!((reads.take_arrived().len(), take(&reads, 3, FIRST)), (1, None));
        assert!(reads.end_arrival(&passed(3)).is_empty() && lock(&reads.reads).is_empty());
    }

    #[test]
    fn a_client_is_told_when_its_last_read_is_over() {
        let reads = ColdReads::default();
        reads.want(vec![wanted(1)], FIRST, Need::Now);
        reads.want(vec![wanted(2), wanted(2)], FIRST, Need::Ahead);
        reads.want(vec![wanted(2)], SECOND, Need::Now);
        assert_eq!(reads.end(wanted(1), text(b"v"), 0), []);
        // It looks again before it is told.
        let looked = reads.want(vec![wanted(2)], FIRST, Need::Now);
        assert!(looked.wanted.is_empty() && looked.misses == 0);
        assert_eq!(reads.end(wanted(2), text(b"v"), 0), [FIRST, SECOND]);
        // One that comes before the value is in its place waits for that.
        assert!(reads.want(vec![wanted(2)], FIRST, Need::Now).wanted.is_empty());
        assert_eq!(reads.end_arrival(&wanted(2)), [FIRST]);
        assert_eq!(reads.end_arrival(&wanted(1)), []);
        assert!(lock(&reads.waits).is_empty() && lock(&reads.reads).is_empty());
    }

    #[test]
    fn a_value_that_is_shown_often_is_remembered_once() {
        let reads = ColdReads::default();
        let passed = Wanted { is_admitted: false, ..wanted(1) };
        for _ in 0..1000 {
            reads.want(vec![passed.clone()], FIRST, Need::Now);
            reads.end(passed.clone(), text(b"v"), 0);
            assert!(lock(&reads.shown).order.len() < 100);
            assert!(take(&reads, 1, FIRST).is_some());
        }
    }

    #[test]
    fn values_that_no_client_takes_have_a_limit() {
        let reads = ColdReads::default();
        for number in 0..100u64 {
            let cold = ColdRef { location: ColdLocation(number), version: 0 };
            let one = Wanted { cold, is_admitted: false, ..wanted(0) };
            reads.want(vec![one.clone()], FIRST, Need::Now);
            reads.end(one, text(&vec![b'x'; MAX_SHOWN_BYTES / 8]), 0);
            assert!(lock(&reads.shown).bytes <= MAX_SHOWN_BYTES);
        }
        assert_eq!((lock(&reads.reads).len(), lock(&reads.shown).order.len()), (8, 8));
        // A read that begins anew takes the place of the one that was shown.
        let cold = ColdRef { location: ColdLocation(99), version: 0 };
        let again = || vec![Wanted { cold, ..wanted(0) }];
        assert!(reads.want(again(), FIRST, Need::Ahead).wanted.is_empty(), "it is at hand");
        assert_eq!(reads.want(again(), FIRST, Need::Now).wanted.len(), 1);
        assert_eq!(lock(&reads.shown).bytes, 7 * (MAX_SHOWN_BYTES / 8));
    }

    #[test]
    fn values_arrive_once() {
        let reads = ColdReads::default();
        reads.want(vec![wanted(1)], FIRST, Need::Now);
        assert_eq!(reads.end(wanted(1), Ok(Value::String(b"v".to_vec())), 0), [FIRST]);
        reads.has_arrived.store(true, Relaxed);
        assert_eq!(reads.take_arrived().len(), 1);
        assert!(reads.take_arrived().is_empty() && reads.end_arrival(&wanted(1)).is_empty());
        assert!(reads.end(wanted(1), Ok(Value::String(Vec::new())), 0).is_empty());
    }
}
