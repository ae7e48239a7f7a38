//! `dunlin bench audit`: what did a server lose of the writes it had acknowledged?
//!
//! For every key the ledger's last acknowledged version is compared with what the server has now.
//! An older version, or none, is a loss. Losses that are the end of a client's writes are a lost
//! tail, as an asynchronous fail-over leaves; a loss before a write of the same client that
//! survived is a hole: the server kept later writes and not earlier ones.

use crate::End;
use crate::ledger::{Entry, HEADER};
use crate::options::args::AuditArgs;
use crate::options::{Target, unexpected};
use crate::workload::digits::append_number;
use resp::Value;
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

const BATCH: usize = 1000;

/// Losses named one by one.
const SHOWN: usize = 10;

/// A ledger as it was read.
struct Noted {
    run: u64,
    prefix: Vec<u8>,
    padded: bool,
    acknowledged: u64,
    /// Lines that make no sense: the last may be cut short, others should not be there.
    unreadable: u64,
    /// By key, the last acknowledged write and when.
    last: HashMap<u64, (Entry, u64)>,
    /// The time of the last acknowledgement, in microseconds of the run.
    end_us: u64,
}

/// A key whose last acknowledged write is not there.
#[derive(Debug, Serialize)]
struct Loss {
    key: String,
    /// The version that was acknowledged last.
    acknowledged: u64,
    /// The version that is there; none: nothing, or a value that is not of this run.
    found: Option<u64>,
    client: u64,
    sequence: u64,
    /// Microseconds from the start of the run.
    acknowledged_at_us: u64,
    /// A later write of the same client survived.
    before_a_survivor: bool,
}

/// The audit's result. Fields may be added; `format` rises when one changes its meaning.
#[derive(Debug, Serialize)]
struct Audit {
    format: u32,
    server: String,
    acknowledged_writes: u64,
    keys: u64,
    keys_as_acknowledged: u64,
    keys_newer: u64,
    keys_lost: u64,
    versions_lost: u64,
    holes: u64,
    unreadable_lines: u64,
    first_lost_at_us: Option<u64>,
    last_acknowledgement_us: u64,
    losses: Vec<Loss>,
}

/// Audits.
pub fn run(args: &AuditArgs) -> Result<End, String> {
    let target = Target::new(&args.connection, &args.tls)?;
    let path = args.file.display();
    let noted = read(&args.file).map_err(|error| format!("{path}: {error}"))?;
    let audit = audit(&target, &noted).map_err(|error| format!("{}: {error}", target.address))?;
    print(&audit);
    if let Some(path) = &args.json_out_file {
        let text = serde_json::to_string_pretty(&audit).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n")
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(if audit.keys_lost == 0 { End::Clean } else { End::Unclean })
}

fn read(path: &std::path::Path) -> io::Result<Noted> {
    let mut lines = BufReader::new(File::open(path)?).lines();
    let refuse = || io::Error::other("this is not a ledger of dunlin bench");
    let header = lines.next().ok_or_else(refuse)??;
    let fields = header.strip_prefix(HEADER).ok_or_else(refuse)?;
    let field = |name: &str| {
        fields.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    };
    let hex = field("prefix").ok_or_else(refuse)?;
    let prefix: Option<Vec<u8>> = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect();
    let mut noted = Noted {
        run: field("run").and_then(|run| u64::from_str_radix(run, 16).ok()).ok_or_else(refuse)?,
        prefix: prefix.ok_or_else(refuse)?,
        padded: field("digits") == Some("12"),
        acknowledged: 0,
        unreadable: 0,
        last: HashMap::new(),
        end_us: 0,
    };
    for line in lines {
        match Entry::of_line(&line?) {
            Some((entry, at_us)) => {
                noted.acknowledged += 1;
                noted.end_us = noted.end_us.max(at_us);
                let last = noted.last.entry(entry.key).or_insert((entry, at_us));
                if entry.version > last.0.version {
                    *last = (entry, at_us);
                }
            }
            None => noted.unreadable += 1,
        }
    }
    Ok(noted)
}

fn audit(target: &Target, noted: &Noted) -> io::Result<Audit> {
    let mut client = target.connect()?;
    let mut keys: Vec<u64> = noted.last.keys().copied().collect();
    keys.sort_unstable();
    let name = |key: u64| {
        let mut name = noted.prefix.clone();
        if noted.padded {
            name.extend_from_slice(format!("{key:012}").as_bytes());
        } else {
            append_number(&mut name, key);
        }
        name
    };
    let mut audit = Audit {
        format: 1,
        server: target.address.to_string(),
        acknowledged_writes: noted.acknowledged,
        keys: keys.len() as u64,
        keys_as_acknowledged: 0,
        keys_newer: 0,
        keys_lost: 0,
        versions_lost: 0,
        holes: 0,
        unreadable_lines: noted.unreadable,
        first_lost_at_us: None,
        last_acknowledgement_us: noted.end_us,
        losses: Vec::new(),
    };
    // By client, the latest of its writes that is still there.
    let mut survivors: HashMap<u64, u64> = HashMap::new();
    for batch in keys.chunks(BATCH) {
        for &key in batch {
            client.queue(&[b"GET", &name(key)[..]]);
        }
        client.flush()?;
        for &key in batch {
            let found = match client.reply()? {
                Value::Bulk(value) => Entry::of_value(key, &value, noted.run),
                Value::Null => None,
                other => return Err(unexpected("GET", &other)),
            };
            let (last, at_us) = noted.last[&key];
            if let Some(found) = found {
                let survivor = survivors.entry(found.client).or_insert(0);
                *survivor = (*survivor).max(found.sequence);
            }
            match found {
                Some(found) if found.version == last.version => audit.keys_as_acknowledged += 1,
                // A write whose acknowledgement did not arrive may well have happened.
                Some(found) if found.version > last.version => audit.keys_newer += 1,
                found => {
                    let found = found.map(|found| found.version);
                    audit.versions_lost += last.version - found.unwrap_or(0);
                    audit.losses.push(Loss {
                        key: String::from_utf8_lossy(&name(key)).into_owned(),
                        acknowledged: last.version,
                        found,
                        client: last.client,
                        sequence: last.sequence,
                        acknowledged_at_us: at_us,
                        before_a_survivor: false,
                    });
                }
            }
        }
    }
    for loss in &mut audit.losses {
        loss.before_a_survivor =
            survivors.get(&loss.client).is_some_and(|&sequence| sequence > loss.sequence);
    }
    audit.losses.sort_by_key(|loss| loss.acknowledged_at_us);
    audit.keys_lost = audit.losses.len() as u64;
    audit.holes = audit.losses.iter().filter(|loss| loss.before_a_survivor).count() as u64;
    audit.first_lost_at_us = audit.losses.first().map(|loss| loss.acknowledged_at_us);
    Ok(audit)
}

fn print(audit: &Audit) {
    println!(
        "{}: {} acknowledged writes of {} keys",
        audit.server, audit.acknowledged_writes, audit.keys
    );
    println!(
        "  {:>10} keys have the version that was acknowledged last",
        audit.keys_as_acknowledged
    );
    println!(
        "  {:>10} keys have a newer one (written, but the acknowledgement did not arrive)",
        audit.keys_newer
    );
    println!(
        "  {:>10} keys have lost acknowledged writes, {} versions in all",
        audit.keys_lost, audit.versions_lost
    );
    println!("  {:>10} of these are holes: a later write of the same client survived", audit.holes);
    if audit.unreadable_lines > 0 {
        println!("  {:>10} lines of the ledger are unreadable", audit.unreadable_lines);
    }
    if let Some(first) = audit.first_lost_at_us {
        let before = audit.last_acknowledgement_us.saturating_sub(first) as f64 / 1e6;
        println!(
            "The first lost write was acknowledged {before:.3} s before the last acknowledgement."
        );
    }
    for loss in audit.losses.iter().take(SHOWN) {
        let found = loss.found.map_or("nothing".into(), |version| format!("version {version}"));
        println!(
            "  {}: version {} was acknowledged, {found} is there",
            loss.key, loss.acknowledged
        );
    }
    if audit.losses.len() > SHOWN {
        println!("  … and {} more", audit.losses.len() - SHOWN);
    }
}
