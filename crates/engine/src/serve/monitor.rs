//! MONITOR: every command, as a line, to the clients that asked for it.

use crate::clients::flag;
use crate::command::{Command, Flags};
use crate::cx::Cx;
use crate::engine::Engine;
use crate::mailbox::{Message, Push};
use crate::table::Resolved;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Flags of commands that MONITOR does not show: those of administrators, and those that write
/// their own line.
pub(crate) const HIDDEN: Flags = Flags::SKIP_MONITOR.with(Flags::ADMIN);

/// Where a request comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The client.
    Client,
    /// The client's script.
    Script,
}

/// Posts a request that has run to all monitors, unless it is hidden.
#[cold]
pub(crate) fn feed(cx: &Cx<'_>, command: &Command, words: &[&[u8]]) {
    if !command.flags.any(HIDDEN) {
        post(cx.engine, line(cx, command, words, Source::Client));
    }
}

/// Shows a script that failed before it could run. Scripts that run are shown before their
/// commands.
#[cold]
pub(crate) fn feed_failed_script(cx: &Cx<'_>, row: &Resolved, words: &[&[u8]]) {
    if row.command.script.is_some() && !cx.script_was_shown && cx.session.suspension.is_none() {
        post(cx.engine, line(cx, row.command, words, Source::Client));
    }
}

/// Returns the line about a request: its time, database, sender and words.
pub(crate) fn line(cx: &Cx<'_>, command: &Command, words: &[&[u8]], source: Source) -> Box<[u8]> {
    let now = cx.engine.clock.since_epoch();
    let mut line = Vec::with_capacity(64);
    let addr = &cx.session.client.addr;
    let is_unix = cx.session.transport_flags & flag::UNIX_SOCKET != 0;
    let addr = match source {
        Source::Script => "lua".to_owned(),
        Source::Client if is_unix => format!("unix:{addr}"),
        // What the primary sends runs in a session that is no connection's.
        Source::Client if addr.is_empty() => {
            let primary = cx.engine.upstream.primary();
            primary.map(|(host, port)| format!("{host}:{port}")).unwrap_or_default()
        }
        Source::Client => addr.clone(),
    };
    // Writing into a vector cannot fail.
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    let _ = write!(line, "{seconds}.{micros:06} [{} {addr}]", cx.db.index.0);
    for word in command.shown(words) {
        line.push(b' ');
        quote(word, &mut line);
    }
    line.into_boxed_slice()
}

/// Posts a line to all monitors.
pub(crate) fn post(engine: &Engine, line: Box<[u8]>) {
    let push = Arc::new(Push::Monitor(line));
    for client in engine.clients.all() {
        if client.live.flags.load(Relaxed) & flag::MONITOR != 0 {
            let message = Message::Push(client.id, Arc::clone(&push));
            engine.mailboxes[client.thread].post(message);
        }
    }
}

/// Quotes bytes as redis-cli shows them.
pub fn quote(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            0x20..=0x7e => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}
