//! `DEBUG SEGFAULT`, `PANIC`, `ASSERT`, `OOM`: crashes on purpose; `DEBUG RESTART
//! [milliseconds]`, `CRASH-AND-RECOVER [milliseconds]`

use engine::engine::Restart;
use engine::{Args, Cx, Error, Outcome};
use std::hint::black_box;
use std::time::Duration;

pub(super) fn segfault(cx: &mut Cx<'_>) -> Outcome {
    match cx.engine.host() {
        Some(host) => host.segfault(),
        None => std::process::abort(),
    }
}

pub(super) fn panic() -> Outcome {
    panic!("DEBUG PANIC was called")
}

pub(super) fn assert(args: Args<'_>) -> Outcome {
    assert!(args.len() != 2, "DEBUG ASSERT was called");
    Ok(())
}

pub(super) fn oom(cx: &mut Cx<'_>) -> Outcome {
    // As much as one may ask for; no system gives it.
    drop(black_box(Vec::<u8>::with_capacity(isize::MAX as usize)));
    cx.reply.ok();
    Ok(())
}

pub(super) fn restart(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let delay_ms = if args.len() > 2 { args.integer(2)?.max(0) } else { 0 };
    let how = if args.is(1, "restart") { Restart::Graceful } else { Restart::Crash };
    if let Some(host) = cx.engine.host() {
        let why = host.restart(how, Duration::from_millis(delay_ms as u64));
        host.warn(&format!("The server could not be started anew: {why}"));
    }
    Err(Error::text("ERR failed to restart the server. Check server logs."))
}
