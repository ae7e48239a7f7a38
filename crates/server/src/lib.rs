//! The server: reactors, connections, files and the process around them. The only crate that does
//! I/O.

pub mod net;
pub mod process;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the server until it is told to stop. `args` starts with the program's name as it was
/// called; what follows are redis-server's arguments.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let program = args.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    log!(Warning, "{program}: the server is not assembled in this build");
    ExitCode::FAILURE
}
