//! The struct `Engine`, the sum of the parts, and code that concerns several of them.

pub mod cold_values;
pub mod engine;
pub mod quorum;
pub mod roles;
pub mod snapshot;
pub mod staged;
