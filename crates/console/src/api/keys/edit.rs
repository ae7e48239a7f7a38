//! Changing keys: each change is one command or transaction, run as the user. What is not named
//! stays: expiries of keys and fields, too.

use super::super::error::check;
use super::super::{Call, of_reply};
use crate::blob::Blob;
use crate::words;
use resp::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use web::rest::{ApiError, Done};

/// How long a transaction may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A change of one key.
#[derive(Deserialize, JsonSchema)]
pub struct Edit {
    /// The database; 0 if it is not given.
    #[serde(default)]
    db: u32,
    /// The key.
    key: Blob,
    /// What to do.
    change: Change,
}

/// What is done to a key.
#[derive(Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "kebab-case")]
enum Change {
    /// Sets a string; the expiry stays.
    Set { value: Blob },
    /// Sets a field of a hash; its expiry stays.
    HashSet { field: Blob, value: Blob },
    /// Deletes a field of a hash.
    HashDelete { field: Blob },
    /// Appends to a list.
    ListPush { value: Blob },
    /// Sets an element of a list.
    ListSet { index: i64, value: Blob },
    /// Adds a member to a set.
    SetAdd { member: Blob },
    /// Removes a member from a set.
    SetRemove { member: Blob },
    /// Adds a member to a sorted set, or changes its score.
    SortedSetAdd { member: Blob, score: String },
    /// Removes a member from a sorted set.
    SortedSetRemove { member: Blob },
    /// Appends an entry to a stream: fields and values in turn.
    StreamAdd { fields: Vec<Blob> },
    /// Deletes an entry of a stream.
    StreamDelete { id: String },
    /// Sets the expiry in milliseconds from now; none if it is not given.
    Expire { ttl_ms: Option<u64> },
    /// Renames the key, unless there is one of that name.
    Rename { to: Blob },
}

pub async fn edit(call: Call, edit: Edit) -> Result<Done, ApiError> {
    let Edit { db, key: Blob { bytes: key, .. }, change } = edit;
    let request = match change {
        Change::HashSet { field, value } => {
            set_field(&call, db, [key, field.bytes, value.bytes]).await?;
            return Ok(Done::new());
        }
        Change::Set { value } => words!["SET", key, value.bytes, "KEEPTTL"],
        Change::HashDelete { field } => words!["HDEL", key, field.bytes],
        Change::ListPush { value } => words!["RPUSH", key, value.bytes],
        Change::ListSet { index, value } => words!["LSET", key, index.to_string(), value.bytes],
        Change::SetAdd { member } => words!["SADD", key, member.bytes],
        Change::SetRemove { member } => words!["SREM", key, member.bytes],
        Change::SortedSetAdd { member, score } => words!["ZADD", key, score, member.bytes],
        Change::SortedSetRemove { member } => words!["ZREM", key, member.bytes],
        Change::StreamAdd { fields } => {
            let mut request = words!["XADD", key, "*"];
            request.extend(fields.into_iter().map(|field| field.bytes));
            request
        }
        Change::StreamDelete { id } => words!["XDEL", key, id],
        Change::Expire { ttl_ms: Some(ttl_ms) } => words!["PEXPIRE", key, ttl_ms.to_string()],
        Change::Expire { ttl_ms: None } => words!["PERSIST", key],
        Change::Rename { to } => words!["RENAMENX", key, to.bytes],
    };
    let is_rename = request[0] == b"RENAMENX";
    let reply = check(call.session.access.run_in(db, request).await?)?;
    if is_rename && reply.integer().unwrap_or(0) == 0 {
        return Err(ApiError::bad("There is a key of that name already"));
    }
    Ok(Done::new())
}

/// Sets a field with the expiry that it has, which HSET would end.
async fn set_field(call: &Call, db: u32, words: [Vec<u8>; 3]) -> Result<(), ApiError> {
    let access = &call.session.access;
    let [key, field, value] = words;
    let [key, field, value] = [&*key, &field, &value];
    let keeping = words!["HSETEX", key, "KEEPTTL", "FIELDS", "1", field, value];
    let reply = access.run_in(db, keeping).await?;
    let set = words!["HSET", key, field, value];
    match reply.error() {
        Some(why) if is_unknown(&why) || why.starts_with("NOPERM") => {}
        _ => return check(reply).map(drop),
    }
    let expiry = access.run_in(db, words!["HPEXPIRETIME", key, "FIELDS", "1", field]).await?;
    let expires_at_ms = match (expiry.error(), expiry.items().first().and_then(Value::integer)) {
        // Fields of that server have no expiries.
        (Some(why), _) if is_unknown(&why) => 0,
        (Some(why), _) => return Err(of_reply(&why)),
        (None, found) => found.unwrap_or(0),
    };
    if expires_at_ms <= 0 {
        return check(access.run_in(db, set).await?).map(drop);
    }
    let expire = words!["HPEXPIREAT", key, expires_at_ms.to_string(), "FIELDS", "1", field];
    // A connection of its own: after a refused MULTI nothing may follow, since HSET would run alone.
    let mut link = access.open().await?;
    let mut begin = vec![words!["MULTI"]];
    if db != 0 {
        begin.insert(0, words!["SELECT", db.to_string()]);
    }
    for requests in [begin, vec![set, expire, words!["EXEC"]]] {
        for reply in link.ask(&requests, PATIENCE).await? {
            if let Some(why) = reply.items().iter().find_map(Value::error) {
                return Err(of_reply(&why));
            }
            check(reply)?;
        }
    }
    Ok(())
}

/// Returns whether an error says that there is no such command.
fn is_unknown(error: &str) -> bool {
    error.starts_with("ERR unknown command")
}

/// Keys to delete.
#[derive(Deserialize, JsonSchema)]
pub struct Keys {
    /// The database; 0 if it is not given.
    #[serde(default)]
    db: u32,
    /// The keys.
    keys: Vec<Blob>,
}

/// How many keys were deleted.
#[derive(Serialize, JsonSchema)]
pub struct Deleted {
    /// Those that were there.
    deleted: i64,
}

pub async fn delete(call: Call, keys: Keys) -> Result<Deleted, ApiError> {
    if keys.keys.is_empty() {
        return Ok(Deleted { deleted: 0 });
    }
    let mut request = words!["UNLINK"];
    request.extend(keys.keys.into_iter().map(|key| key.bytes));
    let reply = check(call.session.access.run_in(keys.db, request).await?)?;
    Ok(Deleted { deleted: reply.integer().unwrap_or(0) })
}
