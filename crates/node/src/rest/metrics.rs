//! `/metrics` of a node: what it knows of machines, databases, its own copies and jobs. What
//! copies do is `/metrics/copies`, in `targets`.

use crate::bus;
use crate::change::is_running;
use crate::shared::Shared;
use crate::show::state_word;
use crate::site::{Database, Placed, ProcessState, Site, Stage};
use metrics::text::{Exposition, Kind};

/// Returns the text of a scrape.
pub fn expose(shared: &Shared) -> String {
    let mut out = Exposition::default();
    let site = shared.site();
    let etcd = if shared.trouble().is_none() { 1.0 } else { 0.0 };
    out.single("dunlin_cluster_etcd_up", Kind::Gauge, "Whether etcd answers this node", etcd);
    let revision = site.revision as f64;
    let help = "The revision of etcd that this node has read last";
    out.single("dunlin_cluster_revision", Kind::Gauge, help, revision);
    machines(&mut out, &site);
    databases(&mut out, &site);
    copies(&mut out, &site, &shared.machine);
    unlinked(&mut out, &site);
    without_tls(&mut out, &site);
    if let Some(space) = shared.disk().space {
        let help = "Bytes that the disk of this node's directory still takes";
        let free = space.free_bytes as f64;
        out.single("dunlin_cluster_disk_free_bytes", Kind::Gauge, help, free);
        let help = "Bytes of the disk of this node's directory";
        out.single("dunlin_cluster_disk_size_bytes", Kind::Gauge, help, space.size_bytes as f64);
    }
    out.into_text()
}

fn machines(out: &mut Exposition, site: &Site) {
    let alive = |it: &crate::site::Known| if it.alive.is_some() { 1.0 } else { 0.0 };
    let mut up = out.family(
        "dunlin_cluster_machine_up",
        Kind::Gauge,
        "Whether a machine's node has a lease",
    );
    for (name, known) in &site.machines {
        up.sample(&[("machine", name)], alive(known));
    }
    let help = "Whether a machine gives its copies away, or has done so";
    let mut draining = out.family("dunlin_cluster_machine_draining", Kind::Gauge, help);
    for (name, known) in &site.machines {
        draining.sample(&[("machine", name)], if known.is_draining { 1.0 } else { 0.0 });
    }
    let help = "Bytes that copies on a machine may have";
    let mut limit = out.family("dunlin_cluster_machine_memory_bytes", Kind::Gauge, help);
    for (name, known) in &site.machines {
        limit.sample(&[("machine", name)], known.spec.value.memory_bytes as f64);
    }
    let help = "Bytes that are given to copies on a machine";
    let mut used = out.family("dunlin_cluster_machine_used_bytes", Kind::Gauge, help);
    for name in site.machines.keys() {
        used.sample(&[("machine", name)], site.used_bytes(name) as f64);
    }
}

fn databases(out: &mut Exposition, site: &Site) {
    let stages =
        [(Stage::Creating, "creating"), (Stage::Ready, "ready"), (Stage::Deleting, "deleting")];
    let mut family = out.family("dunlin_cluster_databases", Kind::Gauge, "Databases by stage");
    for (stage, word) in stages {
        let count = site.databases.values().filter(|at| at.value.stage == stage).count();
        family.sample(&[("stage", word)], count as f64);
    }
    let count = site.jobs.values().filter(|at| is_running(at)).count();
    let help = "Jobs that have not ended";
    out.single("dunlin_cluster_jobs_running", Kind::Gauge, help, count as f64);
    let help = "Values at etcd that cannot be read";
    out.single("dunlin_cluster_unreadable_values", Kind::Gauge, help, site.problems.len() as f64);
}

fn copies(out: &mut Exposition, site: &Site, machine: &str) {
    let known = site.machines.get(machine).and_then(|known| known.alive.as_ref());
    let reports = known.map(|at| &*at.value.copies).unwrap_or_default();
    let help = "Processes of this machine's copies, by state";
    let mut family = out.family("dunlin_cluster_copy_process", Kind::Gauge, help);
    for report in reports {
        let (copy, state) = (report.copy.to_string(), state_word(report.state));
        family.sample(&[("database", &report.database), ("copy", &copy), ("state", &state)], 1.0);
    }
    let help = "How often this node has started a copy again";
    let mut family = out.family("dunlin_cluster_copy_restarts_total", Kind::Counter, help);
    for report in reports {
        let copy = report.copy.to_string();
        family.sample(&[("database", &report.database), ("copy", &copy)], report.restarts as f64);
    }
}

/// Says of each shard how many of its copies are of no use to it. Any node says it, of all
/// machines.
fn unlinked(out: &mut Exposition, site: &Site) {
    let help = "Copies of a shard that do not run, or are not connected to their primary";
    let mut family = out.family("dunlin_cluster_copies_unlinked", Kind::Gauge, help);
    for (name, at) in site.databases.iter().filter(|(_, at)| at.value.stage == Stage::Ready) {
        for shard in at.value.shards() {
            let count = count_unlinked(site, &at.value, shard);
            family.sample(&[("database", name), ("shard", &shard.to_string())], count as f64);
        }
    }
}

/// Says of each database how many of its copies keep all of them without TLS between each other.
fn without_tls(out: &mut Exposition, site: &Site) {
    let help =
        "Copies without a port for other copies, in a database of which some are to have one";
    let mut family = out.family("dunlin_cluster_copies_without_bus", Kind::Gauge, help);
    for (name, at) in site.databases.iter().filter(|(_, at)| at.value.stage == Stage::Ready) {
        let count = bus::lacking(site, &at.value).len();
        family.sample(&[("database", name)], count as f64);
    }
}

fn count_unlinked(site: &Site, database: &Database, shard: usize) -> usize {
    let is_of_use = |placed: &&Placed| {
        let report = site.report(placed);
        report.is_some_and(|it| it.state == ProcessState::Running && it.link_error.is_empty())
    };
    let copies = database.copies.iter().filter(|it| it.shard == shard && !it.is_leaving);
    copies.filter(|placed| !is_of_use(placed)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::{report, with_database};
    use crate::site::CopyReport;

    #[test]
    fn copies_that_do_not_run_or_lack_their_primary_are_counted() {
        let (mut site, _) = with_database(Stage::Ready);
        let database = site.databases["d"].value.clone();
        let count = |site: &Site| count_unlinked(site, &database, 0);
        assert_eq!(count(&site), 2, "no node has said that they run");
        for placed in database.copies.iter().filter(|it| it.shard == 0) {
            let known = site.machines.get_mut(&placed.machine).expect("it is there");
            let alive = known.alive.as_mut().expect("it lives");
            alive.value.copies.push(report(placed));
        }
        assert_eq!(count(&site), 0);
        let copies = |site: &mut Site| {
            let known = site.machines.get_mut("a").expect("it is there");
            known.alive.as_mut().expect("it lives").value.copies.clone()
        };
        let set = |site: &mut Site, copies: Vec<CopyReport>| {
            let known = site.machines.get_mut("a").expect("it is there");
            known.alive.as_mut().expect("it lives").value.copies = copies;
        };
        let well = copies(&mut site);
        let cut = CopyReport { link_error: "cut".into(), ..well[0].clone() };
        set(&mut site, vec![cut]);
        assert_eq!(count(&site), 1, "it is not connected");
        let waiting = CopyReport { state: ProcessState::Waiting, ..well[0].clone() };
        set(&mut site, vec![waiting]);
        assert_eq!(count(&site), 1, "it does not run");
        set(&mut site, well);
        site.machines.get_mut("b").expect("it is there").alive = None;
        assert_eq!(count(&site), 1, "its machine is down");
        let mut out = Exposition::default();
        unlinked(&mut out, &site);
        let text = out.into_text();
        let line = "dunlin_cluster_copies_unlinked{database=\"d\",shard=\"0\"} 1";
        assert!(text.contains(line), "{text}");
    }
}
