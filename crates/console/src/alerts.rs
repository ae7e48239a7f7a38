//! When a problem is told, and when its end: a state machine without a clock.
//!
//! A problem is told when it has lasted for [`HOLD`], and its end when it has been away for
//! [`CALM`], so what comes and goes is one message. One that gets worse is told again. Where other
//! problems cannot be seen, those that were told count as there.

use crate::events::Level;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a problem lasts before it is told.
const HOLD: Duration = Duration::from_secs(10);
/// How long it is away before its end is told.
const CALM: Duration = Duration::from_secs(30);

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// How much it matters.
    pub level: Level,
    /// What is wrong. Problems of one title are one.
    pub title: String,
    /// What it means, and what can be done.
    pub detail: String,
}

/// What a look has found.
pub enum Sight {
    /// All problems that there are.
    All(Vec<Alert>),
    /// This one, which hides whether there are others.
    Blind(Alert),
}

/// Whether a problem is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is there.
    Firing,
    /// It is over.
    Resolved,
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it has begun or is over.
    pub status: Status,
    /// The problem.
    pub alert: Alert,
}

struct Known {
    alert: Alert,
    since: Instant,
    last: Instant,
    /// The worst level that was told.
    told: Option<Level>,
}

/// See the head of this file.
#[derive(Default)]
pub struct Alerts(BTreeMap<String, Known>);

impl Alerts {
    /// Takes the problems that there are now. Returns what is to be told.
    pub fn look(&mut self, now: Instant, sight: Sight) -> Vec<Notice> {
        let found = match sight {
            Sight::All(found) => found,
            Sight::Blind(alert) => {
                self.keep_told(now, &alert);
                vec![alert]
            }
        };
        for alert in found {
            let new = || Known { alert: alert.clone(), since: now, last: now, told: None };
            let known = self.0.entry(alert.title.clone()).or_insert_with(new);
            (known.alert, known.last) = (alert, now);
        }
        let mut notices = Vec::new();
        self.0.retain(|_, known| {
            let is_there = known.last == now;
            let lasts = now.saturating_duration_since(known.since) >= HOLD;
            let is_worse = known.told.is_none_or(|told| told < known.alert.level);
            if is_there && lasts && is_worse {
                known.told = Some(known.alert.level);
                notices.push(Notice { status: Status::Firing, alert: known.alert.clone() });
            }
            // One that was not told is forgotten at once.
            let away = now.saturating_duration_since(known.last);
            let is_over = !is_there && (known.told.is_none() || away >= CALM);
            if is_over && known.told.is_some() {
                notices.push(Notice { status: Status::Resolved, alert: known.alert.clone() });
            }
            !is_over
        });
        notices
    }

    /// Takes all that was told as being there. What was not told begins anew when it is seen again.
    fn keep_told(&mut self, now: Instant, seen: &Alert) {
        self.0.retain(|title, known| known.told.is_some() || *title == seen.title);
        self.0.values_mut().for_each(|known| known.last = now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(title: &str) -> Alert {
        Alert { level: Level::Alarm, title: title.into(), detail: String::new() }
    }

    fn told(notices: &[Notice]) -> Vec<(Status, &str)> {
        notices.iter().map(|notice| (notice.status, &*notice.alert.title)).collect()
    }

    #[test]
    fn a_problem_is_told_once_and_so_is_its_end() {
        let (mut alerts, began) = (Alerts::default(), Instant::now());
        let mut look = |seconds, found: &[&str]| {
            let found = found.iter().map(|title| alert(title)).collect();
            alerts.look(began + Duration::from_secs(seconds), Sight::All(found))
        };
        assert_eq!(look(0, &["disk", "short"]), []);
        assert_eq!(look(5, &["disk"]), []);
        assert_eq!(told(&look(10, &["disk"])), [(Status::Firing, "disk")]);
        assert_eq!(look(11, &["disk", "short"]), [], "it has begun anew");
        assert_eq!(look(20, &["short"]), []);
        assert_eq!(told(&look(25, &["disk", "short"])), [(Status::Firing, "short")]);
        assert_eq!(look(54, &["short"]), [], "it may come back");
        assert_eq!(told(&look(55, &["short"])), [(Status::Resolved, "disk")]);
        assert_eq!(look(56, &["disk", "short"]), [], "it is another one");
        assert_eq!(told(&look(66, &["disk", "short"])), [(Status::Firing, "disk")]);
    }

    #[test]
    fn what_is_told_has_the_newest_text() {
        let (mut alerts, began) = (Alerts::default(), Instant::now());
        let of = |detail: &str| vec![Alert { detail: detail.into(), ..alert("disk") }];
        alerts.look(began, Sight::All(of("1 GB left")));
        let notices = alerts.look(began + HOLD, Sight::All(of("1 MB left")));
        assert_eq!(notices[0].alert.detail, "1 MB left");
    }

    #[test]
    fn what_gets_worse_is_told_again() {
        let (mut alerts, began) = (Alerts::default(), Instant::now());
        let mut look = |seconds, level| {
            let found = vec![Alert { level, ..alert("database") }];
            alerts.look(began + Duration::from_secs(seconds), Sight::All(found)).len()
        };
        assert_eq!((look(0, Level::Warning), look(10, Level::Warning)), (0, 1));
        assert_eq!((look(15, Level::Alarm), look(20, Level::Warning)), (1, 0));
        assert_eq!(look(25, Level::Alarm), 0, "it was told");
    }

    #[test]
    fn what_cannot_be_seen_is_not_over() {
        let (mut alerts, began) = (Alerts::default(), Instant::now());
        let mut look = |seconds, sight| alerts.look(began + Duration::from_secs(seconds), sight);
        let all = |found: &[&str]| Sight::All(found.iter().map(|title| alert(title)).collect());
        let blind = || Sight::Blind(alert("away"));
        assert_eq!(look(0, all(&["disk"])), []);
        assert_eq!(told(&look(10, all(&["disk"]))), [(Status::Firing, "disk")]);
        assert_eq!(look(12, all(&["disk", "new"])), []);
        assert_eq!(look(15, blind()), []);
        assert_eq!(told(&look(25, blind())), [(Status::Firing, "away")], "and nothing of others");
        assert_eq!(look(125, blind()), [], "the disk is not known to be well");
        assert_eq!(look(126, all(&["new"])), [], "it was not seen for ten seconds");
        assert_eq!(look(135, all(&["disk"])), [], "it was there all the time");
        assert_eq!(told(&look(155, all(&["disk"]))), [(Status::Resolved, "away")]);
        assert_eq!(told(&look(185, all(&[]))), [(Status::Resolved, "disk")]);
    }
}
