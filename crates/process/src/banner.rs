//! What the server says while it starts.
//!
//! Scripts and test suites wait for some of it, so these words are Redis's: `Server initialized`,
//! `Ready to accept connections`, and a banner with ` PID: 123` in it where Redis shows its logo.

use super::cpus::Threads;
use super::facts;
use super::log::Level;
use super::memory::{Bytes, Memory};
use crate::log;
use std::fmt;
use std::io::{self, IsTerminal as _};
use std::path::Path;

/// The first lines in the log. `program` is how the server was called, and `configured` whether it
/// was given a configuration file or directives.
pub fn starting(program: &str, configured: bool) {
    log!(Notice, "oO0OoO0OoO0Oo Dunlin is starting oO0OoO0OoO0Oo");
    log!(
        Notice,
        "Dunlin version={}, bits={}, commit={}, modified=0, pid={}, just started",
        facts::VERSION,
        facts::ARCH_BITS,
        facts::GIT_SHA1,
        std::process::id()
    );
    if configured {
        log!(Notice, "Configuration loaded");
    } else {
        // By another name the program is the server alone.
        let is_dunlin = Path::new(program).file_name().is_some_and(|name| name == "dunlin");
        let subcommand = if is_dunlin { " server" } else { "" };
        log!(
            Warning,
            "Warning: no config file specified, using the default config. In order to specify a \
             config file use {program}{subcommand} /path/to/dunlin.conf"
        );
    }
}

/// Everything but the data is ready.
pub fn initialized() {
    log!(Notice, "Server initialized");
}

/// The data is loaded and clients are welcome; one line for each kind of listener (`tcp`, `tls`,
/// `unix`).
pub fn ready(listeners: &[&str]) {
    for kind in listeners {
        log!(Notice, "Ready to accept connections {kind}");
    }
}

/// What the banner shows.
#[derive(Clone, Debug)]
pub struct Banner<'a> {
    /// `standalone` or `cluster`.
    pub mode: &'a str,
    /// The port for plain connections, or else the one for TLS.
    pub port: u16,
    /// How many reactor threads, and why.
    pub threads: Threads<'a>,
    /// The I/O back-end and why it was chosen, such as `epoll (io_uring is not permitted here)`.
    pub io: &'a str,
    /// What the machine grants.
    pub memory: Memory,
    /// `maxmemory`, 0 for none.
    pub maxmemory_bytes: u64,
}

impl Banner<'_> {
    /// Shows it: as a picture where a person is watching or `always-show-logo` is set, else as
    /// plain log lines.
    pub fn show(&self, always_show_logo: bool) {
        let watched =
            !log::syslog_enabled() && log::logfile_c_str().is_none() && io::stdout().is_terminal();
        if watched || always_show_logo {
            log::write_raw(Level::Notice, &self.to_string());
            return;
        }
        log!(Notice, "Running mode={}, port={}.", self.mode, self.port);
        log!(Notice, "{}", self.threads);
        log!(Notice, "I/O: {}", self.io);
        log!(Notice, "Memory limit: {}", self.memory_limit());
    }

    fn memory_limit(&self) -> String {
        match self.maxmemory_bytes {
            0 => format!("{}, no maxmemory", self.memory),
            bytes => format!("{}, maxmemory {}", self.memory, Bytes(bytes)),
        }
    }
}

/// The picture: a dunlin at the water's edge.
impl fmt::Display for Banner<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BIRD: [&str; 7] = [
            r"                   ",
            r"           __      ",
            r"      ____(o \___  ",
            r"   __/\\\ \ _)   ` ",
            r"  `--\____,'       ",
            r"      /  /         ",
            r"  ~~~~~~~~~~~~~~~  ",
        ];
        let (version, sha, bits) = (facts::VERSION, facts::GIT_SHA1, facts::ARCH_BITS);
        let facts = [
            format!("Dunlin {version} ({sha}/0) {bits} bit"),
            format!("Running in {} mode", self.mode),
            format!("Port: {}", self.port),
            format!("PID: {}", std::process::id()),
            self.threads.to_string(),
            format!("I/O: {}", self.io),
            format!("Memory limit: {}", self.memory_limit()),
        ];
        writeln!(out)?;
        for (picture, fact) in BIRD.iter().zip(facts) {
            writeln!(out, "{picture} {fact}")?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::Cpus;

    #[test]
    fn the_picture_tells_all_facts() {
        let cpus = Cpus::detect();
        let banner = Banner {
            mode: "standalone",
            port: 6379,
            threads: cpus.threads(Some(3)),
            io: "epoll (io-backend epoll)",
            memory: Memory::detect(),
            maxmemory_bytes: 1 << 30,
        };
        let text = banner.to_string();
        for fact in [
            &format!("Dunlin {}", facts::VERSION),
            "Running in standalone mode",
            " Port: 6379\n",
            // The Redis test suite looks for exactly this.
            &format!(" PID: {}\n", std::process::id()),
            " 3 threads: io-threads 3,",
            "I/O: epoll (io-backend epoll)\n",
            ", maxmemory 1.0 GiB\n",
        ] {
            assert!(text.contains(fact), "{fact:?} in {text}");
        }
    }
}
