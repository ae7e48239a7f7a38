//! The first and the last steps of a clean shutdown, with the log lines scripts wait for.

use super::supervised::Supervisor;
use crate::log;

/// Says that a shutdown has begun, to the log and to systemd. `client` describes who asked for it with
/// SHUTDOWN; `None` if it was a signal.
pub fn begin(client: Option<&str>, supervisor: &Supervisor) {
    match client {
        Some(client) => {
            log!(Notice, "User requested shutdown... (user request from '{client}')");
        }
        None => log!(Notice, "User requested shutdown..."),
    }
    supervisor.stopping();
}

/// After everything is saved and removed: says goodbye. Only the exit is left to do.
pub fn finish() {
    log!(Warning, "Dunlin is now ready to exit, bye bye...");
}
