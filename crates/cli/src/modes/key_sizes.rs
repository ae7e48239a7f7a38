//! `--bigkeys` and `--memkeys`: the largest key of each type, by elements or by bytes.

use super::scan::{Walk, ask_all, fail};
use crate::flavor::Flavor;
use crate::session::{Session, emit};
use std::process::ExitCode;

/// What makes a key large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// How many elements it has.
    Length,
    /// How many bytes of memory it takes, sampling so many elements.
    Memory(Option<u64>),
}

/// What is known of a type.
#[derive(Clone, Debug)]
pub struct TypeSizes {
    /// Its name, as TYPE returns it.
    pub name: String,
    /// The command that returns its length. A type without one is measured in bytes of memory.
    pub length_command: Option<&'static str>,
    /// What its elements are called.
    pub unit: &'static str,
    /// How many keys there are.
    pub count: u64,
    /// The sum of their sizes.
    pub total: u64,
    /// The largest size.
    pub biggest: u64,
    /// The key that has it.
    pub biggest_key: Vec<u8>,
}

/// The types that every server has, in the order of the summary.
pub fn kinds() -> Vec<TypeSizes> {
    [
        ("list", "LLEN", "items"),
        ("hash", "HLEN", "fields"),
        ("stream", "XLEN", "entries"),
        ("string", "STRLEN", "bytes"),
        ("set", "SCARD", "members"),
        ("zset", "ZCARD", "members"),
    ]
    .map(|(name, command, unit)| TypeSizes::new(name, Some(command), unit))
    .into()
}

/// The types of Redis's modules that have a length: its command, and what it counts. Such a type is
/// in the summary if there is a key of it.
const MODULE_KINDS: [(&str, &str, &str); 3] = [
    ("vectorset", "VCARD", "elements"),
    ("MBbloom--", "BF.CARD", "items"),
    ("bloomfltr", "BF.CARD", "items"),
];

impl TypeSizes {
    /// Returns the kind of a type that a module brings.
    fn of_module(name: &str) -> TypeSizes {
        match MODULE_KINDS.iter().find(|(known, ..)| *known == name) {
            Some(&(_, command, unit)) => TypeSizes::new(name, Some(command), unit),
            None => TypeSizes::new(name, None, "bytes"),
        }
    }

    fn new(name: &str, length_command: Option<&'static str>, unit: &'static str) -> TypeSizes {
        let name = name.to_owned();
        TypeSizes {
            name,
            length_command,
            unit,
            count: 0,
            total: 0,
            biggest: 0,
            biggest_key: Vec::new(),
        }
    }

    fn unit(&self, measure: Measure) -> &'static str {
        if measure == Measure::Length { self.unit } else { "bytes" }
    }
}

/// The place of each key's type in `kinds`, which grows by types it lacks. Nothing for keys that
/// are gone.
pub fn types(
    session: &mut Session,
    keys: &[Vec<u8>],
    kinds: &mut Vec<TypeSizes>,
) -> Vec<Option<usize>> {
    let requests: Vec<_> = keys.iter().map(|key| vec![b"TYPE".to_vec(), key.clone()]).collect();
    ask_all(session, &requests)
        .iter()
        .map(|reply| {
            let name = reply.text();
            if reply.is_error() || name == "none" {
                return None;
            }
            if reply.bytes().is_none() {
                fail("ERROR: TYPE did not return a name");
            }
            Some(kinds.iter().position(|kind| kind.name == name).unwrap_or_else(|| {
                kinds.push(TypeSizes::of_module(&name));
                kinds.len() - 1
            }))
        })
        .collect()
}

/// MEMORY USAGE of a key.
pub fn memory_usage(key: &[u8], samples: Option<u64>) -> Vec<Vec<u8>> {
    let mut words = vec![b"MEMORY".to_vec(), b"USAGE".to_vec(), key.to_vec()];
    if let Some(samples) = samples.filter(|samples| *samples > 0) {
        words.extend([b"SAMPLES".to_vec(), samples.to_string().into_bytes()]);
    }
    words
}

/// How far a walk is, in percent.
pub fn percent(done: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { (100.0 * done as f64 / all as f64).min(100.0) }
}

/// The key as the name that the program was called by shows it.
fn shown(session: &Session, key: &[u8]) -> String {
    let mut out = Vec::new();
    crate::words::quote(&mut out, key);
    let quoted = String::from_utf8_lossy(&out).into_owned();
    if session.options.flavor == Flavor::Valkey { format!("'{quoted}'") } else { quoted }
}

/// The line before a summary.
pub fn summary_title(session: &Session) -> &'static str {
    match session.options.flavor {
        Flavor::Valkey => "-------- Summary --------",
        Flavor::Dunlin | Flavor::Redis => "-------- summary -------",
    }
}

/// Scans and reports.
pub fn run(session: &mut Session, measure: Measure) -> ExitCode {
    emit(
        b"\n# Scanning the entire keyspace to find biggest keys as well as\n\
          # average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n\
          # per 100 SCAN commands (not usually needed).\n\n",
    );
    let all = session.ask(&["DBSIZE"]).integer().unwrap_or_default() as u64;
    let mut kinds = kinds();
    let (mut sampled, mut name_bytes) = (0, 0);
    let mut walk = Walk::new(session);
    while let Some(keys) = walk.next(session) {
        let done = percent(sampled, all);
        let types = types(session, &keys, &mut kinds);
        let sizes = sizes(session, measure, &keys, &types, &kinds);
        for ((key, kind), size) in keys.iter().zip(types).zip(sizes) {
            let Some(kind) = kind else { continue };
            let kind = &mut kinds[kind];
            kind.total += size;
            kind.count += 1;
            name_bytes += key.len() as u64;
            sampled += 1;
            if kind.biggest < size {
                kind.biggest = size;
                kind.biggest_key.clone_from(key);
                let (key, unit) = (shown(session, key), kind.unit(measure));
                println!(
                    "[{done:05.2}%] Biggest {:<6} found so far {key} with {size} {unit}",
                    kind.name
                );
            }
            if sampled % 1_000_000 == 0 {
                println!("[{done:05.2}%] Sampled {sampled} keys so far");
            }
        }
        walk.pause(session);
    }
    summary(session, measure, &kinds, sampled, name_bytes);
    ExitCode::SUCCESS
}

fn sizes(
    session: &mut Session,
    measure: Measure,
    keys: &[Vec<u8>],
    types: &[Option<usize>],
    kinds: &[TypeSizes],
) -> Vec<u64> {
    let mut requests = Vec::new();
    let mut asked = Vec::new();
    for (index, (key, kind)) in keys.iter().zip(types).enumerate() {
        let Some(kind) = kind else { continue };
        requests.push(match (measure, kinds[*kind].length_command) {
            (Measure::Length, Some(command)) => vec![command.into(), key.clone()],
            (Measure::Length, None) => memory_usage(key, None),
            (Measure::Memory(samples), _) => memory_usage(key, samples),
        });
        asked.push(index);
    }
    let mut sizes = vec![0; keys.len()];
    for (index, reply) in asked.into_iter().zip(ask_all(session, &requests)) {
        // A key that has become another type, or is gone, has no size.
        sizes[index] = reply.integer().unwrap_or_default() as u64;
    }
    sizes
}

fn summary(
    session: &Session,
    measure: Measure,
    kinds: &[TypeSizes],
    sampled: u64,
    name_bytes: u64,
) {
    let mean = |sum: u64, count: u64| if count == 0 { 0.0 } else { sum as f64 / count as f64 };
    println!("\n{}\n", summary_title(session));
    println!("Sampled {sampled} keys in the keyspace!");
    let average = mean(name_bytes, sampled);
    println!("Total key length in bytes is {name_bytes} (avg len {average:.2})\n");
    for kind in kinds.iter().filter(|kind| !kind.biggest_key.is_empty()) {
        let (key, unit) = (shown(session, &kind.biggest_key), kind.unit(measure));
        println!("Biggest {:>6} found {key} has {} {unit}", kind.name, kind.biggest);
    }
    println!();
    for kind in kinds {
        println!(
            "{} {}s with {} {} ({:05.2}% of keys, avg size {:.2})",
            kind.count,
            kind.name,
            kind.total,
            kind.unit(measure),
            100.0 * mean(kind.count, sampled),
            mean(kind.total, kind.count)
        );
    }
}
