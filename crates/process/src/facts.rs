//! What INFO tells about the process and its machine. Plain values; the INFO command renders them.
//!
//! Functions that read files below `/proc` take the root directory, so that tests can show them
//! another machine.
#![allow(unsafe_code)] // uname(2), getrandom(2), getrusage(2) and sysconf(3)

use super::alt_stack::page_size;
use std::env;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The server's version, as in `dunlin --version`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `redis_git_sha1`: the commit it was built from, if the build was told.
pub const GIT_SHA1: &str = match option_env!("DUNLIN_GIT_SHA1") {
    Some(sha) => sha,
    None => "00000000",
};

/// Returns the version and, of a build that was told, the commit: what `--version` prints of each command.
pub fn version_and_commit() -> String {
    match option_env!("DUNLIN_GIT_SHA1") {
        Some(commit) => format!("{VERSION} ({commit})"),
        None => VERSION.to_owned(),
    }
}

/// In the place of `gcc_version`: the oldest Rust release that builds this source.
pub const RUST_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

/// `mem_allocator`: what the `dunlin` binary allocates with.
pub const ALLOCATOR: &str = "mimalloc";

/// `arch_bits`
pub const ARCH_BITS: u32 = usize::BITS;

/// What is known at start and does not change.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `os`: kernel name, release and machine, such as `Linux 6.1.0 x86_64`.
    pub os: String,
    /// `run_id`: 40 random hexadecimal digits.
    pub run_id: String,
    /// `process_id`
    pub process_id: u32,
    /// `executable`: the program as it was called, made absolute.
    pub executable: PathBuf,
    /// `process_supervised`: the kind of supervisor that is told when the server is ready.
    pub supervisor: &'static str,
    /// When the server started, by the wall clock.
    pub started_unix: Duration,
    started: Instant,
}

impl Facts {
    /// Collects them, for a process started as `argv0`. Call it after going to the background,
    /// which changes the process id.
    pub fn collect(argv0: &OsStr) -> io::Result<Self> {
        Ok(Self {
            os: operating_system()?,
            run_id: random_hex(40)?,
            process_id: std::process::id(),
            executable: executable(argv0),
            supervisor: "no",
            started_unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            started: Instant::now(),
        })
    }

    /// Time since the start, whatever was done to the wall clock.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Kernel name, release and machine.
fn operating_system() -> io::Result<String> {
    // SAFETY: utsname is plain data for which all zeroes is valid.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `names` may be written to.
    if unsafe { libc::uname(&mut names) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let text = |field: &[c_char]| {
        // SAFETY: uname ends each field with a NUL within its array.
        unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned()
    };
    Ok([&names.sysname[..], &names.release, &names.machine].map(text).join(" "))
}

/// Random hexadecimal digits from the kernel, for run and replication ids.
pub fn random_hex(digits: usize) -> io::Result<String> {
    let mut bytes = vec![0u8; digits.div_ceil(2)];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: pointer and length describe `rest`.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(count) => filled += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    let mut hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate(digits);
    Ok(hex)
}

/// The absolute path of the program called as `argv0`. A symbolic link is kept: restarting
/// through it must find the same name.
fn executable(argv0: &OsStr) -> PathBuf {
    let called = Path::new(argv0);
    let found = if called.components().count() > 1 {
        std::path::absolute(called).ok()
    } else {
        env::current_exe().ok()
    };
    found.unwrap_or_else(|| called.to_owned())
}

/// Memory the process occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// `used_memory_rss`: bytes of RAM now.
    pub rss_bytes: u64,
    /// The most bytes of RAM it ever had.
    pub peak_rss_bytes: u64,
}

impl Resident {
    /// Reads them. What cannot be read is 0, as INFO has no better answer.
    pub fn read(root: &Path) -> Self {
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let rss_bytes = rss_bytes(root);
        let peak = kibibytes(&status, "VmHWM:").unwrap_or(0);
        // The kernel updates the high-water mark lazily.
        Self { rss_bytes, peak_rss_bytes: peak.max(rss_bytes) }
    }
}

/// The process's bytes of RAM now; 0 if that cannot be read.
pub fn rss_bytes(root: &Path) -> u64 {
    let statm = fs::read_to_string(root.join("proc/self/statm")).unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * page_size() as u64
}

/// The bytes in a line such as `VmHWM:    1234 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// `total_system_memory`: bytes of RAM of the machine, whatever this process may use of it.
pub fn total_system_memory() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0) * page_size() as u64
}

/// Processor time, of the kernel and of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// `…_sys`
    pub system: Duration,
    /// `…_user`
    pub user: Duration,
}

/// A duration in INFO's form: seconds with six decimals.
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{:06}", self.0.as_secs(), self.0.subsec_micros())
    }
}

impl CpuTime {
    /// `used_cpu_sys` and `used_cpu_user`: of all threads.
    pub fn of_process() -> Self {
        Self::usage(libc::RUSAGE_SELF)
    }

    /// `used_cpu_*_children`: of child processes that have ended.
    pub fn of_children() -> Self {
        Self::usage(libc::RUSAGE_CHILDREN)
    }

    /// Of the calling thread.
    pub fn of_this_thread() -> Self {
        Self::usage(libc::RUSAGE_THREAD)
    }

    /// `used_cpu_*_main_thread`, from whichever thread: of the thread the process began with, to
    /// the kernel's clock tick of (usually) 10 ms.
    pub fn of_main_thread(root: &Path) -> Self {
        let path = format!("proc/self/task/{}/stat", std::process::id());
        let stat = fs::read_to_string(root.join(path)).unwrap_or_default();
        // SAFETY: sysconf has no preconditions.
        let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100);
        Self::from_stat(&stat, per_second).unwrap_or_default()
    }

    /// Fields 14 (user) and 15 (system), counted after the name in parentheses.
    fn from_stat(stat: &str, ticks_per_second: u64) -> Option<Self> {
        let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace().skip(14 - 3);
        let mut next = || {
            let ticks = fields.next()?.parse::<u64>().ok()?;
            Some(Duration::from_millis(ticks * 1000 / ticks_per_second.max(1)))
        };
        let user = next()?;
        Some(Self { user, system: next()? })
    }

    fn usage(whose: c_int) -> Self {
        // SAFETY: rusage is plain data for which all zeroes is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` may be written to; a failure leaves zeroes.
        unsafe { libc::getrusage(whose, &mut usage) };
        let duration = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec.cast_unsigned())
                + Duration::from_micros(time.tv_usec.cast_unsigned())
        };
        Self { system: duration(usage.ru_stime), user: duration(usage.ru_utime) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    #[test]
    fn facts_have_their_shape() {
        let facts = Facts::collect(OsStr::new("./dunlin")).unwrap();
        assert!(facts.os.starts_with("Linux ") && facts.os.split(' ').count() >= 3, "{}", facts.os);
        assert_eq!(facts.run_id.len(), 40);
        assert!(facts.run_id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(facts.run_id, random_hex(40).unwrap());
        assert!(facts.executable.is_absolute() && facts.executable.ends_with("dunlin"));
        assert_eq!(executable(OsStr::new("dunlin")), env::current_exe().unwrap());
        assert!(facts.uptime() < Duration::from_secs(60));
    }

    #[test]
    fn resident_memory_is_read_from_proc() {
        let machine = Directory::new("facts");
        machine.file("proc/self/statm", "1000 25 10 1 0 20 0\n");
        machine.file("proc/self/status", "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n");
        let resident = Resident::read(machine.path());
        assert_eq!(resident.rss_bytes, 25 * page_size() as u64);
        assert_eq!(resident.peak_rss_bytes, 2048 * 1024);
        assert_eq!(Resident::read(Path::new("/nonexistent-folder")), Resident::default());
        assert!(Resident::read(Path::new("/")).rss_bytes > 100_000);
        assert!(total_system_memory() > 10_000_000);
    }

    #[test]
    fn processor_time_is_told_apart() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 125 0 0";
        let time = CpuTime::from_stat(stat, 100).unwrap();
        assert_eq!(Seconds(time.user).to_string(), "2.500000");
        assert_eq!(Seconds(time.system).to_string(), "1.250000");
        assert_eq!(CpuTime::from_stat("garbage", 100), None);
        let mut sum = 0u64;
        while CpuTime::of_this_thread().user + CpuTime::of_this_thread().system == Duration::ZERO {
            sum = std::hint::black_box(sum + 1);
        }
        // The thread's first: its time goes on, and the process has at least as much later.
        let of_thread = CpuTime::of_this_thread();
        let of_process = CpuTime::of_process();
        assert!(of_process.user + of_process.system >= of_thread.user + of_thread.system);
        assert_eq!(CpuTime::of_main_thread(Path::new("/nonexistent-folder")), CpuTime::default());
    }
}
