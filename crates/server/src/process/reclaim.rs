//! The thread that gives memory back to the system.
//!
//! Taking pages out of a process's tables means telling every processor that runs one of its threads,
//! and waiting until all have answered: some microseconds, and in a virtual machine at times until
//! the other processor's next tick. A reactor must not wait for that, so what tables outgrow and
//! what the allocator no longer needs go back here.

use super::thread;
use engine::Engine;
use keyspace::memory;
use std::io;
use std::time::{Duration, Instant};

/// How long arrays are gathered before they go: by then no thread reads them any more.
const GATHERING: Duration = Duration::from_millis(20);
/// How often the allocator gives back what has become free.
const PURGE_EVERY: Duration = Duration::from_secs(1);

/// Starts the thread; from here on the allocator gives back nothing of its own accord.
pub fn start(engine: &'static Engine) -> io::Result<()> {
    let reclaim = move || {
        let mut next_purge = Instant::now() + PURGE_EVERY;
        loop {
            let left = next_purge.saturating_duration_since(Instant::now());
            engine.keyspace.wait_for_outgrown(left);
            std::thread::sleep(GATHERING);
            engine.keyspace.collect_outgrown();
            if Instant::now() >= next_purge {
                memory::purge();
                next_purge = Instant::now() + PURGE_EVERY;
            }
        }
    };
    thread::spawn("reclaim", reclaim)?;
    memory::purge_only_when_asked();
    Ok(())
}
