//! The load generator with a ledger: it notes every write that is confirmed to it, and an audit
//! tells later which of them are not there.

use crate::server::Program;
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
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let file = std::env::temp_dir().join(format!("dunlin-ledger-{process}-{count}"));
        let mut command = Program::under_test().subcommand("bench");
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.args(["-c", "2", "--ratio", "1:0", "--key-maximum", "2000", "--rps", "200"]);
        command.args(["--duration", &time.as_secs().to_string(), "--ledger"]).arg(&file);
        let log = File::create(file.with_extension("log")).expect("a file for its words");
        command.stdout(Stdio::null()).stderr(log);
        Ledger { bench: command.spawn().expect("it starts"), file }
    }

    /// Waits until the load has ended, and compares what it noted with what is at this address.
    /// Returns whether nothing is lost, and what the audit says.
    ///
    /// # Panics
    /// No write was confirmed, or the audit cannot be made.
    pub fn audit(mut self, address: SocketAddr) -> (bool, String) {
        let status = self.bench.wait().expect("it ran");
        let said = fs::read_to_string(self.file.with_extension("log")).unwrap_or_default();
        println!("the load ends with {status}: {said}");
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
