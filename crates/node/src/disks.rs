//! Whether the copies of this machine can write to their disks, as they say themselves. A copy that
//! cannot still has its lease and answers, so nothing else shows it.

use crate::shared::Shared;
use crate::site::{Database, Placed, Stage};
use crate::talk::{self, Answer, field};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at all copies.
const LOOK: Duration = Duration::from_secs(5);

/// How often the thread looks whether it is to end.
const STEP: Duration = Duration::from_millis(100);

/// How long a copy may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// Fields of INFO that are `ok` if a disk takes what it should, and what another value means.
const FIELDS: [(&str, &str); 3] = [
    ("aof_last_write_status", "it cannot write its append-only file"),
    ("aof_last_bgrewrite_status", "the last rewrite of its append-only file failed"),
    ("rdb_last_bgsave_status", "its last snapshot failed"),
];

/// Looks until `is_over`.
pub fn watch(shared: &Arc<Shared>, is_over: &AtomicBool) {
    let mut looked: Option<Instant> = None;
    while !is_over.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            look(shared, is_over);
            looked = Some(Instant::now());
        }
        std::thread::sleep(STEP);
    }
}

fn look(shared: &Shared, is_over: &AtomicBool) {
    let site = shared.site();
    let before = shared.disk_errors();
    let mut errors = BTreeMap::new();
    for (_, database, placed) in site.placed_on(&shared.machine) {
        if database.stage != Stage::Ready || placed.is_leaving || is_over.load(Ordering::Relaxed) {
            continue;
        }
        // One that does not answer is what it was.
        let error = error(database, placed).or_else(|| before.get(&placed.copy).cloned());
        errors.extend(error.filter(|text| !text.is_empty()).map(|text| (placed.copy, text)));
    }
    shared.set_disk_errors(errors);
}

/// Returns what a copy's disk refuses; the text is empty if it refuses nothing. `None`: the copy
/// does not answer.
fn error(database: &Database, placed: &Placed) -> Option<String> {
    let address = (&*placed.host, placed.port);
    let answers = talk::ask(address, database.login(), &[&["INFO", "persistence"]], ANSWER).ok()?;
    match answers.first()? {
        Answer::Text(info) => Some(refused(info)),
        Answer::Error(_) => None,
    }
}

fn refused(info: &str) -> String {
    let is_bad = |name: &str| field(info, name).is_some_and(|status| status != "ok");
    let refused = FIELDS.iter().filter(|(name, _)| is_bad(name));
    let refused: Vec<String> = refused.map(|(name, what)| format!("{what} ({name})")).collect();
    refused.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ok_is_said() {
        let info = "loading:0\r\naof_last_write_status:err\r\nrdb_last_bgsave_status:ok\r\n";
        assert_eq!(refused(info), "it cannot write its append-only file (aof_last_write_status)");
        assert_eq!(refused("aof_last_write_status:ok\r\n"), "");
    }
}
