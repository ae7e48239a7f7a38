//! The processor time of each thread of the process.

use crate::facts::CpuTime;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Clock ticks of a second in /proc, which is fixed in the interface.
const TICKS: u64 = 100;

/// A thread and the processor time that it has used.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// The time, to a clock tick.
    pub time: CpuTime,
}

/// Each thread of the process. Empty where /proc is not mounted.
pub fn all() -> Vec<Thread> {
    below(Path::new("/proc/self/task"))
}

fn below(folder: &Path) -> Vec<Thread> {
    let Ok(threads) = fs::read_dir(folder) else { return Vec::new() };
    threads
        .flatten()
        // A thread that has ended meanwhile has no file.
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .filter_map(|line| parse(&line))
        .collect()
}

/// The name of each thread and the seconds of processor time that it has used.
pub fn times() -> Vec<(String, f64)> {
    named(all())
}

/// As [`times`], of another process of this machine. Empty if it has ended.
pub fn times_of(process: u32) -> Vec<(String, f64)> {
    named(below(Path::new(&format!("/proc/{process}/task"))))
}

fn named(threads: Vec<Thread>) -> Vec<(String, f64)> {
    let seconds = |time: CpuTime| (time.user + time.system).as_secs_f64();
    threads.into_iter().map(|thread| (thread.name, seconds(thread.time))).collect()
}

/// The time of all threads together whose names have this beginning.
pub fn time_of(prefix: &str) -> CpuTime {
    let threads = all().into_iter().filter(|thread| thread.name.starts_with(prefix));
    threads.fold(CpuTime::default(), |sum, Thread { time, .. }| CpuTime {
        user: sum.user + time.user,
        system: sum.system + time.system,
    })
}

/// Name and time of a line of `/proc/…/stat`; a name may hold any character.
fn parse(line: &str) -> Option<Thread> {
    let (name, rest) = line.split_once('(')?.1.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let mut time =
        || Some(Duration::from_millis(fields.next()?.parse::<u64>().ok()? * 1000 / TICKS));
    let (user, system) = (time()?, time()?);
    Some(Thread { name: name.to_owned(), time: CpuTime { user, system } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name() {
        let line = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14\n";
        let thread = parse(line).unwrap();
        assert_eq!(thread.name, "a) b (c");
        assert_eq!(thread.time.user, Duration::from_millis(1500));
        assert_eq!(thread.time.system, Duration::from_millis(500));
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn this_thread_is_among_them() {
        let name = fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert!(times().iter().any(|(other, _)| *other == name.trim_end()));
        let of_process = times_of(std::process::id());
        assert!(of_process.iter().any(|(other, _)| *other == name.trim_end()));
    }
}
