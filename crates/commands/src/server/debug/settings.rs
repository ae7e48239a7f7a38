//! `DEBUG` subcommands that switch something, and those that test the pattern matcher

use super::{switch, unknown};
use config::parse_memory;
use engine::journal::History;
use engine::{Args, Cx, Error, Outcome};
use std::sync::atomic::Ordering::Relaxed;
use structs::glob::{self, Case};

/// The largest threshold: 4 GiB without a margin for headers.
const MAX_PACKED_THRESHOLD: u64 = (1 << 32) - (1 << 20);
/// Rounds of STRINGMATCH-TEST; a fraction of a second.
const MATCHES: usize = 100_000;

pub(super) fn set(cx: &mut Cx<'_>, args: Args<'_>, name: &[u8]) -> Outcome {
    let engine = cx.engine;
    match (name, args.len()) {
        (b"set-active-expire", 3) => engine.active_expire.store(switch(args[2]), Relaxed),
        (b"quicklist-packed-threshold", 3) => {
            let bytes = parse_memory(args[2]).filter(|&bytes| bytes <= MAX_PACKED_THRESHOLD);
            let Some(bytes) = bytes else {
                return Err(Error::text(
                    "ERR argument must be a memory value bigger than 1 and smaller than 4gb",
                ));
            };
            engine.debug.set_packed_threshold(bytes as usize);
        }
        (b"set-skip-checksum-validation", 3) => engine.debug.set_skips_checksums(switch(args[2])),
        (b"defrag-all", 3) => engine.debug.set_moves_all(switch(args[2])),
        (b"aof-flush-sleep", 3) => {
            // What is no number is 0, as in the reference.
            engine.debug.set_log_delay(u64::try_from(args.integer(2).unwrap_or(0)).unwrap_or(0));
        }
        (b"snapshot-fault", 2) => match engine.snapshots.current() {
            Some(snapshot) => snapshot.fail(),
            None => return Err(Error::text("ERR There is no snapshot under way")),
        },
        (b"set-disable-deny-scripts", 3) => {
            engine.debug.set_scripts_may_all(switch(args[2]));
        }
        (b"pause-cron", 3) => engine.debug.set_pauses_cron(switch(args[2])),
        (b"slotmigration", 4) if args.is(2, "prevent-pause") => {
            engine.debug.set_holds_before_pause(switch(args[3]));
        }
        (b"slotmigration", 4) if args.is(2, "prevent-failover") => {
            engine.debug.set_holds_before_decision(switch(args[3]));
        }
        (b"change-repl-id", 2) => engine.journal.set_history(History::new()),
        (b"config-rewrite-force-all", 2) => {
            let Some(host) = engine.host() else { return Err(unknown(args)) };
            host.rewrite_whole_config().map_err(|why| {
                Error::format(format!("ERR CONFIG-REWRITE-FORCE-ALL failed: {why}"))
            })?;
        }
        (b"replicate", 3..) => {
            cx.db.propagate_as(|p| p.command(&args.words()[2..]));
        }
        (b"replybuffer", 4) => check_reply_buffer(args)?,
        // Tables here change their size with each write, and shrink in the same way.
        (b"dict-resizing" | b"hashtable-can-abort-shrink", 3) => {}
        (b"client-enforce-reply-list", 3) => {
            engine.debug.set_enforces_reply_list(switch(args[2]));
        }
        _ => return Err(unknown(args)),
    }
    cx.reply.ok();
    Ok(())
}

/// There is no peak to reset: a reply buffer that is empty is given back.
fn check_reply_buffer(args: Args<'_>) -> Outcome {
    if args.is(2, "peak-reset-time") {
        if !args.is(3, "never") && !args.is(3, "reset") {
            args.integer(3)?;
        }
        Ok(())
    } else if args.is(2, "resizing") {
        Ok(())
    } else {
        Err(unknown(args))
    }
}

pub(super) fn stringmatch_len(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let len = args.integer_in(2, 0..=1 << 24, "value is out of range")? as usize;
    let matched = glob::matches(args[3], &vec![b'a'; len], Case::Sensitive);
    cx.reply.integer(i64::from(matched));
    Ok(())
}

/// Whatever the bytes, matching must end, and without a crash.
pub(super) fn stringmatch_test(cx: &mut Cx<'_>) -> Outcome {
    let letters = b"ab*?[]^-\\\0\xff";
    let random = |max: u64| {
        let number = cx.db.random();
        let len = number % max;
        let letter = |at: u64| letters[(number.rotate_left(5 * at as u32 + 7) % 11) as usize];
        (0..len).map(letter).collect::<Vec<u8>>()
    };
    for _ in 0..MATCHES {
        let (pattern, text) = (random(12), random(12));
        let _ = glob::matches(&pattern, &text, Case::Insensitive);
    }
    cx.reply.simple("Apparently the server did not crash: test passed");
    Ok(())
}
