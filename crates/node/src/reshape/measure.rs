//! What each slot of a database weighs, as its primaries say.

use crate::settings::Measure;
use crate::site::{Database, Placed};
use crate::store::Problem;
use crate::talk::{self, Answer};
use cluster::hashing::Hashing;
use cluster::slots::{COUNT, Slots};
use cluster::view::View;
use resp::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Slots that one question asks about: the answer takes a primary about a millisecond.
const SLOTS: u16 = 256;

/// How long a primary may take for all of them.
const LIMIT: Duration = Duration::from_secs(10);

/// The time between two reads of counters that only grow.
const SPAN: Duration = Duration::from_millis(500);

/// The same for the counters of slots, which grow more slowly.
const SPAN_OF_SLOTS: Duration = Duration::from_secs(2);

/// The option by which a copy counts what each slot uses.
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

/// What a slot or key uses while it is counted, for [`SPAN_OF_SLOTS`].
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
    let topology = &view.topology.value;
    let placed = database.primaries(topology);
    // With hashing rules of its own a database does not list the keys of a slot.
    let of_whole = |placed: &Placed| {
        let shard = topology.shard_of(placed.copy).filter(|_| !topology.hashing.is_empty());
        shard.map(|shard| &shard.slots)
    };
    let asked = talk::side_by_side(placed, |placed| ask(database, placed, of_whole(placed), by));
    let mut all_used = Some(vec![Used::default(); usize::from(COUNT)]);
    for shard in asked {
        let (figures, load) = shard?;
        let keys: u64 = figures.iter().map(|it| it.keys).sum();
        for Figures { slot, keys: here, bytes, used } in figures {
            let slot = usize::from(slot);
            (all.keys[slot], all.bytes[slot]) = (here, bytes);
            all.weights[slot] = match (by, used) {
                (Measure::Bytes, _) => bytes,
                (Measure::Keys, _) => here,
                (Measure::Cpu, Some(used)) => used.cpu_us,
                (Measure::Network, Some(used)) => used.network_bytes,
                // An older server counts it for the whole shard: it is spread over the keys.
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

/// A key that takes much of its primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotKey {
    /// The key.
    pub key: Vec<u8>,
    /// Its slot, if a rule gives it one.
    pub slot: Option<u16>,
    /// Its shard, counted from 1.
    pub shard: usize,
    /// What it uses. Requests are not counted by key.
    pub used: Used,
}

/// How many hot keys of a primary are looked for.
const HOT_KEYS: &str = "32";

/// A session of HOTKEYS ends by itself after so many seconds, should its node not come back.
const HOT_SESSION: &str = "30";

/// Counts for a while which keys take most of the primaries. `None`: one of them does not count it,
/// or counts for another client at the moment.
///
/// # Errors
/// A primary does not answer.
pub fn hot_keys(database: &Database, view: &View) -> Result<Option<Vec<HotKey>>, Problem> {
    let topology = &view.topology.value;
    let hashing = Hashing::new(&topology.hashing).ok();
    let placed: Vec<&Placed> = database.primaries(topology).collect();
    let counted = talk::side_by_side(&placed, |placed| hot_keys_of(database, placed));
    let mut all = Vec::new();
    for (counted, placed) in counted.into_iter().zip(placed) {
        let Some(keys) = counted.map_err(|error| away(placed, &error.to_string()))? else {
            return Ok(None);
        };
        all.extend(keys.into_iter().map(|(key, used)| {
            let slot = hashing.as_ref().and_then(|hashing| hashing.slot(&key));
            HotKey { key, slot, shard: placed.shard + 1, used }
        }));
    }
    all.sort_by_key(|it| std::cmp::Reverse((it.used.cpu_us, it.used.network_bytes)));
    Ok(Some(all))
}

/// Keys, and what each of them uses.
type UsedKeys = Vec<(Vec<u8>, Used)>;

/// Counts what the keys of a primary use that use most. `None`: it cannot be counted now.
fn hot_keys_of(database: &Database, placed: &Placed) -> std::io::Result<Option<UsedKeys>> {
    let address = (&*placed.host, placed.port);
    let begin: [&[&str]; 1] = [&[
        "HOTKEYS",
        "START",
        "METRICS",
        "2",
        "CPU",
        "NET",
        "COUNT",
        HOT_KEYS,
        "DURATION",
        HOT_SESSION,
    ]];
    let begun = talk::ask_whole(address, database.login(), &begin, LIMIT)?;
    if begun.iter().any(Value::is_error) {
        return Ok(None);
    }
    std::thread::sleep(SPAN_OF_SLOTS);
    let end: [&[&str]; 3] = [&["HOTKEYS", "STOP"], &["HOTKEYS", "GET"], &["HOTKEYS", "RESET"]];
    let ended = talk::ask_whole(address, database.login(), &end, LIMIT)?;
    Ok(Some(read_hot_keys(&ended[1])))
}

/// Reads the answer to HOTKEYS GET.
fn read_hot_keys(reply: &Value) -> Vec<(Vec<u8>, Used)> {
    let of = |name: &str| {
        let listed = reply.items().first().and_then(|fields| fields.get(name));
        let listed = listed.map_or(&[][..], Value::items);
        let sum = |pair: &[Value]| {
            Some((pair[0].bytes()?.to_vec(), u64::try_from(pair[1].integer()?).ok()?))
        };
        listed.chunks_exact(2).filter_map(sum).collect::<Vec<_>>()
    };
    let mut keys: BTreeMap<Vec<u8>, Used> = BTreeMap::new();
    for (key, sum) in of("by-cpu-time-us") {
        keys.entry(key).or_default().cpu_us = sum;
    }
    for (key, sum) in of("by-net-bytes") {
        keys.entry(key).or_default().network_bytes = sum;
    }
    keys.into_iter().collect()
}

fn away(placed: &Placed, why: &str) -> Problem {
    let Placed { machine, port, .. } = placed;
    Problem::Away(format!("the primary on machine '{machine}', port {port}: {why}"))
}

/// What a primary says of a slot.
struct Figures {
    slot: u16,
    keys: u64,
    bytes: u64,
    /// `None`: that is not counted, or was not asked for.
    used: Option<Used>,
}

/// Spreads what a primary has in all evenly over its slots.
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

/// Asks a primary for the figures of its slots. If it can tell only what all of them have together,
/// they are given in `whole`, and the figures are spread. Returns also what the primary uses in a
/// second, where that is asked for and not counted by slot.
fn ask(
    database: &Database,
    placed: &Placed,
    whole: Option<&Slots>,
    by: Measure,
) -> Result<(Vec<Figures>, u64), Problem> {
    let address = (&*placed.host, placed.port);
    let away = |why: String| away(placed, &why);
    let is_load = matches!(by, Measure::Cpu | Measure::Network);
    if let Some(slots) = whole {
        let info = talk::info(address, database.login(), &[], LIMIT);
        let figures = spread(slots, &info.map_err(|error| away(error.to_string()))?);
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

/// Returns how much of a count over [`SPAN_OF_SLOTS`] falls on a second.
pub fn per_second(count: u64) -> f64 {
    count as f64 / SPAN_OF_SLOTS.as_secs_f64()
}

impl Used {
    /// Returns what was used since an earlier read.
    fn since(self, earlier: Used) -> Used {
        Used {
            requests: self.requests.saturating_sub(earlier.requests),
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            network_bytes: self.network_bytes.saturating_sub(earlier.network_bytes),
        }
    }
}

/// Makes a copy count what slots use until it is dropped.
struct Counting<'a> {
    database: &'a Database,
    placed: &'a Placed,
    /// It counted before, and goes on.
    was_on: bool,
}

impl<'a> Counting<'a> {
    fn begin(database: &'a Database, placed: &'a Placed) -> Result<Counting<'a>, String> {
        let questions: [&[&str]; 2] =
            [&["CONFIG", "GET", COUNTS], &["CONFIG", "SET", COUNTS, "yes"]];
        let address = (&*placed.host, placed.port);
        let answers = talk::ask(address, database.login(), &questions, LIMIT);
        let answers = answers.map_err(|error| error.to_string())?;
        let was_on =
            matches!(&answers[0], Answer::Text(text) if text.lines().any(|it| it == "yes"));
        Ok(Counting { database, placed, was_on })
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        if !self.was_on {
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
    let info = talk::info(address, database.login(), &["everything"], LIMIT);
    let info = info.map_err(|error| error.to_string())?;
    let field = |name: &str| {
        let text = talk::field(&info, name)?;
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
    fn hot_keys_are_read() {
        let text = |text: &str| Value::Bulk(text.into());
        let list = |words: &[&str]| Value::Array(words.iter().map(|word| text(word)).collect());
        let fields = vec![
            text("sample-ratio"),
            text("1"),
            text("by-cpu-time-us"),
            list(&["by-net-bytes", "8", "a\nb", "6"]),
            text("by-net-bytes"),
            list(&["a\nb", "200", "", "40"]),
        ];
        let read = read_hot_keys(&Value::Array(vec![Value::Array(fields)]));
        let read: Vec<_> =
            read.iter().map(|(key, it)| (&**key, it.cpu_us, it.network_bytes)).collect();
        let expected: [(&[u8], u64, u64); 3] =
            [(b"", 0, 40), (b"a\nb", 6, 200), (b"by-net-bytes", 8, 0)];
        assert_eq!(read, expected);
        assert!(read_hot_keys(&text("")).is_empty(), "nothing was counted");
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
        let between = Used { requests: 8, cpu_us: 10, network_bytes: 1000 };
        assert_eq!((later.since(used), per_second(between.requests)), (between, 4.0));
    }
}
