//! Lua scripts and function libraries: interpreters, what scripts may call, and conversions.
//!
//! This crate knows no command and no key. Scripts reach the server through [`Host`], and their
//! results are RESP. An [`Interpreter`] belongs to one thread.

mod api;
mod arguments;
mod ffi;
mod host;
mod interpreter;
mod libs;
mod lua;
mod memory;
mod numbers;
mod register;
mod reply_to_lua;
mod result_to_resp;
mod sandbox;
mod shared;
pub mod shebang;

/// The applier of patches, which the build uses.
#[cfg(test)]
#[path = "../build/patch.rs"]
mod patch;

pub use host::{Host, Identity, LogLevel, ReplicateTo, Stop};
pub use interpreter::{Failure, Interpreter, Outcome, Sha};
pub use register::FunctionSpec;
