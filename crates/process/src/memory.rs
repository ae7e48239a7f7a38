//! How much memory the process may use, for the banner and for sizing.

use super::{cgroup, facts};
use std::fmt;
use std::path::Path;

/// The machine's memory and what the control group leaves of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    physical_bytes: u64,
    cgroup_bytes: Option<u64>,
}

impl Memory {
    /// Looks at this machine.
    pub fn detect() -> Self {
        let cgroup_bytes = cgroup::memory_limit(Path::new("/"));
        Self::new(facts::total_system_memory(), cgroup_bytes)
    }

    /// A limit at or above the machine's memory is none.
    fn new(physical_bytes: u64, cgroup_bytes: Option<u64>) -> Self {
        let cgroup_bytes = cgroup_bytes.filter(|limit| *limit < physical_bytes);
        Self { physical_bytes, cgroup_bytes }
    }

    /// The limit of the container, if there is one below the machine's memory.
    pub fn container_bytes(&self) -> Option<u64> {
        self.cgroup_bytes
    }

    /// The bytes beyond which the process would be killed or the machine swap.
    pub fn limit_bytes(&self) -> u64 {
        self.cgroup_bytes.unwrap_or(self.physical_bytes)
    }
}

/// Returns how much of a memory that is the server's alone its data may take. A quarter is left for
/// buffers, snapshots and the program.
pub fn for_data(bytes: u64) -> u64 {
    bytes / 4 * 3
}

/// As in `2.0 GiB by cgroup, of 7.7 GiB`.
impl fmt::Display for Memory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cgroup_bytes {
            Some(limit) => {
                write!(out, "{} by cgroup, of {}", Bytes(limit), Bytes(self.physical_bytes))
            }
            None => write!(out, "{}", Bytes(self.physical_bytes)),
        }
    }
}

/// A number of bytes for people: `1.5 GiB`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(out, "{} B", self.0);
        }
        // Precision beyond one decimal does not matter, so neither does the loss above 2^53.
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(out, "{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_counts_only_below_the_machine_s_memory() {
        let memory = Memory::new(8 << 30, Some(2 << 30));
        assert_eq!(memory.limit_bytes(), 2 << 30);
        assert_eq!(memory.to_string(), "2.0 GiB by cgroup, of 8.0 GiB");
        let memory = Memory::new(8 << 30, Some(9 << 30));
        assert_eq!((memory.limit_bytes(), memory.to_string().as_str()), (8 << 30, "8.0 GiB"));
        assert!(Memory::detect().limit_bytes() > 0);
    }

    #[test]
    fn bytes_are_readable() {
        let texts = [0, 1023, 1536, 5 << 20, 3 << 40, u64::MAX].map(|n| Bytes(n).to_string());
        assert_eq!(texts, ["0 B", "1023 B", "1.5 KiB", "5.0 MiB", "3.0 TiB", "16384.0 PiB"]);
    }
}
