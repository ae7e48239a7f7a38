//! How many reactor threads to run, and why that many.

use super::{affinity, cgroup, cpulist};
use std::fmt;
use std::fs;
use std::path::Path;

/// What limits the processors that the process may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpus {
    /// Processors of the machine that are on line.
    online: usize,
    /// The processors the process may run on, ascending.
    allowed: Vec<usize>,
    /// Processors' worth of time the control group grants, if it is limited.
    quota: Option<f64>,
}

impl Cpus {
    /// Looks at this machine. Call it on the main thread, before any thread is pinned.
    pub fn detect() -> Self {
        let allowed = affinity::current().unwrap_or_else(|_| {
            (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
        });
        Self::read(Path::new("/"), allowed)
    }

    fn read(root: &Path, allowed: Vec<usize>) -> Self {
        let online = fs::read_to_string(root.join("sys/devices/system/cpu/online"))
            .ok()
            .and_then(|list| cpulist::parse(&list).ok())
            .map_or(allowed.len(), |cpus| cpus.len());
        Self { online, allowed, quota: cgroup::cpu_quota(root) }
    }

    /// The processors the process may run on, ascending.
    pub fn allowed(&self) -> &[usize] {
        &self.allowed
    }

    /// Processors that can be kept busy, at least 1. A quota is rounded up: with 1.5, two threads
    /// can use all of it and one cannot.
    pub fn usable(&self) -> usize {
        let quota = self.quota.map_or(usize::MAX, |quota| quota.ceil() as usize);
        self.allowed.len().min(quota).max(1)
    }

    /// The number of reactor threads: `io-threads` if it is configured, else one per usable
    /// processor.
    pub fn threads(&self, io_threads: Option<usize>) -> Threads<'_> {
        Threads { count: io_threads.unwrap_or_else(|| self.usable()), io_threads, cpus: self }
    }
}

/// A number of threads with its reason, which it displays as
/// `2 threads: 8 cores, affinity 4, cgroup quota 2.0`.
#[derive(Clone, Copy, Debug)]
pub struct Threads<'a> {
    /// How many.
    pub count: usize,
    io_threads: Option<usize>,
    cpus: &'a Cpus,
}

impl fmt::Display for Threads<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let Cpus { online, allowed, quota } = self.cpus;
        write!(out, "{} thread{}: ", self.count, plural(self.count))?;
        if let Some(explicit) = self.io_threads {
            write!(out, "io-threads {explicit}, ")?;
        }
        write!(out, "{online} core{}", plural(*online))?;
        if allowed.len() != *online {
            write!(out, ", affinity {}", allowed.len())?;
        }
        match quota {
            Some(quota) => write!(out, ", cgroup quota {quota:.1}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    fn machine(quota: Option<&str>) -> Directory {
        let machine = Directory::new("cpus");
        machine.file("sys/devices/system/cpu/online", "0-7\n");
        if let Some(quota) = quota {
            machine.file("proc/self/cgroup", "0::/\n");
            machine.file("proc/self/mountinfo", "1 1 0:1 / /cg rw - cgroup2 none rw\n");
            machine.file("cg/cpu.max", quota);
        }
        machine
    }

    fn explain(quota: Option<&str>, allowed: usize, io_threads: Option<usize>) -> (usize, String) {
        let cpus = Cpus::read(machine(quota).path(), (0..allowed).collect());
        let threads = cpus.threads(io_threads);
        (threads.count, threads.to_string())
    }

    #[test]
    fn the_smallest_limit_wins_and_is_explained() {
        assert_eq!(explain(None, 8, None), (8, "8 threads: 8 cores".to_owned()));
        let text = "4 threads: 8 cores, affinity 4";
        assert_eq!(explain(None, 4, None), (4, text.to_owned()));
        let text = "2 threads: 8 cores, affinity 4, cgroup quota 2.0";
        assert_eq!(explain(Some("200000 100000"), 4, None), (2, text.to_owned()));
        let text = "4 threads: 8 cores, affinity 4, cgroup quota 6.0";
        assert_eq!(explain(Some("600000 100000"), 4, None), (4, text.to_owned()));
    }

    #[test]
    fn a_quota_is_rounded_up_and_never_to_nothing() {
        assert_eq!(explain(Some("150000 100000"), 8, None).0, 2);
        assert_eq!(explain(Some("10000 100000"), 8, None).0, 1);
        assert_eq!(Cpus::read(machine(None).path(), vec![]).usable(), 1);
    }

    #[test]
    fn an_explicit_number_always_wins() {
        let text = "16 threads: io-threads 16, 8 cores, cgroup quota 1.0";
        assert_eq!(explain(Some("100000 100000"), 8, Some(16)), (16, text.to_owned()));
        assert_eq!(explain(None, 8, Some(1)).1, "1 thread: io-threads 1, 8 cores");
    }

    #[test]
    fn this_machine_has_processors() {
        let cpus = Cpus::detect();
        assert!(cpus.usable() >= 1 && cpus.online >= cpus.usable());
    }
}
