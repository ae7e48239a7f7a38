//! `--against`: the same work on several servers in alternation, and what their figures' ratios are
//! worth.

use crate::generator::os;
use crate::measure::Measured;
use crate::measure::noise::{compare, median};
use crate::options::{Job, Target};
use crate::report::Session;
use crate::report::document::{Compared, Latency};
use crate::report::table::{aligned, troubles};

/// A figure that servers are compared by.
type Figure = (&'static str, fn(&Measured) -> Option<f64>);

const FIGURES: [Figure; 5] = [
    ("requests/s", |measured| Some(measured.rate())),
    ("server CPU µs/request", Measured::server_us),
    ("p50 ms", |measured| Some(latency(measured).p50)),
    ("p99 ms", |measured| Some(latency(measured).p99)),
    ("p99.9 ms", |measured| Some(latency(measured).p999)),
];

fn latency(measured: &Measured) -> Latency {
    Latency::new(&measured.total().latencies)
}

/// Compares on each workload.
pub fn run(job: &Job, session: &mut Session, others: &[Target], rounds: u32) -> Result<(), String> {
    let mut targets = vec![job.target.clone()];
    targets.extend_from_slice(others);
    for workload in &job.workloads {
        let mut outcomes: Vec<Vec<Measured>> = vec![Vec::new(); targets.len()];
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..targets.len()).collect();
            // The order is reversed every time, so that neither always comes first.
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let measured = super::measure(job, &targets[index], &job.load, workload, session)?;
                session.keep(&targets[index], &job.load, &measured);
                outcomes[index].push(measured);
                if os::interrupted() {
                    break;
                }
            }
            if os::interrupted() {
                break;
            }
        }
        let compared = compared(&workload.name, &targets, &outcomes);
        let text = table(&workload.name, &targets, &outcomes, &compared);
        session.print(&text);
        session.document.comparisons.extend(compared);
        if os::interrupted() {
            break;
        }
    }
    Ok(())
}

fn one_refused(measured: &Measured) -> bool {
    measured.refusal().is_some()
}

fn compared(workload: &str, targets: &[Target], outcomes: &[Vec<Measured>]) -> Vec<Compared> {
    let mut compared = Vec::new();
    for (index, target) in targets.iter().enumerate().skip(1) {
        for (name, figure) in FIGURES {
            let of = |measured: &[Measured]| -> Option<Vec<f64>> {
                let figure = |one| if one_refused(one) { None } else { figure(one) };
                measured.iter().map(figure).collect::<Option<Vec<f64>>>()
            };
            let (Some(first), Some(other)) = (of(&outcomes[0]), of(&outcomes[index])) else {
                continue;
            };
            let Some(comparison) = compare(&first, &other) else { continue };
            let limited =
                |measured: &[Measured]| measured.iter().any(Measured::generator_was_the_limit);
            compared.push(Compared {
                workload: workload.into(),
                figure: name.into(),
                server: target.address.to_string(),
                first_server: targets[0].address.to_string(),
                first_median: median(&first),
                median: median(&other),
                ratio: comparison.ratio,
                ratio_low: comparison.range.0,
                ratio_high: comparison.range.1,
                noise: comparison.noise,
                within_noise: comparison.within_noise,
                generator_was_the_limit: limited(&outcomes[0]) || limited(&outcomes[index]),
            });
        }
    }
    compared
}

fn table(
    workload: &str,
    targets: &[Target],
    outcomes: &[Vec<Measured>],
    compared: &[Compared],
) -> String {
    let rounds = outcomes.iter().map(Vec::len).min().unwrap_or(0);
    let first = &targets[0].address;
    let mut text = format!(
        "\n{workload}: medians of {rounds} rounds; ratios to {first}, taken round by round\n\n"
    );
    let head =
        ["", &first.to_string(), "other", "ratio", "from", "to", "noise", ""].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    let mut server = "";
    for row in compared {
        if targets.len() > 2 && row.server != server {
            rows.push(vec![row.server.clone()]);
        }
        server = &row.server;
        rows.push(vec![
            row.figure.clone(),
            format!("{:.3}", row.first_median),
            format!("{:.3}", row.median),
            format!("{:.3}", row.ratio),
            format!("{:.3}", row.ratio_low),
            format!("{:.3}", row.ratio_high),
            format!("{:.1} %", row.noise * 100.0),
            if row.within_noise { "within the noise".into() } else { String::new() },
        ]);
    }
    text += &aligned(&rows);
    if compared.iter().any(|row| row.generator_was_the_limit && row.figure == "requests/s") {
        text += "! The generator was the limit, so requests/s and latencies say little of the servers; \
                 CPU per request does.\n";
    }
    for (target, measured) in targets.iter().zip(outcomes) {
        let mut all: Option<Measured> = None;
        for one in measured {
            match &mut all {
                Some(all) => all.merge(one),
                None => all = Some(one.clone()),
            }
        }
        let Some(mut all) = all else { continue };
        // Said above already.
        all.own.busiest = 0.0;
        let troubles = troubles(&all);
        if !troubles.is_empty() {
            text += &format!("{}:\n{troubles}", target.address);
        }
    }
    text
}
