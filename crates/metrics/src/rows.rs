//! INFO's fields as rows: name, type, unit, help, the series that redis_exporter makes of the
//! field, and what clients get of several servers.
//!
//! A row for each field that the server writes, and after them those of other servers, which the
//! console shows, too. Fields in the plural (a line for each command, error, database, replica,
//! listener) are [`PLURAL`]. `docs/info.md` is made of the rows: `BLESS=1 cargo test -p metrics
//! page`.

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

/// The unit of a field's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None: words, switches, and counts of what the help names.
    None,
    /// Bits.
    Bits,
    /// Bytes.
    Bytes,
    /// Days.
    Days,
    /// KiB each second.
    KibPerSecond,
    /// Millionths of a second.
    Microseconds,
    /// Thousandths of a second.
    Milliseconds,
    /// Events each second.
    PerSecond,
    /// Hundredths.
    Percent,
    /// One quantity by another.
    Ratio,
    /// Seconds.
    Seconds,
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in INFO.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// The unit of its number.
    pub unit: Unit,
    /// Clients of several servers behind one address get the sum. Of other fields they get the
    /// first server's.
    pub is_summed: bool,
    /// The name of redis_exporter's series without `redis_`; empty if the exporter has none.
    pub series: &'static str,
    /// What it says.
    pub help: &'static str,
}

const fn row(kind: Type, name: &'static str, series: &'static str, help: &'static str) -> Row {
    Row { name, kind, unit: Unit::None, is_summed: false, series, help }
}

impl Row {
    /// Returns the same with a unit.
    pub(crate) const fn unit(self, unit: Unit) -> Row {
        Row { unit, ..self }
    }

    /// Returns the same for a field that is added up over servers.
    pub(crate) const fn summed(self) -> Row {
        Row { is_summed: true, ..self }
    }
}

/// A row of words.
pub(crate) const fn text(name: &'static str, help: &'static str) -> Row {
    row(Type::Text, name, "", help)
}

/// A row whose number may go down.
pub(crate) const fn gauge(name: &'static str, series: &'static str, help: &'static str) -> Row {
    row(Type::Gauge, name, series, help)
}

/// A row whose number goes up.
pub(crate) const fn counter(name: &'static str, series: &'static str, help: &'static str) -> Row {
    row(Type::Counter, name, series, help)
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
pub const PLURAL: [(&str, &str); 9] = [
    ("listener", "A port or socket that the server listens on."),
    ("slave", "A replica: its address, state, position and lag."),
    ("errorstat_", "How often an error of this code was replied."),
    ("db", "The keys of a database, and how many of them expire."),
    ("cmdstat_", "Calls of a command, microseconds that it took, and its errors."),
    ("latency_percentiles_usec_", "Percentiles of the microseconds that a command took."),
    (
        "request_bytes_",
        "Requests of a command, their bytes, and how many were shorter than a size.",
    ),
    ("reply_bytes_", "Replies of a command, their bytes, and how many were shorter than a size."),
    ("timing_", "Durations of what is no command, such as an fsync."),
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

/// Writes `docs/info.md`, or compares it with the rows.
#[cfg(test)]
mod page {
    use super::{PLURAL, Row, SECTIONS, Type, Unit};
    use std::fmt::Write as _;
    use std::path::Path;

    const HEAD: &str = "# INFO and metrics\n\n\
        `INFO [section …]` answers with these fields, and `/metrics` of the console with the \
        numbers among them as series for Prometheus: under the name that redis_exporter gives \
        them where it has one, else as `dunlin_…`. Types: *text* is no series, a *gauge* may go \
        up and down, a *counter* goes up until `CONFIG RESETSTAT` or a restart. Clients of several \
        servers behind one address get the first server's fields, and the sum of those with \
        *sum*.\n\n\
        This page is made of the rows from which both are made. Some fields are there only in a \
        state: of a replica, while a load runs, with a flash tier.\n";
    const MANY: &str = "\n## Fields of which there are many\n\n\
        | begins with | one for each |\n|---|---|\n";

    /// Returns how the page writes a unit.
    fn word(unit: Unit) -> &'static str {
        match unit {
            Unit::None => "",
            Unit::Bits => "bits",
            Unit::Bytes => "bytes",
            Unit::Days => "days",
            Unit::KibPerSecond => "KiB/s",
            Unit::Microseconds => "µs",
            Unit::Milliseconds => "ms",
            Unit::PerSecond => "1/s",
            Unit::Percent => "%",
            Unit::Ratio => "ratio",
            Unit::Seconds => "s",
        }
    }

    fn row(out: &mut String, row: &Row) {
        let kind = match row.kind {
            Type::Text => "text",
            Type::Gauge => "gauge",
            Type::Counter => "counter",
        };
        let series = crate::own::series(row).map_or(String::new(), |name| format!("`{name}`"));
        let Row { name, help, .. } = row;
        let (unit, sum) = (word(row.unit), if row.is_summed { "sum" } else { "" });
        writeln!(out, "| `{name}` | {kind} | {unit} | {sum} | {help} | {series} |")
            .expect("a string takes all");
    }

    #[test]
    fn the_page_is_up_to_date() {
        let mut page = HEAD.to_owned();
        for (title, rows) in SECTIONS {
            let title = if title.is_empty() { "Fields of other servers" } else { title };
            write!(
                page,
                "\n## {title}\n\n| field | type | unit | together | what it says | series |\n"
            )
            .and_then(|()| page.write_str("|---|---|---|---|---|---|\n"))
            .expect("a string takes all");
            rows.iter().for_each(|it| row(&mut page, it));
        }
        page.push_str(MANY);
        for (prefix, help) in PLURAL {
            writeln!(page, "| `{prefix}` | {help} |").expect("a string takes all");
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/info.md");
        if std::env::var_os("BLESS").is_some_and(|value| value != "0") {
            std::fs::write(&path, page).expect("the repository can be written");
            return;
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        let advice =
            "docs/info.md is out of date; write it with BLESS=1 cargo test -p metrics page";
        assert!(found == page, "{advice}");
    }
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
            assert!(!row.is_summed || row.kind != Type::Text, "{}", row.name);
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
