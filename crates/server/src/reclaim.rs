//! The thread that gives memory back to the system.
//!
//! Taking pages out of a process's tables means telling every processor that runs one of its
//! threads, and waiting until all have answered: some microseconds, and in a virtual machine at
//! times until the other processor's next tick. A reactor must not wait for that, so what tables
//! outgrow and what the allocator no longer needs go back here.

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

/// The same where a flash tier keeps the process's memory below `maxmemory`, while it is not.
const PURGE_EVERY_IF_SHORT: Duration = Duration::from_millis(100);
/// How often that memory is looked at: a disk takes some MB in that time.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Starts the thread; from here on the allocator gives back nothing of its own accord.
pub fn start(engine: &'static Engine) -> io::Result<()> {
    let reclaim = move || {
        let mut last_purge = Instant::now();
        loop {
            let has_tier = engine.tier.get().is_some();
            let left = PURGE_EVERY.saturating_sub(last_purge.elapsed());
            engine.keyspace.wait_for_outgrown(if has_tier { LOOK_EVERY } else { left });
            std::thread::sleep(if has_tier { LOOK_EVERY } else { GATHERING });
            engine.keyspace.collect_outgrown();
            let is_short = has_tier && note_resident(engine);
            let every = if is_short { PURGE_EVERY_IF_SHORT } else { PURGE_EVERY };
            if last_purge.elapsed() >= every {
                memory::purge();
                last_purge = Instant::now();
                if is_short {
                    note_resident(engine);
                }
            }
        }
    };
    thread::spawn("reclaim", reclaim)?;
    memory::purge_only_when_asked();
    Ok(())
}

/// Tells the tier what the process takes of RAM; whether that is too much.
fn note_resident(engine: &Engine) -> bool {
    let used = engine.keyspace.used_bytes() as u64;
    let (resident, limit) = (facts::rss_bytes(Path::new("/")), engine.config.maxmemory());
    engine.tier.note_resident(resident, used, limit, engine.loading.is_on())
}
