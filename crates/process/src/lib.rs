//! The process around a server, a proxy or a node: log, signals, crashes, daemon, supervisors,
//! limits of the machine, and the facts INFO tells about it.
//!
//! Each module stands alone and takes plain values; the start-up sequence of the program wires
//! them to its configuration. Nothing here knows a connection, a key or a command.

pub mod affinity;
pub mod alt_stack;
pub mod argv_area;
pub mod audit;
mod audit_line;
pub mod banner;
pub mod beside;
pub mod cgroup;
pub mod checks;
pub mod cpulist;
pub mod cpus;
pub mod crash;
pub mod crash_report;
pub mod daemonize;
pub mod disk;
pub mod facts;
pub mod local_time;
pub mod log;
mod log_choices;
mod log_line;
pub mod memory;
pub mod numa;
pub mod oom_score;
pub mod open_files;
pub mod pidfile;
pub mod priority;
mod registers;
pub mod replace;
pub mod sandbox;
pub mod shutdown;
pub mod signal_safe;
pub mod signals;
pub mod supervised;
pub mod syslog;
#[cfg(test)]
mod testing;
pub mod thread;
pub mod threads;
pub mod title;
pub mod umask;

/// The operating system's words for an error, without Rust's `(os error N)`: log lines then read
/// as Redis's do.
pub fn os_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
