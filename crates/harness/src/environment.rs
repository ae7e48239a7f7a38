//! What a run of the tests is told from outside: numbers in the environment; and what it lacks.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn parsed<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A whole number, if it is set to one.
pub fn variable(name: &str) -> Option<u64> {
    parsed(name)
}

/// A time in seconds, if it is set to one.
pub fn seconds(name: &str) -> Option<Duration> {
    parsed(name).map(Duration::from_secs_f64)
}

/// A seed that earlier runs have not had: the seconds of the clock.
pub fn new_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs())
}

/// Says that the running test, or a part of it, cannot run here. The test then returns. `tests/suite` counts and
/// names such tests, and `.ci/run` refuses those that `tests/skips.txt` does not name.
pub fn skipped(why: impl Display) {
    println!("SKIPPED: {}", why.to_string().trim().replace('\n', "; "));
}

/// Whether servers with `appendfsync always` make room ahead of a log in the folder for temporary
/// files: its file system has to write in place. Says so if it does not.
pub fn has_preallocated_logs() -> bool {
    let mut stat = std::process::Command::new("stat");
    let output = stat.args(["--file-system", "--format=%T"]).arg(std::env::temp_dir()).output();
    let kind = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let kind = kind.unwrap_or_else(|error| error.to_string());
    let has_room = matches!(kind.as_str(), "ext2/ext3" | "xfs" | "overlayfs");
    if !has_room {
        skipped(format_args!("no room is made ahead of logs on {kind}"));
    }
    has_room
}
