//! Filters of system calls that kill, as the units of Debian's packages have
//! (`SystemCallFilter=~@privileged @resources`). A call that only makes the server a little better
//! must not end it there.
//!
//! The kernel says that there is a filter, but not what is in it. To let a child process try the
//! calls is no way, as there are filters that forbid to make one. So where there is a filter, calls
//! that no option asks for are not made; what an option asks for (`server-cpulist`) is done all the
//! same.

use std::sync::OnceLock;

static IS_FILTERED: OnceLock<bool> = OnceLock::new();

/// Returns whether the process may make calls that it can do without: no filter may kill it for
/// them.
pub fn allows_optional_calls() -> bool {
    !*IS_FILTERED.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        is_filtered(&status)
    })
}

/// Returns whether a process with this `status` has a filter, by the mode of seccomp(2).
fn is_filtered(status: &str) -> bool {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_read() {
        assert!(is_filtered("Name:\tx\nNoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!is_filtered("Name:\tx\nNoNewPrivs:\t0\nSeccomp:\t0\n"));
        // A kernel without filters.
        assert!(!is_filtered("Name:\tx\n"));
    }
}
