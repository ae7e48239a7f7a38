//! Published experiments, repeated on the user's machine: the servers are started, loaded with the
//! command lines of this very tool, and their figures printed beside the published ones.

mod runs;
mod servers;

use crate::End;
use crate::generator::os;
use crate::measure::Measured;
use crate::modes;
use crate::options::args::ExperimentArgs;
use crate::options::{Output, resolve};
use crate::report::Session;
use crate::report::document::{Experiment, Row};
use crate::report::table::{aligned, grouped};
use servers::Lab;

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
    /// Why the last run has no figure.
    refusal: Option<String>,
    session: &'a mut Session,
}

/// Repeats an experiment.
pub fn run(args: &ExperimentArgs, command_line: &str) -> Result<End, String> {
    let plan = runs::PLANS.iter().find(|plan| plan.name == args.name);
    let plan = plan.ok_or_else(|| format!("there is no experiment '{}'", args.name))?;
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
        refusal: None,
        session: &mut session,
    };
    let outcome = (plan.run)(&mut bench);
    let (rows, sizes) = (std::mem::take(&mut bench.rows), std::mem::take(&mut bench.sizes));
    drop(bench);
    let experiment = Experiment {
        name: plan.name.into(),
        title: plan.title.into(),
        published_by: plan.by.into(),
        scale,
        sizes,
        rows,
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
        if os::interrupted() {
            return Err("interrupted".into());
        }
        let mut words: Vec<String> = vec!["-p".into(), port.to_string()];
        words.extend(["--threads".into(), self.threads.to_string()]);
        words.extend(line.split_whitespace().map(str::to_owned));
        let job = resolve::parsed(&words)?;
        let mut all = Vec::new();
        for workload in &job.workloads {
            let measured = modes::measure(&job, &job.target, &job.load, workload, self.session)?;
            self.session.keep(&job.target, &job.load, &measured);
            // A refusal is quick, and no throughput.
            let errors = measured.errors();
            self.refusal = measured.refusal().map(|refusal| refusal.to_string());
            if errors > 0 && self.refusal.is_none() {
                let text = measured.counts.error_texts.keys().next().cloned().unwrap_or_default();
                let (name, address) = (&measured.name, &job.target.address);
                self.session.note(format!("{name} on {address}: {errors} errors, such as {text}"));
            }
            all.push(measured);
        }
        Ok(all)
    }

    /// The same several times: the rates.
    pub fn rates(&mut self, port: u16, line: &str, trials: u32) -> Result<Vec<f64>, String> {
        let mut rates = Vec::new();
        for _ in 0..trials {
            let measured = self.measure(port, line)?;
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

fn table(experiment: &Experiment) -> String {
    let head = ["", "published", "measured", "range", "", ""].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    rows.extend(experiment.rows.iter().map(cells));
    format!(
        "\n{}: {}\nPublished by {}. Scale {}: {}\n\n{}",
        experiment.name,
        experiment.title,
        experiment.published_by,
        experiment.scale,
        experiment.sizes,
        aligned(&rows)
    )
}
