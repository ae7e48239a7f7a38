//! The commands of `dunlin cluster` that move data.

use super::print::{self, encoded};
use super::{Change, Place, bytes, follow};
use crate::rest::data::{
    BackingUp, BackupNamed, BackupShown, Backups, Exporting, Importing, Restarting, Restoring,
    ScheduleShown,
};
use crate::rest::wire::{Begun, JobId, Named};
use crate::settings::Wrong;
use clap::{Args, Subcommand};
use process::memory::Bytes;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// See the head of this file.
#[derive(Subcommand)]
pub enum DataVerb {
    /// Lets a database follow a server, a Sentinel group or a Redis Cluster, until it is finished
    Import(ImportOptions),
    /// Keeps a server or a Redis Cluster as a database is, until it is finished
    Export(ExportOptions),
    /// Ends an import or export when the target has all that the source has by now
    Finish {
        /// The job
        job: String,
        #[command(flatten)]
        place: Place,
    },
    /// Backs a database up to a folder or an S3 bucket, once or regularly
    Backup(BackupOptions),
    /// Lists the backups in a folder or bucket; without one, those that are scheduled
    Backups {
        /// /folder or s3://bucket/prefix
        at: Option<String>,
        /// Only those of this database
        #[arg(long)]
        database: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Reads and checks all of a backup
    VerifyBackup {
        /// /folder or s3://bucket/prefix
        at: String,
        /// DATABASE/TIME
        name: String,
        #[command(flatten)]
        change: Change,
    },
    /// Deletes a backup
    DeleteBackup {
        /// /folder or s3://bucket/prefix
        at: String,
        /// DATABASE/TIME
        name: String,
        #[command(flatten)]
        change: Change,
    },
    /// Makes a new database from a backup
    Restore(RestoreOptions),
    /// Restarts the copies of a database one after the other while it serves
    Restart {
        /// The database
        name: String,
        /// Add a copy to each shard before one of its copies ends, so that no shard has fewer
        /// copies than before. One of them leaves afterwards
        #[arg(long)]
        surge: bool,
        #[command(flatten)]
        change: Change,
    },
}

/// Options of an import.
#[derive(Args)]
pub struct ImportOptions {
    /// redis://[user:password@]host:port[,…], rediss://… or redis-sentinel://host:port,…/name
    source: String,
    /// The source's password, if the address has none
    #[arg(long, env = "DUNLIN_SOURCE_PASSWORD", hide_env_values = true)]
    source_password: Option<String>,
    /// The database
    name: String,
    /// Remove what the database has
    #[arg(long)]
    replace: bool,
    /// End as soon as the database has what the source has
    #[arg(long)]
    until_caught_up: bool,
    #[command(flatten)]
    change: Change,
}

/// Options of an export.
#[derive(Args)]
pub struct ExportOptions {
    /// The database
    name: String,
    /// redis://[user:password@]host:port[,…], rediss://… or redis-sentinel://host:port,…/name
    target: String,
    /// The target's password, if the address has none
    #[arg(long, env = "DUNLIN_TARGET_PASSWORD", hide_env_values = true)]
    target_password: Option<String>,
    /// Remove what the target has
    #[arg(long)]
    replace: bool,
    /// End as soon as the target has what the database has
    #[arg(long)]
    until_caught_up: bool,
    #[command(flatten)]
    change: Change,
}

/// Options of a backup.
#[derive(Args)]
pub struct BackupOptions {
    /// The database
    name: String,
    /// /folder (on the machines of the nodes) or s3://bucket/prefix
    #[arg(long, required_unless_present = "stop")]
    to: Option<String>,
    /// Back it up regularly: 90s, 30m, 1h, 1d
    #[arg(long, value_parser = time)]
    every: Option<u64>,
    /// How many backups of the database are kept there; older ones are removed
    #[arg(long)]
    keep: Option<usize>,
    /// End the scheduled backups
    #[arg(long, conflicts_with_all = ["to", "every", "keep"])]
    stop: bool,
    #[command(flatten)]
    change: Change,
}

/// Options of a restore.
#[derive(Args)]
pub struct RestoreOptions {
    /// /folder or s3://bucket/prefix
    at: String,
    /// DATABASE/TIME
    backup: String,
    /// The name of the new database
    #[arg(long = "as")]
    name: String,
    /// Its port [default: that of the old one]
    #[arg(long)]
    port: Option<u16>,
    /// Its shards [default: as many as the old one had]
    #[arg(long)]
    shards: Option<usize>,
    /// Its replicas [default: as many as the old one had]
    #[arg(long)]
    replicas: Option<usize>,
    /// What can be stored in it [default: as in the old one]
    #[arg(long)]
    memory: Option<String>,
    #[command(flatten)]
    change: Change,
}

/// Reads a time with its unit.
fn time(text: &str) -> Result<u64, String> {
    let why = || format!("'{text}': a time is a number with a unit, as in 30m, 1h or 1d");
    let unit = text.chars().next_back().ok_or_else(why)?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(why()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| why())?;
    number.checked_mul(factor).ok_or_else(why)
}

/// Adds a password to an address that has none.
fn with_password(address: String, password: Option<&str>) -> String {
    match (address.split_once("://"), password) {
        (Some((scheme, rest)), Some(password)) if !rest.contains('@') => {
            format!("{scheme}://:{}@{rest}", encoded(password))
        }
        _ => address,
    }
}

/// Runs a command.
///
/// # Errors
/// What the node says.
pub fn run(verb: DataVerb) -> Result<(), Wrong> {
    match verb {
        DataVerb::Import(options) => {
            let ImportOptions { source, name, replace, until_caught_up, change, .. } = options;
            let source = with_password(source, options.source_password.as_deref());
            let dry_run = change.dry_run;
            let body = Importing { database: name, source, replace, until_caught_up, dry_run };
            begin(&change, "/import", &body)
        }
        DataVerb::Export(options) => {
            let ExportOptions { name, target, replace, until_caught_up, change, .. } = options;
            let target = with_password(target, options.target_password.as_deref());
            let dry_run = change.dry_run;
            let body = Exporting { database: name, target, replace, until_caught_up, dry_run };
            begin(&change, "/export", &body)
        }
        DataVerb::Finish { job, place } => {
            let body = JobId { id: job.clone() };
            place.order("/jobs/finish", &body, "It ends when the target is in step.")?;
            follow(&place, &job, Duration::MAX)
        }
        DataVerb::Backup(BackupOptions { name, stop: true, change, .. }) => {
            let said = "It is not backed up regularly any more.";
            change.place.order_by("DELETE", "/schedules", &Named { name }, said)
        }
        DataVerb::Backup(options) => {
            let BackupOptions { name, to, every, keep, change, .. } = options;
            let (at, dry_run) = (to.unwrap_or_default(), change.dry_run);
            let body = BackingUp { database: name, at, every_s: every, keep, dry_run };
            begin(&change, "/backups", &body)
        }
        DataVerb::Backups { at: None, place, .. } => {
            place.show::<Vec<ScheduleShown>>("/schedules", |it| schedules(it))
        }
        DataVerb::Backups { at: Some(at), database, place } => {
            let asked = Backups { at, database };
            let value = place.node().send("POST", "/backups/list", &asked).map_err(Wrong::from)?;
            print::value::<Vec<BackupShown>>(&value, place.json, |it| backups(it))
        }
        DataVerb::VerifyBackup { at, name, change } => {
            let dry_run = change.dry_run;
            begin(&change, "/backups/verify", &BackupNamed { at, name, dry_run })
        }
        DataVerb::DeleteBackup { at, name, change } => {
            let dry_run = change.dry_run;
            let said = if dry_run { "It can be deleted." } else { "It is deleted." };
            let body = BackupNamed { at, name, dry_run };
            change.place.order_by("DELETE", "/backups", &body, said)
        }
        DataVerb::Restore(options) => {
            let RestoreOptions { at, backup, name, port, shards, replicas, memory, change } =
                options;
            let memory_bytes = memory.as_deref().map(|text| bytes("memory", text)).transpose()?;
            let (name, database, dry_run) = (backup, name, change.dry_run);
            let body =
                Restoring { at, name, database, port, shards, replicas, memory_bytes, dry_run };
            begin(&change, "/restore", &body)
        }
        DataVerb::Restart { name, surge, change } => {
            let dry_run = change.dry_run;
            begin(&change, "/restart", &Restarting { database: name, surge, dry_run })
        }
    }
}

/// Begins a job, and follows it as long as it takes.
fn begin(change: &Change, path: &str, body: &impl Serialize) -> Result<(), Wrong> {
    let place = &change.place;
    let value: Value = place.node().send("POST", path, body).map_err(Wrong::from)?;
    let begun: Begun = serde_json::from_value(value.clone()).map_err(|it| Wrong(it.to_string()))?;
    let job = begun.job.filter(|_| !change.no_wait);
    if !place.json || job.is_none() {
        print::value(&value, place.json, said)?;
    }
    match job {
        Some(job) => follow(place, &job, Duration::MAX),
        None => Ok(()),
    }
}

fn said(begun: &Begun) -> String {
    match (&begun.job, &begun.plan) {
        (Some(job), None) => format!("job {job}\n"),
        (None, None) => "Nothing is in the way of it.\n".into(),
        _ => print::begun(begun),
    }
}

fn backups(backups: &[BackupShown]) -> String {
    let mut rows = vec![print::titles(&["BACKUP", "SHARDS", "KEYS", "BYTES", "PAUSE", "STATE"])];
    rows.extend(backups.iter().map(|it| {
        vec![
            it.name.clone(),
            it.shards.to_string(),
            it.keys.to_string(),
            Bytes(it.bytes).to_string(),
            format!("{} ms", it.pause_ms),
            it.state.clone(),
        ]
    }));
    print::table(&rows)
}

fn schedules(schedules: &[ScheduleShown]) -> String {
    let mut rows = vec![print::titles(&["DATABASE", "TO", "EVERY", "KEEP"])];
    rows.extend(schedules.iter().map(|it| {
        vec![
            it.database.clone(),
            it.at.clone(),
            format!("{} s", it.every_s),
            it.keep.map_or("all".into(), |keep| keep.to_string()),
        ]
    }));
    print::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_added_where_none_is() {
        let with = |address: &str| with_password(address.into(), Some("a@b"));
        assert_eq!(with("redis://h:1"), "redis://:a%40b@h:1");
        assert_eq!(with("redis://:x@h:1"), "redis://:x@h:1");
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(
            [time("90s"), time("30m"), time("2h"), time("1d")],
            [Ok(90), Ok(1800), Ok(7200), Ok(86_400)]
        );
        assert!(
            ["", "1", "h", "1w", "-1h", "99999999999999999999d"]
                .iter()
                .all(|text| time(text).is_err())
        );
    }
}
