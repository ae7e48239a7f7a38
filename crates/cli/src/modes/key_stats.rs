//! `--keystats`: sizes and lengths together, with their distributions.

use super::key_sizes::{self, Measure};
use crate::session::Session;
use std::process::ExitCode;

/// Scans and reports both.
pub fn run(session: &mut Session, samples: Option<u64>) -> ExitCode {
    key_sizes::run(session, Measure::Memory(samples));
    key_sizes::run(session, Measure::Length)
}
