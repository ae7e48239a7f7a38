//! The thread of active defragmentation.

use super::{priority, thread};
use crate::log;
use engine::Engine;
use std::io;

/// Starts the thread.
pub fn start(engine: &'static Engine) -> io::Result<()> {
    let run = move || {
        if let Err(error) = priority::lower_current_thread(priority::BACKGROUND) {
            log!(Warning, "Defragmentation runs at normal priority: {error}");
        }
        engine::defrag::run(engine)
    };
    thread::spawn("defrag", run).map(drop)
}
