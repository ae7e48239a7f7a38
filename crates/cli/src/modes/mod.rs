//! What the program does beside sending commands: a file a mode.

pub mod cluster;
mod hot_keys;
mod intrinsic;
mod key_sizes;
mod key_stats;
mod latency;
mod lru_test;
mod pipe;
pub mod replica;
mod scan;
mod stat;

use crate::options::Mode;
use crate::session::Session;
use std::process::ExitCode;

/// Runs a mode.
pub fn run(mut session: Session, mode: Mode) -> ExitCode {
    let session = &mut session;
    if let Mode::IntrinsicLatency(seconds) = mode {
        crate::interrupt::install();
        return intrinsic::run(seconds);
    }
    session.connected();
    match mode {
        Mode::Commands | Mode::Eval(_) | Mode::Print(_) | Mode::IntrinsicLatency(_) => {
            ExitCode::SUCCESS
        }
        Mode::Latency => latency::run(session, latency::LatencyReport::Once),
        Mode::LatencyHistory => latency::run(session, latency::LatencyReport::History),
        Mode::LatencyDistribution => latency::distribution(session),
        Mode::LruTest(keys) => lru_test::run(session, keys),
        Mode::Stat => stat::run(session),
        Mode::Scan => scan::run(session),
        Mode::BigKeys => key_sizes::run(session, key_sizes::Measure::Length),
        Mode::MemKeys(samples) => key_sizes::run(session, key_sizes::Measure::Memory(samples)),
        Mode::KeyStats(samples) => key_stats::run(session, samples),
        Mode::HotKeys(count) => hot_keys::run(session, count),
        Mode::Pipe => pipe::run(session),
        Mode::Rdb(path) => replica::save(session, &path, replica::Contents::Everything),
        Mode::FunctionsRdb(path) => replica::save(session, &path, replica::Contents::Functions),
        Mode::Replica => replica::run(session),
    }
}
