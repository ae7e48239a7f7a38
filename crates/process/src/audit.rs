//! The audit log: each change with its user, as JSON lines in a file of its own.
//!
//! A caller adds its line to a buffer, and a thread appends the buffer to the file. So a disk that
//! is slow or full costs lines, which are counted, and never a request its time. Like the log, the
//! file is opened for each batch: renaming it rotates it.
//!
//! `docs/internals/audit.md` gives the reasons.

pub use super::audit_line::{Entry, Outcome, Source};
use super::local_time::LocalTime;
use super::{audit_line, os_error, thread};
use crate::log;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use structs::sync::lock;

/// Bytes of lines that wait for the disk. Lines beyond are dropped.
const MAX_PENDING_BYTES: usize = 1 << 20;
/// Lines about refusals that are kept in one second: any client of the port can cause them.
const MAX_REFUSALS: u32 = 100;
/// How long the thread waits before it tries again to write.
const RETRY: Duration = Duration::from_millis(200);

static LOG: OnceLock<Arc<Log>> = OnceLock::new();

/// What the audit log has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Lines that are in the file.
    pub written: u64,
    /// Lines that are lost: the disk was slow or full, or there were too many refusals.
    pub dropped: u64,
    /// The file could not be written at the last attempt.
    pub is_failing: bool,
}

/// Opens the audit log of the process and starts its thread. `instance` tells the process from
/// others that write to the same file. A relative path is one of the present working directory.
///
/// # Errors
/// The file cannot be opened, there is an audit log already, or the thread cannot be started. The
/// text is for the operator.
pub fn start(path: &Path, source: Source, instance: &str) -> Result<(), String> {
    let log = Log::new(path, instance)?;
    if LOG.set(Arc::clone(&log)).is_err() {
        return Err("The process has an audit log already".to_owned());
    }
    let writer = Arc::clone(&log);
    thread::spawn("audit", move || writer.run())
        .map_err(|error| format!("Can't start the thread of the audit log: {error}"))?;
    log.add(&of_process(source, "start"));
    Ok(())
}

/// Returns whether there is an audit log.
pub fn is_on() -> bool {
    LOG.get().is_some()
}

/// Adds a line, if there is an audit log. Never waits for the disk.
pub fn record(entry: &Entry<'_>) {
    if let Some(log) = LOG.get() {
        log.add(entry);
    }
}

/// Returns what the audit log has done, if there is one.
pub fn counts() -> Option<Counts> {
    LOG.get().map(|log| lock(&log.state).counts)
}

/// Notes the end of the process, and waits until all lines are in the file, at most a second.
pub fn finish(source: Source) {
    if let Some(log) = LOG.get() {
        log.add(&of_process(source, "end"));
        log.settle(Duration::from_secs(1));
    }
}

/// Returns the entry of what the process does by itself.
fn of_process(source: Source, action: &str) -> Entry<'_> {
    Entry { source, user: b"", address: "", id: 0, action, target: &[], outcome: Outcome::Done }
}

/// What callers and the thread share.
#[derive(Default)]
struct AuditState {
    /// Whole lines.
    pending: Vec<u8>,
    /// The thread has lines that are not in the file yet.
    is_writing: bool,
    counts: Counts,
    /// Dropped lines that a line of the file tells of.
    told: u64,
    /// The source of the last dropped line.
    dropped_of: Option<Source>,
    /// The second whose refusals are counted, and how many there were.
    second: i64,
    refusals: u32,
}

struct Log {
    path: PathBuf,
    instance: String,
    state: Mutex<AuditState>,
    /// Notified when lines are added, and when they are in the file.
    changed: Condvar,
}

impl Log {
    fn new(path: &Path, instance: &str) -> Result<Arc<Log>, String> {
        let failed = |error: &io::Error| {
            format!("Can't open the audit log: {} ({})", os_error(error), path.display())
        };
        let path = std::path::absolute(path).map_err(|error| failed(&error))?;
        open(&path).map_err(|error| failed(&error))?;
        let (instance, state, changed) = (instance.to_owned(), Mutex::default(), Condvar::new());
        Ok(Arc::new(Log { path, instance, state, changed }))
    }

    fn add(&self, entry: &Entry<'_>) {
        let now = LocalTime::now();
        let line = audit_line::render(entry, &self.instance, &now);
        let mut state = lock(&self.state);
        let is_refusal = matches!(entry.outcome, Outcome::Refused(_));
        let is_too_much = is_refusal && !state.may_refuse(now.unix_millis.div_euclid(1000));
        if is_too_much || state.pending.len() + line.len() > MAX_PENDING_BYTES {
            state.counts.dropped += 1;
            state.dropped_of = Some(entry.source);
        } else {
            state.pending.extend_from_slice(line.as_bytes());
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Appends lines to the file for as long as the process exists.
    fn run(&self) {
        loop {
            let batch = self.take();
            self.append(&batch);
        }
    }

    /// Waits for lines and takes them. The last one says how many were dropped.
    fn take(&self) -> Vec<u8> {
        let mut state = lock(&self.state);
        state.is_writing = false;
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |state| state.is_idle());
        state = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_writing = true;
        let mut batch = std::mem::take(&mut state.pending);
        let missing = state.counts.dropped - state.told;
        if missing > 0 {
            state.told = state.counts.dropped;
            let count = missing.to_string();
            let why = b"lines are missing: the disk was slow or full, or too much was refused";
            let entry = Entry {
                target: &[b"dropped", count.as_bytes()],
                outcome: Outcome::Refused(why),
                ..of_process(state.dropped_of.unwrap_or(Source::Server), "audit-log")
            };
            let line = audit_line::render(&entry, &self.instance, &LocalTime::now());
            batch.extend_from_slice(line.as_bytes());
        }
        batch
    }

    /// Appends whole lines to the file. Tries again until they are there.
    fn append(&self, batch: &[u8]) {
        let mut rest = batch;
        let mut is_torn = false;
        loop {
            let (whole, outcome) = match open(&self.path) {
                Ok(mut file) => write_lines(&mut file, rest, &mut is_torn),
                Err(error) => (0, Err(error)),
            };
            let lines = rest[..whole].iter().filter(|&&byte| byte == b'\n').count();
            rest = &rest[whole..];
            let was_failing = {
                let mut state = lock(&self.state);
                state.counts.written += lines as u64;
                std::mem::replace(&mut state.counts.is_failing, outcome.is_err())
            };
            match outcome {
                Ok(()) => {
                    if was_failing {
                        log!(Notice, "The audit log is written again");
                    }
                    return;
                }
                Err(error) if !was_failing => log!(
                    Warning,
                    "The audit log cannot be written: {} ({}). Lines are kept in memory up \
                     to 1 MiB, then dropped",
                    os_error(&error),
                    self.path.display()
                ),
                Err(_) => {}
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Waits until all lines are in the file.
    fn settle(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut state = lock(&self.state);
        while state.is_writing || !state.is_idle() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl AuditState {
    /// Returns whether there is nothing for the file.
    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.counts.dropped == self.told
    }

    /// Counts a refusal of this second. Returns whether its line is kept.
    fn may_refuse(&mut self, second: i64) -> bool {
        if self.second != second {
            (self.second, self.refusals) = (second, 0);
        }
        self.refusals = self.refusals.saturating_add(1);
        self.refusals <= MAX_REFUSALS
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Writes whole lines, each by one call of the system. Returns the bytes of those that were
/// written. `is_torn`: the last call wrote a part of a line, which is ended before it is repeated.
fn write_lines(file: &mut File, lines: &[u8], is_torn: &mut bool) -> (usize, io::Result<()>) {
    let mut whole = 0;
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        if let Err(error) = write_line(file, line, is_torn) {
            return (whole, Err(error));
        }
        whole += line.len();
    }
    (whole, Ok(()))
}

fn write_line(file: &mut File, line: &[u8], is_torn: &mut bool) -> io::Result<()> {
    if *is_torn {
        file.write_all(b"\n")?;
        *is_torn = false;
    }
    let written = loop {
        match file.write(line) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if written == line.len() {
        return Ok(());
    }
    *is_torn = written > 0;
    Err(io::Error::from(io::ErrorKind::StorageFull))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use std::os::unix::fs::PermissionsExt as _;

    fn entry<'a>(action: &'a str, outcome: Outcome<'a>) -> Entry<'a> {
        Entry { user: b"ops", outcome, ..of_process(Source::Server, action) }
    }

    fn begin(path: &Path) -> Arc<Log> {
        let log = Log::new(path, "6379").unwrap();
        let writer = Arc::clone(&log);
        // The thread ends with the process.
        std::thread::spawn(move || writer.run());
        log
    }

    fn settled(log: &Log) -> Counts {
        log.settle(Duration::from_secs(60));
        lock(&log.state).counts
    }

    #[test]
    fn lines_are_in_order_and_the_file_may_be_renamed() {
        let folder = testing::Directory::new("audit");
        let path = folder.path().join("audit.log");
        let log = begin(&path);
        (0..50).for_each(|n| log.add(&entry(&format!("first {n}"), Outcome::Done)));
        assert_eq!(settled(&log), Counts { written: 50, dropped: 0, is_failing: false });
        let renamed = path.with_extension("1");
        std::fs::rename(&path, &renamed).unwrap();
        log.add(&entry("second", Outcome::Begun));
        settled(&log);
        let lines = std::fs::read_to_string(&renamed).unwrap();
        let all: Vec<&str> = lines.lines().collect();
        assert_eq!(all.len(), 50);
        for (n, line) in all.iter().enumerate() {
            assert!(line.contains(&format!("\"action\":\"first {n}\"")), "{line}");
        }
        let second = std::fs::read_to_string(&path).unwrap();
        assert!(second.contains("\"second\"") && second.ends_with("\"begun\"}\n"), "{second}");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_disk_that_fails_costs_lines_that_are_counted_and_told() {
        let folder = testing::Directory::new("audit-fails");
        let inner = folder.path().join("disk");
        std::fs::create_dir(&inner).unwrap();
        let path = inner.join("audit.log");
        let log = begin(&path);
        std::fs::remove_dir_all(&inner).unwrap();
        let word = vec![b'x'; 200];
        let big = Entry { target: &[&word, &word], ..entry("big", Outcome::Done) };
        let began = Instant::now();
        (0..10_000).for_each(|_| log.add(&big));
        assert!(began.elapsed() < Duration::from_secs(30), "a line waited for the disk");
        let counts = lock(&log.state).counts;
        assert!(counts.dropped > 0 && counts.written == 0, "{counts:?}");
        assert!(lock(&log.state).pending.len() <= MAX_PENDING_BYTES);
        std::fs::create_dir(&inner).unwrap();
        let after = settled(&log);
        assert!(!after.is_failing);
        assert_eq!(after.dropped, counts.dropped);
        let text = std::fs::read_to_string(&path).unwrap();
        let kept = text.lines().filter(|line| line.contains("\"big\"")).count();
        assert_eq!(kept as u64 + after.dropped, 10_000);
        // In several lines, if some were dropped before the thread took its first ones.
        const TOLD: &str = "\"action\":\"audit-log\",\"target\":[\"dropped\",\"";
        let number = |rest: &str| rest.split('"').next().and_then(|it| it.parse::<u64>().ok());
        let told: u64 = text.split(TOLD).skip(1).filter_map(number).sum();
        assert_eq!(told, after.dropped, "{}", text.lines().last().unwrap_or_default());
    }

    #[test]
    fn a_flood_of_refusals_is_bounded() {
        let folder = testing::Directory::new("audit-flood");
        let path = folder.path().join("audit.log");
        let log = begin(&path);
        (0..100_000).for_each(|_| log.add(&entry("auth", Outcome::Refused(b"WRONGPASS"))));
        log.add(&entry("config|set", Outcome::Done));
        let counts = settled(&log);
        assert!(counts.dropped > 50_000, "{counts:?}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("config|set"));
    }

    #[test]
    fn a_full_disk_is_noticed() {
        let mut full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let mut is_torn = false;
        let (whole, outcome) = write_lines(&mut full, b"{}\n{}\n", &mut is_torn);
        assert_eq!((whole, is_torn), (0, false));
        assert!(outcome.is_err());
    }

    #[test]
    fn a_line_that_was_written_in_part_is_ended_and_repeated() {
        let folder = testing::Directory::new("audit-torn");
        let path = folder.path().join("audit.log");
        std::fs::write(&path, "{\"to").unwrap();
        let mut is_torn = true;
        let lines = b"{\"torn\":1}\n{}\n";
        let (whole, outcome) = write_lines(&mut open(&path).unwrap(), lines, &mut is_torn);
        outcome.unwrap();
        assert_eq!((whole, is_torn), (lines.len(), false));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"to\n{\"torn\":1}\n{}\n");
    }

    #[test]
    fn a_path_that_cannot_be_opened_is_refused() {
        let error = Log::new(Path::new("/nonexistent-folder/audit.log"), "").map(drop).unwrap_err();
        assert_eq!(
            error,
            "Can't open the audit log: No such file or directory (/nonexistent-folder/audit.log)"
        );
    }
}
