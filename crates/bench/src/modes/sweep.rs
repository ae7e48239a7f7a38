//! `--sweep`: latency over throughput. The rate is walked up, open loop, until the server no longer
//! keeps up; the knee is the last rate at which it did.

use crate::generator::os;
use crate::measure::Measured;
use crate::options::{Job, Limit, Load, Pacing, SweepRates};
use crate::report::Session;
use crate::report::document::{Latency, RateStep, Sweep};
use crate::report::table::{aligned, grouped};
use crate::workload::Workload;
use std::time::Duration;

/// Seconds of a step, unless `--duration` says otherwise.
const STEP: Duration = Duration::from_secs(3);

/// A server keeps up if it answers this share of what was asked.
const KEPT: f64 = 0.98;

/// And if p99 is no more than so many times that of the lowest rate.
const TAIL: f64 = 10.0;

/// Walks each workload.
pub fn run(job: &Job, session: &mut Session, rates: Option<SweepRates>) -> Result<(), String> {
    let time = match job.load.limit {
        Limit::Time(time) => time,
        Limit::Requests(_) => STEP,
    };
    for workload in &job.workloads {
        let rates = match rates {
            Some(rates) => rates,
            None => around_the_most(job, session, workload, time)?,
        };
        let mut sweep = Sweep {
            workload: workload.name.clone(),
            steps: Vec::new(),
            knee: None,
            verdict: String::new(),
        };
        let mut behind = 0;
        for rate in steps(rates) {
            let load =
                Load { pacing: Pacing::Open(rate), limit: Limit::Time(time), ..job.load.clone() };
            let measured = super::measure(job, &job.target, &load, workload, session)?;
            session.keep(&job.target, &load, &measured);
            let lowest = sweep.steps.first().map(|step: &RateStep| step.p99_ms);
            let step = step(rate, &measured, lowest);
            behind = if step.kept_up { 0 } else { behind + 1 };
            sweep.steps.push(step);
            // Two steps beyond the knee show the wall; more only take time.
            if behind == 3 || os::interrupted() {
                break;
            }
        }
        sweep.knee = knee(&sweep.steps);
        sweep.verdict = verdict(&sweep);
        let text = table(&sweep);
        session.print(&text);
        session.document.sweeps.push(sweep);
        if os::interrupted() {
            break;
        }
    }
    Ok(())
}

/// From a tenth to 1.2 times of what a closed loop reaches.
fn around_the_most(
    job: &Job,
    session: &mut Session,
    workload: &Workload,
    time: Duration,
) -> Result<SweepRates, String> {
    let load = Load { pacing: Pacing::Closed, limit: Limit::Time(time), ..job.load.clone() };
    let measured = super::measure(job, &job.target, &load, workload, session)?;
    session.keep(&job.target, &load, &measured);
    if let Some(refusal) = measured.refusal() {
        return Err(format!("{}: {refusal}", workload.name));
    }
    let most = measured.rate();
    if most <= 0.0 {
        return Err(format!(
            "{}: nothing was answered, so there is nothing to sweep",
            workload.name
        ));
    }
    Ok(SweepRates { from: most * 0.1, to: most * 1.2, steps: 12 })
}

fn steps(rates: SweepRates) -> Vec<f64> {
    let gaps = f64::from(rates.steps.saturating_sub(1)).max(1.0);
    let rate = |index: u32| rates.from + (rates.to - rates.from) * f64::from(index) / gaps;
    (0..rates.steps).map(rate).collect()
}

fn step(asked: f64, measured: &Measured, lowest_p99_ms: Option<f64>) -> RateStep {
    let latency = Latency::new(&measured.total().latencies);
    let rate = measured.rate();
    let tail_holds = lowest_p99_ms.is_none_or(|lowest| latency.p99 <= lowest * TAIL);
    RateStep {
        asked_rate: asked,
        rate,
        p50_ms: latency.p50,
        p99_ms: latency.p99,
        p999_ms: latency.p999,
        max_ms: latency.max,
        server_cpu_us: measured.server_us(),
        kept_up: rate >= asked * KEPT && measured.counts.unfinished == 0 && tail_holds,
        generator_was_the_limit: measured.generator_was_the_limit(),
    }
}

/// The last step before the first that fell behind for good: one bad step between good ones is the
/// machine's noise.
fn knee(steps: &[RateStep]) -> Option<usize> {
    steps.iter().rposition(|step| step.kept_up)
}

fn verdict(sweep: &Sweep) -> String {
    let limited = sweep.steps.iter().any(|step| step.generator_was_the_limit && !step.kept_up);
    let text = match sweep.knee {
        None => "The server did not keep up with the lowest rate.".to_owned(),
        Some(index) if index + 1 == sweep.steps.len() => format!(
            "The server kept up with every rate, up to {} requests/s.",
            grouped(sweep.steps[index].rate)
        ),
        Some(index) => format!(
            "The knee is at {} requests/s, with p99 {:.3} ms.",
            grouped(sweep.steps[index].rate),
            sweep.steps[index].p99_ms
        ),
    };
    let passed = sweep.steps[..sweep.knee.unwrap_or(0)].iter().filter(|step| !step.kept_up).count();
    let text = match passed {
        0 => text,
        1 => format!("{text} It fell behind once before that: the machine was not quiet."),
        count => {
            format!("{text} It fell behind {count} times before that: the machine was not quiet.")
        }
    };
    if limited { text + " Beyond it the generator was the limit, not the server." } else { text }
}

fn table(sweep: &Sweep) -> String {
    let head = ["asked/s", "answered/s", "p50 ms", "p99", "p99.9", "max", "CPU µs/req", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (index, step) in sweep.steps.iter().enumerate() {
        rows.push(vec![
            grouped(step.asked_rate),
            grouped(step.rate),
            format!("{:.3}", step.p50_ms),
            format!("{:.3}", step.p99_ms),
            format!("{:.3}", step.p999_ms),
            format!("{:.3}", step.max_ms),
            step.server_cpu_us.map_or("-".into(), |us| format!("{us:.2}")),
            match (sweep.knee == Some(index), step.kept_up) {
                (true, _) => "<- knee".into(),
                (false, false) => "fell behind".into(),
                (false, true) => String::new(),
            },
        ]);
    }
    format!(
        "\n{}, latency over throughput (open loop)\n\n{}\n{}\n",
        sweep.workload,
        aligned(&rows),
        sweep.verdict
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_the_last_rate_that_was_kept() {
        let step = |asked: f64, kept_up| RateStep {
            asked_rate: asked,
            rate: asked,
            p50_ms: 1.0,
            p99_ms: 1.0,
            p999_ms: 1.0,
            max_ms: 1.0,
            server_cpu_us: None,
            kept_up,
            generator_was_the_limit: false,
        };
        let all = [step(1.0, true), step(2.0, false), step(3.0, true), step(4.0, false)];
        assert_eq!(knee(&all), Some(2));
        assert_eq!(knee(&all[1..2]), None);
        let rates = SweepRates { from: 10.0, to: 30.0, steps: 3 };
        assert_eq!(steps(rates), [10.0, 20.0, 30.0]);
        assert_eq!(steps(SweepRates { steps: 1, ..rates }), [10.0]);
    }
}
