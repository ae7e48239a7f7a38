//! The thread that gives memory back to the system.
//!
//! Taking pages out of a process's tables means telling every processor that runs one of its
//! threads, and waiting until all have answered: some microseconds, and in a virtual machine at
//! times until the other processor's next tick. A reactor must not wait for that, so what tables
//! outgrow and what the allocator no longer needs go back here.
//!
//! Memory that is given back and taken again is cleared by the kernel, and what it took as large
//! pages comes back as small ones. So a load that takes again most of what went has it for longer.

use engine::Engine;
use keyspace::memory;
use process::{facts, thread};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long arrays are gathered before they go: by then no thread reads them any more.
const GATHERING: Duration = Duration::from_millis(20);
/// How often the allocator gives back what has become free.
const PURGE_EVERY: Duration = Duration::from_secs(1);
/// The same at the least, where what went is taken again.
const PURGE_EVERY_IF_WANTED: Duration = Duration::from_secs(8);
/// How much has to go for what is taken again to count.
const LEAST_GIVEN: u64 = 1 << 20;

/// The same where a flash tier keeps the process's memory below `maxmemory`, while it is not.
const PURGE_EVERY_IF_SHORT: Duration = Duration::from_millis(100);
/// How often that memory is looked at: a disk takes some MB in that time.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Starts the thread; from here on the allocator gives back nothing of its own accord.
pub fn start(engine: &'static Engine) -> io::Result<()> {
    let reclaim = move || {
        let mut last_purge = Instant::now();
        let mut pace = Pace::new();
        loop {
            let has_tier = engine.tier.get().is_some();
            let left = pace.every.saturating_sub(last_purge.elapsed());
            engine.keyspace.wait_for_outgrown(if has_tier { LOOK_EVERY } else { left });
            std::thread::sleep(if has_tier { LOOK_EVERY } else { GATHERING });
            engine.keyspace.collect_outgrown();
            let noted = has_tier.then(resident);
            let is_short = noted.is_some_and(|resident| note_resident(engine, resident));
            let every = if is_short { PURGE_EVERY_IF_SHORT } else { pace.every };
            if last_purge.elapsed() >= every {
                let before = noted.unwrap_or_else(resident);
                memory::purge();
                let after = resident();
                pace.purged(before, after);
                last_purge = Instant::now();
                if is_short {
                    note_resident(engine, after);
                }
            }
        }
    };
    thread::spawn("reclaim", reclaim)?;
    memory::purge_only_when_asked();
    Ok(())
}

/// How often memory goes back, by what became of it the last time.
struct Pace {
    every: Duration,
    /// Bytes that the last purge gave back, and what was resident after it.
    given: u64,
    left: u64,
}

impl Pace {
    const fn new() -> Pace {
        Pace { every: PURGE_EVERY, given: 0, left: 0 }
    }

    /// Takes note of a purge by the resident bytes before and after it.
    fn purged(&mut self, before: u64, after: u64) {
        let was_wanted =
            self.given >= LEAST_GIVEN && before.saturating_sub(self.left) >= self.given / 2;
        self.every = match was_wanted {
            true => (self.every * 2).min(PURGE_EVERY_IF_WANTED),
            false => PURGE_EVERY,
        };
        self.given = before.saturating_sub(after);
        self.left = after;
    }
}

/// The process's bytes of RAM.
fn resident() -> u64 {
    facts::rss_bytes(Path::new("/"))
}

/// Tells the tier what the process takes of RAM, in bytes; whether that is too much.
fn note_resident(engine: &Engine, resident: u64) -> bool {
    let used = engine.keyspace.used_bytes() as u64;
    engine.tier.note_resident(resident, used, engine.config.maxmemory(), engine.loading.is_on())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_taken_again_goes_less_often() {
        let mut pace = Pace::new();
        pace.purged(900 * MIB, 500 * MIB);
        assert_eq!(pace.every, PURGE_EVERY);
        for _ in 0..10 {
            pace.purged(800 * MIB, 500 * MIB);
        }
        assert_eq!(pace.every, PURGE_EVERY_IF_WANTED);
        // It ends: what went stays away.
        pace.purged(800 * MIB, 500 * MIB);
        pace.purged(520 * MIB, 500 * MIB);
        assert_eq!(pace.every, PURGE_EVERY);
    }

    #[test]
    fn a_little_does_not_count() {
        let mut pace = Pace::new();
        for _ in 0..10 {
            pace.purged(100 * MIB + 4096, 100 * MIB);
        }
        assert_eq!(pace.every, PURGE_EVERY);
    }
}
