//! `DEBUG subcommand [argument …]`: what test suites and debugging need
//!
//! `enable-debug-command` says which clients may. The world stands still for every one of them:
//! some look at everything, and the others (SLEEP) are meant to stop the server.

mod clients;
mod crash;
mod digest;
mod help;
mod loadaof;
mod object;
mod populate;
mod protocol;
mod reload;
mod settings;
mod table_stats;
mod tier;

use crate::table::wrong_subcommand;
use engine::cold_values::with_value;
use engine::{Args, Command, Cx, Error, Flags, Group, Key, Outcome};
use keyspace::Entry;
use std::time::Duration;

/// `DEBUG`.
pub static DEBUG: Command = Command {
    name: "debug",
    arity: -2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::SYSCMD)
        .with(Flags::PROTECTED)
        .with(Flags::WORLD)
        .with(Flags::AUDITED),
    group: Group::Server,
    since: "1.0.0",
    complexity: "That of the subcommand",
    summary: "Commands for tests and for those who look for faults.",
    run: debug,
    ..Command::ROW
};

fn debug(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let name = args[1].to_ascii_lowercase();
    // A part of the data set would take the place of all of it, on the disk too.
    if matches!(name.as_slice(), b"reload" | b"loadaof") && cx.engine.loading.is_on() {
        return Err(Error::Loading);
    }
    match (name.as_slice(), args.len()) {
        (b"help", 2) => help::help(cx),
        (b"sleep", 3) => sleep(cx, args),
        (b"log", 3) => log(cx, args),
        (b"error", 3) => error(args),
        (b"leak", 3) => leak(cx, args),
        (b"protocol", 3) => protocol::protocol(cx, args),
        (b"stringmatch-len", 4) => settings::stringmatch_len(cx, args),
        (b"stringmatch-test", 2) => settings::stringmatch_test(cx),

        (b"object", 3 | 4) => object::object(cx, args),
        (b"sdslen", 3) => object::sdslen(cx, args),
        (b"listpack", 3) => object::listpack(cx, args),
        (b"quicklist", 3 | 4) => object::quicklist(cx, args),
        (b"digest", 2) => digest::digest(cx),
        (b"digest-value", 2..) => digest::digest_value(cx, args),
        (b"htstats", 3 | 4) => table_stats::htstats(cx, args),
        (b"htstats-key", 3 | 4) => table_stats::htstats_key(cx, args),
        (b"structsize", 2) => table_stats::structsize(cx),
        (b"populate", 3..=5) => populate::populate(cx, args),
        (b"reload", 2..) => reload::reload(cx, args),
        (b"loadaof", 2) => loadaof::loadaof(cx),
        (b"aof-fault", 3) => loadaof::fault(cx, args),

        (b"segfault", 2) => crash::segfault(cx),
        (b"panic", 2) => crash::panic(),
        (b"assert", 2) => crash::assert(args),
        (b"oom", 2) => crash::oom(cx),
        (b"restart" | b"crash-and-recover", 2 | 3) => crash::restart(cx, args),

        (b"tier", 3..) => tier::tier(cx, args),
        (b"client-eviction", 2) => clients::client_eviction(cx),
        _ => settings::set(cx, args, &name),
    }
}

fn unknown(args: Args<'_>) -> Error {
    wrong_subcommand("DEBUG", args)
}

/// Looks at a key's entry as it is: a key whose time has come is still there.
fn raw<R>(cx: &Cx<'_>, key: Key<'_>, look: impl FnOnce(&Entry) -> R) -> Result<Option<R>, Error> {
    let stripe = cx.engine.keyspace.stripe_of(key);
    let seen = cx.db.visit(stripe, |data| {
        let entry = data.find(cx.db.index, key);
        entry.map(|entry| with_value(cx.engine, entry, look)).transpose()
    });
    seen.unwrap_or(Err(Error::StripeTaken))
}

/// A number as C's `atoi` reads it: what does not look like one is 0.
fn switch(word: &[u8]) -> bool {
    let word = word.trim_ascii_start();
    let digits = word.strip_prefix(b"-").or(word.strip_prefix(b"+")).unwrap_or(word);
    digits.iter().take_while(|byte| byte.is_ascii_digit()).any(|&byte| byte != b'0')
}

fn sleep(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    // What is no number sleeps no time, as in the reference.
    let seconds = args.float(2).unwrap_or(0.0).clamp(0.0, 3600.0);
    cx.engine.clock.sleep(Duration::from_secs_f64(seconds));
    cx.reply.ok();
    Ok(())
}

fn log(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if let Some(host) = cx.engine.host() {
        host.warn(&format!("DEBUG LOG: {}", String::from_utf8_lossy(args[2])));
    }
    cx.reply.ok();
    Ok(())
}

fn error(args: Args<'_>) -> Outcome {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    Err(Error::Bytes(
        args[2].iter().map(|byte| if is_break(byte) { b' ' } else { *byte }).collect(),
    ))
}

fn leak(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    Box::leak(Box::<[u8]>::from(args[2]));
    cx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::switch;

    #[test]
    fn switches_are_read_as_c_does() {
        for on in [&b"1"[..], b"-1", b" 2x", b"+10", b"01"] {
            assert!(switch(on), "{on:?}");
        }
        for off in [&b"0"[..], b"", b"x1", b"-", b"0x1", b"no"] {
            assert!(!switch(off), "{off:?}");
        }
    }
}
