//! From the arguments that say what is sent to the workloads that are.

use super::args::BenchArgs;
use super::ranges::{self, Shape};
use crate::workload::keys::Pattern;
use crate::workload::template::{Placeholders, Template};
use crate::workload::tests::{self, Test};
use crate::workload::{Effect, Operation, Workload};
use clap::ArgMatches;
use std::sync::Arc;

/// memtier_benchmark's default for `--ratio`.
const MIX_RATIO: (u64, u64) = (1, 10);

/// The tests, one workload each; before the first LRANGE the list is filled.
pub fn test_workloads(
    list: &[&'static Test],
    places: &Arc<Placeholders>,
    keys: (u64, u64),
    patterns: &(Pattern, Pattern),
    tagged: bool,
    shuffled: bool,
    functions: u32,
) -> Vec<Workload> {
    let workload = |test: &Test| {
        let template = if test.command.is_empty() {
            Template::raw(b"PING\r\n")
        } else {
            Template::new(&test.words(tagged, shuffled, functions), places)
        };
        let pattern = if test.effect == Effect::Reads { &patterns.1 } else { &patterns.0 };
        let operation = Operation {
            name: test.title.into(),
            template,
            pattern: pattern.clone(),
            effect: test.effect,
        };
        Workload::single(operation, Arc::clone(places), keys)
    };
    let mut workloads = Vec::new();
    let mut filled = false;
    for test in list {
        if test.groups.contains(&"lrange") && !filled {
            workloads.push(workload(&tests::FILL));
            filled = true;
        }
        workloads.push(workload(test));
    }
    workloads
}

/// What a command of the user's own does, as far as it can be told from its words.
fn effect(words: &[Vec<u8>]) -> Effect {
    let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    match &name[..] {
        b"SET" | b"MSET" => Effect::Writes,
        b"GET" | b"MGET" => Effect::Reads,
        _ => Effect::Other,
    }
}

/// An operation of the user's own words.
fn own(words: &[Vec<u8>], places: &Arc<Placeholders>, patterns: &(Pattern, Pattern)) -> Operation {
    let effect = effect(words);
    let pattern = if effect == Effect::Reads { &patterns.1 } else { &patterns.0 };
    let name: Vec<String> = words
        .iter()
        .take(4)
        .map(|word| String::from_utf8_lossy(&word[..word.len().min(32)]).into_owned())
        .collect();
    Operation {
        name: name.join(" "),
        template: Template::new(words, places),
        pattern: pattern.clone(),
        effect,
    }
}

/// The command after the options; several are divided by `;`, each may have a number before it.
pub fn command(
    words: &[String],
    places: &Arc<Placeholders>,
    keys: (u64, u64),
    patterns: &(Pattern, Pattern),
) -> Result<Workload, String> {
    let mut operations = Vec::new();
    let mut cycle = Vec::new();
    for part in words.split(|word| word == ";") {
        let (times, part) = match part {
            [first, rest @ ..] if !rest.is_empty() && first.parse::<u64>().is_ok_and(|n| n > 0) => {
                (first.parse().unwrap_or(1), rest)
            }
            part => (1, part),
        };
        if part.is_empty() {
            continue;
        }
        let part: Vec<Vec<u8>> = part.iter().map(|word| word.clone().into_bytes()).collect();
        cycle.push((operations.len(), times));
        operations.push(own(&part, places, patterns));
    }
    if operations.is_empty() {
        return Err("there is no command between the ';'".into());
    }
    let name = operations.iter().map(|operation| operation.name.clone()).collect::<Vec<_>>();
    let in_order = operations.len() > 1;
    let places = Arc::clone(places);
    Ok(Workload { name: name.join(" ; "), operations, cycle, in_order, places, keys })
}

/// `--ratio`, `--multi-key-get`.
pub fn set_get_mix(
    args: &BenchArgs,
    places: &Arc<Placeholders>,
    keys: (u64, u64),
    patterns: &(Pattern, Pattern),
) -> Result<Workload, String> {
    let usual = match (args.judge.ledger.is_some(), args.judge.verify) {
        (true, _) => (1, 0),
        (_, true) => (1, 1),
        _ => MIX_RATIO,
    };
    let (sets, gets) = args.work.ratio.as_deref().map_or(Ok(usual), ranges::ratio)?;
    let words = |text: &str| -> Vec<Vec<u8>> { text.split(' ').map(Into::into).collect() };
    let expiry = if args.data.expiry_range.is_some() { " EX __expiry__" } else { "" };
    let read = match args.work.multi_key_get {
        None | Some(0) => "GET __key__".to_owned(),
        Some(_) if args.connection.cluster => {
            return Err("--multi-key-get needs keys of one slot, which a cluster's are not".into());
        }
        Some(count) => format!("MGET{}", " __key__".repeat(count as usize)),
    };
    let mut operations = Vec::new();
    let mut cycle = Vec::new();
    for (times, text) in [(sets, format!("SET __key__ __data__{expiry}")), (gets, read)] {
        if times > 0 {
            cycle.push((operations.len(), times));
            let mut operation = own(&words(&text), places, patterns);
            operation.name = text.split(' ').next().unwrap_or_default().into();
            operations.push(operation);
        }
    }
    if args.judge.ledger.is_some() && sets == 0 {
        return Err("--ledger notes writes, and --ratio has none".into());
    }
    let mut workload = Workload::single(operations[0].clone(), Arc::clone(places), keys);
    if operations.len() > 1 {
        workload.name = format!("SET:GET {sets}:{gets}");
    }
    (workload.operations, workload.cycle) = (operations, cycle);
    Ok(workload)
}

/// `--command`, each with the options that follow it.
pub fn command_mix(
    args: &BenchArgs,
    matches: &ArgMatches,
    places: &Arc<Placeholders>,
    keys: (u64, u64),
    patterns: &(Pattern, Pattern),
    shape: &Shape,
) -> Result<Workload, String> {
    let work = &args.work;
    let indices =
        |id: &str| -> Vec<usize> { matches.indices_of(id).into_iter().flatten().collect() };
    let starts = indices("mix_command");
    // The last command before a place on the command line.
    let owner = |option: &str, place: usize| {
        let before = starts.iter().filter(|&&start| start < place).count();
        before
            .checked_sub(1)
            .ok_or_else(|| format!("{option} comes after the --command it is about"))
    };
    let mut operations = Vec::new();
    for text in &work.mix_command {
        let words = split_words(text)?;
        if words.is_empty() {
            return Err("--command is empty".into());
        }
        operations.push(own(&words, places, patterns));
    }
    let mut cycle: Vec<(usize, u64)> = (0..operations.len()).map(|index| (index, 1)).collect();
    for (place, &ratio) in indices("command_ratio").into_iter().zip(&work.command_ratio) {
        cycle[owner("--command-ratio", place)?].1 = ratio;
    }
    cycle.retain(|&(_, times)| times > 0);
    if cycle.is_empty() {
        return Err("every --command-ratio is 0".into());
    }
    let letters = indices("command_key_pattern").into_iter().zip(&work.command_key_pattern);
    for (place, letter) in letters {
        let index = owner("--command-key-pattern", place)?;
        operations[index].pattern = ranges::pattern("--command-key-pattern", letter, shape)?;
    }
    let name = operations.iter().map(|operation| operation.name.clone()).collect::<Vec<_>>();
    let places = Arc::clone(places);
    Ok(Workload { name: name.join(" | "), operations, cycle, in_order: false, places, keys })
}

/// Words divided by spaces; quotes keep spaces together, and `\` the next character.
fn split_words(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', None | Some(b'"')) => word.get_or_insert_default().extend(bytes.next()),
            (_, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(byte),
            (b'"' | b'\'', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (b' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    if quote.is_some() {
        return Err(format!("--command {text}: a quote is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod words {
    use super::*;

    #[test]
    fn quotes_keep_words_together() {
        assert_eq!(
            split_words("a 'b c' \"d\\\"\" e\\ f").unwrap(),
            [&b"a"[..], b"b c", b"d\"", b"e f"]
        );
        assert!(split_words("'a").is_err());
    }
}
