//! Opening the listeners at start.
//!
//! The kernel closes what an io_uring holds in the background, after the process has gone. A server
//! that is started right after its predecessor was killed can therefore find the address in use for
//! a moment, and binds again until it is free.

use crate::log;
use net::{BindError, ListenSpec, Net};
use process::signals;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// How long a start waits for an address that is in use.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Opens all listeners.
///
/// # Errors
/// What the server's log is to say before it ends.
pub fn open(net: &Net, specs: &[ListenSpec]) -> Result<(), String> {
    bind_patiently(net, specs).map_err(|error| {
        let advice = error.advice().map_or(String::new(), |advice| advice + "\n");
        format!("Warning: {error}\n{advice}Failed listening, aborting.")
    })?;
    if net.is_deaf() {
        return Err("Configured to not listen anywhere, exiting.".to_owned());
    }
    Ok(())
}

fn bind_patiently(net: &Net, specs: &[ListenSpec]) -> Result<(), BindError> {
    let started = Instant::now();
    let mut is_told = false;
    loop {
        let error = match net.rebind(specs) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let is_over = started.elapsed() >= TIMEOUT || signals::requested().is_some();
        if error.error.kind() != ErrorKind::AddrInUse || is_over {
            return Err(error);
        }
        if !std::mem::replace(&mut is_told, true) {
            let seconds = TIMEOUT.as_secs();
            log!(Notice, "{error}. Trying again for {seconds} seconds");
        }
        std::thread::sleep(PAUSE);
    }
}
