//! INFO's fields as rows: name, type, help, and the series that redis_exporter makes of the field.
//!
//! A row for each field that the server writes, and after them those of other servers, which the
//! console shows, too. Fields in the plural (a line for each command, error, database, replica,
//! listener) are [`PLURAL`].

use crate::rows_state::{CLIENTS, MEMORY, PERSISTENCE, SERVER};
use crate::rows_work::{CPU, ELSEWHERE, REPLICATION, STATS, TIER};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Words for people and programs.
    Text,
    /// A number that may go up and down.
    Gauge,
    /// A number that goes up, and falls to 0 when it is reset.
    Counter,
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in INFO.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// The name of redis_exporter's series without `redis_`; empty if the exporter has none.
    pub series: &'static str,
    /// What it says.
    pub help: &'static str,
}

/// A row of words.
pub(crate) const fn text(name: &'static str, help: &'static str) -> Row {
    Row { name, kind: Type::Text, series: "", help }
}

/// A row whose number may go down.
pub(crate) const fn gauge(name: &'static str, series: &'static str, help: &'static str) -> Row {
    Row { name, kind: Type::Gauge, series, help }
}

/// A row whose number goes up.
pub(crate) const fn counter(name: &'static str, series: &'static str, help: &'static str) -> Row {
    Row { name, kind: Type::Counter, series, help }
}

/// Sections with their rows. The last one has the fields of other servers.
pub static SECTIONS: [(&str, &[Row]); 9] = [
    ("Server", &SERVER),
    ("Clients", &CLIENTS),
    ("Memory", &MEMORY),
    ("Tier", &TIER),
    ("Persistence", &PERSISTENCE),
    ("Stats", &STATS),
    ("Replication", &REPLICATION),
    ("CPU", &CPU),
    ("", &ELSEWHERE),
];

/// Beginnings of the names of fields of which there are many, and what they are fields of.
pub const PLURAL: [(&str, &str); 7] = [
    ("listener", "A port or socket that the server listens on."),
    ("slave", "A replica."),
    ("errorstat_", "An error code."),
    ("db", "A database."),
    ("cmdstat_", "A command."),
    ("latency_percentiles_usec_", "A command."),
    ("timing_", "What is no command and takes time."),
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static Row>> = LazyLock::new(|| {
    SECTIONS.iter().flat_map(|(_, rows)| rows.iter()).map(|row| (row.name, row)).collect()
});

/// The row of a field.
pub fn find(name: &str) -> Option<&'static Row> {
    BY_NAME.get(name).copied()
}

/// Whether a field is one of many.
pub fn is_plural(name: &str) -> bool {
    let of_kind = |prefix: &str| {
        let rest = name.strip_prefix(prefix)?;
        let is_numbered = rest.parse::<u32>().is_ok();
        (prefix.ends_with('_') || is_numbered).then_some(())
    };
    // The lines of the section Modules have one name.
    name == "module" || PLURAL.iter().any(|(prefix, _)| of_kind(prefix).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_name_is_there_twice() {
        let mut names = HashSet::new();
        let mut series = HashSet::new();
        for row in SECTIONS.iter().flat_map(|(_, rows)| rows.iter()) {
            assert!(names.insert(row.name), "{}", row.name);
            assert!(row.series.is_empty() || series.insert(row.series), "{}", row.series);
            assert!(row.series.is_empty() || row.kind != Type::Text, "{}", row.name);
            assert!(!row.help.is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn fields_in_the_plural_are_known() {
        for name in [
            "slave0",
            "module",
            "db15",
            "cmdstat_config|get",
            "errorstat_ERR",
            "listener1",
            "timing_journal_fsync",
        ] {
            assert!(is_plural(name), "{name}");
        }
        for name in ["slave_priority", "dbs", "db"] {
            assert!(!is_plural(name), "{name}");
        }
    }
}
