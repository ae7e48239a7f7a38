//! `/metrics` of a node: what it knows of machines, databases, its own copies and jobs. What
//! copies do is `/metrics/copies`, in `targets`.

use crate::change::is_running;
use crate::shared::Shared;
use crate::show::state_word;
use crate::site::{Site, Stage};
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
