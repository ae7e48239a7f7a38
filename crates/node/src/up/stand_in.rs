//! A machine without a server of etcd takes the place of one that was lost, when an operator has
//! had that machine forgotten.

use super::UpOptions;
use super::join::{MEMBERS, become_member};
use super::kept::Kept;
use crate::shared::Shared;
use crate::site::Site;
use process::log;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the members are counted.
const INTERVAL: Duration = Duration::from_secs(5);

/// Between two looks at whether the node ends.
const LOOK: Duration = Duration::from_millis(200);

/// How long a call to etcd may take.
const CALL: Duration = Duration::from_secs(5);

/// See the head of this file.
pub struct StandIn {
    options: UpOptions,
    kept: Kept,
    directory: PathBuf,
}

impl StandIn {
    /// For a machine of a cluster whose etcd is ours. `None`: etcd is the user's.
    pub fn new(options: &UpOptions, kept: &Kept, directory: &Path) -> Option<StandIn> {
        let is_possible = kept.etcd.is_none()
            && kept.access.is_ours
            && options.etcd.is_none()
            && !options.contained.is_contained();
        is_possible.then(|| StandIn {
            options: options.clone(),
            kept: kept.clone(),
            directory: directory.to_owned(),
        })
    }

    /// Waits until a member is missing, and becomes one then; watches its server until `is_over`.
    pub fn wait(mut self, shared: &Shared, is_over: &AtomicBool) {
        let mut next = Instant::now() + INTERVAL;
        while !is_over.load(Ordering::Relaxed) {
            if Instant::now() < next {
                std::thread::sleep(LOOK);
                continue;
            }
            next = Instant::now() + INTERVAL;
            let Ok((_, members)) = shared.store(CALL).health() else { continue };
            let names: Vec<String> = members.into_iter().map(|member| member.name).collect();
            if !is_next(&shared.site(), &names, &shared.machine) {
                continue;
            }
            match become_member(&self.options, &mut self.kept, &self.directory) {
                Ok(Some(own)) => {
                    let text = format!("machine '{}' is a member of etcd now", shared.machine);
                    log!(Notice, "{text}");
                    shared.store(CALL).note(&text);
                    return own.watch(is_over, false);
                }
                Ok(None) => {}
                Err(why) => log!(Warning, "This machine cannot be a member of etcd: {why}"),
            }
        }
    }
}

/// Returns whether a member is missing and this machine is the first that could be one: two at a
/// time would get in each other's way.
fn is_next(site: &Site, members: &[String], machine: &str) -> bool {
    let is_free = |name: &&String| site.is_alive(name) && !members.contains(name);
    let first = site.machines.keys().find(is_free);
    members.len() < MEMBERS && first.is_some_and(|first| first == machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::site;

    #[test]
    fn one_machine_at_a_time_takes_the_place() {
        let site = site(&[("a", "", 8), ("b", "", 8), ("c", "", 8), ("d", "", 8)]);
        let members =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(!is_next(&site, &members(&["a", "b", "c"]), "d"));
        assert!(is_next(&site, &members(&["a", "b"]), "c"));
        assert!(!is_next(&site, &members(&["a", "b"]), "d"));
    }
}
