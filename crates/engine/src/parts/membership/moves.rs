//! Slots that move from or to this server, beside what the topology says of them: which wait, which
//! connections bring a copy, and how far jobs are.

use crate::clock::{Clock, Ticks};
use cluster::id::Id;
use cluster::slots::Slots;
use cluster::topology::{Move, MovePhase, Topology};
use keyspace::{Slot, SlotBits};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;
use structs::sync::lock;

/// A job that moved slots, and is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PastMove {
    /// What it was.
    pub job: Move,
    /// The nodes that led its shards: source and target.
    pub nodes: (Id, Id),
    /// When it ended, in seconds since 1970.
    pub until_s: u64,
    /// `success`, `cancelled` or `failed`.
    pub outcome: &'static str,
    /// How far it had come here.
    pub progress: Progress,
}

/// How far a job is, as its source sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// A word for the present step; empty before the first one.
    pub state: &'static str,
    /// Why it does not go on, or began anew.
    pub obstacle: String,
    /// How often it began anew.
    pub retries: u64,
    /// Bytes that were sent since it began last.
    pub sent_bytes: u64,
    /// Bytes of the journal that it has not looked at.
    pub lag_bytes: u64,
    /// For how long the slots waited, in milliseconds.
    pub pause_ms: u64,
    /// When the target answered last, in seconds since 1970.
    pub answered_s: u64,
}

/// How far the copy of slots that arrive has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Keys are missing.
    Begun,
    /// All keys are here, and changes follow.
    Whole,
    /// The source is about to hand the slots over.
    Prepared,
}

/// A connection that brings a copy of slots.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Import {
    job: Id,
    number: u64,
    slots: Slots,
    /// Its source has sent all keys, and sends what changes.
    is_whole: bool,
    /// Since when its source is about to hand the slots over, if it is.
    prepared: Option<Ticks>,
}

/// See the head of this file.
#[derive(Default)]
pub struct Moves {
    past: Mutex<VecDeque<PastMove>>,
    progress: Mutex<BTreeMap<Id, Progress>>,
    /// Requests for these slots wait.
    paused: SlotBits,
    /// Requests for these slots do not run any more, wherever they have come to.
    closed: SlotBits,
    /// Slots of other shards whose keys this server has not looked for yet since it leads: see
    /// [`cluster::change::moves::stale`].
    stale: SlotBits,
    /// The same by hashing rules, which say of each key, not of a slot, which shard has it: this
    /// server has not looked for keys of other shards yet since it leads.
    expects_foreign: AtomicBool,
    /// How many jobs take slots away.
    exports: AtomicUsize,
    imports: Mutex<Vec<Import>>,
    last_import: AtomicU64,
    has_prepared: AtomicBool,
    /// A command that deletes all keys, or another connection for a copy, waits until no source is
    /// about to hand slots over.
    is_awaited: AtomicBool,
}

impl Moves {
    /// Remembers the jobs from or to a shard that are over: they were there `before`, and are not
    /// any more. Of all that are over no more than `max` are kept. To be called before the view is
    /// shown, so that no reader misses a job in both.
    pub(crate) fn note_ends(
        &self,
        (before, topology): (&Topology, &Topology),
        shard: Id,
        until_s: u64,
        max: usize,
    ) {
        let is_own = |job: &&Move| job.from == shard || job.to == shard;
        for job in before.moves.iter().filter(is_own) {
            if topology.moves.iter().any(|other| other.id == job.id) {
                continue;
            }
            let outcome = outcome_of(job, topology);
            let nodes = (topology.leader_of(job.from), topology.leader_of(job.to));
            let progress = lock(&self.progress).remove(&job.id).unwrap_or_default();
            let mut all = lock(&self.past);
            all.push_front(PastMove { job: job.clone(), nodes, until_s, outcome, progress });
            all.truncate(max);
        }
    }

    /// The jobs that are over, the last one first, `max` at most.
    pub fn past(&self, max: usize) -> Vec<PastMove> {
        lock(&self.past).iter().take(max).cloned().collect()
    }

    /// Notes how far a job is.
    pub fn note(&self, job: Id, change: impl FnOnce(&mut Progress)) {
        change(lock(&self.progress).entry(job).or_default());
    }

    /// How far a job is.
    pub fn progress(&self, job: Id) -> Progress {
        lock(&self.progress).get(&job).cloned().unwrap_or_default()
    }

    /// Requests for these slots wait from now on. Those that run go on.
    pub(crate) fn pause(&self, slots: &Slots) {
        each(slots).for_each(|slot| self.paused.insert(slot));
    }

    /// None that has begun before is left: the world is stopped, and no command holds keys. Those
    /// that a background thread begins later are refused.
    pub(crate) fn close(&self, slots: &Slots) {
        each(slots).for_each(|slot| self.closed.insert(slot));
    }

    /// Requests do not wait any more.
    pub(crate) fn resume(&self, slots: &Slots) {
        for slot in each(slots) {
            self.closed.remove(slot);
            self.paused.remove(slot);
        }
    }

    /// Whether requests for this slot that have passed their gate are refused.
    #[inline]
    pub(crate) fn is_closed(&self, slot: Slot) -> bool {
        self.closed.has(slot)
    }

    /// Whether requests for any slot are.
    #[inline]
    pub(crate) fn any_closed(&self) -> bool {
        self.closed.any()
    }

    /// Whether requests for this slot wait.
    #[inline]
    pub fn is_paused(&self, slot: Slot) -> bool {
        self.paused.has(slot)
    }

    /// Whether requests for any slot wait.
    #[inline]
    pub fn any_paused(&self) -> bool {
        self.paused.any()
    }

    /// Whether a copy of any slot leaves or is about to be handed over, so that requests need a
    /// closer look.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any_exports() || self.any_paused() || self.any_prepared()
    }

    /// Keys of these slots are leftovers, and are to be dropped.
    pub(crate) fn expect_stale(&self, slots: &Slots) {
        self.stale.assign(|slot| slots.contains(slot.number()));
    }

    /// Returns the slots that may have leftovers.
    pub fn stale(&self) -> Slots {
        if !self.stale.any() {
            return Slots::default();
        }
        Slots::from_fn(|slot| Slot::new(slot).is_some_and(|slot| self.stale.has(slot)))
    }

    /// Whether this slot may have leftovers.
    pub fn is_stale(&self, slot: Slot) -> bool {
        self.stale.has(slot)
    }

    /// The leftovers of this slot are dropped, or its keys are none any more.
    pub fn end_stale(&self, slot: u16) {
        Slot::new(slot).into_iter().for_each(|slot| self.stale.remove(slot));
    }

    /// Whether keys are to be looked for that other shards have by the database's rules.
    pub fn expects_foreign(&self) -> bool {
        self.expects_foreign.load(Relaxed)
    }

    /// Keys that other shards have are to be looked for, or none are left.
    pub fn set_expects_foreign(&self, expects: bool) {
        self.expects_foreign.store(expects, Relaxed);
    }

    pub(crate) fn begin_export(&self) {
        self.exports.fetch_add(1, SeqCst);
    }

    pub(crate) fn end_export(&self) {
        self.exports.fetch_sub(1, SeqCst);
    }

    /// Whether jobs take slots away from this server.
    #[inline]
    pub(crate) fn any_exports(&self) -> bool {
        self.exports.load(Relaxed) > 0
    }

    /// A connection brings a copy of these slots from now on, and no other one for this job.
    /// Returns its number. `None`: the source of another one is about to hand the slots over. It
    /// may be another server than the one that connects, which was deposed and does not know it.
    pub fn begin_import(&self, job: Id, slots: Slots) -> Option<u64> {
        let mut imports = lock(&self.imports);
        if imports.iter().any(|import| import.job == job && import.prepared.is_some()) {
            self.await_decision();
            return None;
        }
        let number = self.last_import.fetch_add(1, SeqCst) + 1;
        imports.retain(|import| import.job != job);
        imports.push(Import { job, number, slots, is_whole: false, prepared: None });
        self.note_prepared(&imports);
        Some(number)
    }

    /// The source of a copy asks whether what it has sent is here, at this second since 1970: all
    /// keys are, then.
    pub(crate) fn note_whole(&self, number: u64, now_s: u64) {
        let mut imports = lock(&self.imports);
        let Some(import) = imports.iter_mut().find(|import| import.number == number) else {
            return;
        };
        import.is_whole = true;
        let job = import.job;
        drop(imports);
        self.note(job, |progress| progress.answered_s = now_s);
    }

    /// How far the copy for a job has come here. `None`: no connection brings one.
    pub fn arrival(&self, job: Id) -> Option<Arrival> {
        let imports = lock(&self.imports);
        let import = imports.iter().find(|import| import.job == job)?;
        Some(match import.is_whole {
            _ if import.prepared.is_some() => Arrival::Prepared,
            true => Arrival::Whole,
            false => Arrival::Begun,
        })
    }

    /// The source of a copy is about to hand the slots over: until that is decided nothing may
    /// spoil the copy. Returns whether it is whole.
    pub fn prepare_import(&self, number: u64, now: Ticks) -> bool {
        let mut imports = lock(&self.imports);
        let import = imports.iter_mut().find(|import| import.number == number);
        let is_there = import.map(|import| import.prepared = Some(now)).is_some();
        self.note_prepared(&imports);
        is_there
    }

    fn note_prepared(&self, imports: &[Import]) {
        let is_any = imports.iter().any(|import| import.prepared.is_some());
        if !is_any {
            self.is_awaited.store(false, SeqCst);
        }
        self.has_prepared.store(is_any, SeqCst);
    }

    /// Notes that something waits for a source's decision.
    pub(crate) fn await_decision(&self) {
        self.is_awaited.store(true, SeqCst);
    }

    /// Returns the jobs whose source has been about to hand its slots over for longer than this, if
    /// anything waits for that.
    pub fn undecided(&self, clock: &Clock, longer: Duration) -> Vec<Id> {
        if !self.is_awaited.load(Relaxed) {
            return Vec::new();
        }
        let imports = lock(&self.imports);
        let is_late =
            |import: &&Import| import.prepared.is_some_and(|since| clock.elapsed(since) > longer);
        imports.iter().filter(is_late).map(|import| import.job).collect()
    }

    /// Whether the source of any copy is about to hand its slots over.
    #[inline]
    pub(crate) fn any_prepared(&self) -> bool {
        self.has_prepared.load(Relaxed)
    }

    /// The job of a connection and its slots, unless another connection or FLUSHALL has ended it.
    pub fn import(&self, number: u64) -> Option<(Id, Slots)> {
        let imports = lock(&self.imports);
        let import = imports.iter().find(|import| import.number == number);
        import.map(|import| (import.job, import.slots.clone()))
    }

    /// Whether a connection with this number brings a copy of this slot.
    pub(crate) fn imports_slot(&self, number: u64, slot: u16) -> bool {
        let imports = lock(&self.imports);
        imports.iter().any(|import| import.number == number && import.slots.contains(slot))
    }

    /// The connections for jobs that `is_over` names end.
    pub fn end_imports(&self, is_over: impl Fn(Id) -> bool) {
        let mut imports = lock(&self.imports);
        imports.retain(|import| !is_over(import.job));
        self.note_prepared(&imports);
    }

    /// The same without those whose source is about to hand the slots over: they bring nothing
    /// more, and keep others from dropping what they have brought.
    pub(crate) fn end_unprepared(&self, is_over: impl Fn(Id) -> bool) {
        lock(&self.imports).retain(|import| import.prepared.is_some() || !is_over(import.job));
    }
}

/// Returns how a job has ended that is not in the topology any more.
fn outcome_of(job: &Move, topology: &Topology) -> &'static str {
    let target = topology.shard(job.to);
    let has_all = target.is_some_and(|shard| job.slots.without(&shard.slots).is_empty());
    let has_both = target.is_some() && topology.shard(job.from).is_some();
    match job.phase() {
        MovePhase::Trimming => "success",
        MovePhase::Copying if has_all => "success",
        _ if has_both => "cancelled",
        _ => "failed",
    }
}

/// Returns the slots of a set as the keyspace names them.
pub(crate) fn each(slots: &Slots) -> impl Iterator<Item = Slot> {
    slots.iter().filter_map(Slot::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Id = Id::new([1; 20]);

    #[test]
    fn no_connection_replaces_one_whose_source_is_about_to_decide() {
        let (moves, clock) = (Moves::default(), Clock::system());
        let begin = || moves.begin_import(JOB, Slots::default());
        let first = begin().expect("there is none");
        let second = begin().expect("the first one is not prepared");
        assert!(!moves.prepare_import(first, clock.now()), "it was replaced");
        assert!(moves.prepare_import(second, clock.now()));
        assert_eq!(moves.undecided(&clock, Duration::ZERO), [], "nothing waits");
        // A former primary of the source, perhaps. What is here would be dropped for it, and then
        // handed over.
        assert_eq!(begin(), None);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(moves.undecided(&clock, Duration::ZERO), [JOB]);
        moves.end_unprepared(|_| true);
        assert_eq!(moves.arrival(JOB), Some(Arrival::Prepared));
        // The coordinator has it that the copy is given up, or that the job copies no more.
        moves.end_imports(|job| job == JOB);
        assert!(begin().is_some());
    }
}
