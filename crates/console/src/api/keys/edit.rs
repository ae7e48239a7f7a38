//! Changing keys: each change is one command, run as the user.

use super::super::error::check;
use super::super::route::Done;
use super::super::{ApiError, Call};
use crate::blob::Blob;
use crate::link::Words;
use crate::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Sets a field of a hash.
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
    let request = request(edit.key.bytes, edit.change);
    let is_rename = request[0] == b"RENAMENX";
    let reply = check(call.session.access.run_in(edit.db, request).await?)?;
    if is_rename && reply.integer() == 0 {
        return Err(ApiError::bad("There is a key of that name already"));
    }
    Ok(Done::new())
}

fn request(key: Vec<u8>, change: Change) -> Words {
    match change {
        Change::Set { value } => words!["SET", key, value.bytes, "KEEPTTL"],
        Change::HashSet { field, value } => words!["HSET", key, field.bytes, value.bytes],
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
    }
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
    Ok(Deleted { deleted: reply.integer() })
}
