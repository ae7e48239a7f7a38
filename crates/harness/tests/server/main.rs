//! The process and its host: ports, limits, memory, options, metrics, its end.

mod admin_port;
mod audit;
mod client_limits;
mod crash;
mod eviction;
mod health_check;
mod host;
mod host_options;
mod hostile_clients;
mod memory_returns;
mod metrics;
mod operators;
mod out_of_memory;
mod rate_limits;
mod shedding;
mod tls_reload;
