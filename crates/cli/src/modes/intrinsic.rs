//! `--intrinsic-latency`: how long the machine takes a processor away from a program that computes.

use crate::session::emit;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Computes for so many seconds and reports the longest runs.
pub fn run(seconds: u64) -> ExitCode {
    let end = Instant::now() + Duration::from_secs(seconds);
    let begin = Instant::now();
    let (mut worst, mut runs) = (Duration::ZERO, 0_u64);
    while Instant::now() < end {
        let start = Instant::now();
        let mut value = runs;
        for _ in 0..64 {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
        }
        black_box(value);
        let took = start.elapsed();
        runs += 1;
        if took > worst {
            worst = took;
            let text = format!("Max latency so far: {} microseconds.\n", worst.as_micros());
            emit(text.as_bytes());
        }
    }
    let nanos = begin.elapsed().as_nanos() as f64 / runs.max(1) as f64;
    let text = format!(
        "\n{runs} total runs (avg latency: {:.4} microseconds / {nanos:.2} nanoseconds per run).\n\
         Worst run took {:.0}x longer than the average latency.\n",
        nanos / 1000.0,
        worst.as_nanos() as f64 / nanos
    );
    emit(text.as_bytes());
    ExitCode::SUCCESS
}
