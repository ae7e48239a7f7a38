//! What happened when: events that follow from the difference of two looks at the server.

use crate::sampler::Seen;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use structs::sync::lock;

/// Events that are kept.
const MAX_EVENTS: usize = 500;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// For the record.
    Info,
    /// To be looked at.
    Warning,
    /// To be mended now.
    Alarm,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Event {
    /// Rises with each event.
    pub id: u64,
    /// Seconds since 1970.
    pub at: u64,
    /// How much it matters.
    pub level: Level,
    /// What happened.
    pub text: String,
}

/// The last events.
#[derive(Default)]
pub struct Events(Mutex<(u64, VecDeque<Event>)>);

impl Events {
    /// Those behind an id, the latest last.
    pub fn since(&self, id: u64) -> Vec<Event> {
        lock(&self.0).1.iter().filter(|event| event.id > id).cloned().collect()
    }

    /// Records an event.
    pub fn add(&self, at: u64, level: Level, text: String) {
        let (last, events) = &mut *lock(&self.0);
        *last += 1;
        if events.len() == MAX_EVENTS {
            events.pop_front();
        }
        events.push_back(Event { id: *last, at, level, text });
    }

    /// Records what has changed between two looks.
    pub fn notice(&self, before: &Seen, now: &Seen) {
        let at = crate::sampler::now();
        match (&before.failure, &now.failure) {
            (None, Some(why)) => {
                self.add(at, Level::Alarm, format!("The server does not answer: {why}"))
            }
            (Some(_), None) => self.add(at, Level::Info, "The server answers again".to_owned()),
            _ => {}
        }
        if now.failure.is_some() || before.at == 0 {
            return;
        }
        for (level, text) in changes(before, now) {
            self.add(at, level, text);
        }
    }
}

fn changes(before: &Seen, now: &Seen) -> Vec<(Level, String)> {
    let (old, new) = (&before.info, &now.info);
    let mut found = Vec::new();
    let mut note = |level, text: String| found.push((level, text));
    let grew = |name: &str| (new.number(name) - old.number(name)).max(0.0);
    if old.text("run_id") != new.text("run_id") {
        note(Level::Warning, "The server was restarted".to_owned());
        return found;
    }
    if old.text("role") != new.text("role") {
        let role = if new.text("role") == "master" { "primary" } else { "replica" };
        note(Level::Warning, format!("The server has become a {role}"));
    }
    match (old.text("master_link_status"), new.text("master_link_status")) {
        (_, "down") if old.text("master_link_status") == "up" => {
            note(Level::Alarm, "The link to the primary is down".to_owned());
        }
        ("down" | "", "up") => note(Level::Info, "In sync with the primary".to_owned()),
        _ => {}
    }
    let replicas = |info: &crate::info::Info| -> BTreeSet<String> {
        let name = |(_, line): (&str, crate::info::Parts<'_>)| {
            (!line.text("ip").is_empty())
                .then(|| format!("{}:{}", line.text("ip"), line.text("port")))
        };
        info.lines("slave").filter_map(name).collect()
    };
    let (had, has) = (replicas(old), replicas(new));
    has.difference(&had)
        .for_each(|name| note(Level::Info, format!("Replica {name} has connected")));
    had.difference(&has).for_each(|name| note(Level::Warning, format!("Replica {name} is gone")));
    for (name, what) in [
        ("rdb_bgsave_in_progress", "Saving a snapshot"),
        ("aof_rewrite_in_progress", "Rewriting the append-only file"),
        ("loading", "Loading the data set"),
        ("master_sync_in_progress", "Receiving the data set from the primary"),
    ] {
        match (old.is_on(name), new.is_on(name)) {
            (false, true) => note(Level::Info, format!("{what} has begun")),
            (true, false) => note(Level::Info, format!("{what} is over")),
            _ => {}
        }
    }
    for (name, what) in [
        ("rdb_last_bgsave_status", "The last snapshot"),
        ("aof_last_bgrewrite_status", "The last rewrite of the append-only file"),
        ("aof_last_write_status", "Writing the append-only file"),
    ] {
        match (old.text(name), new.text(name)) {
            ("ok", "err") => note(Level::Alarm, format!("{what} failed: see the server's log")),
            ("err", "ok") => note(Level::Info, format!("{what} succeeds again")),
            _ => {}
        }
    }
    if grew("rejected_connections") > 0.0 {
        note(Level::Warning, format!("{} connections were refused", grew("rejected_connections")));
    }
    if grew("evicted_keys") > 0.0 && before.values.get(10).is_none_or(|&rate| rate == 0.0) {
        note(Level::Warning, "Keys are being evicted: memory has reached its limit".to_owned());
    }
    if grew("shed_requests") > 0.0 && old.number("overloaded_threads") == 0.0 {
        let text = format!("Overloaded: {} requests were refused", grew("shed_requests"));
        note(Level::Warning, text);
    }
    if grew("sync_full") > 0.0 {
        note(Level::Info, "A replica receives the whole data set".to_owned());
    }
    if old.text("maxmemory") != new.text("maxmemory") {
        note(Level::Info, format!("maxmemory is now {}", new.text("maxmemory_human")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::Info;

    fn seen(text: &str) -> Seen {
        Seen { at: 1, info: Info::parse(text), ..Seen::default() }
    }

    #[test]
    fn differences_become_events() {
        let events = Events::default();
        let before = seen("role:master\nslave0:ip=1.1.1.1,port=1,state=online\n");
        let after = seen("role:slave\nmaster_link_status:up\nrdb_bgsave_in_progress:1\n");
        events.notice(&before, &after);
        let texts: Vec<String> = events.since(0).into_iter().map(|event| event.text).collect();
        assert_eq!(
            texts,
            [
                "The server has become a replica",
                "In sync with the primary",
                "Replica 1.1.1.1:1 is gone",
                "Saving a snapshot has begun"
            ]
        );
        assert_eq!(events.since(3).len(), 1);
    }
}
