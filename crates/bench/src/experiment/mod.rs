//! Published experiments, repeated on the user's machine: the servers are started, loaded with the
//! command lines of this very tool, and their figures printed beside the published ones.

mod addressed;
mod cpus;
mod deployments;
mod flash;
mod machines;
mod peers;
mod runs;
mod scaling;
mod servers;

use crate::End;
use crate::generator::os;
use crate::measure::Measured;
use crate::modes;
use crate::options::args::{ExperimentArgs, ScalingArgs};
use crate::options::{Job, Output, resolve};
use crate::report::Session;
use crate::report::document::{Curve, Experiment, MemoryLine, Row};
use crate::report::table::{fitted, grouped, wrapped};
use servers::Lab;
use std::time::Duration;

/// What an experiment is, apart from what it does.
pub struct Plan {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Its publisher.
    pub by: &'static str,
    /// The scale that a machine of two cores does in a few minutes.
    pub usual_scale: f64,
    /// Does it.
    pub run: fn(&mut Bench<'_>) -> Result<(), String>,
}

/// What is measured for less time says more about starting than about working.
const SHORTEST_STEP_SECONDS: f64 = 2.0;

/// How a table begins a remark about a program that is not installed.
const MISSING: &str = "not measured: ";

/// What can be repeated with a cluster of three machines.
const WITH_CLUSTER: [&str; 3] = ["flash", "scale-out", "unbenchmark"];

/// How long servers may take to connect to each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many columns a terminal has at least.
const COLUMNS: usize = 120;

/// An experiment under way.
pub struct Bench<'a> {
    /// The servers.
    pub lab: Lab,
    /// Sizes are the original's times this.
    pub scale: f64,
    /// Threads of the generator.
    pub threads: usize,
    /// The sizes in words.
    pub sizes: String,
    rows: Vec<Row>,
    /// The memory of servers that were limited in it.
    pub memory: Vec<MemoryLine>,
    /// Pictures of lines.
    pub curves: Vec<Curve>,
    /// What only the experiment with many threads is told.
    pub scaling: ScalingArgs,
    /// `--cluster`: through the address of a database of three machines.
    pub is_cluster: bool,
    /// `--image`: the container image of an experiment with containers.
    pub image: Option<String>,
    /// `--machine`: the command that starts the machine image.
    pub machine: Option<String>,
    /// Why the last run has no figure.
    refusal: Option<String>,
    session: &'a mut Session,
}

/// Repeats an experiment.
pub fn run(args: &ExperimentArgs, command_line: &str) -> Result<End, String> {
    let plan = runs::PLANS.iter().find(|plan| plan.name == args.name);
    let plan = plan.ok_or_else(|| format!("there is no experiment '{}'", args.name))?;
    if args.cluster && !WITH_CLUSTER.contains(&plan.name) {
        let names = WITH_CLUSTER.join(", ");
        return Err(format!("--cluster: only these experiments have a cluster: {names}"));
    }
    let scale = args.scale.unwrap_or(plan.usual_scale);
    if !(scale.is_finite() && scale > 0.0) {
        return Err(format!("--scale {scale}: a number above 0 is needed"));
    }
    // The second one only hurries: a third is needed to end without cleaning up.
    os::count_interrupts(2);
    let output = Output {
        report: args.report.clone(),
        json: args.json_out_file.clone(),
        ..Output::default()
    };
    let mut session = Session::open(&output, command_line)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut bench = Bench {
        lab: Lab::new(args.dir.as_deref(), args.port, args.reference.as_deref())?,
        scale,
        threads: cores.div_ceil(2),
        sizes: String::new(),
        rows: Vec::new(),
        memory: Vec::new(),
        curves: Vec::new(),
        scaling: args.scaling.clone(),
        is_cluster: args.cluster,
        image: args.image.clone(),
        machine: args.machine.clone(),
        refusal: None,
        session: &mut session,
    };
    let outcome = (plan.run)(&mut bench);
    if let Err(why) = &outcome
        && !os::interrupted()
    {
        let note = format!("the experiment ended before all was measured: {why}");
        bench.session.document.notes.push(note);
    }
    let (rows, sizes) = (std::mem::take(&mut bench.rows), std::mem::take(&mut bench.sizes));
    let memory = std::mem::take(&mut bench.memory);
    let curves = std::mem::take(&mut bench.curves);
    drop(bench);
    let experiment = Experiment {
        name: plan.name.into(),
        title: plan.title.into(),
        published_by: plan.by.into(),
        scale,
        sizes,
        rows,
        memory,
        curves,
    };
    session.print(&table(&experiment));
    session.document.experiment = Some(experiment);
    let end = session.finish()?;
    // What failed because of it is no failure.
    if os::interrupted() { Ok(End::Interrupted) } else { outcome.map(|()| end) }
}

impl Bench<'_> {
    /// One run of `dunlin bench` on a server of the lab; the words are its arguments.
    pub fn measure(&mut self, port: u16, line: &str) -> Result<Vec<Measured>, String> {
        let (job, measured) = self.attempt(&at(port), line)?;
        Ok(self.keep(&job, measured))
    }

    /// The same for at least two seconds: with more requests than the line asks for, if these take
    /// less. What was too short is not in the report.
    pub fn measure_long(&mut self, port: u16, line: &str) -> Result<Vec<Measured>, String> {
        let mut line = line.to_owned();
        loop {
            let (job, measured) = self.attempt(&at(port), &line)?;
            let last = measured.last();
            let short = last
                .filter(|last| last.seconds < SHORTEST_STEP_SECONDS && last.refusal().is_none());
            match (short, requests_of(&line)) {
                (Some(short), Some(requests)) => {
                    line = with_requests(&line, longer(requests, short.seconds));
                }
                _ => return Ok(self.keep(&job, measured)),
            }
        }
    }

    /// One run on the server to which the words `place` lead.
    fn attempt(&mut self, place: &[String], line: &str) -> Result<(Job, Vec<Measured>), String> {
        if os::interrupted() {
            return Err("interrupted".into());
        }
        let mut words = place.to_vec();
        words.extend(["--threads".into(), self.threads.to_string()]);
        words.extend(line.split_whitespace().map(str::to_owned));
        let job = resolve::parsed(&words)?;
        let mut all = Vec::new();
        for workload in &job.workloads {
            all.push(modes::measure(&job, &job.target, &job.load, workload, self.session)?);
        }
        Ok((job, all))
    }

    /// Puts runs into the report.
    fn keep(&mut self, job: &Job, all: Vec<Measured>) -> Vec<Measured> {
        for measured in &all {
            self.session.keep(&job.target, &job.load, measured);
            // A refusal is quick, and no throughput.
            let errors = measured.errors();
            self.refusal = measured.refusal().map(|refusal| refusal.to_string());
            if errors > 0 && self.refusal.is_none() {
                let text = measured.counts.error_texts.keys().next().cloned().unwrap_or_default();
                let (name, address) = (&measured.name, &job.target.address);
                self.session.note(format!("{name} on {address}: {errors} errors, such as {text}"));
            }
        }
        all
    }

    /// The same several times: the rates.
    pub fn rates(&mut self, port: u16, line: &str, trials: u32) -> Result<Vec<f64>, String> {
        let mut rates = Vec::new();
        for _ in 0..trials {
            let measured = self.measure_long(port, line)?;
            let answered = measured.iter().filter(|one| one.refusal().is_none());
            rates.extend(answered.map(Measured::rate));
        }
        Ok(rates)
    }

    /// A row of the result from the trials' figures.
    pub fn row(
        &mut self,
        what: &str,
        unit: &str,
        published: Option<&str>,
        trials: &[f64],
        remark: &str,
    ) {
        let mean = trials.iter().sum::<f64>() / trials.len() as f64;
        let low = trials.iter().copied().fold(f64::INFINITY, f64::min);
        let high = trials.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let row = Row {
            what: what.into(),
            unit: unit.into(),
            published: published.map(str::to_owned),
            measured: (!trials.is_empty()).then_some((mean, low, high)),
            remark: match &self.refusal {
                Some(refusal) if trials.is_empty() && remark.is_empty() => refusal.clone(),
                _ => remark.into(),
            },
        };
        eprintln!("{}", cells(&row).join("  "));
        self.rows.push(row);
    }
}

/// The words that lead to a port of this machine.
fn at(port: u16) -> [String; 2] {
    ["-p".into(), port.to_string()]
}

fn cells(row: &Row) -> Vec<String> {
    let shown = |figure: f64| {
        if figure.abs() < 1000.0 { format!("{figure:.2}") } else { grouped(figure) }
    };
    let (mean, range) = match row.measured {
        Some((mean, low, high)) if low == high => (shown(mean), String::new()),
        Some((mean, low, high)) => (shown(mean), format!("{} … {}", shown(low), shown(high))),
        None => ("-".into(), String::new()),
    };
    let published = row.published.clone().unwrap_or_else(|| "-".into());
    vec![row.what.clone(), published, mean, range, row.unit.clone(), row.remark.clone()]
}

/// How many requests a line asks for.
fn requests_of(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == "-n")?;
    words.next()?.parse().ok()
}

/// The line with another number of requests.
fn with_requests(line: &str, requests: u64) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    if let Some(at) = words.iter().position(|word| word == "-n") {
        words[at + 1] = requests.to_string();
    }
    words.join(" ")
}

/// So many requests take long enough where `requests` took `seconds`; a little more, for the next
/// run may be faster. What took no time at all is not extrapolated far.
fn longer(requests: u64, seconds: f64) -> u64 {
    let factor = (SHORTEST_STEP_SECONDS * 1.2 / seconds.max(1e-3)).clamp(1.2, 100.0);
    (requests as f64 * factor).ceil() as u64
}

fn table(experiment: &Experiment) -> String {
    let head = ["", "published", "measured", "range", "", ""].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    rows.extend(experiment.rows.iter().map(cells));
    let mut missing: Vec<String> = Vec::new();
    // What is not installed is said once.
    for remark in rows.iter_mut().filter_map(|row| row.last_mut()) {
        if remark.starts_with(MISSING) {
            let remark = std::mem::take(remark);
            if !missing.contains(&remark) {
                missing.push(remark);
            }
        }
    }
    let intro = [
        format!("{}: {}", experiment.name, experiment.title),
        format!("Published by {}.", experiment.published_by),
        format!("Scale {}: {}", experiment.scale, experiment.sizes),
    ];
    let intro: String =
        intro.iter().chain(&missing).map(|line| wrapped(line, COLUMNS) + "\n").collect();
    format!("\n{intro}\n{}", fitted(&rows, COLUMNS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &str, measured: Option<(f64, f64, f64)>, remark: &str) -> Row {
        Row {
            what: what.into(),
            unit: "requests/s".into(),
            published: Some("3 408 000 (4 to 5.6 ×)".into()),
            measured,
            remark: remark.into(),
        }
    }

    #[test]
    fn what_is_missing_is_said_once_and_above_and_a_table_fits() {
        let missing = "not measured: neither valkey-server nor redis-server is installed; apt-get install valkey-server";
        let experiment = Experiment {
            name: "scale-out".into(),
            title: "t".into(),
            published_by: "somebody ".repeat(20),
            scale: 1.0,
            sizes: "many keys, ".repeat(20),
            memory: Vec::new(),
            curves: Vec::new(),
            rows: vec![
                row("8 instances, Twemproxy, HAProxy", None, missing),
                row("1 reference server, 800 clients", None, missing),
                row(
                    "Dunlin with a long name and 800 clients",
                    Some((1_234_567.0, 1_134_567.0, 1_334_567.0)),
                    "p99 12.345 ms; no flash tier: all of it is kept in RAM",
                ),
            ],
        };
        let text = table(&experiment);
        assert_eq!(text.matches("apt-get install").count(), 1, "{text}");
        assert!(text.find("apt-get install") < text.find("published  "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("kept in RAM"), "{text}");
    }

    #[test]
    fn a_step_gets_more_requests_until_it_is_long_enough() {
        assert_eq!(requests_of("-c 50 -n 20000 -P 16 -t set"), Some(20_000));
        assert_eq!(requests_of("-c 50 --duration 3"), None);
        assert_eq!(with_requests("-c 50 -n 20000 -P 16", 5), "-c 50 -n 5 -P 16");
        assert_eq!(longer(1000, 1.0), 2400);
        assert_eq!(longer(1000, 0.0), 100_000);
        assert!(longer(1000, 1.99) >= 1200);
    }
}
