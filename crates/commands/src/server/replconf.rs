//! `REPLCONF option value …`: what replicas say of themselves, and their acknowledgements
//!
//! ACK, GETACK and PROMISE get no reply: on a replica's connection only the stream is sent.

use engine::clients::Client;
use engine::journal::JournalPos;
use engine::routing::{Applied, Refusal, Routing, Way};
use engine::{Args, Command, Cx, Error, Flags, Group, Outcome};
use replication::primary::{Configured, FilterError};
use replication::promise::Promise;
use replication::vote::Vote;

/// `REPLCONF`.
pub static REPLCONF: Command = Command {
    name: "replconf",
    arity: -1,
    categories: &["nodes"],
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::SYSCMD),
    group: Group::Server,
    since: "3.0.0",
    summary: "What primary and replica tell each other.",
    routing: Routing::by(Way::Refused(Refusal::WholeConnection)).applied(Applied::Skip),
    run: replconf,
    ..Command::ROW
};

/// The address that a client connected from, without its port.
pub(super) fn ip_of(client: &Client) -> &str {
    let ip = client.addr.rsplit_once(':').map_or(client.addr.as_str(), |(ip, _)| ip);
    ip.trim_start_matches('[').trim_end_matches(']')
}

fn replconf(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let words = args.words();
    let (pairs, rest) = words[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Error::Syntax);
    }
    match pairs.first() {
        Some([option, value]) if option.eq_ignore_ascii_case(b"ack") => {
            return acknowledge(cx, value, &pairs[1..]);
        }
        Some([option, _]) if option.eq_ignore_ascii_case(b"promise") && cx.session.is_replica() => {
            if let Some(promise) = Promise::parse(pairs) {
                cx.engine.votes.promised(&promise);
            }
            return Ok(());
        }
        // In a stream it is for replicas; here it has been loaded from a file.
        Some([option, _]) if option.eq_ignore_ascii_case(b"getack") => return Ok(()),
        _ => {}
    }
    for [option, value] in pairs {
        configure(cx, option, value)?;
    }
    cx.reply.ok();
    Ok(())
}

fn configure(cx: &mut Cx<'_>, option: &[u8], value: &[u8]) -> Outcome {
    let (client, now) = (&cx.session.client, cx.now());
    let mut primary = cx.engine.replicas.primary();
    cx.session.may_be_replica = true;
    match primary.configure(client.id, ip_of(client), option, value, now) {
        Configured::Noted => Ok(()),
        Configured::Invalid if option.eq_ignore_ascii_case(b"version") => {
            let value = String::from_utf8_lossy(value);
            Err(Error::format(format!("ERR Unrecognized version format: {value}")))
        }
        Configured::Invalid => Err(Error::NotInteger),
        Configured::NoClient => {
            let value = String::from_utf8_lossy(value);
            Err(Error::format(format!("ERR Unrecognized RDB client id {value}")))
        }
        Configured::NoFilter(FilterError::NoWords) => {
            Err(Error::text("ERR Missing rdb-filter-only values"))
        }
        Configured::NoFilter(FilterError::Unsupported(word)) => {
            let word = String::from_utf8_lossy(&word);
            Err(Error::format(format!("ERR Unsupported rdb-filter-only option: {word}")))
        }
        Configured::Unknown => {
            let option = String::from_utf8_lossy(option);
            Err(Error::format(format!("ERR Unrecognized REPLCONF option: {option}")))
        }
    }
}

fn acknowledge(cx: &mut Cx<'_>, value: &[u8], more: &[[&[u8]; 2]]) -> Outcome {
    let end = cx.engine.journal.position();
    let position = |text| {
        let number = structs::numbers::parse_i64(text)?;
        // What is not written yet cannot be had.
        u64::try_from(number).ok().map(|at| JournalPos(at).min(end))
    };
    let (synced, more) = match more {
        [[option, value], more @ ..] if option.eq_ignore_ascii_case(b"fack") => {
            (position(value), more)
        }
        _ => (None, more),
    };
    if cx.session.is_replica()
        && let Some(received) = position(value)
    {
        let client = cx.session.id();
        cx.engine.acknowledge(client, received, synced, Vote::parse(more), cx.now());
        cx.engine.timings.replica_ack.reached(received);
        cx.engine.serve_acks();
    }
    Ok(())
}
