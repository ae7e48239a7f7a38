//! Connections to the shards of a target: requests go out in order, many at a time, and each must
//! be answered well.

use crate::place::Address;
use crate::source::Problem;
use client::Client;
use resp::Value;
use route::slots;
use std::collections::{BTreeSet, VecDeque};

/// Bytes that are sent at a time.
const BATCH: usize = 64 << 10;

/// Requests without a reply, of one connection.
const MAX_PENDING: usize = 4096;

/// Their bytes.
const MAX_PENDING_BYTES: usize = 8 << 20;

/// How keys find their shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// One address for all.
    One {
        /// Whether all keys are on one shard, so any request can have any keys.
        is_one_shard: bool,
        /// Whether keys of one slot are on one shard.
        is_by_slot: bool,
    },
    /// The number of the connection, for each slot.
    Slots(Vec<u16>),
}

/// Errors of a target that end by themselves.
const PASSING: [&str; 9] = [
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "READONLY",
    "TRYAGAIN",
    "MOVED",
    "ASK",
    "NOREPLICAS",
    // A proxy, or a node that forwards, has got no answer.
    route::code::NO_REPLY,
];

/// The front of a command's name, for messages.
type Name = [u8; 16];

struct Pipe {
    link: Client,
    address: Address,
    /// The database that is selected.
    db: u32,
    /// Databases that the server has selected before.
    accepted: BTreeSet<u32>,
    /// What was sent and not answered: the command, and the bytes.
    pending: VecDeque<(Name, usize)>,
    pending_bytes: usize,
}

/// See the head of this file.
pub struct Target {
    pipes: Vec<Pipe>,
    route: Route,
}

fn name_of(words: &[&[u8]]) -> Name {
    let mut name = Name::default();
    let text = words.first().copied().unwrap_or_default();
    let len = text.len().min(name.len());
    name[..len].copy_from_slice(&text[..len]);
    name
}

impl Pipe {
    /// Selects a database. The first time the reply is waited for: what is sent behind a SELECT
    /// that is refused goes to the database that was selected before.
    fn select(&mut self, db: u32) -> Result<(), Problem> {
        if self.db == db {
            return Ok(());
        }
        let text = db.to_string();
        let words: [&[u8]; 2] = [b"SELECT", text.as_bytes()];
        if self.accepted.contains(&db) {
            self.push(&words);
            self.db = db;
            return Ok(());
        }
        self.settle()?;
        self.push(&words);
        self.flush()?;
        match self.take_any()?.1.error() {
            None => {
                self.accepted.insert(db);
                self.db = db;
                Ok(())
            }
            Some(text) => Err(without_database(&self.address, db, &text)),
        }
    }

    fn push(&mut self, words: &[&[u8]]) {
        let before = self.link.queued();
        self.link.queue(words);
        let bytes = self.link.queued() - before;
        self.pending.push_back((name_of(words), bytes));
        self.pending_bytes += bytes;
    }

    fn drive(&mut self) -> Result<(), Problem> {
        if self.link.queued() >= BATCH {
            self.flush()?;
        }
        let is_full =
            |it: &Pipe| it.pending.len() > MAX_PENDING || it.pending_bytes > MAX_PENDING_BYTES;
        if is_full(self) {
            self.flush()?;
            while self.pending.len() > MAX_PENDING / 2 || self.pending_bytes > MAX_PENDING_BYTES / 2
            {
                self.take()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Problem> {
        self.link.flush().map_err(|error| self.lost(&error))
    }

    fn lost(&self, error: &std::io::Error) -> Problem {
        let (host, port) = &self.address;
        Problem::Again(format!("the target {host}:{port} does not take it: {error}"))
    }

    /// Waits for the oldest reply.
    fn take_any(&mut self) -> Result<(Name, Value), Problem> {
        let reply = self.link.reply().map_err(|error| self.lost(&error))?;
        let (name, bytes) = self.pending.pop_front().expect("only what was sent is waited for");
        self.pending_bytes -= bytes;
        Ok((name, reply))
    }

    fn take(&mut self) -> Result<Value, Problem> {
        let (name, reply) = self.take_any()?;
        match reply.refusal() {
            None => Ok(reply),
            Some(text) => Err(refused(&self.address, &name, &text)),
        }
    }

    fn settle(&mut self) -> Result<(), Problem> {
        self.flush()?;
        while !self.pending.is_empty() {
            self.take()?;
        }
        Ok(())
    }
}

fn refused((host, port): &Address, name: &Name, text: &str) -> Problem {
    let name = String::from_utf8_lossy(name);
    let name = name.trim_end_matches('\0').to_uppercase();
    let word = text.split(' ').next().unwrap_or_default();
    let is_passing = PASSING.contains(&word);
    let text = format!("the target {host}:{port} refuses {name}: {text}");
    if is_passing { Problem::Again(text) } else { Problem::Final(text) }
}

fn without_database(address: &Address, db: u32, text: &str) -> Problem {
    match refused(address, &name_of(&[b"SELECT"]), text) {
        Problem::Final(text) => Problem::Final(format!(
            "{text}. The source has keys in database {db}: take a target with at least {} databases (create-db \
             --databases; the option `databases` of a server), or remove these keys at the source",
            u64::from(db) + 1
        )),
        passing @ (Problem::Again(_) | Problem::Moving(_)) => passing,
    }
}

impl Target {
    /// Of open connections, one for each number that the route names.
    pub fn new(links: Vec<(Address, Client)>, route: Route) -> Target {
        let pipe = |(address, link)| Pipe {
            link,
            address,
            db: 0,
            accepted: BTreeSet::from([0]),
            pending: VecDeque::new(),
            pending_bytes: 0,
        };
        Target { pipes: links.into_iter().map(pipe).collect(), route }
    }

    /// Returns the number of the connection for a key.
    pub fn pipe_of(&self, key: &[u8]) -> usize {
        match &self.route {
            Route::One { .. } => 0,
            Route::Slots(pipes) => usize::from(pipes[usize::from(slots::of(key))]),
        }
    }

    /// Whether it is known before they are sent that a request can have these keys.
    pub fn are_together(&self, keys: &[&[u8]]) -> bool {
        let [first, rest @ ..] = keys else { return true };
        let same_slot = |key: &&[u8]| slots::of(key) == slots::of(first);
        match &self.route {
            Route::One { is_one_shard: true, .. } => true,
            Route::One { is_by_slot, .. } => {
                rest.iter().all(|key| key == first || *is_by_slot && same_slot(key))
            }
            Route::Slots(_) => rest.iter().all(same_slot),
        }
    }

    /// Whether the target itself may know that keys are on one shard although
    /// [`Target::are_together`] does not.
    pub fn may_be_together(&self) -> bool {
        matches!(self.route, Route::One { .. })
    }

    /// Sends a request for a key; its reply is looked at later.
    ///
    /// # Errors
    /// An earlier request was refused, or the connection is lost.
    pub fn send(&mut self, pipe: usize, db: u32, words: &[&[u8]]) -> Result<(), Problem> {
        let pipe = &mut self.pipes[pipe];
        pipe.select(db)?;
        pipe.push(words);
        pipe.drive()
    }

    /// The same to all shards.
    ///
    /// # Errors
    /// Likewise.
    pub fn send_all(&mut self, db: u32, words: &[&[u8]]) -> Result<(), Problem> {
        (0..self.pipes.len()).try_for_each(|pipe| self.send(pipe, db, words))
    }

    /// Finds out whether all shards have these databases.
    ///
    /// # Errors
    /// One does not, and what to do; or a connection is lost.
    pub fn check_databases(&mut self, databases: &BTreeSet<u32>) -> Result<(), Problem> {
        let mut pipes = self.pipes.iter_mut();
        pipes.try_for_each(|pipe| databases.iter().try_for_each(|db| pipe.select(*db)))
    }

    /// The databases that were selected on a connection.
    pub fn databases(&self, pipe: usize) -> BTreeSet<u32> {
        self.pipes[pipe].accepted.clone()
    }

    /// The number of connections.
    pub fn pipes(&self) -> usize {
        self.pipes.len()
    }

    /// Waits until everything that was sent is confirmed.
    ///
    /// # Errors
    /// A request was refused, or a connection is lost.
    pub fn settle(&mut self) -> Result<(), Problem> {
        for pipe in &mut self.pipes {
            pipe.flush()?;
        }
        self.pipes.iter_mut().try_for_each(Pipe::settle)
    }

    /// Sends requests on a connection where nothing waits for a reply, and returns the replies,
    /// errors as well.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn ask_all(
        &mut self,
        pipe: usize,
        db: u32,
        requests: &[Vec<&[u8]>],
    ) -> Result<Vec<Value>, Problem> {
        let pipe = &mut self.pipes[pipe];
        pipe.select(db)?;
        pipe.settle()?;
        for words in requests {
            pipe.push(words);
        }
        pipe.flush()?;
        requests.iter().map(|_| Ok(pipe.take_any()?.1)).collect()
    }

    /// Sends one request and waits for its reply.
    ///
    /// # Errors
    /// It is refused, or the connection is lost.
    pub fn ask(&mut self, pipe: usize, db: u32, words: &[&[u8]]) -> Result<Value, Problem> {
        let reply = self.ask_all(pipe, db, &[words.to_vec()])?.pop().unwrap_or(Value::Null);
        match reply.refusal() {
            None => Ok(reply),
            Some(text) => Err(refused(&self.pipes[pipe].address, &name_of(words), &text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_pass_are_told_from_those_that_stay() {
        let of = |text| refused(&("h".into(), 1), &name_of(&[b"set"]), text);
        assert!(matches!(of("LOADING it loads"), Problem::Again(_)));
        assert!(matches!(of("MOVED 1 h:2"), Problem::Again(_)));
        let oom = of("OOM command not allowed");
        assert_eq!(
            oom,
            Problem::Final("the target h:1 refuses SET: OOM command not allowed".into())
        );
    }

    #[test]
    fn keys_are_together_where_the_target_says_so() {
        let target = |route| Target::new(Vec::new(), route);
        let keys: [&[u8]; 2] = [b"a", b"b"];
        let tagged: [&[u8]; 2] = [b"{x}a", b"{x}b"];
        let one = |is_one_shard, is_by_slot| target(Route::One { is_one_shard, is_by_slot });
        assert!(one(true, true).are_together(&keys));
        assert!(!one(false, true).are_together(&keys) && one(false, true).are_together(&tagged));
        assert!(!one(false, false).are_together(&tagged));
        let slots = target(Route::Slots(vec![0; slots::SLOTS]));
        assert!(slots.are_together(&tagged) && !slots.are_together(&keys));
    }
}
