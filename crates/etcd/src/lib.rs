//! The coordinator's six calls to etcd, version 3, over its JSON gateway: `POST /v3/…` with
//! HTTP/1.1.
//!
//! Calls block, each until one deadline for all that it does, so they belong on a thread of their
//! own, never on a reactor. A client has two connections: one for calls, one for the watch, whose
//! answer never ends. Whatever goes wrong is [`Failure::Away`], and the next call goes to the next
//! endpoint. Only a read that etcd gives up because another of its servers leads now is repeated.
//!
//! Why the gateway and not gRPC: the calls are six, [`client::http`] has all that they need, and
//! gRPC would bring tonic, prost and generated code. Every etcd has the gateway switched on by
//! default.

mod access;
mod endpoints;
mod http;
mod maintenance;
mod version;
mod watch;
mod way;

pub use access::Access;
pub use endpoints::{DEFAULT_PORT, Endpoint, Unusable};
pub use maintenance::{Peer, Size};
pub use version::version_warning;
pub use way::{Credentials, Way};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::Moment;
use cluster::coordinator::{
    Change, Changes, Compare, Coordinator, Failure, Health, Item, LeaseCall, LeaseReply, Member,
    Outcome, Range, Revision, Transaction,
};
use http::{Connection, Response};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use watch::Watch;

/// gRPC's code for something that does not exist: here a lease.
const NOT_FOUND: i64 = 5;

/// gRPC's code for something that may be tried again.
const UNAVAILABLE: i64 = 14;

/// What a server says of a read that was under way when another server began to lead. It knows that
/// one, so the next attempt finds it. Of a change it does not say so.
const LEADER_CHANGED: &str = "leader changed";

/// Between the attempts at such a read.
const PAUSE: Duration = Duration::from_millis(20);

/// gRPC's code for a revision that is compacted or not there yet.
const OUT_OF_RANGE: i64 = 11;

/// A client. One thread uses it.
pub struct Client {
    endpoints: Vec<Endpoint>,
    access: Access,
    /// What etcd gave for the user's password. It forgets it after some minutes without use, and
    /// with a restart.
    token: Option<String>,
    /// The endpoint that is tried next.
    next: usize,
    timeout: Moment,
    connection: Option<Connection>,
    watch: Option<Watch>,
}

impl Client {
    /// A client of these servers of one etcd, with a limit for each call. It connects with the
    /// first call.
    pub fn new(endpoints: Vec<Endpoint>, timeout: Moment) -> Client {
        assert!(!endpoints.is_empty(), "an etcd has an endpoint");
        Client {
            endpoints,
            access: Access::default(),
            token: None,
            next: 0,
            timeout,
            connection: None,
            watch: None,
        }
    }

    /// The same with certificates and a user.
    ///
    /// # Errors
    /// An endpoint wants TLS, and `access` has no rules for it.
    pub fn with_access(self, access: Access) -> Result<Client, Unusable> {
        for endpoint in &self.endpoints {
            access.rules_for(endpoint)?;
        }
        Ok(Client { access, ..self })
    }

    /// Forgets the changes before a revision.
    pub fn compact(&mut self, revision: Revision) -> Result<(), Failure> {
        let body = json!({ "revision": revision.to_string() });
        self.ask("/v3/kv/compaction", &body).map(|_| ())
    }

    /// Reads some of the keys with a prefix, at one revision: those with the exact names, and, of
    /// names that end in a slash, all that begin so. Returns them and the number of other keys with
    /// the prefix, which are not sent.
    ///
    /// # Errors
    /// etcd is away.
    pub fn parts(&mut self, prefix: &str, names: &[&str]) -> Result<(Range, u64), Failure> {
        let all = |prefix: &str| json!({ "key": text(prefix), "range_end": text(&end_of(prefix)) });
        let part = |name: &&str| {
            let key = format!("{prefix}{name}");
            let range = if key.ends_with('/') { all(&key) } else { json!({ "key": text(&key) }) };
            json!({ "request_range": range })
        };
        let mut count = all(prefix);
        count["count_only"] = json!(true);
        let requests: Vec<Value> = std::iter::once(json!({ "request_range": count }))
            .chain(names.iter().map(part))
            .collect();
        let reply = self.look("/v3/kv/txn", &json!({ "success": requests }))?;
        let mut answers = list(&reply["responses"]).iter().map(|it| &it["response_range"]);
        let known = |answer: &Value| number_or_zero(&answer["count"]);
        let total = answers.next().map_or(0, known);
        let mut range =
            Range { items: Vec::new(), revision: number(&reply["header"]["revision"])? };
        for answer in answers {
            range.items.extend(items(answer)?);
        }
        let foreign = total.saturating_sub(range.items.len() as u64);
        Ok((range, foreign))
    }

    fn connect(&mut self) -> Result<Connection, Failure> {
        let endpoint = &self.endpoints[self.next % self.endpoints.len()];
        let rules =
            self.access.rules_for(endpoint).map_err(|why| Failure::Away(why.to_string()))?;
        Connection::new(endpoint, rules).map_err(|error| self.away(&error))
    }

    /// Returns what an error of a connection means. The next call goes to the next endpoint.
    fn away(&mut self, error: &std::io::Error) -> Failure {
        let endpoint = &self.endpoints[self.next % self.endpoints.len()];
        self.next += 1;
        Failure::Away(format!("{endpoint}: {error}"))
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Makes a call as the user, who logs in if need be.
    fn call(&mut self, path: &str, body: &Value) -> Result<Response, Failure> {
        self.call_until(path, body, self.deadline())
    }

    /// Makes a call that changes nothing, again where the leader has changed meanwhile, as etcd's
    /// own client does.
    fn read(&mut self, path: &str, body: &Value) -> Result<Response, Failure> {
        let deadline = self.deadline();
        loop {
            let response = self.call_until(path, body, deadline)?;
            let has_changed = response.code() == UNAVAILABLE
                && response.body["message"].as_str().is_some_and(|it| it.contains(LEADER_CHANGED));
            if !has_changed || Instant::now() + PAUSE >= deadline {
                return Ok(response);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn call_until(
        &mut self,
        path: &str,
        body: &Value,
        deadline: Instant,
    ) -> Result<Response, Failure> {
        let had_token = self.token.is_some();
        self.log_in(deadline)?;
        let response = self.post(path, body, deadline)?;
        if !self.access.is_token_refused(&response) {
            return Ok(response);
        }
        self.token = None;
        if !had_token {
            return Ok(response);
        }
        self.log_in(deadline)?;
        self.post(path, body, deadline)
    }

    /// Gets a token, if there is a user and no token.
    fn log_in(&mut self, deadline: Instant) -> Result<(), Failure> {
        let Some(body) = self.access.login().filter(|_| self.token.is_none()) else {
            return Ok(());
        };
        let response = self.post("/v3/auth/authenticate", &body, deadline)?;
        match response.body["token"].as_str().filter(|_| response.is_ok()) {
            Some(token) => self.token = Some(token.to_owned()),
            None => return Err(self.refusal(&response)),
        }
        Ok(())
    }

    /// Sends a request and reads the answer. The connection is kept only if all went well.
    fn post(&mut self, path: &str, body: &Value, deadline: Instant) -> Result<Response, Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let response = connection
            .post(path, body, self.token.as_deref(), deadline)
            .map_err(|error| self.away(&error))?;
        self.connection = Some(connection);
        Ok(response)
    }

    /// Asks for what is at a path, on a connection of its own.
    fn get(&mut self, path: &str) -> Result<Response, Failure> {
        let deadline = self.deadline();
        self.connect()?.get(path, deadline).map_err(|error| self.away(&error))
    }

    /// Makes a call that has no errors but that etcd is away.
    fn ask(&mut self, path: &str, body: &Value) -> Result<Value, Failure> {
        let response = self.call(path, body)?;
        self.taken(response)
    }

    /// The same for a call that changes nothing.
    fn look(&mut self, path: &str, body: &Value) -> Result<Value, Failure> {
        let response = self.read(path, body)?;
        self.taken(response)
    }

    /// Returns what an answer says, unless it is an error.
    fn taken(&mut self, response: Response) -> Result<Value, Failure> {
        match response.is_ok() {
            true => Ok(response.body),
            false => Err(self.refusal(&response)),
        }
    }

    /// What an error reply means. The server may be one that has lost the others, so the next one
    /// is asked.
    fn refusal(&mut self, response: &Response) -> Failure {
        self.next += 1;
        self.connection = None;
        let body = &response.body;
        let text = body["message"].as_str().or(body["error"].as_str()).or(body.as_str());
        let text = text.filter(|text| !text.is_empty());
        Failure::Away(format!("status {}: {}", response.status, text.unwrap_or("no reason given")))
    }
}

impl Coordinator for Client {
    fn range(&mut self, prefix: &str, at: Option<Revision>) -> Result<Range, Failure> {
        let mut body = json!({ "key": text(prefix), "range_end": text(&end_of(prefix)) });
        if let Some(revision) = at {
            body["revision"] = json!(revision.to_string());
        }
        let response = self.read("/v3/kv/range", &body)?;
        if !response.is_ok() {
            let is_compacted = response.code() == OUT_OF_RANGE;
            let failure = self.refusal(&response);
            return Err(if is_compacted { Failure::Compacted(at.unwrap_or(0)) } else { failure });
        }
        let items = items(&response.body)?;
        Ok(Range { items, revision: number(&response.body["header"]["revision"])? })
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        let compare = |it: &Compare| {
            json!({
                "key": text(&it.key), "target": "MOD", "result": "EQUAL",
                "mod_revision": it.revision.to_string(),
            })
        };
        let change = |it: &Change| match it {
            Change::Delete { key } => json!({ "request_delete_range": { "key": text(key) } }),
            Change::Put { key, value, lease } => json!({ "request_put": {
                "key": text(key), "value": STANDARD.encode(value),
                "lease": lease.unwrap_or(0).to_string(),
            } }),
        };
        let body = json!({
            "compare": transaction.compares.iter().map(compare).collect::<Vec<_>>(),
            "success": transaction.changes.iter().map(change).collect::<Vec<_>>(),
        });
        let response = self.call("/v3/kv/txn", &body)?;
        if response.code() == NOT_FOUND {
            return Ok(Outcome::Conflict);
        }
        if !response.is_ok() {
            return Err(self.refusal(&response));
        }
        let revision = number(&response.body["header"]["revision"])?;
        // A field that is false is left out.
        Ok(match response.body["succeeded"].as_bool() {
            Some(true) => Outcome::Done(revision),
            _ => Outcome::Conflict,
        })
    }

    fn lease(&mut self, call: LeaseCall) -> Result<LeaseReply, Failure> {
        let held = |reply: &Value| {
            let ttl = number_or_zero(&reply["TTL"]);
            match i64::try_from(number(&reply["ID"])?) {
                Ok(id) if ttl > 0 => Ok(LeaseReply::Held { id, ttl: Moment::from_secs(ttl) }),
                _ => Ok(LeaseReply::Gone),
            }
        };
        match call {
            LeaseCall::Grant(ttl) => {
                let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
                let body = json!({ "TTL": seconds.to_string() });
                held(&self.ask("/v3/lease/grant", &body)?)
            }
            LeaseCall::Renew(id) => {
                let body = json!({ "ID": id.to_string() });
                let reply = self.ask("/v3/lease/keepalive", &body)?;
                match &reply["result"] {
                    // A stream's error comes with the status of success.
                    Value::Null => {
                        Err(Failure::Away(format!("the lease was not renewed: {reply}")))
                    }
                    result => held(result),
                }
            }
            LeaseCall::Revoke(id) => {
                let response = self.call("/v3/lease/revoke", &json!({ "ID": id.to_string() }))?;
                match response.is_ok() || response.code() == NOT_FOUND {
                    true => Ok(LeaseReply::Gone),
                    false => Err(self.refusal(&response)),
                }
            }
        }
    }

    fn watch(&mut self, prefix: &str, from: Revision, wait: Moment) -> Result<Changes, Failure> {
        let mut watch = match self.watch.take().filter(|watch| watch.continues(prefix, from)) {
            Some(watch) => watch,
            None => {
                let deadline = self.deadline();
                self.log_in(deadline)?;
                let (connection, token) = (self.connect()?, self.token.as_deref());
                // The reason is lost with the answer, and may be the token.
                Watch::open(connection, prefix, from, token, deadline)
                    .inspect_err(|_| self.token = None)?
            }
        };
        let changes = watch.changes(wait).inspect_err(|_| self.token = None)?;
        self.watch = Some(watch);
        Ok(changes)
    }

    fn members(&mut self) -> Result<Vec<Member>, Failure> {
        let reply = self.look("/v3/cluster/member/list", &json!({}))?;
        let member = |member: &Value| Member {
            name: member["name"].as_str().unwrap_or_default().to_owned(),
            client_urls: list(&member["clientURLs"])
                .iter()
                .filter_map(|url| url.as_str().map(str::to_owned))
                .collect(),
        };
        Ok(list(&reply["members"]).iter().map(member).collect())
    }

    fn health(&mut self) -> Result<Health, Failure> {
        let reply = self.look("/v3/maintenance/status", &json!({}))?;
        Ok(Health {
            version: reply["version"].as_str().unwrap_or_default().to_owned(),
            has_leader: number_or_zero(&reply["leader"]) != 0,
            size_bytes: number_or_zero(&reply["dbSize"]),
        })
    }
}

/// Keys as the gateway wants them.
fn text(key: &str) -> String {
    STANDARD.encode(key)
}

/// The first key behind all that begin with `prefix`.
fn end_of(prefix: &str) -> String {
    // The last character of our prefixes is ASCII and not the greatest.
    let mut end = prefix.to_owned();
    let last = end.pop().filter(|last| *last < '\x7f').expect("a prefix ends in plain ASCII");
    end.push((last as u8 + 1) as char);
    end
}

/// Reads the keys of an answer. A key that is no text is left out: none of ours is such.
fn items(answer: &Value) -> Result<Vec<Item>, Failure> {
    let bytes = |value: &Value| {
        STANDARD.decode(value.as_str().unwrap_or_default()).map_err(|_| unreadable())
    };
    let mut items = Vec::new();
    for found in list(&answer["kvs"]) {
        if let Ok(key) = String::from_utf8(bytes(&found["key"])?) {
            let revision = number(&found["mod_revision"])?;
            items.push(Item { key, value: bytes(&found["value"])?, revision });
        }
    }
    Ok(items)
}

/// Returns the elements of a list, none if it was left out.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Reads a number of 64 bits, which the gateway writes as a text.
fn number(value: &Value) -> Result<u64, Failure> {
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(unreadable)
}

fn number_or_zero(value: &Value) -> u64 {
    number(value).unwrap_or(0)
}

fn unreadable() -> Failure {
    Failure::Away("the answer is none of etcd's".into())
}
