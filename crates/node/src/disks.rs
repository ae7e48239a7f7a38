//! What is wrong with this machine although its processes run: copies that cannot write to their
//! disks, or are not connected to their primaries, as they say themselves; and the disk below the
//! node's own directory. Such a copy has its lease and answers, so nothing else shows it.

use crate::shared::{Disk, Shared};
use crate::site::{Stage, Trouble};
use crate::talk::{self, field};
use cluster::id::Id;
use process::disk::{self, Space};
use process::memory::Bytes;
use process::{log, os_error};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at all copies.
const LOOK: Duration = Duration::from_secs(5);

/// How often the thread looks whether it is to end.
const STEP: Duration = Duration::from_millis(100);

/// How long a copy may be without its primary, or its port for others: a switch takes less.
const MAX_TROUBLE: Duration = Duration::from_secs(10);

/// What a disk has to have left. etcd makes room for its log in pieces of this size.
const MIN_FREE_BYTES: u64 = 64 << 20;

/// Fields of INFO that are `ok` if a disk takes what it should, and what another value means.
const FIELDS: [(&str, &str); 3] = [
    ("aof_last_write_status", "it cannot write its append-only file"),
    ("aof_last_bgrewrite_status", "the last rewrite of its append-only file failed"),
    ("rdb_last_bgsave_status", "its last snapshot failed"),
];

/// Looks until `is_over`. `directory` is the node's.
pub fn watch(shared: &Arc<Shared>, directory: &Path, is_over: &AtomicBool) {
    let mut long = Long::default();
    let mut looked: Option<Instant> = None;
    while !is_over.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            look_at_disk(shared, directory);
            look(shared, &mut long, is_over);
            looked = Some(Instant::now());
        }
        std::thread::sleep(STEP);
    }
}

fn look_at_disk(shared: &Shared, directory: &Path) {
    let found = disk::space(directory);
    let error = lack_of(directory, &found);
    let before = shared.disk().error;
    match (&*before, &*error) {
        ("", "") => {}
        (_, "") => log!(Notice, "{} has room again", directory.display()),
        ("", error) => log!(Warning, "{error}"),
        (..) => {}
    }
    // As it was said first: the number of bytes changes all the time.
    let error = if before.is_empty() || error.is_empty() { error } else { before };
    shared.set_disk(Disk { space: found.ok(), error });
}

/// Says that the disk of a folder is full, or nearly so. The text is empty if it is not.
pub fn lack(folder: &Path) -> String {
    lack_of(folder, &disk::space(folder))
}

fn lack_of(folder: &Path, found: &io::Result<Space>) -> String {
    match found {
        Ok(space) => too_full(folder, *space),
        Err(why) => format!("{} cannot be looked at: {}", folder.display(), os_error(why)),
    }
}

fn too_full(folder: &Path, Space { free_bytes, size_bytes }: Space) -> String {
    if free_bytes >= MIN_FREE_BYTES {
        return String::new();
    }
    format!(
        "the disk of {} is full: {} of {} are left, and an etcd there ends when it cannot write. \
         Make room: what was stopped starts again by itself",
        folder.display(),
        Bytes(free_bytes),
        Bytes(size_bytes)
    )
}

fn look(shared: &Shared, long: &mut Long, is_over: &AtomicBool) {
    let site = shared.site();
    let own = site.machines.get(&shared.machine);
    let has_bus = own.is_some_and(|known| known.spec.value.bus_port_offset > 0);
    let before = shared.troubles();
    let mut troubles = BTreeMap::new();
    for (_, database, placed) in site.placed_on(&shared.machine) {
        if database.stage != Stage::Ready || placed.is_leaving || is_over.load(Ordering::Relaxed) {
            continue;
        }
        let copy = placed.copy;
        let address = (&*placed.host, placed.port);
        let sections = ["persistence", "replication"];
        let trouble = match talk::info(address, database.login(), &sections, talk::ANSWER) {
            Ok(info) => {
                let now = Instant::now();
                let of_bus = if has_bus { unannounced(&info) } else { String::new() };
                let is_cut = long.unlinked.note(copy, is_linked(&info), now);
                let lacks_bus = long.without_bus.note(copy, of_bus.is_empty(), now);
                Trouble {
                    disk: refused(&info),
                    link: if is_cut { UNLINKED.into() } else { String::new() },
                    bus: if lacks_bus { of_bus } else { String::new() },
                }
            }
            // One that does not answer is what it was.
            Err(_) => before.get(&copy).cloned().unwrap_or_default(),
        };
        troubles.insert(copy, trouble);
    }
    for times in [&mut long.unlinked, &mut long.without_bus] {
        times.since.retain(|copy, _| troubles.contains_key(copy));
    }
    troubles.retain(|_, trouble| *trouble != Trouble::default());
    shared.set_troubles(troubles);
}

fn refused(info: &str) -> String {
    let is_bad = |name: &str| field(info, name).is_some_and(|status| status != "ok");
    let refused = FIELDS.iter().filter(|(name, _)| is_bad(name));
    let refused: Vec<String> = refused.map(|(name, what)| format!("{what} ({name})")).collect();
    refused.join("; ")
}

/// Returns whether a copy gets what its primary does, or loads a snapshot of it. A primary needs no
/// link.
fn is_linked(info: &str) -> bool {
    let is = |name: &str, value: &str| field(info, name) == Some(value);
    !is("master_link_status", "down") || is("master_sync_in_progress", "1")
}

/// Returns why a copy announces no port for others, or nothing. Its node knows if it has none.
fn unannounced(info: &str) -> String {
    // It knows nothing of the others while it loads, or before it has heard from the coordinator.
    if field(info, "loading") == Some("1") || field(info, "cluster_coordinator").is_none() {
        return String::new();
    }
    match (field(info, "cluster_bus_announced"), field(info, "cluster_bus_unreached")) {
        (Some("1"), _) => String::new(),
        (_, Some(place)) => format!(
            "it does not reach {place}, where another copy has, or would have, its port for other \
             copies. Start that copy again if it is of the release before, or let this machine \
             reach it"
        ),
        _ => "it was started without a port for other copies: restart the database".into(),
    }
}

/// What is wrong with a copy that has no link for long.
const UNLINKED: &str = "it is not connected to its primary (master_link_status): its log says why";

/// Since when something is wrong with copies.
#[derive(Default)]
struct Long {
    unlinked: Since,
    without_bus: Since,
}

/// Since when copies are not well.
#[derive(Default)]
struct Since {
    since: BTreeMap<Id, Instant>,
}

impl Since {
    /// Notes whether a copy is well now. Returns whether it has not been for long.
    fn note(&mut self, copy: Id, is_well: bool, now: Instant) -> bool {
        if is_well {
            self.since.remove(&copy);
            return false;
        }
        let since = *self.since.entry(copy).or_insert(now);
        now.saturating_duration_since(since) >= MAX_TROUBLE
    }
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

    #[test]
    fn a_copy_that_is_not_well_is_named_after_a_while() {
        let (mut times, began) = (Since::default(), Instant::now());
        let [one, other] = ["1", "2"].map(|digit| digit.repeat(40).parse().expect("an id"));
        let mut is_long = |copy, is_well, seconds| {
            times.note(copy, is_well, began + Duration::from_secs(seconds))
        };
        assert!(!is_long(one, false, 0));
        assert!(!is_long(one, false, 9));
        assert!(is_long(one, false, 10));
        assert!(!is_long(other, false, 10), "each has a time of its own");
        assert!(!is_long(one, true, 15));
        assert!(!is_long(one, false, 20), "the time begins anew");
    }

    #[test]
    fn a_copy_that_announces_no_port_for_others_says_why() {
        assert_eq!(unannounced("cluster_coordinator:up\r\ncluster_bus_announced:1\r\n"), "");
        let cut = "cluster_coordinator:up\r\ncluster_bus_announced:0\r\n\
                   cluster_bus_unreached:10.0.0.2:22000\r\n";
        assert!(unannounced(cut).starts_with("it does not reach 10.0.0.2:22000,"));
        // One of the release before, whose process goes on below a node of this one.
        assert!(unannounced("cluster_coordinator:up\r\n").contains("restart the database"));
        assert_eq!(unannounced("loading:1\r\ncluster_coordinator:up\r\n"), "");
        assert_eq!(unannounced("role:master\r\n"), "");
    }

    #[test]
    fn a_primary_and_a_copy_that_loads_need_no_link() {
        assert!(is_linked("role:master\r\nconnected_slaves:0\r\n"));
        assert!(is_linked("role:slave\r\nmaster_link_status:up\r\n"));
        let loads = "master_link_status:down\r\nmaster_sync_in_progress:1\r\n";
        assert!(is_linked(loads));
        assert!(!is_linked("master_link_status:down\r\nmaster_sync_in_progress:0\r\n"));
    }

    #[test]
    fn a_disk_with_no_room_for_a_piece_of_the_log_of_etcd_is_full() {
        let said =
            |free_bytes| too_full(Path::new("/data"), Space { free_bytes, size_bytes: 1 << 30 });
        assert_eq!(said(MIN_FREE_BYTES), "");
        let text = said(MIN_FREE_BYTES - 1);
        assert!(text.starts_with("the disk of /data is full: 64.0 MiB of 1.0 GiB"), "{text}");
        assert!(lack(Path::new("/no such folder")).contains("No such file"));
    }
}
