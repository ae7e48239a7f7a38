//! A key and a page of its value: a page costs the same however large the value is.

use super::super::Call;
use super::super::error::check;
use super::name;
use crate::blob::{Blob, MAX_LISTED, MAX_SHOWN};
use crate::link::Words;
use crate::words;
use resp::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use web::rest::ApiError;

/// Elements that a page has at most.
const MAX_PAGE: i64 = 500;
/// Elements that a step looks at, where a pattern may match few.
const MATCHING_STEP: i64 = 1_000;
/// How long one answer may look for elements.
const SEARCH_TIME: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(10);

/// Which key, and which page of its value.
#[derive(Deserialize, JsonSchema)]
pub struct Which {
    /// The database; 0 if it is not given.
    #[serde(default)]
    db: u32,
    /// The key.
    key: Option<String>,
    /// The same in base64, if it is no text.
    key64: Option<String>,
    /// Where to go on: `next` of the page before.
    from: Option<String>,
    /// A pattern of fields or members of hashes and sets.
    pattern: Option<String>,
    /// Elements of a page, up to 500; 100 if it is not given.
    count: Option<i64>,
}

/// An element of a value.
#[derive(Serialize, JsonSchema)]
pub struct Element {
    /// The index of a list, the field of a hash, the member of a set or sorted set, the id of a
    /// stream.
    name: Blob,
    /// The value of a list or hash, the fields of a stream; empty for others.
    value: Vec<Blob>,
    /// The score of a sorted set.
    score: Option<String>,
    /// Milliseconds until a field of a hash expires; none if it does not.
    ttl_ms: Option<i64>,
}

/// A key with a page of its value.
#[derive(Serialize, JsonSchema)]
pub struct Key {
    /// Its name.
    key: Blob,
    /// Its type.
    #[serde(rename = "type")]
    kind: String,
    /// Milliseconds until it expires; -1 if it does not.
    ttl_ms: i64,
    /// How it is kept.
    encoding: String,
    /// Bytes of memory; none if the user may not ask.
    bytes: Option<i64>,
    /// Bytes of a string, elements of all others.
    length: i64,
    /// The elements of the page; a string is one.
    elements: Vec<Element>,
    /// Where to go on; none if this was the last page.
    next: Option<String>,
}

/// A key that is being looked at.
struct Look<'a> {
    call: &'a Call,
    db: u32,
    key: Vec<u8>,
    from: Option<String>,
    pattern: Option<String>,
    count: i64,
}

type Elements = (Vec<Element>, Option<String>);

pub async fn key(call: Call, which: Which) -> Result<Key, ApiError> {
    let key = name(which.key, which.key64)?;
    let count = which.count.unwrap_or(100).clamp(1, MAX_PAGE);
    let pattern = which.pattern.filter(|pattern| !pattern.is_empty());
    let look = Look { call: &call, db: which.db, key, from: which.from, pattern, count };
    let [kind, ttl, encoding, bytes] = &look
        .ask(&[
            words!["TYPE", look.key()],
            words!["PTTL", look.key()],
            words!["OBJECT", "ENCODING", look.key()],
            words!["MEMORY", "USAGE", look.key()],
        ])
        .await?[..]
    else {
        return Err(ApiError::path());
    };
    let kind = check(kind.clone())?.text();
    if kind == "none" {
        return Err(ApiError::missing("key"));
    }
    let length = look.length(&kind).await?;
    let (elements, next) = look.elements(&kind, length).await?;
    Ok(Key {
        key: Blob::from(look.key()),
        kind,
        ttl_ms: ttl.integer().unwrap_or(0),
        encoding: encoding.text(),
        bytes: if let Value::Integer(bytes) = bytes { Some(*bytes) } else { None },
        length,
        elements,
        next,
    })
}

fn element(name: &[u8], value: &[&[u8]]) -> Element {
    let value = value.iter().map(|value| Blob::cut(value, MAX_LISTED)).collect();
    Element { name: Blob::from(name), value, score: None, ttl_ms: None }
}

impl Look<'_> {
    fn key(&self) -> &[u8] {
        &self.key
    }

    async fn ask(&self, requests: &[Words]) -> Result<Vec<Value>, ApiError> {
        Ok(self.call.session.access.run_all_in(self.db, requests, PATIENCE).await?)
    }

    async fn ask_one(&self, request: Words) -> Result<Value, ApiError> {
        check(self.call.session.access.run_in(self.db, request).await?)
    }

    async fn length(&self, kind: &str) -> Result<i64, ApiError> {
        let command = match kind {
            "string" => "STRLEN",
            "list" => "LLEN",
            "hash" => "HLEN",
            "set" => "SCARD",
            "zset" => "ZCARD",
            "stream" => "XLEN",
            _ => return Ok(0),
        };
        Ok(self.ask_one(words![command, self.key()]).await?.integer().unwrap_or(0))
    }

    async fn elements(&self, kind: &str, length: i64) -> Result<Elements, ApiError> {
        match kind {
            "string" => self.string(length).await,
            "list" => self.list(length).await,
            "hash" => self.hash().await,
            "set" => self.set().await,
            "zset" => self.sorted_set(length).await,
            "stream" => self.stream().await,
            // A type of a module.
            _ => Ok((Vec::new(), None)),
        }
    }

    fn offset(&self) -> i64 {
        self.from.as_deref().and_then(|from| from.parse().ok()).unwrap_or(0)
    }

    /// The offset of the next page, if there is one.
    fn after(&self, offset: i64, length: i64) -> Option<String> {
        (offset < length).then(|| offset.to_string())
    }

    async fn string(&self, length: i64) -> Result<Elements, ApiError> {
        let start = self.offset();
        let end = start + MAX_SHOWN as i64;
        let request = words!["GETRANGE", self.key(), start.to_string(), (end - 1).to_string()];
        let reply = self.ask_one(request).await?;
        let bytes = reply.bytes().unwrap_or_default();
        let value = Blob::part(bytes, (length - start).max(0) as usize);
        let next = self.after(start + value.bytes.len() as i64, length);
        Ok((
            vec![Element {
                name: Blob::whole("value"),
                value: vec![value],
                score: None,
                ttl_ms: None,
            }],
            next,
        ))
    }

    async fn list(&self, length: i64) -> Result<Elements, ApiError> {
        let start = self.offset();
        let end = start + self.count;
        let request = words!["LRANGE", self.key(), start.to_string(), (end - 1).to_string()];
        let reply = self.ask_one(request).await?;
        let values = (start..).zip(reply.items());
        let elements = values.map(|(index, value)| {
            element(index.to_string().as_bytes(), &[value.bytes().unwrap_or_default()])
        });
        Ok((elements.collect(), self.after(end, length)))
    }

    /// A page by one of the SCAN family. With a pattern it looks on until something matches.
    async fn scan(
        &self,
        command: &str,
        suffix: Option<&str>,
    ) -> Result<(Value, Option<String>), ApiError> {
        let mut cursor = self.from.clone().unwrap_or_else(|| "0".to_owned());
        let count = if self.pattern.is_some() { MATCHING_STEP } else { self.count };
        let started = Instant::now();
        loop {
            let mut request =
                words![command, self.key(), cursor.as_str(), "COUNT", count.to_string()];
            if let Some(pattern) = &self.pattern {
                request.extend(words!["MATCH", pattern.as_str()]);
            }
            request.extend(suffix.map(Vec::from));
            let reply = self.ask_one(request).await?;
            let [next, items] = reply.items() else { return Err(ApiError::path()) };
            cursor = next.text();
            let is_over = cursor == "0" || started.elapsed() > SEARCH_TIME;
            if is_over || !items.items().is_empty() {
                return Ok((items.clone(), (cursor != "0").then_some(cursor)));
            }
        }
    }

    /// Names first and values by length, so that a page of long values is not transferred.
    async fn hash(&self) -> Result<Elements, ApiError> {
        let (fields, next) = match self.scan("HSCAN", Some("NOVALUES")).await {
            Ok((fields, next)) => (
                fields.items().iter().filter_map(|f| f.bytes().map(<[u8]>::to_vec)).collect(),
                next,
            ),
            // Servers before Redis 7.4 and Valkey 8 do not know the option.
            Err(_) => {
                let (pairs, next) = self.scan("HSCAN", None).await?;
                let fields: Vec<Vec<u8>> = pairs
                    .items()
                    .iter()
                    .step_by(2)
                    .filter_map(|f| f.bytes().map(<[u8]>::to_vec))
                    .collect();
                (fields, next)
            }
        };
        let fields: Vec<Vec<u8>> = fields;
        let mut expiries = words!["HPTTL", self.key(), "FIELDS", fields.len().to_string()];
        expiries.extend(fields.iter().cloned());
        let mut requests = vec![expiries];
        requests.extend(fields.iter().map(|field| words!["HSTRLEN", self.key(), field.as_slice()]));
        let replies = self.ask(&requests).await?;
        let Some((expiries, lengths)) = replies.split_first() else { return Err(ApiError::path()) };
        // Not all servers know expiries of fields, and not all users may ask for them.
        let expiries: Vec<i64> = expiries.items().iter().filter_map(Value::integer).collect();
        let ttl_ms = |at: usize| expiries.get(at).copied().filter(|&ttl_ms| ttl_ms >= 0);
        let lengths: Vec<i64> = lengths.iter().map(|it| it.integer().unwrap_or(0)).collect();
        let small = |at: &usize| lengths[*at] <= MAX_SHOWN as i64;
        let shown: Vec<usize> = (0..fields.len()).filter(small).collect();
        let requests: Vec<Words> =
            shown.iter().map(|&at| words!["HGET", self.key(), fields[at].as_slice()]).collect();
        let mut values = self.ask(&requests).await?.into_iter();
        let elements = fields.iter().enumerate().map(|(at, field)| {
            if lengths[at] > MAX_SHOWN as i64 {
                let value = vec![Blob::part(b"", lengths[at] as usize)];
                let name = Blob::from(field.as_slice());
                return Element { name, value, score: None, ttl_ms: ttl_ms(at) };
            }
            let value = values.next().unwrap_or(Value::Null);
            Element { ttl_ms: ttl_ms(at), ..element(field, &[value.bytes().unwrap_or_default()]) }
        });
        Ok((elements.collect(), next))
    }

    async fn set(&self) -> Result<Elements, ApiError> {
        let (members, next) = self.scan("SSCAN", None).await?;
        let members = members.items().iter().filter_map(Value::bytes);
        Ok((members.map(|member| element(member, &[])).collect(), next))
    }

    async fn sorted_set(&self, length: i64) -> Result<Elements, ApiError> {
        if self.pattern.is_some() {
            let (pairs, next) = self.scan("ZSCAN", None).await?;
            return Ok((scored(&pairs), next));
        }
        let start = self.offset();
        let end = start + self.count;
        let request =
            words!["ZRANGE", self.key(), start.to_string(), (end - 1).to_string(), "WITHSCORES"];
        let reply = self.ask_one(request).await?;
        Ok((scored(&reply), self.after(end, length)))
    }

    async fn stream(&self) -> Result<Elements, ApiError> {
        let from = self.from.clone().unwrap_or_else(|| "+".to_owned());
        let request = words!["XREVRANGE", self.key(), from, "-", "COUNT", self.count.to_string()];
        let reply = self.ask_one(request).await?;
        let entries = reply.items().iter().filter_map(|entry| match entry.items() {
            [id, fields] => Some((id, fields)),
            _ => None,
        });
        let elements: Vec<Element> = entries
            .map(|(id, fields)| {
                let fields: Vec<&[u8]> = fields.items().iter().filter_map(Value::bytes).collect();
                element(id.bytes().unwrap_or_default(), &fields)
            })
            .collect();
        let is_full = elements.len() as i64 == self.count;
        let last =
            elements.last().map(|last| String::from_utf8_lossy(&last.name.bytes).into_owned());
        Ok((elements, last.filter(|_| is_full).map(|id| format!("({id}"))))
    }
}

/// Members with their scores.
fn scored(reply: &Value) -> Vec<Element> {
    let pairs = reply.pairs().into_iter();
    pairs
        .map(|(member, score)| Element {
            score: Some(score.text()),
            ..element(member.bytes().unwrap_or_default(), &[])
        })
        .collect()
}
