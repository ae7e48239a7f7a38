//! What each slot of a database weighs, as its primaries say.

use crate::settings::Measure;
use crate::site::{Database, Placed};
use crate::store::Problem;
use crate::talk::{self, Answer};
use cluster::slots::COUNT;
use cluster::view::View;
use std::time::Duration;

/// Slots of one question: the answer takes a primary about a millisecond.
const SLOTS: u16 = 256;

/// How long a primary may take for all of them.
const LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at counters that only grow.
const SPAN: Duration = Duration::from_millis(500);

/// What is known of the slots, by slot.
#[derive(Clone, Debug)]
pub struct Slotted {
    /// Keys.
    pub keys: Vec<u64>,
    /// Bytes of keys and values, estimated.
    pub bytes: Vec<u64>,
    /// What was asked for.
    pub weights: Vec<u64>,
}

impl Slotted {
    /// Nothing is known.
    pub fn empty() -> Slotted {
        let none = || vec![0; usize::from(COUNT)];
        Slotted { keys: none(), bytes: none(), weights: none() }
    }
}

/// Asks all primaries at the same time.
///
/// # Errors
/// One does not answer.
pub fn slots(database: &Database, view: &View, by: Measure) -> Result<Slotted, Problem> {
    let mut all = Slotted::empty();
    let primaries = view.topology.value.shards.iter().filter(|shard| !shard.slots.is_empty());
    let placed = primaries
        .filter_map(|shard| database.copies.iter().find(|placed| placed.copy == shard.holder.id));
    let asked: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            placed.map(|placed| scope.spawn(|| ask(database, placed, by))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for shard in asked {
        let (figures, load) = shard.map_err(|_| Problem::Away("the node ends".into()))??;
        let keys: u64 = figures.iter().map(|it| it.keys).sum();
        for Figures { slot, keys: here, bytes } in figures {
            let slot = usize::from(slot);
            (all.keys[slot], all.bytes[slot]) = (here, bytes);
            all.weights[slot] = match (by, load) {
                (Measure::Bytes, _) => bytes,
                (Measure::Keys, _) => here,
                // The load of a shard is spread over its keys: servers do not count it by slot.
                (_, load) => {
                    let part = u128::from(load) * u128::from(here) / u128::from(keys.max(1));
                    u64::try_from(part).unwrap_or(u64::MAX)
                }
            };
        }
    }
    Ok(all)
}

/// What a primary says of a slot.
struct Figures {
    slot: u16,
    keys: u64,
    bytes: u64,
}

/// Asks a primary. Returns its slots, and what it does a second.
fn ask(database: &Database, placed: &Placed, by: Measure) -> Result<(Vec<Figures>, u64), Problem> {
    let address = (&*placed.host, placed.port);
    let away = |why: String| {
        let Placed { machine, port, .. } = placed;
        Problem::Away(format!("the primary on machine '{machine}', port {port}: {why}"))
    };
    let ends: Vec<(String, String)> = (0..COUNT)
        .step_by(usize::from(SLOTS))
        .map(|first| (first.to_string(), (first + SLOTS - 1).to_string()))
        .collect();
    let mut figures = Vec::new();
    for (first, last) in &ends {
        let question = ["CLUSTER", "SLOT-STATS", "SLOTSRANGE", first, last, "MEMORY-BYTES"];
        let answer = talk::ask_node(address, database.login(), &question, LIMIT);
        match answer.map_err(|error| away(error.to_string()))? {
            Answer::Text(text) => figures.extend(read(&text)),
            Answer::Error(why) => return Err(away(why)),
        }
    }
    let load = match by {
        Measure::Bytes | Measure::Keys => 0,
        Measure::Cpu | Measure::Network => load(database, placed, by).map_err(away)?,
    };
    Ok((figures, load))
}

/// Reads the lines of an answer: the slot, then names and numbers.
fn read(text: &str) -> Vec<Figures> {
    let mut figures: Vec<Figures> = Vec::new();
    let mut words = text.lines().filter(|line| !line.is_empty());
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match (word, figures.last_mut()) {
            ("key-count", Some(last)) => last.keys = number(),
            ("memory-bytes", Some(last)) => last.bytes = number(),
            _ => figures.extend(word.parse().ok().map(|slot| Figures { slot, keys: 0, bytes: 0 })),
        }
    }
    figures
}

/// What a primary does in a second, in units that all primaries share.
fn load(database: &Database, placed: &Placed, by: Measure) -> Result<u64, String> {
    let first = counter(database, placed, by)?;
    std::thread::sleep(SPAN);
    Ok(counter(database, placed, by)?.saturating_sub(first))
}

fn counter(database: &Database, placed: &Placed, by: Measure) -> Result<u64, String> {
    let address = (&*placed.host, placed.port);
    let question: [&[&str]; 1] = [&["INFO", "everything"]];
    let answers = talk::ask(address, database.login(), &question, LIMIT);
    let answers = answers.map_err(|error| error.to_string())?;
    let [Answer::Text(info)] = &answers[..] else { return Err("INFO is refused".into()) };
    let field = |name: &str| {
        let text = talk::field(info, name)?;
        text.parse::<f64>().ok()
    };
    let names: &[&str] = match by {
        Measure::Network => &["total_net_input_bytes", "total_net_output_bytes"],
        _ => &["used_cpu_sys", "used_cpu_user"],
    };
    let scale = if by == Measure::Network { 1.0 } else { 1e6 };
    let sum: f64 = names.iter().filter_map(|name| field(name)).sum();
    Ok((sum * scale) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let text = "7\nkey-count\n3\nmemory-bytes\n200\n\n\n8\nkey-count\n0\nmemory-bytes\n0\n\n\n";
        let read: Vec<_> = read(text).iter().map(|it| (it.slot, it.keys, it.bytes)).collect();
        assert_eq!(read, [(7, 3, 200), (8, 0, 0)]);
        assert!(super::read("what\nis\nthis").is_empty());
    }
}
