//! Sends keys to other servers: those that a new hashing rule assigns to other shards. It uses a
//! command that does so for clients, on behalf of this server itself.

use crate::args::Args;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::long;
use crate::membership::{Open, Published};
use crate::thread::ThreadContext;
use keyspace::tables::WalkPlace;
use keyspace::{DbIndex, Key};
use resp::Output;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Number of keys that are held at a time. Clients that want to change one of them wait.
const KEYS: usize = 64;

/// Returns the request that sends these keys of a database.
pub type MakeRequest = dyn Fn(DbIndex, &[Box<[u8]>]) -> Vec<Vec<u8>> + Send + Sync;

/// How keys are sent.
#[derive(Clone)]
pub struct Carrier {
    /// Number of the other server's replicas that must have a key before it is deleted here.
    pub copies: usize,
    /// Builds the request that sends them.
    pub request: Arc<MakeRequest>,
}

/// Sends those of these keys that exist, and deletes them here.
fn send(
    engine: &'static Engine,
    thread: &ThreadContext,
    db: DbIndex,
    keys: &[Box<[u8]>],
    to: &Carrier,
) -> Result<(), String> {
    let mut session = engine.own_session(thread);
    session.db = db;
    session.awaited_copies = to.copies;
    let mut out = Output::default();
    let mut cx = Cx::new(engine, thread, &mut session, engine.clock.wall(), &mut out);
    let request = (to.request)(db, keys);
    let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
    let row = engine.table.resolve(&words).map_err(|_| "there is no such command")?;
    long::run_for_server(&mut cx, row, Args::new(&words));
    drop(cx);
    let reply = out.into_bytes();
    match reply.first() {
        Some(b'+') => Ok(()),
        _ => Err(String::from_utf8_lossy(&reply).trim().to_owned()),
    }
}

/// Number of entries that are checked under one lock.
const LOOKS: usize = 256;

/// Where keys go by a new hashing rule.
#[derive(Clone)]
pub struct Routes {
    /// How keys are sent to each shard, by its number.
    pub carriers: Arc<BTreeMap<u16, Carrier>>,
    /// Number of this server's replicas that must know that a key was deleted here before it is
    /// changed elsewhere.
    pub own_copies: usize,
    /// Returns whether the change for which the routes were made is still in progress.
    pub is_current: fn(&Published) -> bool,
}

/// Keys that were sent to a shard, perhaps without an answer.
#[derive(Clone)]
pub struct Unanswered(DbIndex, u16, Vec<Box<[u8]>>);

/// Keys by the number of the shard that they are sent to.
type Groups = BTreeMap<u16, Vec<Box<[u8]>>>;

/// The position of a walk over all keys.
#[derive(Clone, Copy)]
struct Walk {
    db: DbIndex,
    stripe: usize,
    at: WalkPlace,
}

/// The result of a step of the walk.
struct Looked {
    /// Where the walk continues.
    next: Option<WalkPlace>,
    /// A key without a slot by the new rule.
    homeless: Option<Box<[u8]>>,
}

impl Engine {
    /// Sends all keys that the new rule assigns to other shards. Returns a key for which the rule
    /// has no slot, if there is one. Such keys are still here. `unanswered` keeps the keys to send
    /// again if a server does not answer. The caller is not a thread of the engine.
    ///
    /// # Errors
    /// Some keys are still here.
    pub fn carry_rehashed(
        &'static self,
        routes: &Routes,
        unanswered: &mut Vec<Unanswered>,
    ) -> Result<Option<Box<[u8]>>, String> {
        let mut homeless = None;
        self.send_unanswered(routes, unanswered)?;
        for db in self.keyspace.used_databases() {
            for stripe in 0..self.keyspace.stripes().len() {
                let mut walk = Walk { db, stripe, at: WalkPlace::START };
                loop {
                    self.send_wanted(routes, unanswered)?;
                    let looked = self.step(routes, walk, unanswered)?;
                    homeless = homeless.or(looked.homeless);
                    match looked.next {
                        Some(next) => walk.at = next,
                        None => break,
                    }
                }
            }
        }
        while !self.settle(routes) {
            if !self.is_current(routes) {
                return Err("the change has taken another way".to_owned());
            }
            self.ask_for_acks();
            self.clock.rest(Duration::from_millis(1));
        }
        Ok(homeless)
    }

    /// Repeats requests that were not answered.
    ///
    /// # Errors
    /// There is still no answer.
    pub fn send_unanswered(
        &'static self,
        routes: &Routes,
        unanswered: &mut Vec<Unanswered>,
    ) -> Result<(), String> {
        while let Some(Unanswered(db, to, keys)) = unanswered.last().cloned() {
            self.on_background(routes, move |engine, thread, routes| {
                send_to(engine, thread, routes, db, to, &keys)
            })??;
            unanswered.pop();
        }
        self.settle(routes);
        Ok(())
    }

    /// Sends the keys that requests wait for.
    fn send_wanted(
        &'static self,
        routes: &Routes,
        unanswered: &mut Vec<Unanswered>,
    ) -> Result<(), String> {
        while let Some((db, keys)) = self.membership.rehash.take_first(KEYS) {
            let Some(published) = self.membership.newest() else { return Ok(()) };
            let mut groups: Groups = BTreeMap::new();
            for key in keys {
                if let Some(to) = leaves_to(&published, &key) {
                    groups.entry(to).or_default().push(key);
                }
            }
            self.send_groups(routes, db, groups, unanswered)?;
        }
        Ok(())
    }

    /// Checks some keys, and sends those that leave.
    fn step(
        &'static self,
        routes: &Routes,
        walk: Walk,
        unanswered: &mut Vec<Unanswered>,
    ) -> Result<Looked, String> {
        let outcome =
            self.on_background(routes, move |engine, thread, _| look(engine, thread, walk))?;
        let (looked, groups) = outcome?;
        self.send_groups(routes, walk.db, groups, unanswered)?;
        Ok(looked)
    }

    fn send_groups(
        &'static self,
        routes: &Routes,
        db: DbIndex,
        groups: Groups,
        unanswered: &mut Vec<Unanswered>,
    ) -> Result<(), String> {
        let all = groups.into_iter().map(|(to, keys)| Unanswered(db, to, keys));
        unanswered.extend(all);
        if unanswered.is_empty() { Ok(()) } else { self.send_unanswered(routes, unanswered) }
    }

    /// Drops keys whose deletion all replicas know. Returns whether none are left.
    fn settle(&self, routes: &Routes) -> bool {
        let copies = routes.own_copies;
        self.membership.rehash.settle(|position| self.safe.count_received(position) >= copies)
    }

    fn is_current(&self, routes: &Routes) -> bool {
        self.membership.newest().is_some_and(|published| (routes.is_current)(&published))
    }

    /// Runs `work` on a thread that may wait for other servers.
    fn on_background<T: Send + 'static>(
        &'static self,
        routes: &Routes,
        work: impl FnOnce(&'static Engine, &ThreadContext, &Routes) -> T + Send + 'static,
    ) -> Result<T, String> {
        if !self.is_current(routes) {
            return Err("the change has taken another way".to_owned());
        }
        let (done, outcome) = channel();
        let routes = routes.clone();
        let job = move |thread: &ThreadContext| {
            // The caller waits for the result.
            let _ = done.send(work(self, thread, &routes));
        };
        self.background.run_waiting(Box::new(job));
        outcome.recv().map_err(|_| "the server ends".to_owned())
    }
}

/// Returns the shard to which a key of this server is sent.
fn leaves_to(published: &Published, key: &[u8]) -> Option<u16> {
    let slot = published.slot_of(Key::new(key))?;
    match published.open_key(slot, key)? {
        Open::Leaving(to) => Some(to),
        _ => None,
    }
}

/// Checks some keys of a stripe. Returns those that leave, by the shard that they are sent to.
fn look(
    engine: &'static Engine,
    thread: &ThreadContext,
    walk: Walk,
) -> Result<(Looked, Groups), String> {
    let mut groups: Groups = BTreeMap::new();
    let mut looked = Looked { next: Some(walk.at), homeless: None };
    let Some(published) = engine.membership.newest() else { return Ok((looked, groups)) };
    let mut session = engine.own_session(thread);
    session.db = walk.db;
    let mut out = Output::default();
    let cx = Cx::new(engine, thread, &mut session, engine.clock.wall(), &mut out);
    thread.reader.enter();
    let visited = cx.db.visit(walk.stripe, |stripe| {
        let (mut looks, mut leaving) = (0, 0);
        while let Some(at) = looked.next
            && looks < LOOKS
            && leaving < KEYS
        {
            looked.next = stripe.walk(walk.db, at, |entry| {
                looks += 1;
                let key = entry.key();
                let slot = published.slot_of(Key::new(key));
                match slot.and_then(|slot| published.open_key(slot, key)) {
                    Some(Open::Leaving(to)) => {
                        leaving += 1;
                        groups.entry(to).or_default().push(Box::from(key));
                    }
                    Some(Open::Homeless) => looked.homeless = Some(Box::from(key)),
                    _ => {}
                }
            });
        }
    });
    thread.reader.leave();
    visited.ok_or("a script has the keys")?;
    Ok((looked, groups))
}

/// Sends keys to a shard.
fn send_to(
    engine: &'static Engine,
    thread: &ThreadContext,
    routes: &Routes,
    db: DbIndex,
    to: u16,
    keys: &[Box<[u8]>],
) -> Result<(), String> {
    let carrier = routes.carriers.get(&to).ok_or("the shard that takes keys has gone")?;
    let state = &engine.membership.rehash;
    if routes.own_copies > 0 {
        state.begin_sending(keys.iter().map(|key| Key::new(key).hash).collect());
    }
    let outcome = send(engine, thread, db, keys, carrier);
    if routes.own_copies > 0 {
        state.end_sending(engine.journal.position());
        engine.ask_for_acks();
    }
    if outcome.is_ok() {
        state.count_moved(keys.len());
    }
    outcome
}
