//! A client's line in CLIENT LIST.

use engine::Engine;
use engine::clients::{Client, flag};
use std::sync::atomic::Ordering::Relaxed;

/// `replica`, `primary`, `pubsub` or `normal`: which limits apply to a client.
pub(crate) fn kind_of(client: &Client) -> &'static str {
    let flags = client.live.flags.load(Relaxed);
    if flags & flag::REPLICA != 0 {
        "replica"
    } else if flags & flag::PRIMARY != 0 {
        "primary"
    } else if flags & flag::PUBSUB != 0 {
        "pubsub"
    } else {
        "normal"
    }
}

/// The letters of a client's flags; `N` if there is none.
pub(crate) fn letters(bits: u64) -> String {
    let known = [
        (flag::REPLICA, 'S'),
        (flag::PRIMARY, 'M'),
        (flag::MONITOR, 'O'),
        (flag::PUBSUB, 'P'),
        (flag::MULTI, 'x'),
        (flag::BLOCKED, 'b'),
        (flag::TRACKING, 't'),
        (flag::BROKEN_REDIRECT, 'R'),
        (flag::TRACKING_BCAST, 'B'),
        (flag::WATCH_DIRTY, 'd'),
        (flag::CLOSING, 'c'),
        (flag::UNIX_SOCKET, 'U'),
        (flag::NO_EVICT, 'e'),
        (flag::NO_TOUCH, 'T'),
        (flag::IMPORT_SOURCE, 'I'),
        (flag::READS_REPLICA, 'r'),
    ];
    let text: String =
        known.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| *letter).collect();
    if text.is_empty() { "N".to_owned() } else { text }
}

/// The line, with its line end.
pub fn line(engine: &Engine, client: &Client, now_ms: i64) -> String {
    let live = &client.live;
    let bits = client.flags();
    let names = client.names().clone();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let multi = live.multi.load(Relaxed) as i64 - 1;
    let command = live
        .last_command
        .load(Relaxed)
        .checked_sub(1)
        .map_or("NULL", |index| engine.table.all()[index].full_name.as_str());
    let query = live.query_bytes.load(Relaxed);
    let memory = live.memory_bytes.load(Relaxed);
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} capa={} db={} sub={} psub={} \
         ssub={} multi={multi} watch={} qbuf={query} qbuf-free={} argv-mem={} multi-mem={} \
         rbs={} rbp={} obl={} oll={} omem={} tot-mem={memory} events=r cmd={command} \
         user={} redir={} resp={} lib-name={} lib-ver={} tot-net-in={} \
         tot-net-out={} tot-cmds={}\n",
        client.id,
        client.addr,
        client.laddr,
        client.fd,
        text(&names.name),
        (now_ms - client.created_ms) / 1000,
        (now_ms - live.last_seen_ms.load(Relaxed)).max(0) / 1000,
        letters(bits),
        if bits & flag::CAN_REDIRECT != 0 { "r" } else { "" },
        live.db.load(Relaxed),
        live.channels.load(Relaxed),
        live.patterns.load(Relaxed),
        live.shard_channels.load(Relaxed),
        live.watched.load(Relaxed),
        live.query_free_bytes.load(Relaxed),
        live.argv_bytes.load(Relaxed),
        live.multi_bytes.load(Relaxed),
        live.reply_buffer_bytes.load(Relaxed),
        live.reply_peak.load(Relaxed),
        live.buffered_bytes.load(Relaxed),
        live.output_chunks.load(Relaxed),
        live.output_bytes.load(Relaxed),
        names.user,
        live.redirect.load(Relaxed),
        live.protocol.load(Relaxed),
        text(&names.lib_name),
        text(&names.lib_version),
        live.net_in.load(Relaxed),
        live.net_out.load(Relaxed),
        live.commands.load(Relaxed),
    )
}
