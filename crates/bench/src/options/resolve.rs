//! From arguments to a job: defaults that depend on each other, and contradictions that a table of
//! conflicts cannot express.

use super::args::BenchArgs;
use super::ranges::{self, Shape};
use super::work::{command, command_mix, set_get_mix, test_workloads};
use super::{Job, Limit, Load, Mode, Output, Pacing, SweepRates, Target};
use crate::generator::unix_ns;
use crate::workload::Workload;
use crate::workload::keys::Pattern;
use crate::workload::template::{Placeholders, contains};
use crate::workload::tests::{self, Test};
use crate::workload::values::{Content, Sizes, Values};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// memtier_benchmark's defaults for a mix.
const MIX_PREFIX: &str = "memtier-";
const MIX_LAST_KEY: u64 = 10_000_000;
const MIX_BYTES: u64 = 32;

/// redis-benchmark's defaults for tests.
const TEST_PREFIX: &str = "key:";
const TEST_BYTES: u64 = 3;
const TEST_REQUESTS: u64 = 100_000;

/// What kind of work the arguments describe.
enum Work {
    Tests(Vec<&'static Test>),
    Command,
    Mix,
}

/// What a line of arguments means, for runs that the program itself puts together.
pub fn parsed(words: &[String]) -> Result<Job, String> {
    let all = std::iter::once("bench").chain(words.iter().map(String::as_str));
    let matches = BenchArgs::command().try_get_matches_from(all).map_err(|e| e.to_string())?;
    let args = BenchArgs::from_arg_matches(&matches).map_err(|error| error.to_string())?;
    job(&args, &matches, format!("dunlin bench {}", words.join(" ")))
}

/// What to do. `matches` are the same arguments with their places, which say to which `--command` a
/// `--command-ratio` belongs.
pub fn job(args: &BenchArgs, matches: &ArgMatches, command_line: String) -> Result<Job, String> {
    let target = Target::new(&args.connection, &args.tls)?;
    let load = load(args)?;
    let workloads = workloads(args, matches, &target, &load)?;
    let usual = matches!(work(args)?, Work::Tests(_)) && args.work.tests.is_none();
    let mut against = Vec::new();
    for url in &args.judge.against {
        against.push(target.other(url, &args.tls)?);
    }
    let mode = if args.judge.sweep {
        Mode::Sweep(args.judge.sweep_rates.as_deref().map(sweep_rates).transpose()?)
    } else if !against.is_empty() {
        Mode::Against(against, args.judge.rounds.max(1))
    } else if args.load.forever {
        Mode::Forever
    } else {
        Mode::Plain(args.load.run_count.max(1))
    };
    if load.ledger.is_some() && !matches!(mode, Mode::Plain(1)) {
        return Err("--ledger notes one run: leave away --run-count and --loop".into());
    }
    Ok(Job {
        target,
        load,
        workloads,
        usual,
        mode,
        pids: args.judge.pid.clone(),
        output: output(args)?,
        command_line,
    })
}

fn output(args: &BenchArgs) -> Result<Output, String> {
    let output = &args.output;
    Ok(Output {
        quiet: output.quiet,
        csv: output.csv,
        precision: usize::from(output.precision),
        percentiles: ranges::percentiles(&output.print_percentiles)?,
        histogram: !output.hide_histogram,
        file: output.out_file.clone(),
        json: output.json_out_file.clone(),
        hdr_prefix: output.hdr_file_prefix.clone(),
        report: output.report.clone(),
    })
}

fn seconds(option: &str, seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| format!("{option} {seconds}: a number of seconds from 0 up is needed"))
}

fn positive(option: &str, rate: f64) -> Result<f64, String> {
    if rate.is_finite() && rate > 0.0 {
        Ok(rate)
    } else {
        Err(format!("{option} {rate}: a number above 0 is needed"))
    }
}

fn load(args: &BenchArgs) -> Result<Load, String> {
    let load = &args.load;
    for (option, count) in
        [("-c", load.clients), ("-P", load.pipeline), ("--threads", load.threads)]
    {
        if count == 0 {
            return Err(format!("{option} 0: at least 1 is needed"));
        }
    }
    let pacing = match (load.rate, load.rps, load.rate_limiting) {
        (Some(rate), ..) => Pacing::Open(positive("--rate", rate)?),
        // valkey-benchmark's way to say that there is no limit.
        (_, Some(0.0), _) => Pacing::Closed,
        (_, Some(rate), _) => Pacing::Limited(positive("--rps", rate)?),
        (.., Some(rate)) => {
            Pacing::Limited(positive("--rate-limiting", rate)? * load.clients as f64)
        }
        _ => Pacing::Closed,
    };
    let limit = match (load.duration, load.requests) {
        (Some(time), _) => Limit::Time(seconds("--duration", positive("--duration", time)?)?),
        // As many as take ten seconds, when the rate is given but not the number.
        (None, None) if matches!(pacing, Pacing::Open(_)) => Limit::Time(Duration::from_secs(10)),
        (None, requests) => Limit::Requests(requests.unwrap_or(TEST_REQUESTS)),
    };
    Ok(Load {
        clients: load.clients,
        threads: load.threads,
        pipeline: load.pipeline,
        limit,
        warmup: seconds("--warmup", load.warmup)?,
        pacing,
        reconnect_after: if load.keep_alive == 0 { Some(1) } else { load.reconnect_interval },
        give_up: seconds("--give-up", load.give_up)?,
        seed: load.seed.unwrap_or_else(unix_ns),
        counts_cycles: args.judge.cycles,
        verify: args.judge.verify,
        ledger: args.judge.ledger.clone(),
    })
}

fn sweep_rates(text: &str) -> Result<SweepRates, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let numbers = match parts[..] {
        [from, to, steps] => from.parse().ok().zip(to.parse().ok()).zip(steps.parse().ok()),
        _ => None,
    };
    match numbers {
        Some(((from, to), steps)) if from > 0.0 && to >= from && steps > 0 => {
            Ok(SweepRates { from, to, steps })
        }
        _ => Err(format!("--sweep-rates {text}: FROM:TO:STEPS is needed, such as 10000:100000:10")),
    }
}

fn work(args: &BenchArgs) -> Result<Work, String> {
    let (work, keys) = (&args.work, &args.keys);
    if !args.command.is_empty() {
        return Ok(Work::Command);
    }
    if let Some(list) = &work.tests {
        return tests::select(list).map(Work::Tests);
    }
    let mixes = work.ratio.is_some()
        || work.multi_key_get.is_some()
        || !work.mix_command.is_empty()
        || keys.key_pattern.is_some()
        || keys.key_prefix.is_some()
        || keys.key_minimum.is_some()
        || keys.key_maximum.is_some()
        || args.data.expiry_range.is_some()
        || args.judge.verify
        || args.judge.ledger.is_some();
    Ok(if mixes { Work::Mix } else { Work::Tests(tests::usual()) })
}

fn workloads(
    args: &BenchArgs,
    matches: &ArgMatches,
    target: &Target,
    load: &Load,
) -> Result<Vec<Workload>, String> {
    let work = work(args)?;
    let mix = matches!(work, Work::Mix);
    let (first, last) = key_range(args, mix)?;
    let shape = Shape {
        first,
        last,
        deviation: args.keys.key_stddev,
        median: args.keys.key_median,
        exponent: args.keys.key_zipf_exp,
    };
    let patterns = patterns(args, &shape)?;
    let tagged = target.cluster;
    let default_prefix = match (mix, tagged) {
        (true, _) => MIX_PREFIX.to_owned(),
        (false, true) => format!("{TEST_PREFIX}{{tag}}:"),
        (false, false) => TEST_PREFIX.to_owned(),
    };
    let places = Placeholders {
        space: args.keys.keyspace,
        sequential: args.keys.sequential,
        field_space: args.keys.field_space.max(1),
        expiry: match &args.data.expiry_range {
            Some(range) => ranges::range("--expiry-range", range)?,
            None => (0, 0),
        },
        tagged,
        prefix: args.keys.key_prefix.clone().unwrap_or(default_prefix).into_bytes(),
        padded: !mix,
        values: values(args, mix, first, last)?,
        counters: Default::default(),
    };
    if args.data.expiry_range.is_some() && matches!(work, Work::Tests(_)) {
        return Err("--expiry-range is for a mix (--ratio); tests write without expiry".into());
    }
    if load.verify && contains(&places.prefix, b"{tag}") {
        return Err(
            "--verify does not go with tests in a cluster, whose keys depend on the node; \
                    a mix (--ratio) does"
                .into(),
        );
    }
    if load.verify && last - first >= 1 << 33 {
        return Err("--verify remembers one bit a key, and this range of keys is too large".into());
    }
    let keys = (first, last);
    let places = Arc::new(places);
    let shuffled = args.keys.keyspace.is_some();
    let functions = args.work.num_functions;
    let list = match work {
        Work::Tests(list) => {
            test_workloads(&list, &places, keys, &patterns, tagged, shuffled, functions)
        }
        Work::Command => vec![command(&args.command, &places, keys, &patterns)?],
        Work::Mix if !args.work.mix_command.is_empty() => {
            vec![command_mix(args, matches, &places, keys, &patterns, &shape)?]
        }
        Work::Mix => vec![set_get_mix(args, &places, keys, &patterns)?],
    };
    if load.ledger.is_some() && !matches!(patterns.0, Pattern::Uniform | Pattern::Parallel) {
        return Err(
            "--ledger divides the keys among the clients: writes are R or P (--key-pattern)".into(),
        );
    }
    if load.ledger.is_some() && last - first + 1 < load.clients as u64 {
        return Err("--ledger needs at least as many keys as clients".into());
    }
    Ok(list)
}

fn key_range(args: &BenchArgs, mix: bool) -> Result<(u64, u64), String> {
    let first = args.keys.key_minimum.unwrap_or(0);
    let last = match (args.keys.keyspace, args.keys.key_maximum) {
        (Some(0), _) => return Err("-r 0: at least 1 is needed".into()),
        (Some(count), _) => first.saturating_add(count - 1),
        (None, Some(last)) => last,
        (None, None) if mix => MIX_LAST_KEY,
        (None, None) => first,
    };
    if last < first {
        return Err(format!("--key-maximum {last} is below --key-minimum {first}"));
    }
    // Positions are computed as floating-point numbers, and redis-benchmark's keys have 12 digits.
    if last >= 1 << 50 || (!mix && last >= 1_000_000_000_000) {
        return Err(format!("the key number {last} is too large"));
    }
    Ok((first, last))
}

/// The patterns of writes and of reads.
fn patterns(args: &BenchArgs, shape: &Shape) -> Result<(Pattern, Pattern), String> {
    let keys = &args.keys;
    let (write, read) = match &keys.key_pattern {
        Some(text) => text.split_once(':').unwrap_or((text, text)),
        None => ("R", "R"),
    };
    let letters = [write, read].map(str::to_ascii_uppercase);
    let used = |letter: &str| {
        letters.iter().any(|used| used == letter)
            || args.work.command_key_pattern.iter().any(|used| used.eq_ignore_ascii_case(letter))
    };
    if (keys.key_stddev.is_some() || keys.key_median.is_some()) && !used("G") {
        return Err("--key-stddev and --key-median shape the pattern G, which is not used".into());
    }
    if keys.key_zipf_exp.is_some() && !used("Z") {
        return Err("--key-zipf-exp shapes the pattern Z, which is not used".into());
    }
    if keys.sequential {
        if keys.key_pattern.is_some() {
            return Err("--sequential and --key-pattern both say which key comes next".into());
        }
        let counting = || Pattern::Counting(Arc::new(AtomicU64::new(0)));
        return Ok((counting(), counting()));
    }
    Ok((
        ranges::pattern("--key-pattern", write, shape)?,
        ranges::pattern("--key-pattern", read, shape)?,
    ))
}

fn values(args: &BenchArgs, mix: bool, first: u64, last: u64) -> Result<Values, String> {
    let data = &args.data;
    let usual = if mix { MIX_BYTES } else { TEST_BYTES };
    let sizes = match (&data.data_size_range, &data.data_size_list) {
        (Some(range), _) => {
            let (low, high) = ranges::range("--data-size-range", range)?;
            match data.data_size_pattern.as_deref() {
                None | Some("R" | "r") => Sizes::Range(low, high),
                Some("S" | "s") => Sizes::Spread(low, high),
                Some(other) => {
                    return Err(format!("--data-size-pattern {other}: R or S is needed"));
                }
            }
        }
        (None, Some(list)) => ranges::size_list(list)?,
        (None, None) => Sizes::Fixed(data.data_size.unwrap_or(usual)),
    };
    if sizes.largest() > 512 << 20 {
        return Err(format!("values of {} bytes are longer than servers take", sizes.largest()));
    }
    let content = match (args.judge.verify || args.judge.ledger.is_some(), data.random_data) {
        (true, _) => Content::OfKey,
        (false, true) => Content::Random,
        (false, false) => Content::Plain,
    };
    Ok(Values::new(sizes, content, first, last))
}

#[cfg(test)]
mod tests_of_arguments {
    use super::*;

    fn parse(line: &str) -> Result<Job, String> {
        parsed(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[track_caller]
    fn refused(line: &str, part: &str) {
        let error = parse(line).expect_err(line);
        assert!(error.contains(part), "{line}: {error}");
    }

    #[test]
    fn the_arguments_are_well_formed() {
        BenchArgs::command().debug_assert();
        super::super::args::AuditArgs::command().debug_assert();
        super::super::args::ExperimentArgs::command().debug_assert();
    }

    #[test]
    fn without_arguments_all_usual_tests_run() {
        let job = parse("").unwrap();
        assert_eq!(job.workloads.len(), tests::usual().len() + 1, "and the list is filled");
        assert_eq!(job.load.limit, Limit::Requests(100_000));
        assert_eq!((job.load.clients, job.load.pipeline), (50, 1));
    }

    #[test]
    fn every_spelling_of_redis_benchmark_is_understood() {
        for line in [
            "-h db -p 7",
            "-s /tmp/x",
            "-u redis://me:secret@db:7/3",
            "-a secret --user me",
            "-c 5 -n 10 -d 3",
            "--dbnum 2 -3",
            "--threads 4 --cluster",
            "-k 0 -r 100 -P 16 -q",
            "-k 1 --precision 3 --csv",
            "-l -t ping,set",
            "--seed 5 -n 1 GET key -n",
            "--rps 100 --num-functions 3 -t get",
            "--tls --sni db --cacert f --cert f --key f",
            "--tls --insecure",
            "-c5 -n10 --precision=3",
        ] {
            let words = ["bench"].into_iter().chain(line.split(' '));
            let read = BenchArgs::command().try_get_matches_from(words);
            assert!(read.is_ok(), "{line}: {read:?}");
        }
    }

    #[test]
    fn options_lead_to_work() {
        let job = parse("-t get,set -r 10 --rps 100 -k 0").unwrap();
        assert_eq!((job.workloads.len(), job.workloads[0].keys), (2, (0, 9)));
        assert_eq!((job.load.pacing, job.load.reconnect_after), (Pacing::Limited(100.0), Some(1)));
        let job = parse("--ratio 1:3 --key-pattern S:Z --key-minimum 5 --key-maximum 9").unwrap();
        let mix = &job.workloads[0];
        assert_eq!((&mix.cycle[..], mix.keys), (&[(0, 1), (1, 3)][..], (5, 9)));
        assert!(matches!(mix.operations[1].pattern, Pattern::Zipf(_)));
        let job = parse("--rate 500 -c 4 PING").unwrap();
        assert_eq!(job.load.limit, Limit::Time(Duration::from_secs(10)));
        assert_eq!(
            parse("--rate-limiting 5 -c 4 PING").unwrap().load.pacing,
            Pacing::Limited(20.0)
        );
        assert_eq!(
            parse("--test-time 2 PING").unwrap().load.limit,
            Limit::Time(Duration::from_secs(2))
        );
        let job = parse("-- MULTI ; 3 INCR x ; EXEC").unwrap();
        assert_eq!(job.workloads[0].cycle, [(0, 1), (1, 3), (2, 1)]);
        assert!(job.workloads[0].in_order);
        let job = parse("-n 5 GET -n").unwrap();
        assert_eq!(job.workloads[0].name, "GET -n", "what follows the command belongs to it");
    }

    #[test]
    fn options_of_a_mix_belong_to_the_command_before_them() {
        let words = [
            "bench",
            "--command",
            "SET __key__ 'a b'",
            "--command-ratio",
            "2",
            "--command-key-pattern",
            "S",
            "--command",
            "GET __key__",
            "--command",
            "DEL __key__",
            "--command-ratio",
            "0",
        ];
        let matches = BenchArgs::command().try_get_matches_from(words).unwrap();
        let args = BenchArgs::from_arg_matches(&matches).unwrap();
        let job = job(&args, &matches, String::new()).unwrap();
        assert_eq!(job.workloads[0].cycle, [(0, 2), (1, 1)]);
        assert!(matches!(job.workloads[0].operations[0].pattern, Pattern::Sequential));
    }

    #[test]
    fn contradictions_are_named() {
        refused("-n 5 --duration 3", "cannot be used with");
        refused("-t set --ratio 1:1", "cannot be used with");
        refused("--rate 5 --rps 5", "cannot be used with");
        refused("-s /tmp/x -p 7", "cannot be used with");
        refused("--seed 1 --randomize", "cannot be used with");
        refused("--cacert x", "--tls");
        refused("-t nonsense", "there is no test 'nonsense'");
        refused("-c 0", "at least 1");
        refused("--rate -5", "--rate");
        refused("--ratio 1:1 --key-stddev 5 --key-pattern R:R", "pattern G, which is not used");
        refused("--ratio 1:1 --key-pattern S:Z --key-zipf-exp 7", "--key-zipf-exp 7");
        refused("--key-minimum 9 --key-maximum 5", "below --key-minimum");
        refused("--key-median 5", "pattern G, which is not used");
        refused("-r 5 --key-zipf-exp 1", "pattern Z, which is not used");
        refused("-r 5 --sequential --key-pattern R:R", "which key comes next");
        refused("-t set --expiry-range 1-2", "--expiry-range is for a mix");
        refused("--ledger f --key-pattern Z", "R or P");
        refused("--user me", "password");
        refused("--sweep --sweep-rates 5", "FROM:TO:STEPS");
        refused("--verify --random-data", "cannot be used with");
        refused("--command-ratio 2 --command PING", "comes after");
        refused("--cluster --dbnum 3", "databases");
    }
}
