//! The processor time of each thread of the process.

use std::fs;

/// Clock ticks of a second in /proc, which is fixed in the interface.
const TICKS: f64 = 100.0;

/// The name of each thread and the seconds of processor time that it has used. Empty where /proc is not
/// mounted.
pub fn times() -> Vec<(String, f64)> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    threads
        .flatten()
        // A thread that has ended meanwhile has no file.
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .filter_map(|line| parse(&line))
        .collect()
}

/// Name and time of a line of `/proc/…/stat`; a name may hold any character.
fn parse(line: &str) -> Option<(String, f64)> {
    let (name, rest) = line.split_once('(')?.1.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((name.to_owned(), (ticks()? + ticks()?) / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name() {
        let line = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14\n";
        assert_eq!(parse(line), Some(("a) b (c".to_owned(), 2.0)));
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn this_thread_is_among_them() {
        let name = fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert!(times().iter().any(|(other, _)| *other == name.trim_end()));
    }
}
