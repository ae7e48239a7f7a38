//! Processes that outlive the node: copies, and an etcd of our own. Each is started or found again,
//! watched, started again when it has ended, and ended.
//!
//! ```text
//!              start                       it ended: wait 0.2, 0.4 … 30 s
//!   waiting ──────────▶ running ─────────────────────────────────────────▶ waiting
//!                         │ end: SIGTERM, SIGKILL when its time is over
//!                         ▼
//!                       ending ──────────▶ over: it is not started again
//! ```
//!
//! Nothing here waits. The owner calls [`Supervised::look`] in its own loop. What the kernel does
//! at the end of a process is waited for on a thread of its own ([`beside::release`]).

use process::beside;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The variable with the password of etcd's user, if no file has it.
pub const PASSWORD: &str = "DUNLIN_ETCD_PASSWORD";

/// The variable with the token, if no file has it.
pub const TOKEN: &str = "DUNLIN_JOIN_TOKEN";

/// The first wait before a process that has ended is started again; it is doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// The longest of these waits.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// A process that ran for so long is started again after the first wait.
pub const SETTLED: Duration = Duration::from_secs(60);

/// Processes of an earlier node, with their working directories.
pub struct Survivors(Vec<(u32, PathBuf)>);

impl Survivors {
    /// Returns the processes that run a program with the file name of this one.
    pub fn of(program: &Path) -> Survivors {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned());
        Survivors(beside::with_program(&name.unwrap_or_default()))
    }

    /// Returns the process that runs in a directory.
    pub fn in_directory(&self, directory: &Path) -> Option<u32> {
        self.0.iter().find(|(_, there)| there == directory).map(|(id, _)| *id)
    }
}

/// A program that is to run in a directory. See the head of this file.
pub struct Supervised {
    directory: PathBuf,
    /// Its output is appended here, or goes to that of this process.
    log: Option<PathBuf>,
    process: Option<Process>,
    restarts: Restarts,
    ending: Option<Ending>,
}

/// Since when a process is to end, and the time that it has.
struct Ending {
    since: Instant,
    limit: Duration,
}

impl Supervised {
    /// A program that is due, or the process of it that an earlier node has started.
    pub fn new(
        directory: &Path,
        log: Option<&Path>,
        survivors: &Survivors,
        now: Instant,
    ) -> Supervised {
        let survivor = survivors.in_directory(directory);
        Supervised {
            directory: directory.to_owned(),
            log: log.map(Path::to_owned),
            process: survivor.map(|id| Process::adopt(id, directory)),
            restarts: Restarts::new(now),
            ending: None,
        }
    }

    /// Returns the number of its process, if it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.id)
    }

    /// Returns how often it was to be started again.
    pub fn restarts(&self) -> u64 {
        self.restarts.count
    }

    /// Returns how often it has ended since its process had settled.
    pub fn early_ends(&self) -> u64 {
        self.restarts.early_ends
    }

    /// Returns whether it is to be started now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.process.is_none() && self.ending.is_none() && now >= self.restarts.next
    }

    /// Returns since when it is due, or the moment when it will be.
    pub fn due(&self) -> Instant {
        self.restarts.next
    }

    /// Returns whether its process was started so long ago.
    pub fn has_run(&self, now: Instant, span: Duration) -> bool {
        self.process.is_some() && self.restarts.has_run(now, span)
    }

    /// Starts it, and returns the number of its process.
    ///
    /// # Errors
    /// It cannot be started. It is due again after a wait.
    pub fn start(&mut self, command: Command, now: Instant) -> io::Result<u32> {
        match Process::start(command, &self.directory, self.log.as_deref()) {
            Ok(process) => {
                self.restarts.began = now;
                Ok(self.process.insert(process).id)
            }
            Err(error) => {
                self.restarts.not_begun(now);
                Err(error)
            }
        }
    }

    /// Puts the next start off: what it needs is not there.
    pub fn put_off(&mut self, now: Instant) {
        self.restarts.not_begun(now);
    }

    /// Returns how its process has ended, once. One whose time to end is over is killed.
    pub fn look(&mut self, now: Instant) -> Option<String> {
        let process = self.process.as_mut()?;
        if let Some(end) = process.end() {
            self.process = None;
            if self.ending.is_none() {
                self.restarts.ended(now);
            }
            return Some(end);
        }
        if let Some(Ending { since, limit }) = self.ending
            && now.duration_since(since) > limit
        {
            beside::kill(process.id);
        }
        None
    }

    /// Lets its process end within a time, of which the first call decides; without any it is
    /// killed. It is not started again.
    pub fn end(&mut self, now: Instant, limit: Duration) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(Ending { since: now, limit });
        match &self.process {
            Some(process) if limit.is_zero() => beside::kill(process.id),
            Some(process) => beside::terminate(process.id),
            None => {}
        }
    }
}

/// Waits between starts, and how often there was one.
#[derive(Clone, Debug)]
struct Restarts {
    wait: Duration,
    next: Instant,
    began: Instant,
    /// How often it was to be started again.
    count: u64,
    /// The same since the process last ran for [`SETTLED`].
    early_ends: u64,
}

impl Restarts {
    /// For a process that is started now.
    fn new(now: Instant) -> Restarts {
        Restarts { wait: FIRST_WAIT, next: now, began: now, count: 0, early_ends: 0 }
    }

    /// The process has ended.
    fn ended(&mut self, now: Instant) {
        let had_settled = self.has_run(now, SETTLED);
        self.wait(now);
        self.early_ends = if had_settled { 0 } else { self.early_ends + 1 };
    }

    /// There was no process: it could not be started.
    fn not_begun(&mut self, now: Instant) {
        self.wait(now);
        self.early_ends += 1;
    }

    fn wait(&mut self, now: Instant) {
        if self.has_run(now, SETTLED) {
            self.wait = FIRST_WAIT;
        }
        self.next = now + self.wait;
        self.wait = (self.wait * 2).min(MAX_WAIT);
        self.count += 1;
    }

    fn has_run(&self, now: Instant, span: Duration) -> bool {
        now.duration_since(self.began) >= span
    }
}

/// A process in a group of its own.
struct Process {
    id: u32,
    /// It was started by this node, which has to take its status.
    child: Option<Child>,
    directory: PathBuf,
}

impl Process {
    fn start(mut command: Command, directory: &Path, log: Option<&Path>) -> io::Result<Process> {
        if let Some(log) = log {
            let log = append(log)?;
            command.stdout(log.try_clone()?).stderr(log);
        }
        // They are the node's.
        command.env_remove(PASSWORD).env_remove(TOKEN);
        command.current_dir(directory).stdin(Stdio::null());
        // Neither a signal to the node's group nor the end of its terminal reaches it.
        let child = command.process_group(0).spawn()?;
        let directory = directory.to_owned();
        Ok(Process { id: child.id(), child: Some(child), directory })
    }

    /// A process that another node has started.
    fn adopt(id: u32, directory: &Path) -> Process {
        Process { id, child: None, directory: directory.to_owned() }
    }

    /// Returns how it ended, once. `None`: it runs.
    fn end(&mut self) -> Option<String> {
        let end = self.status()?;
        if let Some(child) = self.child.take() {
            beside::release(child);
        }
        Some(end)
    }

    fn status(&self) -> Option<String> {
        let Some(child) = &self.child else {
            // Numbers are used again, directories are not.
            let is_there = beside::directory(self.id).as_deref() == Some(&self.directory);
            return (!is_there).then(|| "it ended".into());
        };
        match beside::status(child.id()) {
            Ok(status) => status.map(|status| status.to_string()),
            Err(error) => Some(format!("its status is lost: {error}")),
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_begin_anew_after_a_minute_of_work() {
        let begin = Instant::now();
        let mut restarts = Restarts::new(begin);
        let mut now = begin;
        let mut waits = Vec::new();
        for _ in 0..10 {
            restarts.began = now;
            restarts.ended(now);
            waits.push(restarts.next.duration_since(now).as_millis());
            now = restarts.next;
        }
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        restarts.began = now;
        now += SETTLED;
        restarts.ended(now);
        assert_eq!(restarts.next, now + FIRST_WAIT);
        assert_eq!((restarts.count, restarts.early_ends), (11, 0), "it had settled");
        restarts.began = restarts.next;
        restarts.ended(restarts.next);
        assert_eq!((restarts.count, restarts.early_ends), (12, 1));
        restarts.not_begun(restarts.began + SETTLED);
        assert_eq!((restarts.count, restarts.early_ends), (13, 2), "no process had settled");
    }

    fn folder(name: &str) -> PathBuf {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("dunlin-supervise-{name}-{id}"));
        std::fs::create_dir_all(&folder).expect("there is room");
        folder.canonicalize().expect("it is there")
    }

    /// A shell that runs a script.
    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn nothing() -> Survivors {
        Survivors(Vec::new())
    }

    /// Looks until the process has ended, as if `later` had passed. Returns how it ended.
    fn end_of(supervised: &mut Supervised, later: Duration) -> String {
        loop {
            if let Some(end) = supervised.look(Instant::now() + later) {
                return end;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_is_adopted_by_its_directory() {
        let folder = folder("adopted");
        let now = Instant::now();
        let log = folder.join("log");
        let mut started = Supervised::new(&folder, Some(&log), &nothing(), now);
        assert!(started.is_due(now));
        let id = started.start(shell("echo begun; exec sleep 600"), now).expect("it starts");
        let survivors = Survivors(vec![(std::process::id(), "/".into()), (id, folder.clone())]);
        let mut adopted = Supervised::new(&folder, None, &survivors, now);
        assert_eq!((started.id(), adopted.id()), (Some(id), Some(id)));
        assert!(!adopted.is_due(now));
        assert_eq!((started.look(now), adopted.look(now)), (None, None));
        let foreign = Survivors(vec![(std::process::id(), folder.clone())]);
        let mut foreign = Supervised::new(&folder, None, &foreign, now);
        assert!(foreign.look(now).is_some(), "its directory is another");
        beside::kill(id);
        assert!(end_of(&mut started, Duration::ZERO).contains("signal: 9"));
        end_of(&mut adopted, Duration::ZERO);
        assert_eq!(started.id(), None);
        std::fs::remove_dir_all(&folder).expect("it can go");
    }

    #[test]
    fn what_ends_is_due_again_after_a_wait_and_what_is_ended_is_not() {
        let folder = folder("ended");
        let now = Instant::now();
        let mut supervised = Supervised::new(&folder, None, &nothing(), now);
        let missing = Command::new(folder.join("missing"));
        supervised.start(missing, now).expect_err("there is no such program");
        assert!(!supervised.is_due(now) && supervised.is_due(now + FIRST_WAIT));
        supervised.start(shell("exit 3"), now).expect("it starts");
        assert_eq!(end_of(&mut supervised, Duration::ZERO), "exit status: 3");
        assert_eq!((supervised.look(now), supervised.restarts()), (None, 2));
        assert!(supervised.is_due(supervised.due()));

        supervised.start(shell("exec sleep 600"), now).expect("it starts");
        supervised.end(Instant::now(), Duration::from_secs(3600));
        assert!(end_of(&mut supervised, Duration::ZERO).contains("signal: 15"));
        assert!(!supervised.is_due(now + MAX_WAIT * 9));
        assert_eq!(supervised.restarts(), 2);
        std::fs::remove_dir_all(&folder).expect("it can go");
    }

    #[test]
    fn what_does_not_end_in_time_is_killed() {
        let folder = folder("killed");
        let now = Instant::now();
        let stubborn = "trap '' TERM; touch ready; while :; do sleep 0.01; done";
        for limit in [Duration::ZERO, Duration::from_secs(3600)] {
            let mut supervised = Supervised::new(&folder, None, &nothing(), now);
            supervised.start(shell(stubborn), now).expect("it starts");
            while !folder.join("ready").exists() {
                std::thread::yield_now();
            }
            supervised.end(Instant::now(), limit);
            let end = end_of(&mut supervised, limit * 2);
            assert!(end.contains("signal: 9"), "{end}");
            std::fs::remove_file(folder.join("ready")).expect("it is there");
        }
        std::fs::remove_dir_all(&folder).expect("it can go");
    }
}
