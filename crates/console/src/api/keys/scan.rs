//! Browsing by SCAN: as a list, and as a tree by a separator.

use super::super::Call;
use super::super::error::check;
use super::{name, prefix_pattern};
use crate::blob::Blob;
use crate::info::Info;
use crate::words;
use resp::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use web::rest::{ApiError, Nothing};

/// Keys that a page has at most.
const MAX_PAGE: usize = 500;
/// How long one answer may look for keys.
const PATIENCE: Duration = Duration::from_millis(400);
/// Groups that a tree shows of one prefix.
const MAX_GROUPS: usize = 2_000;

/// A database.
#[derive(Serialize, JsonSchema)]
pub struct Database {
    /// Its number.
    db: u32,
    /// Its keys.
    keys: f64,
    /// Its keys that expire.
    expiring: f64,
}

pub async fn databases(call: Call, _: Nothing) -> Result<Vec<Database>, ApiError> {
    let reply = check(call.session.access.run(words!["INFO", "keyspace"]).await?)?;
    let info = Info::parse(&reply.text());
    let database = |(number, line): (&str, crate::info::Parts<'_>)| {
        let (keys, expiring) = (line.number("keys"), line.number("expires"));
        Some(Database { db: number.parse().ok()?, keys, expiring })
    };
    Ok(info.lines("db").filter_map(database).collect())
}

/// Which keys.
#[derive(Deserialize, JsonSchema)]
pub struct Which {
    /// The database; 0 if it is not given.
    #[serde(default)]
    db: u32,
    /// Where to go on: `cursor` of the page before.
    cursor: Option<String>,
    /// A pattern as SCAN takes it.
    pattern: Option<String>,
    /// A type, as TYPE names it.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Keys of a page, up to 500; 100 if it is not given.
    count: Option<usize>,
}

/// A key in a list.
#[derive(Serialize, JsonSchema)]
pub struct Listed {
    /// Its name.
    key: Blob,
    /// Its type.
    #[serde(rename = "type")]
    kind: String,
    /// Milliseconds until it expires; -1 if it does not.
    ttl_ms: i64,
    /// Bytes of memory; none if the user may not ask.
    bytes: Option<i64>,
}

/// A page of keys.
#[derive(Serialize, JsonSchema)]
pub struct Page {
    /// Where to go on; `0` if this was the last page.
    cursor: String,
    /// The keys.
    keys: Vec<Listed>,
}

/// One call of SCAN.
async fn scan(
    call: &Call,
    db: u32,
    cursor: &str,
    pattern: Option<&[u8]>,
    kind: Option<&str>,
    count: usize,
) -> Result<(String, Vec<Vec<u8>>), ApiError> {
    let mut request = words!["SCAN", cursor, "COUNT", count.to_string()];
    if let Some(pattern) = pattern {
        request.extend(words!["MATCH", pattern]);
    }
    if let Some(kind) = kind {
        request.extend(words!["TYPE", kind]);
    }
    let reply = check(call.session.access.run_in(db, request).await?)?;
    let [cursor, keys] = reply.items() else { return Err(ApiError::bad("SCAN has no cursor")) };
    let keys = keys.items().iter().filter_map(|key| key.bytes().map(<[u8]>::to_vec)).collect();
    Ok((cursor.text(), keys))
}

pub async fn keys(call: Call, which: Which) -> Result<Page, ApiError> {
    let wanted = which.count.unwrap_or(100).clamp(1, MAX_PAGE);
    let pattern = which.pattern.filter(|pattern| !pattern.is_empty() && pattern != "*");
    let kind = which.kind.filter(|kind| !kind.is_empty());
    let mut cursor = which.cursor.unwrap_or_else(|| "0".to_owned());
    let started = Instant::now();
    let mut names = Vec::new();
    // A pattern may match few keys: larger steps find them sooner.
    let step = if pattern.is_some() || kind.is_some() { 1_000 } else { wanted };
    loop {
        let pattern = pattern.as_ref().map(String::as_bytes);
        let (next, found) = scan(&call, which.db, &cursor, pattern, kind.as_deref(), step).await?;
        names.extend(found);
        cursor = next;
        if cursor == "0" || names.len() >= wanted || started.elapsed() > PATIENCE {
            break;
        }
    }
    Ok(Page { cursor, keys: describe(&call, which.db, names).await? })
}

/// Type, expiry and size of each key; those that are gone are left out.
async fn describe(call: &Call, db: u32, names: Vec<Vec<u8>>) -> Result<Vec<Listed>, ApiError> {
    let requests: Vec<_> = names
        .iter()
        .flat_map(|key| {
            [
                words!["TYPE", key.as_slice()],
                words!["PTTL", key.as_slice()],
                words!["MEMORY", "USAGE", key.as_slice()],
            ]
        })
        .collect();
    let patience = Duration::from_secs(10);
    let replies = call.session.access.run_all_in(db, &requests, patience).await?;
    let listed = names.iter().zip(replies.chunks_exact(3)).filter_map(|(key, replies)| {
        let kind = replies[0].text();
        let bytes = match &replies[2] {
            Value::Integer(bytes) => Some(*bytes),
            _ => None,
        };
        let key = Blob::from(key.as_slice());
        (kind != "none").then(|| Listed {
            key,
            kind,
            ttl_ms: replies[1].integer().unwrap_or(0),
            bytes,
        })
    });
    Ok(listed.collect())
}

/// Which part of the tree.
#[derive(Deserialize, JsonSchema)]
pub struct Branch {
    /// The database; 0 if it is not given.
    #[serde(default)]
    db: u32,
    /// What the keys begin with; all keys if it is not given.
    prefix: Option<String>,
    /// The same in base64, if it is no text.
    prefix64: Option<String>,
    /// What separates levels; a colon if it is not given.
    separator: Option<String>,
    /// Where to go on: `cursor` of the answer before.
    cursor: Option<String>,
}

/// Keys that begin alike.
#[derive(Serialize, JsonSchema)]
pub struct Group {
    /// What they begin with, the separator included; or the name of a single key.
    name: Blob,
    /// How many were seen.
    keys: usize,
    /// Whether it is a key and not a group.
    is_key: bool,
}

/// What was seen of a part of the tree. Counts of several answers are to be added.
#[derive(Serialize, JsonSchema)]
pub struct Level {
    /// Where to go on; `0` if all has been seen.
    cursor: String,
    /// Keys that were looked at.
    seen: usize,
    /// The groups and keys.
    groups: Vec<Group>,
}

pub async fn tree(call: Call, branch: Branch) -> Result<Level, ApiError> {
    let prefix = match (branch.prefix, branch.prefix64) {
        (None, None) => Vec::new(),
        (text, base64) => name(text, base64)?,
    };
    let separator = branch.separator.filter(|text| !text.is_empty()).unwrap_or(":".to_owned());
    let pattern = prefix_pattern(&prefix);
    let mut cursor = branch.cursor.unwrap_or_else(|| "0".to_owned());
    let started = Instant::now();
    let mut found: HashMap<(Vec<u8>, bool), usize> = HashMap::new();
    let mut seen = 0;
    loop {
        let (next, keys) = scan(&call, branch.db, &cursor, Some(&pattern), None, 2_000).await?;
        seen += keys.len();
        for key in keys {
            *found.entry(group_of(key, prefix.len(), separator.as_bytes())).or_default() += 1;
        }
        cursor = next;
        if cursor == "0" || found.len() >= MAX_GROUPS || started.elapsed() > PATIENCE {
            break;
        }
    }
    let mut groups: Vec<Group> = found
        .into_iter()
        .map(|((name, is_key), keys)| Group { name: Blob::from(name.as_slice()), keys, is_key })
        .collect();
    groups.sort_by(|a, b| (a.is_key, &a.name.bytes).cmp(&(b.is_key, &b.name.bytes)));
    Ok(Level { cursor, seen, groups })
}

/// The group of a key below a prefix, and whether it is the key itself.
fn group_of(mut key: Vec<u8>, prefix: usize, separator: &[u8]) -> (Vec<u8>, bool) {
    let rest = key.get(prefix..).unwrap_or_default();
    match rest.windows(separator.len()).position(|window| window == separator) {
        Some(at) => {
            key.truncate(prefix + at + separator.len());
            (key, false)
        }
        None => (key, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_grouped_by_the_next_separator() {
        let group = |key: &str, prefix| group_of(key.into(), prefix, b"::");
        assert_eq!(group("a::b::c", 0), (b"a::".to_vec(), false));
        assert_eq!(group("a::b::c", 3), (b"a::b::".to_vec(), false));
        assert_eq!(group("a::b::c", 6), (b"a::b::c".to_vec(), true));
        assert_eq!(group("a:", 0), (b"a:".to_vec(), true));
    }
}
