//! What all nodes of a database have alike, which is kept at the coordinator: users
//! (`cluster-share-users`), and libraries of functions and keyspace events where clients see one
//! server.
//! `docs/internals/shared-definitions.md` has the rules.
//!
//! One thread makes this server's users and functions those of the coordinator, and writes there
//! which it has. Another makes the changes that clients ask for ([`change`]).

mod change;
mod libraries;

use super::refusal::away;
use crate::inside::Inside;
use crate::log;
use change::Changer;
pub(super) use change::Changes;
use cluster::Moment;
use cluster::change::Refused;
use cluster::coordinator::{Coordinator as _, Item, LeaseId, Outcome, Revision, Transaction};
use cluster::id::Id;
use cluster::shared::{Applied, Definitions, Functions};
use cluster::topology::Shard;
use cluster::view::{self, Keys};
use config::SetContext;
use engine::Engine;
use engine::acl::DEFAULT_USER;
use etcd::Client;
use process::thread;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

/// How long the thread waits for a change before it looks whether this server leads another shard.
const LOOK: Moment = Moment::from_millis(500);

/// The option that says which keyspace events are published.
const EVENTS: &str = "notify-keyspace-events";

/// How long it rests when it could not do its work, or has none.
const REST: Duration = Duration::from_millis(100);

/// What both threads need of the coordinator.
struct Coordination {
    engine: &'static Engine,
    client: Client,
    keys: Keys,
    me: Id,
}

/// Starts the threads. `clients` makes a connection to the coordinator for each. Returns the way
/// for changes, and what says whether this server has the users of its database.
///
/// # Errors
/// The system can start no thread.
pub(super) fn start(
    engine: &'static Engine,
    clients: impl Fn() -> Client,
    keys: &Keys,
    me: Id,
    inside: Inside,
) -> io::Result<(Changes, Ready)> {
    let place = || Coordination { engine, client: clients(), keys: keys.clone(), me };
    // Without shared users there is nothing to wait for.
    let ready = Ready(Arc::new(AtomicBool::new(!engine.shares_users())));
    let mut keeper = Keeper {
        place: place(),
        inside,
        ready: ready.clone(),
        applied: Applied::default(),
        reported: None,
        trouble: String::new(),
    };
    thread::spawn("cluster-shared", move || {
        loop {
            keeper.turn_and_wait();
        }
    })?;
    Ok((Changer::start(place())?, ready))
}

/// Says whether this server has the users of its database.
#[derive(Clone)]
pub(super) struct Ready(Arc<AtomicBool>);

impl Ready {
    /// Waits until this server may serve clients. Until then a user may be in force that was
    /// deleted while it was down.
    pub(super) fn wait(&self) {
        while !self.0.load(Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Coordination {
    /// Returns the database of this server. `None`: it is in none yet.
    fn database(&mut self) -> Result<Option<Id>, Refused> {
        if let Some(published) = self.engine.membership.newest() {
            return Ok(Some(published.view.database));
        }
        let home = self.client.range(&self.keys.home(self.me), None).map_err(away)?;
        let read = |item: &Item| view::read_home(&item.value);
        home.items.first().map(read).transpose().map_err(|error| Refused::Wrong(error.to_string()))
    }

    fn read(&mut self, database: Id) -> Result<Definitions, Refused> {
        let range = self.client.range(&self.keys.shared(database), None).map_err(away)?;
        Definitions::decode(&self.keys, database, &range)
            .map_err(|error| Refused::Wrong(error.to_string()))
    }

    /// The user by which nodes log in to each other, which is each node's own.
    fn own_user(&self) -> Vec<u8> {
        self.engine.config.primaryuser().to_vec()
    }
}

/// Makes this server's users and functions those of the coordinator.
struct Keeper {
    place: Coordination,
    inside: Inside,
    ready: Ready,
    applied: Applied,
    /// What was written at the coordinator, for which database, with which lease.
    reported: Option<(Id, LeaseId, Applied)>,
    /// What was logged last.
    trouble: String,
}

impl Keeper {
    fn turn_and_wait(&mut self) {
        match self.turn() {
            Ok(Some((database, revision))) => {
                self.trouble.clear();
                let prefix = self.place.keys.shared(database);
                // The next turn reads everything, whatever this says.
                if self.place.client.watch(&prefix, revision + 1, LOOK).is_err() {
                    std::thread::sleep(REST);
                }
            }
            Ok(None) => std::thread::sleep(REST),
            Err(why) => {
                let why = why.to_string();
                if why != self.trouble {
                    log!(Warning, "Cluster: users, functions and options of all nodes: {why}");
                    self.trouble = why;
                }
                std::thread::sleep(REST);
            }
        }
    }

    /// Does what is due. Returns the database, and the revision that was read.
    fn turn(&mut self) -> Result<Option<(Id, Revision)>, Refused> {
        let Some(database) = self.place.database()? else {
            // A database that this server founds has its users.
            self.ready.0.store(true, Release);
            return Ok(None);
        };
        let definitions = self.place.read(database)?;
        let has_users = !self.place.engine.shares_users() || self.follow_users(&definitions)?;
        if has_users {
            self.ready.0.store(true, Release);
            self.follow_functions(&definitions)?;
            self.follow_events(&definitions)?;
            self.report(database, &definitions)?;
        }
        Ok(Some((database, definitions.revision)))
    }

    /// A conflict means that another node was faster, and the next turn sees what it has written.
    fn commit(&mut self, transaction: &Transaction) -> Result<(), Refused> {
        self.place.client.commit(transaction).map_err(away).map(drop)
    }

    /// Returns whether this server has the users.
    fn follow_users(&mut self, definitions: &Definitions) -> Result<bool, Refused> {
        let (engine, own) = (self.place.engine, self.place.own_user());
        let Some(at) = &definitions.users else {
            let text = engine.acl.shared_text(&own);
            self.commit(&definitions.put_users(text))?;
            return Ok(false);
        };
        if at.revision == self.applied.users {
            return Ok(true);
        }
        let changed = engine.acl.load_shared(&at.value, &own)?;
        if self.applied.users == 0 && !changed.is_empty() {
            let names = changed.join(", ");
            log!(
                Notice,
                "Cluster: the users of the cluster count, not those of the configuration: {names}"
            );
        }
        let is_gone = |name: &String| engine.acl.user(name.as_bytes()).is_none();
        let gone: Vec<&String> =
            changed.iter().filter(|name| *name != DEFAULT_USER && is_gone(name)).collect();
        for client in engine.clients.all() {
            if gone.contains(&&client.names().user) {
                engine.close_client(&client);
            }
        }
        engine.denied_subscribers().iter().for_each(|client| engine.close_client(client));
        self.applied.users = at.revision;
        Ok(true)
    }

    /// A primary has the libraries of all nodes. Replicas have theirs with its stream.
    fn follow_functions(&mut self, definitions: &Definitions) -> Result<(), Refused> {
        let before = std::mem::take(&mut self.applied.functions);
        let engine = self.place.engine;
        let published = engine.membership.newest().filter(|published| published.leads);
        let shard = published.as_ref().and_then(|published| published.own_shard());
        let Some(&Shard { id: shard, .. }) = shard else { return Ok(()) };
        let is_shared = engine.is_one_address();
        let all = definitions.functions.as_ref();
        let has_joined = all.is_some_and(|at| at.value.joined.contains(&shard));
        match all {
            // What clients of this shard alone load from now on is kept if it joins again.
            Some(at) if has_joined && !is_shared => {
                let mut functions = at.value.clone();
                functions.joined.remove(&shard);
                self.commit(&definitions.put_functions(&functions))
            }
            _ if !is_shared => Ok(()),
            // Without a change there, what differs was loaded here while the endpoint was another.
            Some(at)
                if has_joined
                    && (at.revision != before || libraries::are_in_force(engine, &at.value)) =>
            {
                if !libraries::are_in_force(engine, &at.value) {
                    libraries::put_in_force(&self.inside, &at.value)?;
                }
                self.applied.functions = at.revision;
                Ok(())
            }
            _ => {
                let mut functions = all.map_or_else(Functions::default, |at| at.value.clone());
                let own = libraries::own(engine)?;
                for name in functions.join(shard, &own) {
                    log!(
                        Warning,
                        "Cluster: the library '{name}' of this shard gives way to that of other shards"
                    );
                }
                self.commit(&definitions.put_functions(&functions))
            }
        }
    }

    /// Publishes the keyspace events that a client has asked for at any node.
    fn follow_events(&mut self, definitions: &Definitions) -> Result<(), Refused> {
        let engine = self.place.engine;
        let Some(at) = &definitions.events else { return Ok(()) };
        if at.revision == self.applied.events || !engine.is_one_address() {
            return Ok(());
        }
        let context = SetContext { is_local: false, is_loading: false };
        let pairs: [(&[u8], &[u8]); 1] = [(EVENTS.as_bytes(), at.value.as_bytes())];
        let changed = engine.config.set(&pairs, context, &mut |_| Ok(()));
        let changed = changed.map_err(|error| error.to_string())?;
        if self.applied.events == 0 && !changed.is_empty() {
            log!(Notice, "Cluster: {EVENTS} is '{}', as a client has set it", at.value);
        }
        self.applied.events = at.revision;
        Ok(())
    }

    /// Writes at the coordinator what this server has, if that has changed.
    fn report(&mut self, database: Id, definitions: &Definitions) -> Result<(), Refused> {
        let (me, applied) = (self.place.me, self.applied);
        let published = self.place.engine.membership.newest();
        let lease =
            published.and_then(|published| Some(published.view.alive.get(&me)?.value.lease));
        let Some(lease) = lease else { return Ok(()) };
        let report = Some((database, lease, applied));
        if self.reported != report && applied != Applied::default() {
            let transaction = definitions.put_applied(me, applied, lease);
            let outcome = self.place.client.commit(&transaction).map_err(away)?;
            // The lease may have ended.
            if matches!(outcome, Outcome::Done(_)) {
                self.reported = report;
            }
        }
        Ok(())
    }
}
