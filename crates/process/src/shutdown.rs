//! The last step of a clean shutdown, with the log line scripts wait for.

use crate::log;

/// After everything is saved and removed: says goodbye. Only the exit is left to do.
pub fn finish() {
    log!(Warning, "Dunlin is now ready to exit, bye bye...");
}
