//! Processes that get no more memory: by a limit of their address space, as `ulimit -v` sets it,
//! and by a control group, as containers and units of systemd have one.

use crate::environment::skipped;
use crate::server::Program;
use crate::wait::eventually;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that has Dunlin ask the system for memory in small pieces, of 32 MiB. It begins
/// with a piece of a gigabyte otherwise, and a limit of its address space would be felt only beyond
/// that.
const SMALL_PIECES: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "32768");

/// Returns the program with that in its environment.
pub fn in_small_pieces(program: &Program) -> Program {
    let (name, value) = SMALL_PIECES;
    program.started_by(&["env", &format!("{name}={value}")])
}

/// Lets a running process have so many more bytes of address space than it has.
///
/// # Panics
/// There is no such process, or no `prlimit`.
pub fn limit_address_space(process: u32, more: u64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kilobytes = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let limit = kilobytes.expect("it has a size") * 1024 + more;
    let (process, limit) = (process.to_string(), format!("--as={limit}"));
    let done = Command::new("prlimit").args(["--pid", &process, &limit]).output();
    let done = done.expect("there is prlimit");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Returns whether a process has ended, be it that its parent has not asked how.
pub fn has_ended(process: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

/// A control group with a limit of memory.
pub struct MemoryGroup {
    path: PathBuf,
    /// The file that counts what the kernel has killed.
    events: &'static str,
}

/// Where the second version and the first one of control groups have their files.
const VERSIONS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup", "memory.max", "memory.events"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
];

impl MemoryGroup {
    /// Makes one. `None` where that is not possible: then the test is skipped.
    pub fn new(name: &str, bytes: u64) -> Option<MemoryGroup> {
        for (root, limit, events) in VERSIONS {
            let path = Path::new(root).join(format!("dunlin-{name}-{}", std::process::id()));
            if fs::create_dir(&path).is_err() {
                continue;
            }
            // In a folder that is no group the file is not there.
            let file = OpenOptions::new().write(true).open(path.join(limit));
            let set = file.and_then(|mut file| file.write_all(bytes.to_string().as_bytes()));
            if set.is_ok() {
                return Some(MemoryGroup { path, events });
            }
            fs::remove_dir(&path).expect("nothing is in it");
        }
        skipped("no control group with a limit of memory can be made here");
        None
    }

    /// Moves a process into it. What it has already is not counted.
    ///
    /// # Panics
    /// There is no such process.
    pub fn add(&self, process: u32) {
        fs::write(self.path.join("cgroup.procs"), process.to_string()).expect("it runs");
    }

    /// Returns how many processes the kernel has killed in it, if it counts them.
    pub fn kills(&self) -> Option<u64> {
        let text = fs::read_to_string(self.path.join(self.events)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that was killed is in it until it is gone.
        if !std::thread::panicking() {
            eventually("the group is empty", || fs::remove_dir(&self.path).is_ok());
        }
    }
}
