//! What a job comes to: its runs in order, and the report.

pub mod against;
pub mod audit;
pub mod sweep;

use crate::End;
use crate::generator;
use crate::measure::Measured;
use crate::options::{Job, Load, Mode, Target};
use crate::report::{self, Session};
use crate::verify::Checker;
use crate::workload::Workload;

/// Carries out a job.
pub fn run(job: &Job) -> Result<End, String> {
    generator::os::count_interrupts(1);
    let mut session = Session::new(job)?;
    let outcome = match &job.mode {
        Mode::Plain(times) => plain(job, &mut session, *times),
        Mode::Forever => loop {
            match plain(job, &mut session, 1) {
                Ok(()) if !generator::os::interrupted() => session.forget(),
                result => break result,
            }
        },
        Mode::Sweep(rates) => sweep::run(job, &mut session, *rates),
        Mode::Against(others, rounds) => against::run(job, &mut session, others, *rounds),
    };
    // What was measured before something failed is reported all the same.
    let end = session.finish()?;
    outcome.map(|()| end)
}

fn plain(job: &Job, session: &mut Session, times: u32) -> Result<(), String> {
    for workload in &job.workloads {
        let mut all: Option<Measured> = None;
        for time in 0..times {
            let mut measured = measure(job, &job.target, &job.load, workload, session)?;
            let interrupted = measured.interrupted;
            if times > 1 {
                match &mut all {
                    Some(all) => all.merge(&measured),
                    None => all = Some(measured.clone()),
                }
                measured.name = format!("{} (run {} of {times})", workload.name, time + 1);
            }
            session.run(&job.target, &job.load, measured);
            if interrupted {
                break;
            }
        }
        if let Some(mut all) = all {
            all.name = format!("{} (all runs)", workload.name);
            session.run(&job.target, &job.load, all);
        }
        if generator::os::interrupted() {
            break;
        }
    }
    Ok(())
}

/// One run, with the reading back that `--verify` asks for.
pub fn measure(
    job: &Job,
    target: &Target,
    load: &Load,
    workload: &Workload,
    session: &mut Session,
) -> Result<Measured, String> {
    // Given processes are the first server's.
    let pids = if *target == job.target { &job.pids[..] } else { &[] };
    let mut progress = report::progress::Progress::new(&job.output);
    let result = generator::run(target, load, workload, pids, &mut |view| progress.show(view));
    progress.clear();
    let (mut measured, checker) = result?;
    if let Some(mut checker) = checker {
        read_back(&mut checker, target, workload, &mut measured, session);
    }
    Ok(measured)
}

fn read_back(
    checker: &mut Checker,
    target: &Target,
    workload: &Workload,
    measured: &mut Measured,
    session: &mut Session,
) {
    let may_be_gone = workload.places.expiry.1 > 0;
    if let Err(error) = checker.read_back(target, may_be_gone, &mut measured.counts) {
        session.note(format!("{}: reading back failed: {error}", workload.name));
        measured.counts.wrong += 1;
    }
}
