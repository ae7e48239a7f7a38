//! The program as a user sees it: arguments, configuration files, log, signals, status.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

mod at_run_time;
mod configuration;
mod loading;
mod pages;
mod process;
mod release;
mod support;
