//! What each slot of a database weighs, as its primaries say.

use crate::settings::Measure;
use crate::site::{Database, Placed};
use crate::store::Problem;
use crate::talk::{self, Answer};
use cluster::slots::{COUNT, Slots};
use cluster::view::View;
use std::collections::BTreeMap;
use std::time::Duration;

/// Slots of one question: the answer takes a primary about a millisecond.
const SLOTS: u16 = 256;

/// How long a primary may take for all of them.
const LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at counters that only grow.
const SPAN: Duration = Duration::from_millis(500);

/// The same of each slot's counters, which are many and small.
const SPAN_OF_SLOTS: Duration = Duration::from_secs(2);

/// Whether a copy counts what each slot uses.
const COUNTS: &str = "cluster-slot-stats-enabled";

/// What is known of the slots, by slot.
#[derive(Clone, Debug)]
pub struct Slotted {
    /// Keys.
    pub keys: Vec<u64>,
    /// Bytes of keys and values, estimated.
    pub bytes: Vec<u64>,
    /// What was asked for.
    pub weights: Vec<u64>,
    /// What each slot uses, if it was asked for by CPU or network, and all primaries count it.
    pub used: Option<Vec<Used>>,
}

/// What a slot uses in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Requests. Older servers do not count them.
    pub requests: u64,
    /// Microseconds of CPU.
    pub cpu_us: u64,
    /// Bytes that clients sent and got.
    pub network_bytes: u64,
}

impl Slotted {
    /// Nothing is known.
    pub fn empty() -> Slotted {
        let none = || vec![0; usize::from(COUNT)];
        Slotted { keys: none(), bytes: none(), weights: none(), used: None }
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
    let topology = &view.topology.value;
    // By rules of its own nothing lists the keys of a slot.
    let of_whole = |placed: &Placed| {
        let shard = topology.shard_of(placed.copy).filter(|_| !topology.hashing.is_empty());
        shard.map(|shard| &shard.slots)
    };
    let asked: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = placed
            .map(|placed| scope.spawn(move || ask(database, placed, of_whole(placed), by)))
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut all_used = Some(vec![Used::default(); usize::from(COUNT)]);
    for shard in asked {
        let (figures, load) = shard.map_err(|_| Problem::Away("the node ends".into()))??;
        let keys: u64 = figures.iter().map(|it| it.keys).sum();
        for Figures { slot, keys: here, bytes, used } in figures {
            let slot = usize::from(slot);
            (all.keys[slot], all.bytes[slot]) = (here, bytes);
            all.weights[slot] = match (by, used) {
                (Measure::Bytes, _) => bytes,
                (Measure::Keys, _) => here,
                (Measure::Cpu, Some(used)) => used.cpu_us,
                (Measure::Network, Some(used)) => used.network_bytes,
                // An older server does not count it by slot: the shard's is spread over its keys.
                (_, None) => {
                    let part = u128::from(load) * u128::from(here) / u128::from(keys.max(1));
                    u64::try_from(part).unwrap_or(u64::MAX)
                }
            };
            match (used, &mut all_used) {
                (Some(used), Some(all)) => all[slot] = used,
                _ => all_used = None,
            }
        }
    }
    all.used = all_used;
    Ok(all)
}

/// What a primary says of a slot.
struct Figures {
    slot: u16,
    keys: u64,
    bytes: u64,
    /// `None`: that is not counted, or was not asked for.
    used: Option<Used>,
}

/// What a primary has, spread over its slots.
fn spread(slots: &Slots, info: &str) -> Vec<Figures> {
    let keys = |line: &str| {
        let (_, text) = line.strip_prefix("db")?.split_once(":keys=")?;
        text.split(',').next()?.parse::<u64>().ok()
    };
    let keys: u64 = info.lines().filter_map(keys).sum();
    let bytes = talk::field(info, "used_memory_dataset").and_then(|text| text.parse().ok());
    let bytes: u64 = bytes.unwrap_or(0);
    let count = (slots.len() as u64).max(1);
    // The first slots carry what does not divide.
    let part = |sum: u64, at: u64| sum / count + u64::from(at < sum % count);
    let each = slots.iter().zip(0..);
    each.map(|(slot, at)| Figures {
        slot,
        keys: part(keys, at),
        bytes: part(bytes, at),
        used: None,
    })
    .collect()
}

/// Asks a primary. Returns its slots, and what it does a second. `whole` has its slots if it can
/// tell only what all of them have together.
fn ask(
    database: &Database,
    placed: &Placed,
    whole: Option<&Slots>,
    by: Measure,
) -> Result<(Vec<Figures>, u64), Problem> {
    let address = (&*placed.host, placed.port);
    let away = |why: String| {
        let Placed { machine, port, .. } = placed;
        Problem::Away(format!("the primary on machine '{machine}', port {port}: {why}"))
    };
    let is_load = matches!(by, Measure::Cpu | Measure::Network);
    if let Some(slots) = whole {
        let questions: [&[&str]; 2] = [&["CLIENT", "CAPA", "cluster", "node"], &["INFO"]];
        let answers = talk::ask(address, database.login(), &questions, LIMIT);
        let figures = match answers.map_err(|error| away(error.to_string()))?.pop() {
            Some(Answer::Text(info)) => spread(slots, &info),
            other => return Err(away(format!("{other:?}"))),
        };
        let load = if is_load { load(database, placed, by).map_err(away)? } else { 0 };
        return Ok((figures, load));
    }
    if !is_load {
        return Ok((of_slots(database, placed).map_err(away)?, 0));
    }
    let counting = Counting::begin(database, placed).map_err(away)?;
    let before = of_slots(database, placed).map_err(away)?;
    if before.iter().any(|it| it.used.is_none()) {
        drop(counting);
        return Ok((before, load(database, placed, by).map_err(away)?));
    }
    std::thread::sleep(SPAN_OF_SLOTS);
    let mut figures = of_slots(database, placed).map_err(away)?;
    drop(counting);
    let before: BTreeMap<u16, Used> =
        before.into_iter().filter_map(|it| Some((it.slot, it.used?))).collect();
    for it in &mut figures {
        // A slot that has just arrived has no figure of before.
        let earlier = before.get(&it.slot).copied().or(it.used).unwrap_or_default();
        it.used = it.used.map(|used| used.since(earlier));
    }
    Ok((figures, 0))
}

impl Used {
    /// What was used in a second between two looks.
    fn since(self, earlier: Used) -> Used {
        let seconds = SPAN_OF_SLOTS.as_secs();
        Used {
            requests: self.requests.saturating_sub(earlier.requests) / seconds,
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us) / seconds,
            network_bytes: self.network_bytes.saturating_sub(earlier.network_bytes) / seconds,
        }
    }
}

/// A copy counts what slots use as long as this is there.
struct Counting<'a> {
    database: &'a Database,
    placed: &'a Placed,
    /// It did so before.
    did: bool,
}

impl<'a> Counting<'a> {
    fn begin(database: &'a Database, placed: &'a Placed) -> Result<Counting<'a>, String> {
        let questions: [&[&str]; 2] =
            [&["CONFIG", "GET", COUNTS], &["CONFIG", "SET", COUNTS, "yes"]];
        let address = (&*placed.host, placed.port);
        let answers = talk::ask(address, database.login(), &questions, LIMIT);
        let answers = answers.map_err(|error| error.to_string())?;
        let did = matches!(&answers[0], Answer::Text(text) if text.lines().any(|it| it == "yes"));
        Ok(Counting { database, placed, did })
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        if !self.did {
            let question: [&[&str]; 1] = [&["CONFIG", "SET", COUNTS, "no"]];
            let address = (&*self.placed.host, self.placed.port);
            // One that does not answer goes on counting, which costs it little.
            let _ = talk::ask(address, self.database.login(), &question, LIMIT);
        }
    }
}

/// Asks a primary for the figures of its slots.
fn of_slots(database: &Database, placed: &Placed) -> Result<Vec<Figures>, String> {
    let mut figures = Vec::new();
    for first in (0..COUNT).step_by(usize::from(SLOTS)) {
        let (first, last) = (first.to_string(), (first + SLOTS - 1).to_string());
        let question =
            ["CLUSTER", "SLOT-STATS", "SLOTSRANGE", &first, &last, "MEMORY-BYTES", "REQUESTS"];
        let address = (&*placed.host, placed.port);
        let ask = |question: &[&str]| {
            let answer = talk::ask_node(address, database.login(), question, LIMIT);
            answer.map_err(|error| error.to_string())
        };
        let mut answer = ask(&question)?;
        if matches!(answer, Answer::Error(_)) {
            // An older server does not know the last word.
            answer = ask(&question[..question.len() - 1])?;
        }
        match answer {
            Answer::Text(text) => figures.extend(read(&text)),
            Answer::Error(why) => return Err(why),
        }
    }
    Ok(figures)
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
            ("requests", Some(last)) => last.used.get_or_insert_default().requests = number(),
            ("cpu-usec", Some(last)) => last.used.get_or_insert_default().cpu_us = number(),
            ("network-bytes-in" | "network-bytes-out", Some(last)) => {
                last.used.get_or_insert_default().network_bytes += number();
            }
            _ => figures.extend(word.parse().ok().map(|slot| Figures {
                slot,
                keys: 0,
                bytes: 0,
                used: None,
            })),
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
    fn what_a_primary_has_is_spread_over_its_slots() {
        let slots = Slots::from_fn(|slot| slot < 4);
        let info = "used_memory_dataset:10\r\n# Keyspace\r\ndb0:keys=7,expires=1\r\ndb3:keys=2,expires=0\r\n";
        let spread: Vec<_> =
            spread(&slots, info).iter().map(|it| (it.slot, it.keys, it.bytes)).collect();
        assert_eq!(spread, [(0, 3, 3), (1, 2, 3), (2, 2, 2), (3, 2, 2)]);
    }

    #[test]
    fn an_answer_is_read() {
        let text = "7\nkey-count\n3\nmemory-bytes\n200\n\n\n8\nkey-count\n0\nmemory-bytes\n0\n\n\n";
        let read: Vec<_> = read(text).iter().map(|it| (it.slot, it.keys, it.bytes)).collect();
        assert_eq!(read, [(7, 3, 200), (8, 0, 0)]);
        assert!(super::read("what\nis\nthis").is_empty());
        let counted =
            "7\nkey-count\n3\ncpu-usec\n9\nnetwork-bytes-in\n40\nnetwork-bytes-out\n2\n\n";
        let used = super::read(counted)[0].used.expect("it is counted");
        assert_eq!(used, Used { requests: 0, cpu_us: 9, network_bytes: 42 });
        let later = Used { requests: 8, cpu_us: 19, network_bytes: 1042 };
        let in_a_second = Used { requests: 4, cpu_us: 5, network_bytes: 500 };
        assert_eq!(later.since(used), in_a_second);
    }
}
