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
//! for a moment, while a session runs and for one command in `sample` only.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use structs::sync::lock;

/// What a session counts.
#[derive(Clone, Copy, Debug)]
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
    commands: AtomicU64,
    total_ns: AtomicU64,
    total_bytes: AtomicU64,
    session: Mutex<Option<Session>>,
}

impl HotKeys {
    /// Whether commands are counted.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.sample.load(Relaxed) > 0
    }

    /// Starts a session; returns whether none ran.
    pub fn start(&self, wanted: Wanted, now_ms: i64, cpu: CpuMs) -> bool {
        let mut session = lock(&self.session);
        self.end_in_time(session.as_mut(), now_ms, cpu);
        if self.is_active() {
            return false;
        }
        *session = Some(Session {
            wanted,
            started_ms: now_ms,
            ended_ms: None,
            cpu_before: cpu,
            cpu_after: None,
            by_time: Top::default(),
            by_bytes: Top::default(),
        });
        self.total_ns.store(0, Relaxed);
        self.total_bytes.store(0, Relaxed);
        self.sample.store(wanted.sample.max(1), Relaxed);
        true
    }

    fn end(&self, session: &mut Session, at_ms: i64, cpu: CpuMs) {
        session.ended_ms = Some(at_ms);
        session.cpu_after = Some(cpu);
        self.sample.store(0, Relaxed);
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
            wanted: session.wanted,
            started_ms: session.started_ms,
            lasted_ms: session.ended_ms.unwrap_or(now_ms) - session.started_ms,
            total_us: self.total_ns.load(Relaxed) / 1000,
            total_bytes: self.total_bytes.load(Relaxed),
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

    /// Counts a command for its keys, to which its time and bytes belong in equal parts.
    pub(crate) fn note_keys<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
        nanoseconds: u64,
        bytes: u64,
        now_ms: i64,
    ) {
        let parts = keys.len() as u64;
        let mut session = lock(&self.session);
        let Some(session) = session.as_mut().filter(|session| session.ended_ms.is_none()) else {
            return;
        };
        let wanted = session.wanted;
        if wanted.duration_ms.is_some_and(|duration| now_ms - session.started_ms >= duration) {
            return;
        }
        let places = wanted.count.saturating_mul(PLACES_EACH) + PLACES_BESIDES;
        for key in keys {
            if wanted.cpu {
                session.by_time.add(key, nanoseconds / parts, places);
            }
            if wanted.net {
                session.by_bytes.add(key, bytes / parts, places);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(count: usize) -> Wanted {
        Wanted { cpu: true, net: true, count, duration_ms: Some(1000), sample: 1 }
    }

    #[test]
    fn the_hottest_keys_are_found_among_many() {
        let hot = HotKeys::default();
        assert!(hot.start(wanted(2), 0, CpuMs::default()));
        for number in 0..5000u32 {
            let name = format!("cold{number}");
            hot.note_keys([name.as_bytes()].into_iter(), 1000, 10, 1);
            let keys: [&[u8]; 2] = [b"a", b"b"];
            hot.note_keys(keys.into_iter(), 6000, 40, 1);
            hot.note_keys([b"a".as_slice()].into_iter(), 1000, 10, 1);
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
        hot.note_keys([b"late".as_slice()].into_iter(), 1, 1, 1000);
        let report = hot.report(5000, CpuMs::default()).expect("it is kept");
        assert_eq!((report.is_active, report.lasted_ms, report.by_time.len()), (false, 1000, 0));
        assert!(!hot.stop(5000, CpuMs::default()));
        assert!(hot.reset(5000, CpuMs::default()));
        assert!(hot.report(5000, CpuMs::default()).is_none());
    }
}
