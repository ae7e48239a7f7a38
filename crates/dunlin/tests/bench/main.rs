//! `dunlin bench` from outside: every option against a real server, and what its figures promise.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

mod cluster;
mod experiments;
mod options;
mod promises;
mod support;
mod tls;
