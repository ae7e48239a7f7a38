//! The thread of active defragmentation.

use engine::Engine;
use process::{priority, thread};
use std::io;

/// Starts the thread.
pub fn start(engine: &'static Engine) -> io::Result<()> {
    let run = move || {
        priority::step_back("the thread of defragmentation");
        engine::defrag::run(engine)
    };
    thread::spawn("defrag", run).map(drop)
}
