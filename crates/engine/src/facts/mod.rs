//! What everything else needs: values, limits, figures, events, the clock.

pub mod append_log;
pub mod args;
pub mod clock;
pub mod debug;
pub mod epochs;
pub mod error;
pub mod events;
pub mod limits;
pub mod peer;
pub mod special;
pub mod stats;
pub mod value;
pub mod words;
