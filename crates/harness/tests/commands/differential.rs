//! Random requests to Dunlin and to Valkey: the replies, and the data in the end, are the same.
//!
//! - The default run takes the same seeds every time, and then a fresh one that it prints.
//! - `DUNLIN_SEED=17` runs the one sequence of that seed, as a failure report tells.
//! - `DUNLIN_DIFFERENTIAL_SECONDS=600` runs for so long, from a first seed taken from the clock, or
//!   from `DUNLIN_SEED` on.
//! - `DUNLIN_DIFFERENTIAL_FAILURES=100` goes on until so many different failures are found.
//!
//! A failing sequence is cut down and printed as a command script.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::differential::Op;
use harness::differential::duel::{Difference, Duel};
use harness::differential::grammar::{Generator, commands, uncompared};
use harness::differential::scripted::script_some;
use harness::differential::shrink::shrink;
use harness::environment::variable;
use harness::server::Program;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Requests per sequence.
const LENGTH: usize = 250;
/// The default run: so many sequences whose seeds are always the same, but no longer than this on a
/// busy machine.
const FIXED_SEEDS: u64 = 250;
const SHORT: Duration = Duration::from_secs(15);
/// Different failures that are reported before the test ends.
const REPORTED: u64 = 10;

#[test]
fn replies_are_those_of_the_reference() {
    let Some(reference) = Program::reference_or_skip() else { return };
    let tested = Program::under_test();
    let backend = tested.backends().first().copied().flatten();
    compare(Duel::new(tested, reference, backend).unwrap(), |_, _| {});
}

/// The same with every value on flash before most requests, some of which scripts make.
#[test]
fn replies_are_those_of_the_reference_when_values_are_on_flash() {
    let Some(reference) = Program::reference_or_skip() else { return };
    compare(Duel::on_flash(Program::under_test(), reference).unwrap(), script_some);
}

/// Runs sequences, each of which `bend` may change before, given its seed.
fn compare(mut duel: Duel, bend: impl Fn(&mut [Op], u64)) {
    let [known, reference_knows] = duel.known(&commands()).unwrap();
    let missing: Vec<String> = commands()
        .into_iter()
        .filter(|name| reference_knows.contains(name) && !known.contains(name))
        .collect();

    let seed = variable("DUNLIN_SEED");
    let reported = variable("DUNLIN_DIFFERENTIAL_FAILURES").unwrap_or(REPORTED);
    let seconds = variable("DUNLIN_DIFFERENTIAL_SECONDS").map(Duration::from_secs);
    let fresh =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64) << 10;
    // With a seed and no time, the one sequence alone, whatever else it breaks.
    let only_one = seed.is_some() && seconds.is_none();
    let seeds: Box<dyn Iterator<Item = u64>> = match (seed, seconds) {
        (Some(seed), None) => Box::new(seed..=seed),
        (Some(seed), Some(_)) => Box::new(seed..),
        (None, Some(_)) => Box::new(fresh..),
        // The fresh one first: it is never what the time runs out for.
        (None, None) => Box::new(std::iter::once(fresh).chain(1..=FIXED_SEEDS)),
    };
    let deadline = Instant::now() + seconds.unwrap_or(SHORT);
    println!("from seed {}", seed.unwrap_or(fresh));

    let mut failures: BTreeMap<String, String> = BTreeMap::new();
    let mut sequences = 0;
    for seed in seeds {
        let is_known = |name: &str| known.contains(name) || name == "nosuchcommand";
        let mut ops = Generator::new(seed, is_known).sequence(LENGTH);
        bend(&mut ops, seed);
        // One report for each command: what it has broken would hide what is behind it.
        ops.retain(|op| only_one || !failures.contains_key(&op.name()));
        duel.configure(seed);
        if let Some(difference) = duel.run(&ops) {
            failures
                .entry(difference.about.clone())
                .or_insert_with(|| report(&mut duel, seed, &ops, &difference));
        }
        sequences += 1;
        if Instant::now() > deadline || failures.len() as u64 >= reported {
            break;
        }
    }
    println!("{sequences} sequences of {LENGTH} requests");
    let reports: Vec<String> = failures.into_values().collect();
    assert!(
        reports.is_empty() && missing.is_empty(),
        "\n{}\n{} different failures in {sequences} sequences; commands not there: {:?}",
        reports.join("\n"),
        reports.len(),
        missing
    );
}

/// Cuts the sequence down and describes it.
fn report(duel: &mut Duel, seed: u64, ops: &[Op], difference: &Difference) -> String {
    let ops = &ops[..ops.len().min(difference.at + 1)];
    // What is left has to fail over the same command, or the report would be of something else.
    let about =
        |duel: &mut Duel, ops: &[Op]| duel.run(ops).filter(|found| found.about == difference.about);
    let short = shrink(ops, Duration::from_secs(15), |ops| about(duel, ops).is_some());
    let found = about(duel, &short);
    let (found, note) = match &found {
        Some(found) => (found, ""),
        None => (difference, " (it did not fail a second time)"),
    };
    let script: Vec<String> = short.iter().map(|op| format!("    {op}")).collect();
    let text = found.text.replace('\n', "\n    ");
    format!(
        "--- {}: DUNLIN_SEED={seed}, {}{note}\n{}\n    {text}\n",
        difference.about,
        duel.configuration(),
        script.join("\n"),
    )
}

#[test]
fn every_command_is_compared_or_has_a_reason_not_to_be() {
    let Some(reference) = Program::reference_or_skip() else { return };
    let mut duel = Duel::new(Program::under_test(), reference, None).unwrap();
    let compared = commands();
    let uncompared = uncompared();
    let mut forgotten = BTreeSet::new();
    for known in duel.commands().unwrap() {
        forgotten.extend(known.into_iter().filter(|name| {
            let name = name.as_str();
            !name.contains('|') && !compared.contains(name) && !uncompared.contains_key(name)
        }));
    }
    assert!(forgotten.is_empty(), "neither in grammar.txt nor in uncompared.txt: {forgotten:?}");
    println!("{} commands are compared; not compared are:", compared.len());
    let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, reason) in uncompared {
        by_reason.entry(reason).or_default().push(name);
    }
    for (reason, names) in by_reason {
        println!("  {reason}\n    {}", names.join(" "));
    }
}
