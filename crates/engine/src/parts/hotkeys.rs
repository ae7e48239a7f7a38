//! Which keys take most of the time and of the network (HOTKEYS).
//!
//! ```text
//!  HotKeys ─┬─ whether commands are counted, totals: atomics, which each command looks at
//!           └─ Session ─ by time, by bytes: key ─▶ sum, of a limited number of keys
//! ```
//!
//! When there is no place for another key, it takes that of the key with the smallest sum and goes
//! on from there (space saving): a key that has more than one part in as many as there are places
//! is always there, and its sum is at most that of the smallest too large. Counting takes a lock
//! for a moment, while a session runs and for one command in `sample` only. A session about some slots
//! looks at the keys of all commands, to count those of its slots.

use cluster::slots::Slots;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use structs::flags::Flag;
use structs::sync::lock;

/// What a session counts.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Time of commands.
    pub cpu: bool,
    /// Bytes of requests and replies.
    pub net: bool,
    /// How many keys are shown.
    pub count: usize,
    /// When it ends by itself.
    pub duration_ms: Option<i64>,
    /// One command in so many is counted.
    pub sample: u64,
    /// Only keys of these slots are counted; of all if there are none.
    pub slots: Slots,
}

/// What commands about the session's slots have taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Time.
    pub nanoseconds: u64,
    /// Bytes of requests and replies.
    pub bytes: u64,
}

impl Taken {
    fn add(&mut self, more: Taken) {
        self.nanoseconds += more.nanoseconds;
        self.bytes += more.bytes;
    }
}

/// Sums by keys, of a limited number of keys.
#[derive(Clone, Debug, Default)]
struct Top {
    sums: HashMap<Box<[u8]>, u64>,
}

/// Keys that have a sum, for each that is shown, and besides.
const PLACES_EACH: usize = 8;
const PLACES_BESIDES: usize = 256;

impl Top {
    fn add(&mut self, key: &[u8], amount: u64, places: usize) {
        if let Some(sum) = self.sums.get_mut(key) {
            *sum += amount;
            return;
        }
        let mut before = 0;
        if self.sums.len() >= places {
            let least = self.sums.iter().min_by_key(|(_, sum)| **sum);
            let least = least.map(|(key, sum)| (key.clone(), *sum));
            if let Some((other, sum)) = least {
                self.sums.remove(&other);
                before = sum;
            }
        }
        self.sums.insert(key.into(), before + amount);
    }

    fn best(&self, count: usize) -> Vec<(Box<[u8]>, u64)> {
        let mut all: Vec<_> = self.sums.iter().map(|(key, sum)| (key.clone(), *sum)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.truncate(count);
        all
    }
}

/// Times of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuMs {
    /// In programs.
    pub user: u64,
    /// In the kernel.
    pub system: u64,
}

#[derive(Debug)]
struct Session {
    wanted: Wanted,
    started_ms: i64,
    ended_ms: Option<i64>,
    cpu_before: CpuMs,
    cpu_after: Option<CpuMs>,
    by_time: Top,
    by_bytes: Top,
    selected: Taken,
    sampled: Taken,
}

/// What HOTKEYS GET shows.
#[derive(Debug)]
pub struct Report {
    /// Whether it goes on.
    pub is_active: bool,
    /// What is counted.
    pub wanted: Wanted,
    /// When it began.
    pub started_ms: i64,
    /// How long it has lasted.
    pub lasted_ms: i64,
    /// Time of all commands.
    pub total_us: u64,
    /// Bytes of all commands.
    pub total_bytes: u64,
    /// Of the commands with keys of the session's slots.
    pub selected: Taken,
    /// Of those of them that were counted by key.
    pub sampled: Taken,
    /// What the process has used meanwhile.
    pub cpu: CpuMs,
    /// Keys and microseconds.
    pub by_time: Vec<(Box<[u8]>, u64)>,
    /// Keys and bytes.
    pub by_bytes: Vec<(Box<[u8]>, u64)>,
}

/// See the module's documentation.
#[derive(Default, Debug)]
pub struct HotKeys {
    /// One command in so many is counted; 0 while no session runs.
    sample: AtomicU64,
    /// Whether a session runs.
    is_active: Flag,
    /// Whether the session is about some slots.
    has_slots: AtomicBool,
    commands: AtomicU64,
    total_ns: AtomicU64,
    total_bytes: AtomicU64,
    session: Mutex<Option<Session>>,
}

impl HotKeys {
    /// Returns the state without a session. `flag` is its bit among the special states of the
    /// server.
    pub(crate) fn new(flag: Flag) -> HotKeys {
        HotKeys { is_active: flag, ..HotKeys::default() }
    }

    /// Whether commands are counted.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.is_set()
    }

    /// Starts a session; returns whether none ran.
    pub fn start(&self, wanted: Wanted, now_ms: i64, cpu: CpuMs) -> bool {
        let mut session = lock(&self.session);
        self.end_in_time(session.as_mut(), now_ms, cpu);
        if self.is_active() {
            return false;
        }
        let (sample, has_slots) = (wanted.sample.max(1), !wanted.slots.is_empty());
        *session = Some(Session {
            wanted,
            started_ms: now_ms,
            ended_ms: None,
            cpu_before: cpu,
            cpu_after: None,
            by_time: Top::default(),
            by_bytes: Top::default(),
            selected: Taken::default(),
            sampled: Taken::default(),
        });
        self.total_ns.store(0, Relaxed);
        self.total_bytes.store(0, Relaxed);
        self.has_slots.store(has_slots, Relaxed);
        self.sample.store(sample, Relaxed);
        self.is_active.set(true);
        true
    }

    fn end(&self, session: &mut Session, at_ms: i64, cpu: CpuMs) {
        session.ended_ms = Some(at_ms);
        session.cpu_after = Some(cpu);
        self.sample.store(0, Relaxed);
        self.is_active.set(false);
    }

    fn end_in_time(&self, session: Option<&mut Session>, now_ms: i64, cpu: CpuMs) {
        if let Some(session) = session
            && session.ended_ms.is_none()
            && let Some(duration) = session.wanted.duration_ms
            && now_ms >= session.started_ms.saturating_add(duration)
        {
            let at_ms = session.started_ms.saturating_add(duration);
            self.end(session, at_ms, cpu);
        }
    }

    /// Ends the session, which can be shown then; returns whether one ran.
    pub fn stop(&self, now_ms: i64, cpu: CpuMs) -> bool {
        let mut session = lock(&self.session);
        self.end_in_time(session.as_mut(), now_ms, cpu);
        let was_active = self.is_active();
        if was_active && let Some(session) = session.as_mut() {
            self.end(session, now_ms, cpu);
        }
        was_active
    }

    /// Forgets the last session; returns whether that could be, since none runs.
    pub fn reset(&self, now_ms: i64, cpu: CpuMs) -> bool {
        let mut session = lock(&self.session);
        self.end_in_time(session.as_mut(), now_ms, cpu);
        if !self.is_active() {
            *session = None;
        }
        session.is_none()
    }

    /// What the session has found, if there is one.
    pub fn report(&self, now_ms: i64, cpu: CpuMs) -> Option<Report> {
        let mut session = lock(&self.session);
        self.end_in_time(session.as_mut(), now_ms, cpu);
        let session = session.as_ref()?;
        let after = session.cpu_after.unwrap_or(cpu);
        let in_us = |(key, ns): (Box<[u8]>, u64)| (key, ns / 1000);
        Some(Report {
            is_active: session.ended_ms.is_none(),
            wanted: session.wanted.clone(),
            started_ms: session.started_ms,
            lasted_ms: session.ended_ms.unwrap_or(now_ms) - session.started_ms,
            total_us: self.total_ns.load(Relaxed) / 1000,
            total_bytes: self.total_bytes.load(Relaxed),
            selected: session.selected,
            sampled: session.sampled,
            cpu: CpuMs {
                user: after.user.saturating_sub(session.cpu_before.user),
                system: after.system.saturating_sub(session.cpu_before.system),
            },
            by_time: session.by_time.best(session.wanted.count).into_iter().map(in_us).collect(),
            by_bytes: session.by_bytes.best(session.wanted.count),
        })
    }

    /// Counts what a command has taken in all; returns whether its keys are to be counted, too.
    pub(crate) fn note_command(&self, nanoseconds: u64, bytes: u64) -> bool {
        self.total_ns.fetch_add(nanoseconds, Relaxed);
        self.total_bytes.fetch_add(bytes, Relaxed);
        match self.sample.load(Relaxed) {
            0 => false,
            sample => self.commands.fetch_add(1, Relaxed).is_multiple_of(sample),
        }
    }

    /// Returns whether the keys of each command are to be looked at, sampled or not.
    pub(crate) fn has_slots(&self) -> bool {
        self.has_slots.load(Relaxed)
    }

    /// Counts a command for its keys, which have these slots. Its time and bytes belong to them in equal
    /// parts.
    pub(crate) fn note_keys(
        &self,
        keys: &[(&[u8], Option<u16>)],
        taken: Taken,
        is_sampled: bool,
        now_ms: i64,
    ) {
        let parts = keys.len() as u64;
        let mut session = lock(&self.session);
        let Some(session) = session.as_mut().filter(|session| session.ended_ms.is_none()) else {
            return;
        };
        let Session { wanted, started_ms, by_time, by_bytes, selected, sampled, .. } = session;
        if wanted.duration_ms.is_some_and(|duration| now_ms - *started_ms >= duration) {
            return;
        }
        let is_wanted = |slot: &Option<u16>| {
            wanted.slots.is_empty() || slot.is_some_and(|slot| wanted.slots.contains(slot))
        };
        if !keys.iter().any(|(_, slot)| is_wanted(slot)) {
            return;
        }
        selected.add(taken);
        if !is_sampled {
            return;
        }
        sampled.add(taken);
        let places = wanted.count.saturating_mul(PLACES_EACH) + PLACES_BESIDES;
        for (key, _) in keys.iter().filter(|(_, slot)| is_wanted(slot)) {
            if wanted.cpu {
                by_time.add(key, taken.nanoseconds / parts, places);
            }
            if wanted.net {
                by_bytes.add(key, taken.bytes / parts, places);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(count: usize) -> Wanted {
        Wanted {
            cpu: true,
            net: true,
            count,
            duration_ms: Some(1000),
            sample: 1,
            slots: Slots::default(),
        }
    }

    fn note(hot: &HotKeys, keys: &[&[u8]], (nanoseconds, bytes): (u64, u64), now_ms: i64) {
        let keys: Vec<_> = keys.iter().map(|&key| (key, Some(key.len() as u16))).collect();
        hot.note_keys(&keys, Taken { nanoseconds, bytes }, true, now_ms);
    }

    #[test]
    fn a_session_about_slots_counts_keys_of_these() {
        let hot = HotKeys::default();
        let slots = Slots::from_fn(|slot| slot == 2);
        assert!(hot.start(Wanted { slots, ..wanted(5) }, 0, CpuMs::default()));
        note(&hot, &[b"a", b"bb"], (4000, 20), 1);
        note(&hot, &[b"a"], (1000, 10), 1);
        hot.note_keys(&[(b"cc", Some(2))], Taken { nanoseconds: 500, bytes: 5 }, false, 1);
        let report = hot.report(2, CpuMs::default()).expect("one runs");
        assert_eq!(report.by_time, [(b"bb"[..].into(), 2)]);
        assert_eq!((report.selected.nanoseconds, report.selected.bytes), (4500, 25));
        assert_eq!((report.sampled.nanoseconds, report.sampled.bytes), (4000, 20));
    }

    #[test]
    fn the_hottest_keys_are_found_among_many() {
        let hot = HotKeys::default();
        assert!(hot.start(wanted(2), 0, CpuMs::default()));
        for number in 0..5000u32 {
            let name = format!("cold{number}");
            note(&hot, &[name.as_bytes()], (1000, 10), 1);
            note(&hot, &[b"a", b"b"], (6000, 40), 1);
            note(&hot, &[b"a"], (1000, 10), 1);
        }
        let report = hot.report(500, CpuMs::default()).expect("one runs");
        assert_eq!(report.by_time, [(b"a"[..].into(), 20_000), (b"b"[..].into(), 15_000)]);
        assert_eq!(report.by_bytes[0].1, 150_000);
        assert!(lock(&hot.session).as_ref().is_some_and(|s| s.by_time.sums.len() == 272));
    }

    #[test]
    fn a_session_ends_in_time() {
        let hot = HotKeys::default();
        assert!(hot.start(wanted(1), 0, CpuMs::default()));
        assert!(!hot.start(wanted(1), 999, CpuMs::default()));
        assert!(!hot.reset(999, CpuMs::default()));
        note(&hot, &[b"late"], (1, 1), 1000);
        let report = hot.report(5000, CpuMs::default()).expect("it is kept");
        assert_eq!((report.is_active, report.lasted_ms, report.by_time.len()), (false, 1000, 0));
        assert!(!hot.stop(5000, CpuMs::default()));
        assert!(hot.reset(5000, CpuMs::default()));
        assert!(hot.report(5000, CpuMs::default()).is_none());
    }
}
