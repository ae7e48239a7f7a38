//! Where memory goes: what MEMORY STATS, MEMORY DOCTOR and INFO say of it.

use super::tier_report::Tier;
use engine::{Cx, DbIndex, Engine};
use std::collections::BTreeMap;
use std::fmt;

/// Below this there is too little data to say anything.
const ENOUGH_BYTES: usize = 5 << 20;
/// Differences below this do not matter, whatever the ratio.
const NOTABLE_BYTES: usize = 10 << 20;
/// Bytes of a client, on average, from which on its buffers are notable.
const NOTABLE_CLIENT_BYTES: usize = 200 << 10;

/// Bytes of the tables of one database.
pub(crate) struct TableBytes {
    pub(crate) db: u32,
    pub(crate) entries: usize,
    pub(crate) expiring: usize,
}

/// Bytes of replication streams.
#[derive(Clone, Copy, Default)]
pub(crate) struct StreamBytes {
    /// Of the journal, as far as it is the backlog.
    pub(crate) backlog: usize,
    /// Of the journal beyond that: what replicas lack.
    pub(crate) beyond: usize,
    /// Of a primary's stream that is kept until its snapshot is loaded.
    pub(crate) kept: usize,
}

impl StreamBytes {
    fn now(engine: &Engine) -> StreamBytes {
        let held = if engine.journal.is_keeping() { engine.journal.held_bytes() } else { 0 };
        let backlog =
            usize::try_from(engine.config.repl_backlog_size()).map_or(held, |most| held.min(most));
        let kept = usize::try_from(engine.upstream.link().kept_bytes).unwrap_or(usize::MAX);
        StreamBytes { backlog, beyond: held - backlog, kept }
    }

    pub(crate) fn total(self) -> usize {
        self.backlog + self.beyond + self.kept
    }
}

/// The figures, in bytes where they are not counts.
pub(crate) struct Memory {
    pub(crate) used: usize,
    pub(crate) peak: usize,
    /// What the operating system has given the process.
    pub(crate) resident: usize,
    /// What was used when the first client came.
    pub(crate) startup: usize,
    pub(crate) clients: usize,
    pub(crate) client_count: usize,
    pub(crate) streams: StreamBytes,
    /// Of the databases that hold keys.
    pub(crate) tables: Vec<TableBytes>,
    pub(crate) keys: usize,
    /// The flash tier, if there is one.
    pub(crate) tier: Option<Tier>,
}

/// A figure of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Figure {
    Bytes(i64),
    Ratio(f64),
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Bytes(bytes) => write!(f, "{bytes}"),
            Figure::Ratio(ratio) => write!(f, "{ratio:.2}"),
        }
    }
}

/// A row, which INFO and MEMORY STATS have under different names.
#[derive(Clone, Copy)]
pub(crate) struct MemoryRow {
    /// Its name in INFO; empty if INFO does not have it.
    pub(crate) in_info: &'static str,
    pub(crate) in_stats: &'static str,
    pub(crate) figure: Figure,
}

const fn row(in_info: &'static str, in_stats: &'static str, figure: Figure) -> MemoryRow {
    MemoryRow { in_info, in_stats, figure }
}

const fn bytes(bytes: usize) -> Figure {
    Figure::Bytes(bytes as i64)
}

/// All rows in the order of MEMORY STATS, which has those of databases between the two parts.
pub(crate) struct MemoryRows {
    pub(crate) before_databases: Vec<MemoryRow>,
    pub(crate) after_databases: Vec<MemoryRow>,
}

impl MemoryRows {
    /// Returns the row that INFO has under this name.
    pub(crate) fn find(&self, in_info: &str) -> Option<MemoryRow> {
        let mut rows = self.before_databases.iter().chain(&self.after_databases);
        rows.find(|row| row.in_info == in_info).copied()
    }

    /// Returns those that tell of the allocator.
    pub(crate) fn of_allocator(&self) -> impl Iterator<Item = &MemoryRow> {
        let names = ["allocator_", "rss_"];
        let is_of_it =
            move |row: &&MemoryRow| names.iter().any(|name| row.in_info.starts_with(name));
        self.after_databases.iter().filter(is_of_it)
    }
}

impl Memory {
    /// The rows of INFO and MEMORY STATS but for those of the tier.
    pub(crate) fn rows(&self, engine: &Engine) -> MemoryRows {
        use Figure::{Bytes, Ratio};
        let streams = &self.streams;
        let scripts = &engine.scripts;
        let per_key = (self.used - self.startup) / self.keys.max(1);
        let before_databases = vec![
            row("used_memory_peak", "peak.allocated", bytes(self.peak)),
            row("used_memory", "total.allocated", bytes(self.used)),
            row("used_memory_startup", "startup.allocated", bytes(self.startup)),
            row("mem_replication_backlog", "replication.backlog", bytes(streams.backlog)),
            row("mem_replicas_repl_buffer", "replicas.repl.buffer", bytes(streams.kept)),
            row("mem_clients_slaves", "clients.slaves", bytes(streams.beyond)),
            row("mem_clients_normal", "clients.normal", bytes(self.clients)),
            row("mem_cluster_links", "cluster.links", Bytes(0)),
            row("", "cluster.slot_import", Bytes(0)),
            row("", "cluster.slot_export", Bytes(0)),
            row("mem_aof_buffer", "aof.buffer", Bytes(super::info::unwritten(engine) as i64)),
            row("used_memory_scripts_eval", "lua.caches", bytes(scripts.cache.figures().1)),
            row(
                "used_memory_functions",
                "functions.caches",
                bytes(scripts.functions.all().bytes()),
            ),
        ];
        let entries = self.tables.iter().map(|t| t.entries).sum();
        let tables = [
            row("", "overhead.db.hashtable.lut", bytes(entries)),
            // A table that is being replaced counts with the others.
            row("mem_overhead_db_hashtable_rehashing", "overhead.db.hashtable.rehashing", Bytes(0)),
            row("used_memory_overhead", "overhead.total", bytes(self.overhead())),
            row("", "db.dict.rehashing.count", Bytes(0)),
            row("", "keys.count", bytes(self.keys)),
            row("", "keys.bytes-per-key", bytes(if self.keys == 0 { 0 } else { per_key })),
            row("used_memory_dataset", "dataset.bytes", bytes(self.dataset())),
            row("used_memory_dataset_perc", "dataset.percentage", Ratio(self.dataset_percent())),
            row("used_memory_peak_perc", "peak.percentage", Ratio(self.peak_percent())),
        ];
        let overrun = Bytes(self.resident as i64 - self.used as i64);
        let fragments = [
            row("mem_fragmentation_ratio", "fragmentation", Ratio(self.resident_ratio())),
            row("mem_fragmentation_bytes", "fragmentation.bytes", overrun),
        ];
        let after_databases =
            tables.into_iter().chain(self.allocator_rows()).chain(fragments).collect();
        MemoryRows { before_databases, after_databases }
    }

    /// What the allocator has. It keeps no count of pages in use that would differ from the RAM it
    /// has, and nothing else of the process has RAM worth a row.
    fn allocator_rows(&self) -> [MemoryRow; 10] {
        use Figure::{Bytes, Ratio};
        let (used, resident) = (self.used as i64, self.resident as i64);
        let fragments = Bytes(resident - used);
        [
            row("allocator_allocated", "allocator.allocated", Bytes(used)),
            row("allocator_active", "allocator.active", Bytes(resident)),
            row("allocator_resident", "allocator.resident", Bytes(resident)),
            row("allocator_muzzy", "allocator.muzzy", Bytes(0)),
            row(
                "allocator_frag_ratio",
                "allocator-fragmentation.ratio",
                Ratio(self.resident_ratio()),
            ),
            row("allocator_frag_bytes", "allocator-fragmentation.bytes", fragments),
            row("allocator_rss_ratio", "allocator-rss.ratio", Ratio(1.0)),
            row("allocator_rss_bytes", "allocator-rss.bytes", Bytes(0)),
            row("rss_overhead_ratio", "rss-overhead.ratio", Ratio(1.0)),
            row("rss_overhead_bytes", "rss-overhead.bytes", Bytes(0)),
        ]
    }

    /// The figures now. Walks over all stripes, but looks at no key.
    pub(crate) fn now(cx: &Cx<'_>) -> Memory {
        let engine = cx.engine;
        let used = keyspace::memory::used_bytes();
        let facts = engine.host().map_or_else(Vec::new, |host| host.facts("memory"));
        let resident = facts.iter().find(|(name, _)| name == "used_memory_rss");
        let mut memory = Memory {
            used,
            peak: keyspace::memory::peak_bytes(),
            resident: resident.and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(used),
            startup: engine.startup_bytes().min(used),
            clients: usize::try_from(engine.client_usage.bytes()).unwrap_or(usize::MAX),
            client_count: engine.clients.count(),
            streams: StreamBytes::now(engine),
            tables: Vec::new(),
            keys: 0,
            tier: Tier::now(cx),
        };
        for DbIndex(db) in engine.keyspace.used_databases() {
            let figures = cx.db.figures(DbIndex(db));
            let (entries, expiring) = (figures.entry_bytes, figures.expiring_bytes);
            memory.keys += figures.keys;
            if figures.keys > 0 {
                memory.tables.push(TableBytes { db, entries, expiring });
            }
        }
        memory
    }

    /// What is used for anything but the data.
    pub(crate) fn overhead(&self) -> usize {
        let tables: usize = self.tables.iter().map(|t| t.entries + t.expiring).sum();
        (self.startup + self.clients + self.streams.total() + tables).min(self.used)
    }

    /// What is used for the data.
    pub(crate) fn dataset(&self) -> usize {
        self.used - self.overhead()
    }

    /// The data's share of what has come since the start, in percent.
    pub(crate) fn dataset_percent(&self) -> f64 {
        percent(self.dataset(), self.used - self.startup)
    }

    /// What is used now of what was used at the peak, in percent.
    pub(crate) fn peak_percent(&self) -> f64 {
        percent(self.used, self.peak)
    }

    /// Resident bytes for each used one.
    pub(crate) fn resident_ratio(&self) -> f64 {
        self.resident as f64 / self.used.max(1) as f64
    }

    /// MEMORY DOCTOR's report.
    pub(crate) fn report(&self) -> String {
        let of_tier: Vec<&str> = self.tier.iter().flat_map(Tier::findings).collect();
        if self.used - self.startup < ENOUGH_BYTES && of_tier.is_empty() {
            return "There is too little data in this server to tell anything about its memory.\n"
                .to_owned();
        }
        let mut findings = Vec::new();
        if self.peak > self.used / 2 * 3 && self.peak - self.used > NOTABLE_BYTES {
            findings.push(
                "Past peak: at its peak the server used more than one and a half times the memory \
                 it uses now. The process may still hold memory from then; new data will fill it.",
            );
        }
        if self.resident_ratio() > 1.4 && self.resident - self.used > NOTABLE_BYTES {
            findings.push(
                "High overhead of the process: it holds more than 1.4 times the memory that is in \
                 use. After a peak this is to be expected; else it is fragmentation, which new \
                 data will fill, or which a restart removes.",
            );
        }
        if self.client_count > 0 && self.clients / self.client_count > NOTABLE_CLIENT_BYTES {
            findings.push(
                "Large client buffers: clients take more than 200 kB each on average. CLIENT LIST \
                 shows which (tot-mem, omem); `maxmemory-clients` and \
                 `client-output-buffer-limit` bound them.",
            );
        }
        findings.extend(of_tier);
        if findings.is_empty() {
            return "Nothing stands out in this server's use of memory.\n".to_owned();
        }
        let mut report = "What stands out in this server's use of memory:\n\n".to_owned();
        findings.iter().for_each(|finding| report += &format!(" * {finding}\n"));
        report
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Blocks of one size, over all areas of the allocator.
#[derive(Clone, Copy, Default)]
struct SizeClass {
    used: usize,
    touched: usize,
    /// Areas by how full they are: below a half, below 7/8, and fuller.
    fills: [usize; 3],
}

/// The text of MEMORY MALLOC-STATS: a line for each size of blocks, those first that waste most.
pub(crate) fn allocator() -> String {
    let mut classes: BTreeMap<usize, SizeClass> = BTreeMap::new();
    keyspace::memory::census(&mut |area| {
        let class = classes.entry(area.block_size).or_default();
        class.used += area.used;
        class.touched += area.touched;
        let eighths = area.used * 8 / area.reserved.max(1);
        class.fills[usize::from(eighths >= 4) + usize::from(eighths >= 7)] += 1;
    });
    let (used, peak) = (keyspace::memory::used_bytes(), keyspace::memory::peak_bytes());
    let mut text = format!("mimalloc: {used} bytes in blocks, {peak} at the most\n");
    text +=
        "bytes of a block, blocks in use, free bytes, pages below a half full, below 7/8, fuller\n";
    let free = |size: usize, class: &SizeClass| size * class.touched.saturating_sub(class.used);
    let mut sorted: Vec<_> = classes.into_iter().collect();
    sorted.sort_by_key(|(size, class)| std::cmp::Reverse(free(*size, class)));
    for (size, class) in sorted {
        let SizeClass { used, fills: [half, most, full], .. } = class;
        text +=
            &format!("{size:8} {used:10} {:12} {half:7} {most:7} {full:7}\n", free(size, &class));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(used: usize, peak: usize, resident: usize, clients: usize) -> Memory {
        let tables = vec![TableBytes { db: 0, entries: 1000, expiring: 10 }];
        let startup = 1 << 20;
        let (client_count, keys, tier) = (10, 5, None);
        let streams = StreamBytes::default();
        Memory { used, peak, resident, startup, clients, client_count, streams, tables, keys, tier }
    }

    #[test]
    fn what_is_no_overhead_is_data() {
        let memory = memory(10 << 20, 20 << 20, 12 << 20, 2000);
        assert_eq!(memory.overhead(), (1 << 20) + 2000 + 1010);
        assert_eq!(memory.dataset() + memory.overhead(), 10 << 20);
        assert_eq!(memory.peak_percent(), 50.0);
        assert!((99.9..100.0).contains(&memory.dataset_percent()));
    }

    #[test]
    fn the_report_names_what_stands_out() {
        let mib = 1 << 20;
        assert!(memory(mib, mib, mib, 0).report().contains("too little data"));
        assert!(memory(50 * mib, 55 * mib, 55 * mib, 0).report().starts_with("Nothing"));
        assert!(memory(50 * mib, 99 * mib, 55 * mib, 0).report().contains("Past peak"));
        assert!(memory(50 * mib, 50 * mib, 99 * mib, 0).report().contains("High overhead"));
        assert!(memory(50 * mib, 50 * mib, 50 * mib, 9 * mib).report().contains("client buffers"));
    }
}
