//! Requests of the least important clients that are refused while a thread is overloaded.
//!
//! A thread judges itself by up to three limits, and is overloaded while it exceeds one of them:
//!
//! | limit | what is compared | it has recovered below |
//! |---|---|---|
//! | `shed-turn-usec` | the average turn of [`WINDOW`], what a request waits for | half |
//! | `shed-cpu-percent` | the processor time of the thread in [`CPU_WINDOW`] | nine tenths |
//! | `shed-queued-bytes` | what the buffers of all clients take now | nine tenths |
//!
//! All three are looked at once in a [`WINDOW`] of turns. What is measured elsewhere (processor
//! time, bytes) is asked for then, and only if there is a limit of it.

use crate::clock::{Clock, Ticks};
use config::{ClientPattern, Config, ShedRequests, parse_client_patterns};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use structs::flags::{CountedFlag, Flag};
use structs::sync::{read, write};

/// How long turns are added up before they are judged.
const WINDOW: Duration = Duration::from_millis(10);
/// How long processor time is added up before it is judged. A thread that takes too much in one
/// such window is not overloaded yet: one long command is no overload.
const CPU_WINDOW: Duration = Duration::from_millis(100);
/// After a pause of this length what was before it says nothing.
const STALE: Duration = Duration::from_millis(200);

/// What a thread can have too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Overload {
    /// Its turns take long.
    Turns,
    /// It takes too much of its core.
    Cpu,
    /// Clients' buffers take too many bytes.
    QueuedBytes,
}

impl Overload {
    /// All of them.
    pub const ALL: [Overload; 3] = [Overload::Turns, Overload::Cpu, Overload::QueuedBytes];

    /// The value below which a thread has recovered.
    fn recovery(self, limit: u64) -> u64 {
        match self {
            Overload::Turns => limit / 2,
            Overload::Cpu | Overload::QueuedBytes => limit / 10 * 9 + limit % 10 * 9 / 10,
        }
    }
}

/// The clients that count for least.
#[derive(Default)]
struct Rules {
    users: Vec<Box<[u8]>>,
    clients: Vec<ClientPattern>,
}

impl Rules {
    fn is_for(&self, user: &[u8], name: &[u8], library: &[u8]) -> bool {
        self.users.iter().any(|known| **known == *user)
            || self.clients.iter().any(|pattern| pattern.is_for(name, library))
    }
}

/// What the options say, for all threads.
#[derive(Default)]
struct Settings {
    /// Whether there is a limit.
    is_on: AtomicBool,
    /// By [`Overload`]; 0 is none.
    limits: [AtomicU64; 3],
    only_writes: AtomicBool,
    rules: RwLock<Rules>,
    /// Counts the settings of the rules, from 1 on.
    generation: AtomicU32,
}

impl Settings {
    fn follow(&self, config: &Config) {
        let limits = [
            u64::from(config.shed_turn_usec()),
            u64::from(config.shed_cpu_percent()),
            config.shed_queued_bytes(),
        ];
        for (kept, limit) in self.limits.iter().zip(limits) {
            kept.store(limit, Relaxed);
        }
        self.is_on.store(limits != [0; 3], Relaxed);
        self.only_writes.store(config.shed_requests() == ShedRequests::Writes, Relaxed);
        let users = config.shed_users();
        let names = users.split(|byte| *byte == b' ').filter(|name| !name.is_empty());
        let rules = Rules {
            users: names.map(Box::from).collect(),
            // The option's check has read them.
            clients: parse_client_patterns(&config.shed_clients()).unwrap_or_default(),
        };
        let mut kept = write(&self.rules);
        if self.generation.load(Relaxed) == 0
            || (&kept.users, &kept.clients) != (&rules.users, &rules.clients)
        {
            *kept = rules;
            self.generation.fetch_add(1, Release);
        }
    }

    fn limit(&self, of: Overload) -> u64 {
        self.limits[of as usize].load(Relaxed)
    }
}

/// What all threads share.
pub struct Shedding {
    settings: Arc<Settings>,
    /// Threads that are overloaded.
    overloaded: CountedFlag,
    threads: AtomicU32,
    /// Those of them by [`Overload`].
    by_cause: [AtomicU32; 3],
}

impl Shedding {
    /// Follows the options, now and after each change.
    pub(crate) fn new(config: &Config, flag: Flag) -> Shedding {
        let settings = Arc::<Settings>::default();
        let shedding = Shedding {
            settings: Arc::clone(&settings),
            overloaded: CountedFlag::new(flag),
            threads: AtomicU32::new(0),
            by_cause: Default::default(),
        };
        config.watch(Box::new(move |config| settings.follow(config)));
        shedding
    }

    /// Returns whether threads judge themselves.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.settings.is_on.load(Relaxed)
    }

    /// Returns how many threads are overloaded.
    pub fn overloaded_threads(&self) -> u32 {
        self.threads.load(Relaxed)
    }

    /// Returns how many threads are overloaded for this cause.
    pub fn threads_over(&self, cause: Overload) -> u32 {
        self.by_cause[cause as usize].load(Relaxed)
    }

    /// Returns whether requests that read are refused as well.
    pub(crate) fn refuses_reads(&self) -> bool {
        !self.settings.only_writes.load(Relaxed)
    }

    /// Returns how often the rules have been set. What they say holds as long as this stays.
    pub(crate) fn generation(&self) -> u32 {
        self.settings.generation.load(Acquire)
    }

    /// Returns whether a client counts for least, by its user, its name and its library.
    pub(crate) fn is_least_important(&self, user: &[u8], name: &[u8], library: &[u8]) -> bool {
        read(&self.settings.rules).is_for(user, name, library)
    }

    /// Counts a thread whose causes change.
    fn note(&self, before: [bool; 3], now: [bool; 3]) {
        for ((counter, before), now) in self.by_cause.iter().zip(before).zip(now) {
            match (before, now) {
                (false, true) => {
                    counter.fetch_add(1, Relaxed);
                }
                (true, false) => {
                    counter.fetch_sub(1, Relaxed);
                }
                _ => {}
            }
        }
        match (before.contains(&true), now.contains(&true)) {
            (false, true) => {
                self.overloaded.add();
                self.threads.fetch_add(1, Relaxed);
            }
            (true, false) => {
                self.overloaded.remove();
                self.threads.fetch_sub(1, Relaxed);
            }
            _ => {}
        }
    }
}

/// What a thread is asked for when it is judged.
pub struct Measures<Cpu, Bytes> {
    /// The processor time that the thread has taken.
    pub cpu_time: Cpu,
    /// The bytes that clients' buffers take.
    pub queued_bytes: Bytes,
}

/// One thread's turns.
#[derive(Default)]
pub struct Turns {
    began: Cell<Option<Ticks>>,
    window: Cell<Option<Ticks>>,
    sum_ns: Cell<u64>,
    turns: Cell<u64>,
    /// When the window of processor time began, and what the thread had taken then.
    cpu_window: Cell<Option<(Ticks, Duration)>>,
    /// The window of processor time before was above the limit.
    was_cpu_above: Cell<bool>,
    is_overloaded: Cell<bool>,
    /// By [`Overload`].
    causes: Cell<[bool; 3]>,
}

impl Turns {
    /// Returns whether the thread is overloaded.
    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        self.is_overloaded.get()
    }

    /// A turn begins.
    #[inline]
    pub fn begin(&self, shedding: &Shedding, clock: &Clock, queued_bytes: impl FnOnce() -> u64) {
        if shedding.is_on() || self.is_overloaded.get() {
            self.note_begin(shedding, clock, queued_bytes);
        }
    }

    #[cold]
    fn note_begin(&self, shedding: &Shedding, clock: &Clock, queued_bytes: impl FnOnce() -> u64) {
        let now = clock.now();
        self.began.set(Some(now));
        let is_stale = self.window.get().is_none_or(|began| clock.elapsed(began) > STALE);
        if is_stale || !shedding.is_on() {
            // Buffers are what they are however long the thread has slept.
            let is_over = self.is_over(shedding, Overload::QueuedBytes, queued_bytes);
            self.judge(shedding, [false, false, is_over]);
            self.cpu_window.set(None);
            self.was_cpu_above.set(false);
            self.open_window(now);
        }
    }

    /// A turn has ended.
    #[inline]
    pub fn end<Cpu: FnOnce() -> Duration, Bytes: FnOnce() -> u64>(
        &self,
        shedding: &Shedding,
        clock: &Clock,
        measures: Measures<Cpu, Bytes>,
    ) {
        if let Some(began) = self.began.take() {
            self.note_end(began, shedding, clock, measures);
        }
    }

    #[cold]
    fn note_end<Cpu: FnOnce() -> Duration, Bytes: FnOnce() -> u64>(
        &self,
        began: Ticks,
        shedding: &Shedding,
        clock: &Clock,
        measures: Measures<Cpu, Bytes>,
    ) {
        let now = clock.now();
        self.sum_ns.set(self.sum_ns.get() + clock.nanoseconds(began, now));
        self.turns.set(self.turns.get() + 1);
        let Some(window) = self.window.get() else { return };
        if clock.nanoseconds(window, now) < WINDOW.as_nanos() as u64 {
            return;
        }
        let average_us = || self.sum_ns.get() / self.turns.get() / 1000;
        let causes = [
            self.is_over(shedding, Overload::Turns, average_us),
            self.is_over_cpu(shedding, clock, now, measures.cpu_time),
            self.is_over(shedding, Overload::QueuedBytes, measures.queued_bytes),
        ];
        self.judge(shedding, causes);
        self.open_window(now);
    }

    /// Compares with a limit; the value is asked for if there is one.
    fn is_over(&self, shedding: &Shedding, of: Overload, value: impl FnOnce() -> u64) -> bool {
        let limit = shedding.settings.limit(of);
        let was_over = self.causes.get()[of as usize];
        let bound = if was_over { of.recovery(limit) } else { limit };
        limit > 0 && value() > bound
    }

    /// Judges the processor time when its window is over; until then nothing changes.
    fn is_over_cpu(
        &self,
        shedding: &Shedding,
        clock: &Clock,
        now: Ticks,
        cpu_time: impl FnOnce() -> Duration,
    ) -> bool {
        if shedding.settings.limit(Overload::Cpu) == 0 {
            self.cpu_window.set(None);
            return false;
        }
        let window = self.cpu_window.get();
        let passed = window.map(|(began, _)| clock.nanoseconds(began, now));
        if passed.is_some_and(|passed| passed < CPU_WINDOW.as_nanos() as u64) {
            return self.causes.get()[Overload::Cpu as usize];
        }
        let taken = cpu_time();
        self.cpu_window.set(Some((now, taken)));
        let (Some((_, before)), Some(passed)) = (window, passed) else { return false };
        let taken = taken.saturating_sub(before).as_nanos() as u64;
        let is_above = self.is_over(shedding, Overload::Cpu, || taken.saturating_mul(100) / passed);
        let was_above = self.was_cpu_above.replace(is_above);
        is_above && (was_above || self.causes.get()[Overload::Cpu as usize])
    }

    fn open_window(&self, now: Ticks) {
        self.window.set(Some(now));
        self.sum_ns.set(0);
        self.turns.set(0);
    }

    fn judge(&self, shedding: &Shedding, causes: [bool; 3]) {
        let before = self.causes.replace(causes);
        if before != causes {
            self.is_overloaded.set(causes.contains(&true));
            shedding.note(before, causes);
        }
    }
}

#[cfg(test)]
mod tests;
