//! The flash tier's folder and threads, from the start of the server to its end.

use crate::log;
use config::{Config, IoBackend};
use engine::Engine;
use engine::mailbox::recheck_all;
use engine::tier::Entries;
use process::disk::free_bytes;
use process::{os_error, thread};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tier::files::{Backend, Files};
use tier::{Settings, Tier};

/// Memory of data that is not on the disk yet, in bytes: the greatest, the least, and the share of
/// `maxmemory` as a divisor.
const MAX_BUFFERED: u64 = 16 << 20;
const MIN_BUFFERED: u64 = 1 << 20;
const BUFFERED_SHARE: u64 = 32;
/// Least number of segments of a tier with a limited size. A few segments are always open or spare.
/// The fewer there are in total, the more has to be moved by cleaning. With 64 segments, this costs
/// a fifth of all writes.
const FEWEST_SEGMENTS: u64 = 128;
/// Number of segments per stream of new values. A small tier has one stream.
const SEGMENTS_PER_STREAM: u64 = 128;
/// Longest time between two rounds of maintenance.
const ROUND: Duration = Duration::from_millis(100);

/// The folder of a tier that is in use.
pub struct TierFiles(Arc<Files>);

impl TierFiles {
    /// Returns whether threads can have their own rings for reading.
    pub fn has_rings(&self) -> bool {
        self.0.backend() == Backend::Uring
    }

    /// Removes the segments. Nothing is read or written after this.
    pub fn close(&self) {
        self.0.close();
    }
}

/// Creates the tier that the configuration asks for, if any, and starts its threads.
///
/// # Errors
/// Why there cannot be one, for the operator.
pub fn start(engine: &'static Engine) -> Result<Option<TierFiles>, String> {
    let config = &engine.config;
    let folder = config.tier_dir();
    if folder.is_empty() {
        return Ok(None);
    }
    let cannot = |why: String| format!("Can't use tier-dir '{}': {why}", folder.to_string_lossy());
    let spawn = |run: Box<dyn FnOnce() + Send>| thread::spawn("tier-io", run);
    let wanted = match config.io_backend() {
        IoBackend::Epoll => Backend::Threads,
        IoBackend::Auto | IoBackend::IoUring => Backend::Uring,
    };
    let files = Files::open(folder.as_path(), wanted, &spawn).map_err(|e| cannot(e.to_string()))?;
    if files.backend() != wanted {
        log!(Notice, "The tier's disk is read and written by threads, since io_uring is refused.");
    }
    let by = if files.backend() == Backend::Uring { "io_uring" } else { "threads" };
    let files = Arc::new(files);
    let room = free_bytes(folder.as_path()).map_err(|error| cannot(os_error(&error)))?;
    let settings = settings(engine, config, room);
    let tier = Tier::new(Arc::clone(&files) as Arc<_>, settings)
        .map_err(|error| cannot(error.to_string()))?;
    let size = match settings.max_bytes {
        0 => format!("as large as its disk has room for, now {} MiB", room >> 20),
        bytes => format!("of at most {} MiB", bytes >> 20),
    };
    log!(
        Notice,
        "Flash tier in {}, {size}, in segments of {} KiB, by {by}",
        folder.to_string_lossy(),
        settings.segment_bytes >> 10
    );
    if !engine.tier.attach(Arc::clone(&tier)) {
        return Err(cannot("the process has a tier already".to_owned()));
    }
    tier.on_room(Box::new(move || recheck_all(&engine.mailboxes)));
    if config.maxmemory() == 0 {
        log!(Warning, "tier-dir is set but maxmemory is not: nothing goes to the tier.");
    }
    let maintain = move || {
        let entries = Entries::new(engine);
        let mut fullness = Fullness::default();
        loop {
            tier.maintain(&entries);
            fullness.look(&tier);
            tier.wait(ROUND);
        }
    };
    thread::spawn("tier", maintain).map_err(|error| cannot(error.to_string()))?;
    Ok(Some(TierFiles(files)))
}

/// Logs when the tier becomes full and when it accepts values again. A tier at its limit may change
/// between the two many times in a second.
#[derive(Default)]
struct Fullness {
    /// Whether the log last said that the tier is full.
    is_told: bool,
    /// Time of the last change.
    since: Option<Instant>,
    was_full: bool,
}

impl Fullness {
    /// A state is logged once it has lasted this long.
    const STAYED: Duration = Duration::from_secs(1);

    fn look(&mut self, tier: &Tier) {
        let is_full = tier.is_full();
        if self.since.is_none() || is_full != self.was_full {
            self.since = Some(Instant::now());
            self.was_full = is_full;
        }
        let has_stayed = self.since.is_some_and(|since| since.elapsed() >= Self::STAYED);
        if is_full == self.is_told || !has_stayed {
            return;
        }
        self.is_told = is_full;
        let figures = tier.figures();
        let (live, all) =
            (figures.live_bytes >> 20, (figures.segments * figures.segment_bytes) >> 20);
        if is_full {
            log!(
                Warning,
                "The flash tier is full: {live} MiB of values in {all} MiB. Until some go, maxmemory-policy decides."
            );
        } else {
            log!(Notice, "The flash tier takes in values again: {live} MiB of them in {all} MiB.");
        }
    }
}

/// Returns the settings of a tier on a disk with `room` free bytes. Without a configured limit, the
/// disk is the limit. A tier of a few large segments would have most of them open or spare.
fn settings(engine: &Engine, config: &Config, room: u64) -> Settings {
    let max_bytes = config.tier_max_size();
    let size = if max_bytes == 0 { room } else { max_bytes };
    let most = (size / FEWEST_SEGMENTS).max(1 << 20);
    let segment_bytes = config.tier_segment_size().min(most) / 4096 * 4096;
    let threads = engine.mailboxes.len() as u64;
    let fitting = size / segment_bytes / SEGMENTS_PER_STREAM;
    let buffer_bytes = match config.maxmemory() {
        0 => MAX_BUFFERED,
        limit => (limit / BUFFERED_SHARE).clamp(MIN_BUFFERED, MAX_BUFFERED),
    };
    let streams = fitting.clamp(1, threads.max(1)) as usize;
    Settings { segment_bytes, max_bytes, buffer_bytes, streams }
}
