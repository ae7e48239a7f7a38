//! What runs a command: dispatch and its gates, long commands, scripts.

pub mod carrying;
pub mod dispatch;
pub mod exporting;
pub mod importing;
pub mod lanes;
pub mod long;
pub mod scripting;
