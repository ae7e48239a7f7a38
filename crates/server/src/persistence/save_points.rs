//! Automatic snapshots: the save points of `save`, and saves that BGSAVE SCHEDULE has postponed.

use super::save;
use crate::log;
use config::SavePoint;
use engine::Engine;
use engine::clock::now_s;
use engine::snapshot::Snapshots;
use process::thread;
use std::io;
use std::time::Duration;

/// Time between two checks of the save points.
const ROUND: Duration = Duration::from_millis(100);
/// Seconds after a failure before the next attempt.
const BACK_OFF_S: i64 = 5;
/// Least number of seconds between two warnings that the last good snapshot is old.
const WARN_EVERY_S: i64 = 60;

/// Starts the thread that checks.
pub fn start(engine: &'static Engine) -> io::Result<()> {
    let mut next_warning_s = 0;
    thread::spawn("save-points", move || {
        loop {
            std::thread::sleep(ROUND);
            if !engine.debug.pauses_cron() && !engine.loading.is_on() {
                look(engine);
                next_warning_s = warn(engine, next_warning_s);
            }
        }
    })
    .map(drop)
}

/// Returns the save point that is due.
fn due(points: &[SavePoint], changes: u64, age_s: i64) -> Option<&SavePoint> {
    points.iter().find(|point| {
        let seconds = i64::try_from(point.seconds).unwrap_or(i64::MAX);
        changes >= u64::from(point.changes) && age_s > seconds
    })
}

fn look(engine: &'static Engine) {
    let state = &engine.persistence;
    if engine.snapshots.is_running() || state.running_seconds().is_some() {
        return;
    }
    let now = now_s();
    let rests = state.last_failed() && now - state.last_try_s() <= BACK_OFF_S;
    if state.is_scheduled() {
        // Another snapshot may have begun since. Then the save is postponed once more.
        if !rests && state.take_scheduled() && !begin(engine) {
            state.schedule();
        }
        return;
    }
    if engine.upstream.is_incomplete() {
        // An incomplete data set must not replace a complete one.
        return;
    }
    let points = engine.config.save_points();
    let changes = engine.changes_since_save();
    if let Some(point) = due(&points, changes, now - state.last_save_s())
        && !rests
    {
        log!(Notice, "{} changes in {} seconds. Saving...", point.changes, point.seconds);
        begin(engine);
    }
}

/// Begins a save. Returns `false` if there is another snapshot.
fn begin(engine: &'static Engine) -> bool {
    let snapshot = Snapshots::begin(engine, |_| {});
    snapshot.map(|snapshot| save::in_background(engine, snapshot)).is_ok()
}

/// Warns if the last good snapshot is older than twice the configured interval. Returns the time of
/// the next possible warning.
fn warn(engine: &Engine, not_before_s: i64) -> i64 {
    let now = now_s();
    if now < not_before_s {
        return not_before_s;
    }
    let age_s = now - engine.persistence.last_save_s();
    let points = engine.config.save_points();
    match due(&points, engine.changes_since_save(), age_s / 2) {
        Some(point) => {
            log!(
                Warning,
                "The last good snapshot is {age_s} seconds old, although one is asked for every {} \
                 seconds if there are {} changes",
                point.seconds,
                point.changes
            );
            now + i64::try_from(point.seconds).unwrap_or(WARN_EVERY_S).max(WARN_EVERY_S)
        }
        None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_due_when_both_its_numbers_are_reached() {
        let points =
            [SavePoint { seconds: 3600, changes: 1 }, SavePoint { seconds: 60, changes: 1000 }];
        assert!(due(&points, 0, 10_000).is_none());
        assert!(due(&points, 999, 3600).is_none());
        assert_eq!(due(&points, 1, 3601).map(|point| point.seconds), Some(3600));
        assert_eq!(due(&points, 1000, 61).map(|point| point.seconds), Some(60));
        assert!(due(&[], 1000, 10_000).is_none());
    }
}
