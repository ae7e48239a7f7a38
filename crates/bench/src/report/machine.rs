//! What a run ran on: figures mean nothing without it.

use serde::Serialize;
use std::fs;

/// This machine, as far as it tells.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's version.
    pub kernel: String,
}

impl Machine {
    /// The machine this process runs on.
    pub fn this() -> Machine {
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
        let kilobytes: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes * 1024,
            kernel: kernel.trim().into(),
        }
    }
}
