//! `CLIENT MAINT_NOTIFICATIONS ON [moving-endpoint-type TYPE]|OFF`: notices of what is about to
//! change in a cluster
//!
//! Clients of Redis Enterprise send it when they connect, and go on without notices if the reply is
//! an error.

use engine::dispatch::notices::EndpointType;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use resp::Protocol;
use std::sync::atomic::Ordering::Relaxed;

/// `CLIENT MAINT_NOTIFICATIONS`.
pub static CLIENT_MAINT_NOTIFICATIONS: Command = Command {
    name: "maint_notifications",
    arity: -3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "9.1.0",
    complexity: "O(1)",
    summary: "Whether a client is told of fail-overs and moves of slots, before and after.",
    args: &[
        Arg::one_of("enabled", &[Arg::token("on", "ON"), Arg::token("off", "OFF")]),
        Arg::new("type", ArgKind::String).after("MOVING-ENDPOINT-TYPE").optional(),
    ],
    run: client_maint_notifications,
    ..Command::ROW
};

fn client_maint_notifications(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut kind = EndpointType::None;
    match args.len() {
        3 => {}
        5 if args.is(3, "moving-endpoint-type") => {
            let found = EndpointType::WORDS
                .iter()
                .find(|(word, _)| args[4].eq_ignore_ascii_case(word.as_bytes()));
            kind = found
                .ok_or(Error::text(
                    "ERR moving-endpoint-type is none, internal-ip, internal-fqdn, external-ip or \
                     external-fqdn",
                ))?
                .1;
        }
        _ => return Err(Error::Syntax),
    }
    let is_on = match args.is(2, "on") {
        false if !args.is(2, "off") => return Err(Error::Syntax),
        is_on => is_on,
    };
    if is_on && !cx.engine.membership.is_on() {
        return Err(Error::text("ERR Only nodes of a cluster send maintenance notices"));
    }
    if is_on && cx.reply.protocol() == Protocol::Resp2 {
        return Err(Error::text("ERR Maintenance notices need RESP3: send HELLO 3 first"));
    }
    let number = if is_on { kind as u8 } else { 0 };
    cx.session.client.live.notices.store(number, Relaxed);
    cx.reply.ok();
    Ok(())
}
