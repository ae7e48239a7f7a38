//! What takes long, how much of it is done, and how long the rest will take.
//!
//! Some of it says itself how long it has gone on. For the rest the time left follows from what was
//! left at the first look: [`Paces`] keeps that from look to look.

use crate::info::Info;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Instant;

/// Something that takes long.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Progress {
    /// What it is.
    what: String,
    /// The share that is done, if that is known.
    share: Option<f64>,
    /// Seconds that are left, if that is known.
    left_s: Option<f64>,
}

/// How fast long work gets on.
#[derive(Default)]
pub struct Paces {
    synchronisation: Pace,
    saving: Pace,
    cleaning: Pace,
    /// Bytes that cleaning had moved at the last look, and segments that it had emptied.
    cleaned: Option<(f64, f64)>,
}

/// One piece of work: the moment of its first look, and how much was left then.
#[derive(Default)]
struct Pace(Option<(Instant, f64)>);

impl Pace {
    /// Takes note of how much is left now, `None` if there is no such work. Returns the seconds that
    /// the rest will take, if that can be said.
    fn left_s(&mut self, left: Option<f64>, at: Instant) -> Option<f64> {
        let Some(left) = left else {
            self.0 = None;
            return None;
        };
        let (began, first) = match self.0 {
            Some((began, first)) if left <= first => (began, first),
            // It is new, or other work than before.
            _ => *self.0.insert((at, left)),
        };
        let seconds = at.duration_since(began).as_secs_f64();
        let done = first - left;
        (seconds >= 1.0 && done > 0.0).then(|| left * seconds / done)
    }
}

impl Paces {
    /// Everything that takes long at this look.
    pub fn look(&mut self, info: &Info, at: Instant) -> Vec<Progress> {
        let mut found = Vec::new();
        let mut note = |what: &str, share: Option<f64>, left_s: Option<f64>| {
            found.push(Progress { what: what.to_owned(), share, left_s });
        };
        if info.is_on("loading") || info.is_on("async_loading") {
            let share = info.find("loading_loaded_perc").map(|percent| percent / 100.0);
            note("Loading the data set", share, info.find("loading_eta_seconds"));
        }
        let (saved, unsaved) =
            part(info, "current_save_keys_processed", "current_save_keys_total").unzip();
        let saving_left = self.saving.left_s(unsaved, at);
        if info.is_on("rdb_bgsave_in_progress") {
            note("Saving a snapshot", saved, saving_left);
        }
        if info.is_on("aof_rewrite_in_progress") {
            note("Rewriting the append-only file", saved, saving_left);
        }
        let received = part(info, "master_sync_read_bytes", "master_sync_total_bytes");
        let (received, unreceived) =
            received.filter(|_| info.is_on("master_sync_in_progress")).unzip();
        let left = self.synchronisation.left_s(unreceived, at);
        if info.is_on("master_sync_in_progress") {
            note("Receiving the data set from the primary", received, left);
        }
        for (_, line) in info.lines("slave") {
            if matches!(line.text("state"), "wait_bgsave" | "send_bulk" | "bg_transfer") {
                let what =
                    format!("Sending the data set to {}:{}", line.text("ip"), line.text("port"));
                note(&what, saved, saving_left);
            }
        }
        self.cleaning(info, at, &mut note);
        if info.number("mem_overhead_db_hashtable_rehashing") > 0.0 {
            note("Moving keys to a larger table", None, None);
        }
        if info.is_on("active_defrag_running") {
            note("Defragmenting memory", None, None);
        }
        if info.number("lazyfree_pending_objects") > 0.0 {
            note("Freeing deleted values", None, None);
        }
        let handing = info.text("master_failover_state");
        if handing.starts_with("waiting") || handing.starts_with("failover") {
            note("Handing the role to a replica", None, None);
        }
        found
    }

    /// The tier is cleaned until half of what it occupies is in use, or as long as segments are
    /// short.
    fn cleaning(
        &mut self,
        info: &Info,
        at: Instant,
        note: &mut impl FnMut(&str, Option<f64>, Option<f64>),
    ) {
        let now = (info.number("tier_rewritten_bytes"), info.number("tier_segments_cleaned"));
        let before = self.cleaned.replace(now);
        let is_cleaning = before.is_some_and(|before| now.0 > before.0 || now.1 > before.1);
        let used = info.number("tier_segments") - info.number("tier_segments_free");
        let surplus =
            used * info.number("tier_segment_bytes") / 2.0 - info.number("tier_value_bytes");
        let left = self.cleaning.left_s((is_cleaning && surplus > 0.0).then_some(surplus), at);
        if is_cleaning {
            note("Cleaning the flash tier", None, left);
        }
    }
}

/// The share that is done, and how much is left, of work whose whole is known.
fn part(info: &Info, done: &str, all: &str) -> Option<(f64, f64)> {
    let (done, all) = (info.number(done), info.number(all));
    (all > 0.0).then(|| ((done / all).min(1.0), (all - done).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// What is found at looks that are two seconds apart.
    fn looks(texts: &[&str]) -> Vec<Vec<Progress>> {
        let (mut paces, began) = (Paces::default(), Instant::now());
        let look = |(at, text): (usize, &&str)| {
            paces.look(&Info::parse(text), began + Duration::from_secs(2 * at as u64))
        };
        texts.iter().enumerate().map(look).collect()
    }

    #[test]
    fn time_left_follows_from_what_was_done_since_the_first_look() {
        let info = |read: u32| {
            format!(
                "master_sync_in_progress:1\nmaster_sync_total_bytes:1000\nmaster_sync_read_bytes:{read}\n"
            )
        };
        let (first, second, again) = (info(100), info(400), info(50));
        let found = looks(&[&first, &second, "", &again]);
        assert_eq!(found[0][0].left_s, None);
        assert_eq!((found[1][0].share, found[1][0].left_s), (Some(0.4), Some(4.0)));
        assert!(found[2].is_empty());
        assert_eq!(found[3][0].left_s, None);
    }

    #[test]
    fn a_replica_that_receives_the_data_set_is_named() {
        let text = "slave0:ip=10.0.0.2,port=7000,state=send_bulk,offset=0,lag=0\n\
                    slave1:ip=10.0.0.3,port=7000,state=online,offset=0,lag=0\n\
                    current_save_keys_processed:1\ncurrent_save_keys_total:4\n";
        let found = looks(&[text]);
        assert_eq!(found[0].len(), 1);
        assert_eq!(found[0][0].what, "Sending the data set to 10.0.0.2:7000");
        assert_eq!(found[0][0].share, Some(0.25));
    }

    #[test]
    fn cleaning_is_seen_by_what_it_moves_and_lasts_until_half_is_in_use() {
        let info = |moved: u32, free: u32| {
            format!(
                "tier_segments:10\ntier_segment_bytes:100\ntier_segments_cleaned:5\n\
                 tier_rewritten_bytes:{moved}\ntier_segments_free:{free}\ntier_value_bytes:200\n"
            )
        };
        let texts = [info(10, 1), info(20, 1), info(30, 2), info(30, 2)];
        let found = looks(&texts.each_ref().map(String::as_str));
        assert!(found[0].is_empty() && found[3].is_empty());
        assert_eq!(found[1][0].left_s, None);
        // 250 bytes too many two seconds ago, 200 now.
        assert_eq!(found[2][0].left_s, Some(8.0));
    }
}
