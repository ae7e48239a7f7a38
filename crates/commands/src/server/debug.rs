//! `DEBUG`: what test suites and people who look for a fault need
//!
//! What could harm is allowed as `enable-debug-command` says.

use engine::{Args, Command, Cx, Error, Flags, Group, Outcome};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// `DEBUG`.
pub static DEBUG: Command = Command {
    name: "debug",
    arity: -2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::SYSCMD),
    group: Group::Server,
    since: "1.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for debugging commands.",
    run: debug,
    ..Command::ROW
};

fn debug(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 2 && args.is(1, "help") {
        cx.reply.array(1);
        cx.reply.simple("DEBUG <subcommand> [<arg> [value] [opt] ...].");
        return Ok(());
    }
    if args.is(1, "sleep") && args.len() == 3 {
        let seconds = args.float(2)?.clamp(0.0, 3600.0);
        std::thread::sleep(Duration::from_secs_f64(seconds));
    } else if args.is(1, "set-active-expire") && args.len() == 3 {
        cx.engine.active_expire.store(args[2] != b"0", Relaxed);
    } else if args.is(1, "jmap") || args.is(1, "change-repl-id") || args.is(1, "replybuffer") {
        // Nothing to do here: there is no heap map, replica or buffer peak to reset.
    } else if args.is(1, "stringmatch-len") && args.len() == 4 {
        let len = args.integer_in(2, 0..=1 << 24, "value is out of range")? as usize;
        let text = vec![b'a'; len];
        let matched = structs::glob::matches(args[3], &text, structs::glob::Case::Sensitive);
        cx.reply.integer(i64::from(matched));
        return Ok(());
    } else if args.is(1, "error") && args.len() == 3 {
        return Err(Error::Bytes(args[2].to_vec()));
    } else if args.is(1, "log") && args.len() == 3 {
        if let Some(host) = cx.engine.host() {
            host.log(&String::from_utf8_lossy(args[2]));
        }
    } else if args.is(1, "protocol") && args.len() == 3 {
        return protocol(cx, args);
    } else {
        let mut text = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
        text.extend_from_slice(args[1]);
        text.extend_from_slice(b"'. Try DEBUG HELP.");
        return Err(Error::Bytes(text));
    }
    cx.reply.ok();
    Ok(())
}

/// One reply of each type, for tests of client libraries.
fn protocol(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let reply = &mut cx.reply;
    if args.is(2, "string") {
        reply.bulk(b"Hello World");
    } else if args.is(2, "integer") {
        reply.integer(12345);
    } else if args.is(2, "double") {
        // Redis's own constant, which clients compare with; not meant to be pi.
        reply.double(f64::from(3141) / 1000.0);
    } else if args.is(2, "null") {
        reply.null();
    } else if args.is(2, "array") {
        reply.array(3);
        (0..3).for_each(|number| reply.integer(number));
    } else if args.is(2, "set") {
        reply.set(3);
        (0..3).for_each(|number| reply.integer(number));
    } else if args.is(2, "map") {
        reply.map(3);
        for number in 0..3 {
            reply.integer(number);
            reply.boolean(number == 1);
        }
    } else if args.is(2, "attrib") {
        if reply.is_resp3() {
            reply.attribute(1);
            reply.bulk(b"key-popularity");
            reply.array(2);
            reply.bulk(b"key:123");
            reply.integer(90);
        }
        reply.bulk(b"Some real reply following the attribute");
    } else if args.is(2, "push") {
        reply.push(2);
        reply.bulk(b"server-cpu-usage");
        reply.integer(42);
    } else if args.is(2, "true") {
        reply.boolean(true);
    } else if args.is(2, "false") {
        reply.boolean(false);
    } else if args.is(2, "verbatim") {
        reply.verbatim("txt", b"This is a verbatim\nstring");
    } else if args.is(2, "bignum") {
        reply.big_number("1234567999999999999999999999999999999");
    } else {
        return Err(Error::text(
            "ERR Wrong protocol type name. Please use one of the following: \
             string|integer|double|null|array|set|map|attrib|push|verbatim|true|false",
        ));
    }
    Ok(())
}
