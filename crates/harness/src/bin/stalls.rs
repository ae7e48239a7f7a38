//! Measures what one client's long commands do to the latency of others: `./test stalls`.
//!
//!     stalls [--reference] [--verbose] [--clients N] [--seconds S] [--rounds N] [--keys N] [--scale N]
//!            [PHASE…] [-- SERVER-ARGUMENT…]
//!
//! Fifty connections send GET (some phases: something else) at pipeline 1, each in a closed loop,
//! while another client runs a long command again and again. For each phase the quiet latency is
//! measured right before it; what counts is the ratio of the two p99.9, and the longest. Without a
//! PHASE those that the goal names are run, with `all` every one; `--reference` measures the
//! reference server instead; `--verbose` shows each answer that took more than 20 ms. `--scale` is
//! the size of the big values in thousandths of what the titles say.

use harness::server::{Options, Program, Server};
use harness::stalls::commander::Commander;
use harness::stalls::data::{Sizes, reader_keys};
use harness::stalls::load::{Load, Seen};
use harness::stalls::phases::{PHASES, Phase};
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

struct Arguments {
    reference: bool,
    is_verbose: bool,
    clients: usize,
    seconds: f64,
    rounds: usize,
    sizes: Sizes,
    phases: Vec<String>,
    server: Vec<String>,
}

fn main() -> ExitCode {
    let result = parse().and_then(|arguments| {
        run(&arguments).map_err(|error| format!("the measurement failed: {error}"))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        reference: false,
        is_verbose: false,
        clients: 50,
        seconds: 5.0,
        rounds: 3,
        sizes: Sizes { keys: 1_000_000, scale: 1000 },
        phases: Vec::new(),
        server: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    fn value<T: std::str::FromStr>(
        words: &mut impl Iterator<Item = String>,
        name: &str,
    ) -> Result<T, String> {
        let word = words.next().and_then(|word| word.parse().ok());
        word.ok_or_else(|| format!("{name} needs a number"))
    }
    while let Some(word) = words.next() {
        match word.as_str() {
            "--reference" => arguments.reference = true,
            "--verbose" => arguments.is_verbose = true,
            "--clients" => arguments.clients = value(&mut words, "--clients")?,
            "--seconds" => arguments.seconds = value(&mut words, "--seconds")?,
            "--rounds" => arguments.rounds = value(&mut words, "--rounds")?,
            "--keys" => arguments.sizes.keys = value(&mut words, "--keys")?,
            "--scale" => arguments.sizes.scale = value(&mut words, "--scale")?,
            "--" => arguments.server.extend(words.by_ref()),
            name if name == "all" || PHASES.iter().any(|phase| phase.name == name) => {
                arguments.phases.push(word);
            }
            _ => {
                let names: Vec<&str> = PHASES.iter().map(|phase| phase.name).collect();
                return Err(format!("unknown word {word}; the phases are: {}", names.join(" ")));
            }
        }
    }
    Ok(arguments)
}

impl Arguments {
    fn wants(&self, phase: &Phase) -> bool {
        if self.phases.is_empty() {
            return phase.is_goal;
        }
        self.phases.iter().any(|name| name == "all" || name == phase.name)
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let program = if arguments.reference {
        Program::reference().map_err(io::Error::other)?
    } else {
        Program::under_test()
    };
    let options = Options { arguments: arguments.server.clone(), ..Options::default() };
    let server = Server::start(&program, options)?;
    let mut commander = Commander::connect(server.address())?;
    reader_keys(&mut commander, &arguments.sizes)?;
    println!(
        "{} {}: {} clients at pipeline 1, {} keys; latencies in ms",
        program.name(),
        arguments.server.join(" "),
        arguments.clients,
        arguments.sizes.keys
    );
    println!(
        "| while | runs, ms each | quiet p50, p99, p99.9, longest | p50, p99, p99.9, longest | \
         above 20 ms | ratio |"
    );
    println!("|---|---|---|---|---|---|");
    for phase in PHASES.iter().filter(|phase| arguments.wants(phase)) {
        let load = Load::start(server.address(), arguments.clients, arguments.sizes, phase.load)?;
        let measured = measure(arguments, phase, &mut commander, &load);
        load.stop()?;
        match measured {
            Ok(row) => println!("{row}"),
            // A command that the server does not know is no reason to stop.
            Err(error) => println!("| {} | {error} | | | | |", phase.title),
        }
    }
    server.stop().map(drop)
}

fn measure(
    arguments: &Arguments,
    phase: &Phase,
    commander: &mut Commander,
    load: &Load,
) -> io::Result<String> {
    let sizes = &arguments.sizes;
    let window = Duration::from_secs_f64(arguments.seconds);
    let (mut quiet, mut busy) = (Seen::default(), Seen::default());
    let mut took = Duration::ZERO;
    let mut runs = 0u32;
    for round in 0..if phase.is_once { arguments.rounds } else { 1 } {
        if phase.is_once || round == 0 {
            (phase.prepare)(commander, sizes)?;
        }
        // What the preparation left behind is over in a moment.
        if phase.name != "expire" {
            std::thread::sleep(Duration::from_millis(500));
            load.take();
            std::thread::sleep(window / arguments.rounds.max(1) as u32);
            quiet.merge(&load.take());
        }
        let started = Instant::now();
        load.take();
        loop {
            (phase.act)(commander, sizes)?;
            runs += 1;
            if phase.is_once || started.elapsed() >= window {
                break;
            }
        }
        took += started.elapsed();
        let seen = load.take();
        if arguments.is_verbose {
            for (at, us) in &seen.slow {
                let at = at.saturating_duration_since(started).as_secs_f64() * 1000.0;
                println!("{at:10.1} ms: an answer after {:.1} ms", *us as f64 / 1000.0);
            }
        }
        busy.merge(&seen);
        if phase.name == "expire" {
            std::thread::sleep(window / arguments.rounds.max(1) as u32);
            quiet.merge(&load.take());
        }
    }
    let ms = |us: u64| us as f64 / 1000.0;
    let (quiet, slow) = (quiet.latencies, (quiet.slow.len(), busy.slow.len()));
    let (before, after) = (quiet.quantile_us(0.999), busy.latencies.quantile_us(0.999));
    let [p50, p99] = [0.5, 0.99].map(|share| ms(busy.latencies.quantile_us(share)));
    Ok(format!(
        "| {} | {runs} × {:.0} | {:.2}, {:.2}, {:.2}, {:.1} | {p50:.2}, {p99:.2}, {:.2}, {:.1} | \
         {}, {} | {:.1} |",
        phase.title,
        took.as_secs_f64() * 1000.0 / f64::from(runs),
        ms(quiet.quantile_us(0.5)),
        ms(quiet.quantile_us(0.99)),
        ms(before),
        ms(quiet.longest_us()),
        ms(after),
        ms(busy.latencies.longest_us()),
        slow.0,
        slow.1,
        after as f64 / before.max(1) as f64,
    ))
}
