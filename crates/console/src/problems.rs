//! What is wrong with the server now, worst first.

use crate::events::Level;
use crate::info::Info;
use crate::sampler::Seen;
use schemars::JsonSchema;
use serde::Serialize;

/// Something that is wrong.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Problem {
    /// How much it matters.
    pub level: Level,
    /// What is wrong.
    pub title: String,
    /// What it means, and what can be done.
    pub detail: String,
    /// The page of the console that tells more.
    pub page: &'static str,
}

/// Seconds after which a snapshot is old when there are changes.
const OLD_SNAPSHOT: f64 = 24.0 * 3600.0;
/// Seconds that a replica may be silent.
const SILENCE: f64 = 10.0;
/// Bytes that a replica may be behind.
const BEHIND: f64 = 64.0 * 1024.0 * 1024.0;

/// Finds what is wrong.
pub fn find(seen: &Seen) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(why) = &seen.failure {
        let title = if why.starts_with("BUSY") {
            "A script runs and holds up everything else"
        } else {
            "The server does not answer"
        };
        problems.push(problem(Level::Alarm, title, why.clone(), "slow"));
        return problems;
    }
    let info = &seen.info;
    persistence(info, seen, &mut problems);
    memory(info, seen, &mut problems);
    replication(info, &mut problems);
    clients(info, seen, &mut problems);
    tier(info, &mut problems);
    problems.sort_by_key(|problem| match problem.level {
        Level::Alarm => 0,
        Level::Warning => 1,
        Level::Info => 2,
    });
    problems
}

fn problem(level: Level, title: &str, detail: impl Into<String>, page: &'static str) -> Problem {
    Problem { level, title: title.to_owned(), detail: detail.into(), page }
}

fn value(seen: &Seen, name: &str) -> f64 {
    let at = crate::history::COLUMNS.iter().position(|column| column.name == name);
    at.and_then(|at| seen.values.get(at)).map_or(0.0, |&value| f64::from(value))
}

fn persistence(info: &Info, seen: &Seen, problems: &mut Vec<Problem>) {
    let mut note =
        |level, title, detail: &str| problems.push(problem(level, title, detail, "config"));
    if info.text("rdb_last_bgsave_status") == "err" {
        note(
            Level::Alarm,
            "The last snapshot failed",
            "Writes may be refused. The server's log says why.",
        );
    }
    if info.text("aof_last_write_status") == "err" {
        note(
            Level::Alarm,
            "The append-only file cannot be written",
            "The disk may be full. The log says why.",
        );
    }
    if info.text("aof_last_bgrewrite_status") == "err" {
        note(
            Level::Warning,
            "The last rewrite of the append-only file failed",
            "The log says why.",
        );
    }
    let logs = info.is_on("aof_enabled");
    let age = seen.at as f64 - info.number("rdb_last_save_time");
    let changes = info.number("rdb_changes_since_last_save");
    if !logs && seen.save_points.is_empty() && info.sum_of_databases("keys") > 0.0 {
        let detail = "Neither save nor appendonly is configured: a restart loses the data.";
        note(Level::Info, "Nothing is written to disk", detail);
    } else if !logs && changes > 0.0 && age > OLD_SNAPSHOT {
        note(
            Level::Warning,
            "The last snapshot is more than a day old",
            "Changes since then would be lost.",
        );
    }
    if value(seen, "delayed_syncs") > 0.0
        || info.is_on("aof_pending_bio_fsync") && info.number("aof_buffer_length") > 1e6
    {
        note(
            Level::Warning,
            "The disk is slow",
            "Writing the append-only file waits for the disk.",
        );
    }
}

fn memory(info: &Info, seen: &Seen, problems: &mut Vec<Problem>) {
    let (used, limit) = (info.number("used_memory"), info.number("maxmemory"));
    let share = if limit > 0.0 { used / limit } else { 0.0 };
    let refuses = info.text("maxmemory_policy") == "noeviction";
    let detail = format!(
        "{:.0} % of maxmemory is used; policy {}.",
        share * 100.0,
        info.text("maxmemory_policy")
    );
    if share > 0.95 && refuses {
        problems.push(problem(
            Level::Alarm,
            "Memory is nearly full: writes will be refused",
            detail,
            "keys",
        ));
    } else if share > 0.9 && refuses {
        problems.push(problem(Level::Warning, "Memory is near its limit", detail, "keys"));
    }
    let evicted = value(seen, "evicted");
    if evicted > 0.0 {
        let detail = format!("{evicted:.0} keys a second make way for others.");
        problems.push(problem(Level::Warning, "Keys are being evicted", detail, "keys"));
    }
    let (resident, total) = (info.number("used_memory_rss"), info.number("total_system_memory"));
    if total > 0.0 && resident > 0.9 * total {
        let detail = "The process has more than 90 % of the machine's memory.";
        problems.push(problem(Level::Alarm, "The machine is short of memory", detail, "keys"));
    }
}

fn replication(info: &Info, problems: &mut Vec<Problem>) {
    let mut note = |level, title: &str, detail: String| {
        problems.push(problem(level, title, detail, "replication"))
    };
    if info.text("role") == "slave" && info.text("master_link_status") == "down" {
        let detail = if info.is_on("master_sync_in_progress") {
            "The data set is being received.".to_owned()
        } else {
            format!("For {} s. Reads may be old.", info.text("master_link_down_since_seconds"))
        };
        note(Level::Alarm, "The link to the primary is down", detail);
    }
    let end = info.number("master_repl_offset");
    for (_, line) in info.lines("slave") {
        let (state, name) =
            (line.text("state"), format!("{}:{}", line.text("ip"), line.text("port")));
        if state.is_empty() {
            continue;
        }
        if state != "online" {
            note(
                Level::Warning,
                "A replica is not in sync yet",
                format!("{name} is in state {state}."),
            );
        } else if line.number("lag") > SILENCE {
            note(
                Level::Warning,
                "A replica is silent",
                format!("{name} was last heard {} s ago.", line.text("lag")),
            );
        } else if end - line.number("offset") > BEHIND {
            let behind = (end - line.number("offset")) / 1024.0 / 1024.0;
            note(Level::Warning, "A replica is behind", format!("{name} lacks {behind:.0} MiB."));
        }
    }
}

fn clients(info: &Info, seen: &Seen, problems: &mut Vec<Problem>) {
    let (now, most) = (info.number("connected_clients"), info.number("maxclients"));
    if most > 0.0 && now > 0.9 * most {
        let detail = format!("{now} of {most} connections are taken.");
        problems.push(problem(Level::Warning, "Connections are running out", detail, "clients"));
    }
    if value(seen, "rejected") > 0.0 {
        let detail = "maxclients is reached, or protected mode holds.";
        problems.push(problem(Level::Alarm, "Clients are being refused", detail, "clients"));
    }
    let (over, shed) = (info.number("overloaded_threads"), value(seen, "shed"));
    if over > 0.0 || shed > 0.0 {
        let detail = format!(
            "{shed:.0} requests of shed-users and shed-clients a second are refused with TRYAGAIN. \
             Threads over a limit: {over}{}.",
            limits_exceeded(info)
        );
        let title = "The server is overloaded";
        problems.push(problem(Level::Warning, title, detail, "clients"));
    }
    if info.text("paused_reason") != "none" && !info.text("paused_reason").is_empty() {
        let detail = format!("Actions paused: {}.", info.text("paused_actions"));
        problems.push(problem(Level::Info, "Clients are paused", detail, "clients"));
    }
}

/// Names the limits of load that threads exceed now.
fn limits_exceeded(info: &Info) -> String {
    let limits = [
        ("overloaded_threads_turns", "shed-turn-usec"),
        ("overloaded_threads_cpu", "shed-cpu-percent"),
        ("overloaded_threads_queued_bytes", "shed-queued-bytes"),
    ];
    let exceeded = limits.iter().filter(|(field, _)| info.number(field) > 0.0);
    let names: Vec<&str> = exceeded.map(|(_, option)| *option).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

fn tier(info: &Info, problems: &mut Vec<Problem>) {
    if info.is_on("tier_full") {
        let detail = "Values no longer leave memory. Raise tier-max-size or free disk space.";
        problems.push(problem(Level::Alarm, "The flash tier is full", detail, "config"));
    }
    if info.is_on("tier_writes_failing") {
        let detail = "The disk of the flash tier refuses writes. The log says why.";
        problems.push(problem(Level::Alarm, "The flash tier cannot write", detail, "config"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(text: &str) -> Vec<String> {
        let seen =
            Seen { at: 1, info: Info::parse(text), save_points: "60 1".into(), ..Seen::default() };
        find(&seen).into_iter().map(|problem| problem.title).collect()
    }

    #[test]
    fn the_worst_comes_first() {
        let found = titles(
            "used_memory:99\nmaxmemory:100\nmaxmemory_policy:noeviction\nrole:slave\n\
             master_link_status:down\nconnected_clients:10\nmaxclients:10\n",
        );
        assert_eq!(found.last().unwrap(), "Connections are running out");
        assert_eq!(found.len(), 3);
        assert!(titles("used_memory:99\nmaxmemory:0\nrole:master\n").is_empty());
    }

    #[test]
    fn an_overload_says_which_limits_it_is_over() {
        let text = "overloaded_threads:2\noverloaded_threads_turns:0\n\
                    overloaded_threads_cpu:2\noverloaded_threads_queued_bytes:1\n";
        let mut seen =
            Seen { at: 1, info: Info::parse(text), save_points: "60 1".into(), ..Seen::default() };
        let at = crate::history::COLUMNS.iter().position(|column| column.name == "shed");
        seen.values = vec![0.0; crate::history::COLUMNS.len()];
        seen.values[at.unwrap()] = 70.0;
        let found = find(&seen);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].title, "The server is overloaded");
        let detail = &found[0].detail;
        assert!(detail.starts_with("70 requests"), "{detail}");
        assert!(detail.ends_with("limit: 2 (shed-cpu-percent, shed-queued-bytes)."), "{detail}");
        // Requests that were refused a moment ago are told of, too.
        seen.info = Info::parse("overloaded_threads:0\n");
        assert!(find(&seen)[0].detail.ends_with("limit: 0."));
        seen.values.clear();
        assert!(find(&seen).is_empty());
    }

    #[test]
    fn a_server_that_does_not_answer_has_no_other_problem() {
        let seen = Seen { failure: Some("BUSY script".into()), ..Seen::default() };
        let found = find(&seen);
        assert_eq!(found.len(), 1);
        assert!(found[0].title.contains("script"));
    }
}
