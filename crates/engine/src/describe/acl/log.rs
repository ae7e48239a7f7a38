//! ACL LOG: what was refused, newest first; the same again within a minute is counted, not listed.

use keyspace::Millis;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use structs::sync::lock;

/// Entries that a new refusal is compared with.
const COMPARED: usize = 10;
/// Milliseconds within which equal refusals are one entry.
const SAME_WITHIN_MS: i64 = 60_000;

/// A refused request or failed authentication, or several equal ones.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Its number.
    pub id: u64,
    /// How often it happened.
    pub count: u64,
    /// What was denied: `auth`, `command`, `key`, `channel` or `database`.
    pub reason: &'static str,
    /// `toplevel`, `multi` or `lua`.
    pub context: &'static str,
    /// The command, key, channel or database; of a failed authentication the command.
    pub object: Vec<u8>,
    /// The user; of a failed authentication the name that was tried.
    pub user: Vec<u8>,
    /// The client's line of CLIENT LIST at the last time.
    pub client: String,
    /// The first time, milliseconds since the epoch.
    pub created_ms: i64,
    /// The last time.
    pub updated_ms: i64,
}

impl Refused {
    /// A refusal of this moment, whose number, count and client the log and its caller fill in.
    pub fn new(
        reason: &'static str,
        context: &'static str,
        object: Vec<u8>,
        user: Vec<u8>,
        now: Millis,
    ) -> Refused {
        let (client, created_ms, updated_ms) = (String::new(), now.0, now.0);
        Refused { id: 0, count: 1, reason, context, object, user, client, created_ms, updated_ms }
    }

    fn is_like(&self, other: &Refused) -> bool {
        self.reason == other.reason
            && self.context == other.context
            && self.object == other.object
            && self.user == other.user
            && (other.updated_ms - self.updated_ms).abs() <= SAME_WITHIN_MS
    }
}

#[derive(Default)]
struct Entries {
    next_id: u64,
    newest_first: VecDeque<Refused>,
}

/// The log.
#[derive(Default)]
pub struct AclLog {
    entries: Mutex<Entries>,
}

impl AclLog {
    fn locked(&self) -> MutexGuard<'_, Entries> {
        lock(&self.entries)
    }

    /// Adds a refusal, whose number and count do not matter, and keeps the newest `most`.
    pub fn add(&self, refused: Refused, most: usize) {
        let mut entries = self.locked();
        let Entries { next_id, newest_first } = &mut *entries;
        if most > 0 {
            let like = newest_first.iter().take(COMPARED).position(|old| old.is_like(&refused));
            let entry = match like.and_then(|at| newest_first.remove(at)) {
                Some(old) => Refused {
                    count: old.count + 1,
                    client: refused.client,
                    updated_ms: refused.updated_ms,
                    ..old
                },
                None => {
                    *next_id += 1;
                    Refused { id: *next_id - 1, count: 1, ..refused }
                }
            };
            newest_first.push_front(entry);
        }
        newest_first.truncate(most);
    }

    /// The newest entries.
    pub fn get(&self, count: usize) -> Vec<Refused> {
        self.locked().newest_first.iter().take(count).cloned().collect()
    }

    /// Forgets all entries; numbers go on.
    pub fn reset(&self) {
        self.locked().newest_first.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(user: &str, at_ms: i64) -> Refused {
        Refused::new("auth", "toplevel", b"auth".to_vec(), user.into(), Millis(at_ms))
    }

    fn shown(log: &AclLog) -> Vec<(u64, u64, String)> {
        let text = |user| String::from_utf8_lossy(user).into_owned();
        log.get(100).iter().map(|e| (e.id, e.count, text(&e.user))).collect()
    }

    #[test]
    fn equal_refusals_within_a_minute_are_one() {
        let log = AclLog::default();
        for (user, at_ms) in [("a", 0), ("b", 1), ("a", 60_000), ("b", 60_002)] {
            log.add(refused(user, at_ms), 10);
        }
        let expected = [(2, 1, "b".to_owned()), (0, 2, "a".to_owned()), (1, 1, "b".to_owned())];
        assert_eq!(shown(&log), expected);
        log.reset();
        log.add(refused("c", 0), 10);
        assert_eq!(shown(&log), [(3, 1, "c".to_owned())]);
    }

    #[test]
    fn old_entries_make_room() {
        let log = AclLog::default();
        (0..5).for_each(|number| log.add(refused(&number.to_string(), 0), 2));
        assert_eq!(shown(&log), [(4, 1, "4".to_owned()), (3, 1, "3".to_owned())]);
        log.add(refused("5", 0), 0);
        assert!(shown(&log).is_empty());
    }
}
