//! Everything a server holds, in a form in which two servers can be compared.

use crate::client::Client;
use crate::module_types::TYPES;
use crate::reply::Reply;
use std::collections::BTreeMap;
use std::io;

/// Every key of a server by its database, with its value as commands show it (what DUMP shows two
/// servers encode in different ways) and when it expires: milliseconds since the epoch, −1 never.
pub type Contents = BTreeMap<(u32, Vec<u8>), (String, i64)>;

/// Databases that are looked at.
const DATABASES: u32 = 16;

/// What a group's lag begins with in [`contents`] if the group has all entries before it and none
/// of them is deleted, or there is none. Redis 8 shows their number then. Valkey goes by what was
/// ever added and read, and so counts trimmed entries too, or does not know.
pub const LAG_OF_ALL: &str = "lag=all:";

/// What a server holds now. The client is in database 0 afterwards.
///
/// # Panics
/// If the server does not answer: it is for tests.
pub fn contents(client: &mut Client) -> Contents {
    let mut all = BTreeMap::new();
    for db in 0..DATABASES {
        client.command(&["SELECT", &db.to_string()]).expect("there are so many databases");
        let keys = client.command(&["KEYS", "*"]).expect("keys");
        for key in keys.elements().unwrap_or_default() {
            let key = key.text().unwrap_or_default().to_vec();
            let value = value(client, &key).expect("a value");
            let expiry = client.command(&[&b"PEXPIRETIME"[..], &key]).expect("a time");
            all.insert((db, key), (value, expiry.integer().unwrap_or_default()));
        }
    }
    client.command(&["SELECT", "0"]).expect("there is such a database");
    all
}

/// The value of a key, as commands show it.
///
/// # Errors
/// The server does not answer, or answers with an error.
pub fn value(client: &mut Client, key: &[u8]) -> io::Result<String> {
    let kind = answer(client, &[b"TYPE", key])?;
    let kind = String::from_utf8_lossy(kind.text().unwrap_or_default()).into_owned();
    let words: Vec<&[u8]> = match kind.as_str() {
        "string" => vec![b"GET", key],
        "list" => vec![b"LRANGE", key, b"0", b"-1"],
        "set" => vec![b"SMEMBERS", key],
        "hash" => vec![b"HGETALL", key],
        "stream" => return stream(client, key),
        // Their payloads have nothing that depends on how they came to be.
        kind if TYPES.iter().any(|row| row.name == kind) => vec![b"DUMP", key],
        _ => vec![b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
    };
    let mut value = answer(client, &words)?;
    let zero = Reply::Bulk(b"0".to_vec());
    let text = |reply: &Reply| reply.text().unwrap_or_default().to_vec();
    match (kind.as_str(), &mut value) {
        ("set", Reply::Array(members)) => members.sort_by_key(text),
        ("hash", Reply::Array(words)) => {
            let mut pairs: Vec<_> = words.chunks(2).map(<[Reply]>::to_vec).collect();
            pairs.sort_by_key(|pair| text(&pair[0]));
            *words = pairs.concat();
        }
        ("zset", Reply::Array(words)) => {
            // A listpack holds no negative zero, here as in Redis, and which encoding a small
            // sorted set has depends on how it grew.
            let scores = words.iter_mut().skip(1).step_by(2);
            scores.filter(|score| text(score) == b"-0").for_each(|score| *score = zero.clone());
        }
        _ => {}
    }
    Ok(format!("{kind} {value:?}"))
}

fn answer(client: &mut Client, words: &[&[u8]]) -> io::Result<Reply> {
    let reply = client.command(words)?;
    if reply.is_error() { Err(io::Error::other(reply.shown())) } else { Ok(reply) }
}

/// Entries, counters and groups, without what differs from server to server: the sizes of trees,
/// and when consumers were last seen.
fn stream(client: &mut Client, key: &[u8]) -> io::Result<String> {
    const STREAM: &[&str] = &[
        "length",
        "last-generated-id",
        "max-deleted-entry-id",
        "entries-added",
        "recorded-first-entry-id",
        "groups",
    ];
    const GROUP: &[&str] =
        &["name", "last-delivered-id", "entries-read", "lag", "pel", "pending", "consumers"];
    const CONSUMER: &[&str] = &["name", "pel", "pending"];
    let full = answer(client, &[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"])?;
    let shown = chosen(&full, STREAM, &|name, value| match name {
        "groups" => each(value, &|group| {
            chosen(group, GROUP, &|name, value| match name {
                "consumers" => with_pending(value, &|consumer| {
                    chosen(consumer, CONSUMER, &|_, value| format!("{value:?}"))
                }),
                "lag" if is_before_all(&full, group) => format!("all:{value:?}"),
                _ => format!("{value:?}"),
            })
        }),
        _ => format!("{value:?}"),
    });
    let entries = answer(client, &[b"XRANGE", key, b"-", b"+"])?;
    Ok(format!("{shown} {entries:?}"))
}

/// Whether [`LAG_OF_ALL`] is true of a group.
fn is_before_all(stream: &Reply, group: &Reply) -> bool {
    let first = id(stream, "recorded-first-entry-id");
    let (read, deleted) = (id(group, "last-delivered-id"), id(stream, "max-deleted-entry-id"));
    // Without entries, the first has the lowest ID.
    first == (0, 0) || (read < first && deleted < first)
}

/// The ID in a field of a list of names and values.
fn id(reply: &Reply, field: &str) -> (u64, u64) {
    let pairs = reply.elements().unwrap_or_default().chunks_exact(2);
    let mut named = pairs.filter(|pair| pair[0].text() == Some(field.as_bytes()));
    let text = named.next().expect("the field is there")[1].shown();
    let (time, number) = text.split_once('-').expect("an ID");
    (time.parse().expect("a number"), number.parse().expect("a number"))
}

/// The named fields of a list of names and values.
fn chosen(reply: &Reply, names: &[&str], show: &dyn Fn(&str, &Reply) -> String) -> String {
    let mut shown = String::new();
    for pair in reply.elements().unwrap_or_default().chunks_exact(2) {
        let name = String::from_utf8_lossy(pair[0].text().unwrap_or_default());
        if names.contains(&name.as_ref()) {
            shown += &format!("{name}={} ", show(&name, &pair[1]));
        }
    }
    shown
}

/// The consumers that have something pending: Valkey does not tell its replicas of those that
/// XAUTOCLAIM has made and given nothing.
fn with_pending(consumers: &Reply, show: &dyn Fn(&Reply) -> String) -> String {
    let none = format!("{:?}", Reply::Array(Vec::new()));
    let mut shown: Vec<String> =
        consumers.elements().unwrap_or_default().iter().map(show).collect();
    shown.retain(|consumer| !consumer.contains(&none));
    shown.concat()
}

/// Every element of a list, in brackets.
fn each(reply: &Reply, show: &dyn Fn(&Reply) -> String) -> String {
    reply.elements().unwrap_or_default().iter().map(|one| format!("[{}]", show(one))).collect()
}
