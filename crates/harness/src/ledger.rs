//! The load generator with a ledger: it notes every write that is confirmed to it, and an audit
//! tells later which of them are not there.

use crate::server::{Program, signal};
use crate::wait::eventually;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A load that runs. Dropping it ends it.
pub struct Ledger {
    bench: Child,
    file: PathBuf,
}

impl Ledger {
    /// Starts a load of 200 writes a second at this address, which ends by itself.
    ///
    /// # Panics
    /// The load generator does not start.
    pub fn start(address: SocketAddr, time: Duration) -> Ledger {
        Ledger::start_with(address, &["--duration", &time.as_secs().to_string()])
    }

    /// Starts one that goes on until [`Self::end`], and outlasts some time without an answer. Its
    /// keys begin with `prefix`: several may work beside each other.
    ///
    /// # Panics
    /// The load generator does not start.
    pub fn start_endless(address: SocketAddr, prefix: &str) -> Ledger {
        let words = ["--duration", "86400", "--give-up", "120", "--key-prefix", prefix];
        Ledger::start_with(address, &words)
    }

    fn start_with(address: SocketAddr, words: &[&str]) -> Ledger {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let file = std::env::temp_dir().join(format!("dunlin-ledger-{process}-{count}"));
        let mut command = Program::under_test().subcommand("bench");
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.args(["-c", "2", "--ratio", "1:0", "--key-maximum", "2000", "--rps", "200"]);
        command.args(words).arg("--ledger").arg(&file);
        let log = File::create(file.with_extension("log")).expect("a file for its words");
        command.stdout(Stdio::null()).stderr(log);
        Ledger { bench: command.spawn().expect("it starts"), file }
    }

    /// Returns how many bytes it has noted: they grow with each confirmed write.
    pub fn noted(&self) -> u64 {
        fs::metadata(&self.file).map_or(0, |file| file.len())
    }

    /// Ends a load that goes on, by SIGINT.
    ///
    /// # Panics
    /// It has ended before.
    pub fn end(&mut self) {
        let has_ended = self.bench.try_wait().expect("it ran");
        assert_eq!(has_ended, None, "the load has ended before: {}", self.said());
        signal(self.bench.id(), "INT").expect("it runs");
        self.wait();
    }

    fn wait(&mut self) {
        let status = self.bench.wait().expect("it ran");
        println!("the load ends with {status}: {}", self.said());
    }

    fn said(&self) -> String {
        fs::read_to_string(self.file.with_extension("log")).unwrap_or_default()
    }

    /// Waits until the load has ended, and compares what it noted with what is at this address.
    /// Returns whether nothing is lost, and what the audit says.
    ///
    /// # Panics
    /// No write was confirmed, or the audit cannot be made.
    pub fn audit(mut self, address: SocketAddr) -> (bool, String) {
        self.wait();
        self.compare(address)
    }

    /// Compares what a load that has ended noted with what is at this address, as [`Self::audit`].
    ///
    /// # Panics
    /// No write was confirmed, or the audit cannot be made.
    pub fn compare(&self, address: SocketAddr) -> (bool, String) {
        let mut command = Program::under_test().subcommand("bench");
        command.arg("audit").args(["-h", &address.ip().to_string()]);
        command.args(["-p", &address.port().to_string()]).arg(&self.file);
        let (mut is_whole, mut text) = (false, String::new());
        // A proxy may be about to learn of another master.
        eventually("all that was noted can be read", || {
            let output = command.output().expect("it starts");
            is_whole = output.status.success();
            text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            !text.contains(": NOREPLY ")
        });
        let has_read = text.contains("keys have the version");
        let said = self.said();
        assert!(has_read && !text.contains(" 0 acknowledged"), "{text}\nthe load: {said}");
        (is_whole, text)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _ = self.bench.kill();
        let _ = self.bench.wait();
        let _ = fs::remove_file(&self.file);
        let _ = fs::remove_file(self.file.with_extension("log"));
    }
}
