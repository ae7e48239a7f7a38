//! What Prometheus reads: its text format, the rows of INFO's fields, and the series that
//! redis_exporter makes of what a server answers. No sockets, no clock; docs/internals/metrics.md
//! has the why.

pub mod exporter;
pub mod go_number;
pub mod info;
pub mod own;
pub mod rows;
mod rows_state;
mod rows_work;
pub mod text;
