//! Up to which position writes are *safe*.
//!
//! A reply may have to wait until the write that it tells of has enough copies: `appendfsync
//! always` waits for the disk, WAIT for replicas, WAITAOF for their disks, a quorum for several of
//! them. What a reply needs is a [`Need`]; where copies are is known by the sources: this server's
//! disk, and a [`Copy`] for each replica. A holder of replies asks [`SafePositions`] and does not
//! know which source it waits for.

use crate::JournalPos;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use structs::sync::lock;

/// The copies that a position must have to be safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// One on this server's disk.
    pub disk: bool,
    /// So many in the memory of replicas.
    pub replicas: usize,
    /// So many on the disks of replicas.
    pub replica_disks: usize,
}

impl Need {
    /// What `appendfsync always` promises.
    pub const DISK: Need = Need { disk: true, replicas: 0, replica_disks: 0 };
}

/// Why a reply is held. Connections differ in it (`CLIENT COMMIT-MODE`), so each has a need of its
/// own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// `appendfsync always` and `commit-mode fsync`.
    Disk,
    /// `commit-mode quorum`.
    Quorum,
}

/// How far a replica has got, by its own account.
#[derive(Debug, Default)]
pub struct Copy {
    received: AtomicU64,
    synced: AtomicU64,
    is_member: AtomicBool,
}

impl Copy {
    /// Returns the position up to which the replica has everything in memory.
    pub fn received(&self) -> JournalPos {
        JournalPos(self.received.load(Acquire))
    }

    /// Returns the position up to which the replica has everything on its disk.
    pub fn synced(&self) -> JournalPos {
        JournalPos(self.synced.load(Acquire))
    }

    /// Sets whether the replica counts where only members do.
    pub fn set_member(&self, is_member: bool) {
        self.is_member.store(is_member, SeqCst);
    }

    /// Notes that the replica has received everything before this position. Positions never go
    /// back.
    pub fn set_received(&self, position: JournalPos) {
        self.received.fetch_max(position.0, SeqCst);
    }

    /// Notes that the replica has everything before this position on its disk.
    pub fn set_synced(&self, position: JournalPos) {
        self.synced.fetch_max(position.0, SeqCst);
    }
}

/// The sources, and what replies need at present.
#[derive(Default)]
pub struct SafePositions {
    disk: AtomicU64,
    copies: Mutex<Vec<Arc<Copy>>>,
    /// Only copies that are members count.
    members_only: AtomicBool,
    /// Some replies to writes, and to reads of what was written, wait until that is safe.
    holds_replies: AtomicBool,
    /// By [`Gate`]; `None`: no reply waits there.
    needs: Mutex<[Option<Need>; 2]>,
    /// The same without a lock: which gates are shut.
    is_shut: [AtomicBool; 2],
    /// The position behind the last write that is not noted with the stripes that it changed.
    written_anywhere: AtomicU64,
}

impl SafePositions {
    fn copies(&self) -> MutexGuard<'_, Vec<Arc<Copy>>> {
        lock(&self.copies)
    }

    /// Sets whether only copies that are members count, or all.
    pub fn set_members_only(&self, members_only: bool) {
        self.members_only.store(members_only, SeqCst);
    }

    fn counts(&self, copy: &Copy) -> bool {
        !self.members_only.load(SeqCst) || copy.is_member.load(SeqCst)
    }

    /// Returns the position up to which this server has everything on its disk.
    pub fn disk(&self) -> JournalPos {
        JournalPos(self.disk.load(SeqCst))
    }

    /// Notes that everything before this position is on the disk.
    pub fn set_disk(&self, position: JournalPos) {
        self.disk.fetch_max(position.0, SeqCst);
    }

    /// Sets the position at which the file on the disk begins. Earlier positions do not concern it.
    pub fn begin_disk_at(&self, position: JournalPos) {
        self.disk.store(position.0, SeqCst);
    }

    /// Adds a replica that has everything before `position`.
    pub fn add_copy(&self, position: JournalPos) -> Arc<Copy> {
        let copy = Arc::new(Copy::default());
        copy.set_received(position);
        self.copies().push(Arc::clone(&copy));
        copy
    }

    /// Removes a replica. What it has does not count any more.
    pub fn remove_copy(&self, copy: &Arc<Copy>) {
        self.copies().retain(|other| !Arc::ptr_eq(other, copy));
    }

    /// Begins anew at another position. Positions of replicas and of writes in the former history
    /// mean nothing here.
    pub fn begin_history(&self) {
        self.copies().clear();
        self.written_anywhere.store(0, Release);
    }

    /// Returns how many replicas have received everything before `position`.
    pub fn count_received(&self, position: JournalPos) -> usize {
        let has_it = |copy: &&Arc<Copy>| self.counts(copy) && copy.received() >= position;
        self.copies().iter().filter(has_it).count()
    }

    /// Returns how many replicas have everything before `position` on their disks.
    pub fn count_synced(&self, position: JournalPos) -> usize {
        let has_it = |copy: &&Arc<Copy>| self.counts(copy) && copy.synced() >= position;
        self.copies().iter().filter(has_it).count()
    }

    /// Returns the position up to which everything has the copies that `need` asks for.
    pub fn safe(&self, need: Need) -> JournalPos {
        let mut safe = if need.disk { self.disk() } else { JournalPos(u64::MAX) };
        if need.replicas > 0 || need.replica_disks > 0 {
            let copies = self.copies();
            let counted = || copies.iter().filter(|copy| self.counts(copy));
            safe = safe.min(nth_largest(need.replicas, counted().map(|one| one.received())));
            safe = safe.min(nth_largest(need.replica_disks, counted().map(|one| one.synced())));
        }
        safe
    }

    /// Returns whether everything before `position` has the copies that `need` asks for.
    pub fn is_safe(&self, need: Need, position: JournalPos) -> bool {
        self.safe(need) >= position
    }

    /// Returns whether some replies wait until the writes that they tell of are safe.
    #[inline]
    pub fn holds_replies(&self) -> bool {
        self.holds_replies.load(Relaxed)
    }

    /// Returns whether replies wait at this gate.
    #[inline]
    pub fn holds_at(&self, gate: Gate) -> bool {
        self.is_shut[gate as usize].load(Relaxed)
    }

    /// Lets replies wait at a gate for `need`, or for nothing. `position` is the end of the
    /// journal: for the writes before it, no stripes were noted.
    pub fn hold_replies(&self, gate: Gate, need: Option<Need>, position: JournalPos) {
        let mut needs = lock(&self.needs);
        if let Some(need) = need
            && !self.holds_replies()
            && position > self.safe(need)
        {
            self.note_written_anywhere(position);
        }
        needs[gate as usize] = need;
        self.is_shut[gate as usize].store(need.is_some(), SeqCst);
        self.holds_replies.store(needs.iter().any(Option::is_some), SeqCst);
    }

    /// Replies that wait at a gate may leave if everything that they tell of lies before this;
    /// `None` if none waits there.
    pub fn safe_at(&self, gate: Gate) -> Option<JournalPos> {
        let need = lock(&self.needs)[gate as usize];
        need.map(|need| self.safe(need))
    }

    /// Notes that a write behind `position` may have changed any key.
    pub fn note_written_anywhere(&self, position: JournalPos) {
        self.written_anywhere.fetch_max(position.0, AcqRel);
    }

    /// Returns the position behind the last write that may have changed any key.
    pub fn written_anywhere(&self) -> JournalPos {
        JournalPos(self.written_anywhere.load(Acquire))
    }
}

/// Returns the largest position that `n` of them have reached; for 0 the largest of all.
fn nth_largest(n: usize, positions: impl Iterator<Item = JournalPos>) -> JournalPos {
    let Some(at) = n.checked_sub(1) else { return JournalPos(u64::MAX) };
    let mut positions: Vec<JournalPos> = positions.collect();
    positions.sort_unstable_by(|a, b| b.cmp(a));
    positions.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(disk: bool, replicas: usize, replica_disks: usize) -> Need {
        Need { disk, replicas, replica_disks }
    }

    #[test]
    fn a_position_is_safe_when_all_sources_have_it() {
        let safe = SafePositions::default();
        safe.set_disk(JournalPos(50));
        assert_eq!(safe.safe(Need::DISK), JournalPos(50));
        assert_eq!(safe.safe(need(false, 1, 0)), JournalPos(0), "there is no replica");
        let [first, second] = [10, 20].map(|at| safe.add_copy(JournalPos(at)));
        first.set_received(JournalPos(60));
        second.set_received(JournalPos(40));
        second.set_received(JournalPos(30));
        assert_eq!(safe.safe(need(false, 1, 0)), JournalPos(60));
        assert_eq!(safe.safe(need(false, 2, 0)), JournalPos(40));
        assert_eq!(safe.safe(need(true, 1, 0)), JournalPos(50));
        assert!(!safe.is_safe(need(false, 1, 1), JournalPos(1)));
        first.set_synced(JournalPos(45));
        assert!(safe.is_safe(need(true, 2, 1), JournalPos(40)));
        assert!(!safe.is_safe(need(true, 2, 1), JournalPos(41)));
        assert_eq!(
            (safe.count_received(JournalPos(41)), safe.count_synced(JournalPos(41))),
            (1, 1)
        );
        safe.remove_copy(&first);
        assert_eq!(safe.safe(need(false, 1, 0)), JournalPos(40));
        assert_eq!(safe.safe(Need::default()), JournalPos(u64::MAX));
    }

    #[test]
    fn where_only_members_count_others_are_no_copies() {
        let safe = SafePositions::default();
        let [member, other] = [10, 20].map(|at| safe.add_copy(JournalPos(at)));
        safe.set_members_only(true);
        assert_eq!(safe.safe(need(false, 1, 0)), JournalPos(0));
        member.set_member(true);
        other.set_synced(JournalPos(20));
        assert_eq!(safe.safe(need(false, 1, 0)), JournalPos(10));
        assert_eq!((safe.count_received(JournalPos(5)), safe.count_synced(JournalPos(5))), (1, 0));
        member.set_member(false);
        assert_eq!(safe.count_received(JournalPos(5)), 0);
        safe.set_members_only(false);
        assert_eq!((safe.count_received(JournalPos(5)), safe.count_synced(JournalPos(5))), (2, 1));
    }

    #[test]
    fn held_replies_ask_one_question() {
        let safe = SafePositions::default();
        assert!(!safe.holds_replies());
        safe.hold_replies(Gate::Disk, Some(Need::DISK), JournalPos(7));
        assert_eq!(safe.written_anywhere(), JournalPos(7), "it may not be on the disk");
        assert_eq!(safe.safe_at(Gate::Disk), Some(JournalPos(0)));
        safe.set_disk(JournalPos(9));
        assert_eq!(safe.safe_at(Gate::Disk), Some(JournalPos(9)));
        assert_eq!(safe.safe_at(Gate::Quorum), None);
        safe.hold_replies(Gate::Disk, None, JournalPos(9));
        assert!(!safe.holds_replies());
    }

    #[test]
    fn each_gate_has_a_need_of_its_own() {
        let safe = SafePositions::default();
        safe.hold_replies(Gate::Disk, Some(Need::DISK), JournalPos(0));
        safe.hold_replies(Gate::Quorum, Some(need(false, 1, 0)), JournalPos(9));
        safe.set_disk(JournalPos(9));
        assert_eq!(safe.safe_at(Gate::Quorum), Some(JournalPos(0)));
        safe.add_copy(JournalPos(8));
        assert_eq!(safe.safe_at(Gate::Quorum), Some(JournalPos(8)));
        assert_eq!(safe.safe_at(Gate::Disk), Some(JournalPos(9)));
        safe.hold_replies(Gate::Disk, None, JournalPos(9));
        assert!(safe.holds_replies() && !safe.holds_at(Gate::Disk));
        safe.begin_history();
        assert_eq!(safe.safe_at(Gate::Quorum), Some(JournalPos(0)));
    }
}
