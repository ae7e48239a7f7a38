//! Requests of the least important users that are refused while a thread is overloaded.
//!
//! A thread judges itself by the time that its turns take, which is what a request waits for at
//! least. It adds up turns for [`WINDOW`], and counts as overloaded as long as their average is
//! above `shed-turn-usec`; it has recovered when the average is below half of that.

use crate::clock::{Clock, Ticks};
use config::{Config, ShedRequests};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use structs::flags::{CountedFlag, Flag};
use structs::sync::{read, write};

/// How long turns are added up before they are judged.
const WINDOW: Duration = Duration::from_millis(10);
/// After a pause of this length what was before it says nothing.
const STALE: Duration = Duration::from_millis(200);

/// The names of users, and what is refused to them.
#[derive(Default)]
struct Rules {
    users: Vec<Box<[u8]>>,
    only_writes: bool,
}

/// What all threads share.
pub struct Shedding {
    /// Microseconds of an average turn above which a thread is overloaded; 0 for never.
    limit_us: Arc<AtomicU32>,
    rules: Arc<RwLock<Rules>>,
    /// Threads that are overloaded.
    overloaded: CountedFlag,
    threads: AtomicU32,
}

impl Shedding {
    /// Follows the options, now and after each change.
    pub(crate) fn new(config: &Config, flag: Flag) -> Shedding {
        let (limit_us, rules) = (Arc::<AtomicU32>::default(), Arc::default());
        let shedding = Shedding {
            limit_us: Arc::clone(&limit_us),
            rules: Arc::clone(&rules),
            overloaded: CountedFlag::new(flag),
            threads: AtomicU32::new(0),
        };
        config.watch(Box::new(move |config| {
            limit_us.store(config.shed_turn_usec(), Relaxed);
            let users = config.shed_users();
            let names = users.split(|byte| *byte == b' ').filter(|name| !name.is_empty());
            let only_writes = config.shed_requests() == ShedRequests::Writes;
            let followed = Rules { users: names.map(Box::from).collect(), only_writes };
            *write(&rules) = followed;
        }));
        shedding
    }

    /// Returns whether threads judge themselves.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.limit_us.load(Relaxed) > 0
    }

    /// Returns how many threads are overloaded.
    pub fn overloaded_threads(&self) -> u32 {
        self.threads.load(Relaxed)
    }

    /// Returns whether requests of a user are refused by threads that are overloaded.
    pub(crate) fn concerns(&self, user: &[u8], writes: bool) -> bool {
        let rules = read(&self.rules);
        (writes || !rules.only_writes) && rules.users.iter().any(|name| **name == *user)
    }

    fn note(&self, is_overloaded: bool) {
        if is_overloaded {
            self.overloaded.add();
            self.threads.fetch_add(1, Relaxed);
        } else {
            self.overloaded.remove();
            self.threads.fetch_sub(1, Relaxed);
        }
    }
}

/// One thread's turns.
#[derive(Default)]
pub struct Turns {
    began: Cell<Option<Ticks>>,
    window: Cell<Option<Ticks>>,
    sum_ns: Cell<u64>,
    turns: Cell<u64>,
    is_overloaded: Cell<bool>,
}

impl Turns {
    /// Returns whether the thread is overloaded.
    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        self.is_overloaded.get()
    }

    /// A turn begins.
    #[inline]
    pub fn begin(&self, shedding: &Shedding, clock: &Clock) {
        if shedding.is_on() || self.is_overloaded.get() {
            self.note_begin(shedding, clock);
        }
    }

    #[cold]
    fn note_begin(&self, shedding: &Shedding, clock: &Clock) {
        let now = clock.now();
        self.began.set(Some(now));
        let is_stale = self.window.get().is_none_or(|began| clock.elapsed(began) > STALE);
        if is_stale || !shedding.is_on() {
            self.judge(shedding, false);
            self.open_window(now);
        }
    }

    /// A turn has ended.
    #[inline]
    pub fn end(&self, shedding: &Shedding, clock: &Clock) {
        if let Some(began) = self.began.take() {
            self.note_end(began, shedding, clock);
        }
    }

    #[cold]
    fn note_end(&self, began: Ticks, shedding: &Shedding, clock: &Clock) {
        let now = clock.now();
        self.sum_ns.set(self.sum_ns.get() + clock.nanoseconds(began, now));
        self.turns.set(self.turns.get() + 1);
        let Some(window) = self.window.get() else { return };
        if clock.nanoseconds(window, now) < WINDOW.as_nanos() as u64 {
            return;
        }
        let average_us = self.sum_ns.get() / self.turns.get() / 1000;
        let limit_us = u64::from(shedding.limit_us.load(Relaxed));
        let bound_us = if self.is_overloaded.get() { limit_us / 2 } else { limit_us };
        self.judge(shedding, limit_us > 0 && average_us > bound_us);
        self.open_window(now);
    }

    fn open_window(&self, now: Ticks) {
        self.window.set(Some(now));
        self.sum_ns.set(0);
        self.turns.set(0);
    }

    fn judge(&self, shedding: &Shedding, is_overloaded: bool) {
        if self.is_overloaded.replace(is_overloaded) != is_overloaded {
            shedding.note(is_overloaded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualTime;
    use keyspace::Millis;
    use structs::flags::FlagWord;

    fn set(config: &Config, name: &[u8], value: &[u8]) {
        config.record(std::str::from_utf8(name).unwrap(), value).unwrap();
    }

    #[test]
    fn a_thread_is_overloaded_until_its_turns_are_half_as_long() {
        let config = Config::new();
        let word = Arc::<FlagWord>::default();
        let shedding = Shedding::new(&config, word.flag(3));
        let time = ManualTime::starting_at(Millis(1));
        let clock = Clock::manual(time);
        let turns = Turns::default();
        let turn = |length: Duration| {
            turns.begin(&shedding, &clock);
            time.advance(length);
            turns.end(&shedding, &clock);
        };
        (0..20).for_each(|_| turn(Duration::from_millis(9)));
        assert!(!turns.is_overloaded(), "it is off");
        set(&config, b"shed-turn-usec", b"1000");
        (0..20).for_each(|_| turn(Duration::from_micros(900)));
        assert!(!turns.is_overloaded() && !word.any(u64::MAX));
        (0..20).for_each(|_| turn(Duration::from_micros(1100)));
        assert!(turns.is_overloaded() && word.any(1 << 3));
        assert_eq!(shedding.overloaded_threads(), 1);
        (0..40).for_each(|_| turn(Duration::from_micros(600)));
        assert!(turns.is_overloaded(), "not yet");
        (0..40).for_each(|_| turn(Duration::from_micros(400)));
        assert!(!turns.is_overloaded() && !word.any(u64::MAX));
        // A pause ends it, too.
        (0..20).for_each(|_| turn(Duration::from_micros(1100)));
        assert!(turns.is_overloaded());
        time.advance(Duration::from_secs(1));
        turns.begin(&shedding, &clock);
        assert!(!turns.is_overloaded());
        assert_eq!(shedding.overloaded_threads(), 0);
    }

    #[test]
    fn rules_name_users() {
        let config = Config::new();
        let shedding = Shedding::new(&config, Arc::<FlagWord>::default().flag(3));
        assert!(!shedding.concerns(b"batch", true));
        set(&config, b"shed-users", b"batch reports");
        assert!(shedding.concerns(b"batch", false) && shedding.concerns(b"reports", true));
        assert!(!shedding.concerns(b"default", true) && !shedding.concerns(b"", true));
        set(&config, b"shed-requests", b"writes");
        assert!(shedding.concerns(b"batch", true) && !shedding.concerns(b"batch", false));
    }
}
