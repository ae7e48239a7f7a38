//! A node of a cluster: the thread that drives this server's copy at the coordinator, and the one that makes operators'
//! changes.
//!
//! ```text
//!   identity   the node's name and address, and the file that keeps the name
//!   facts      what the decisions know of the data
//!   switch     the pause of a planned switch
//!   operator   CLUSTER MEET, ADDSLOTS, REPLICATE …: transactions, on a thread of their own
//! ```
//!
//! The decisions are the `cluster` crate's; `docs/internals/cluster.md` has them. Reactors read what is published here and
//! never wait for it.

mod facts;
mod identity;
mod operator;
mod switch;

use crate::log;
use cluster::Moment;
use cluster::coordinator::Revision;
use cluster::copy::{Action, Copy, Role, Settings};
use cluster::driver::Driver;
use cluster::id::{Id, Incarnation};
use cluster::topology::{Holder, Replica};
use cluster::view::Keys;
use config::Config;
use engine::Engine;
use engine::long::LateReply;
use engine::membership::{Published, Request};
use etcd::{Client, Endpoint};
use facts::Data;
use identity::Identity;
use process::thread;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use switch::Switch;

/// The times: a lease of four seconds.
const SETTINGS: Settings = Settings {
    ttl: Moment::from_secs(4),
    retry: Moment::from_millis(200),
    grace: Moment::from_millis(500),
    promise: Moment::from_secs(2),
    switch: Moment::from_secs(5),
};

/// How long a call may take.
const CALL: Moment = Moment::from_secs(1);

/// How long the thread waits for a change before it looks at the time and the data again.
const LOOK: Moment = Moment::from_millis(50);

/// The same during a switch, in which writes wait.
const LOOK_AT_SWITCH: Moment = Moment::from_millis(5);

/// The place of a primary that is not to be followed: nothing can listen there.
const NOWHERE: (&str, u16) = ("127.0.0.1", 0);

/// A request and what answers it.
type Asked = (Request, LateReply);

/// The way for operators' requests.
pub type Requests = Sender<Asked>;

/// A server that is to be a node of a cluster.
pub struct Node {
    identity: Identity,
    endpoints: Vec<Endpoint>,
    name: String,
    /// Where commands leave operators' requests.
    pub requests: Requests,
    asked: Receiver<Asked>,
}

/// Reads where the coordinator is, and the node's name. `None`: the server is no node of a cluster. The working directory
/// is that of the configuration already.
///
/// # Errors
/// The configuration does not say enough, or the file with the name cannot be used.
pub fn prepare(config: &Config) -> Result<Option<Node>, String> {
    if !config.cluster_enabled() {
        return Ok(None);
    }
    let endpoints = endpoints(config)?;
    let identity = Identity::find(config, &endpoints[0])?;
    let (requests, asked) = channel();
    let name = config.cluster_name().to_string_lossy().into_owned();
    Ok(Some(Node { identity, endpoints, name, requests, asked }))
}

/// Reads where the coordinator is.
///
/// # Errors
/// The option is not set, or is no list of addresses.
pub fn endpoints(config: &Config) -> Result<Vec<Endpoint>, String> {
    let text = config.cluster_coordinator();
    let text = text.to_string_lossy();
    if text.is_empty() {
        return Err("cluster-enabled is set, but cluster-coordinator is not. Name the etcd that the cluster's \
                    nodes share, e.g. cluster-coordinator etcd://127.0.0.1:2379, or remove \
                    cluster-enabled"
            .into());
    }
    Endpoint::list(&text).map_err(|why| format!("cluster-coordinator: {why}"))
}

impl Node {
    /// Its name.
    pub fn id(&self) -> Id {
        self.identity.id
    }

    /// Starts its threads. What there was to load is loaded.
    ///
    /// # Errors
    /// The system can start no thread.
    pub fn start(self, engine: &'static Engine) -> io::Result<()> {
        let Node { identity, endpoints, name, requests: _, asked } = self;
        let keys = Keys::new(&name);
        let client = Client::new(endpoints.clone(), CALL);
        operator::start(engine, client, keys.clone(), name, identity.id, asked)?;
        let client = Client::new(endpoints, CALL);
        thread::spawn("cluster", move || Host::new(engine, identity, client, keys).run()).map(drop)
    }
}

/// What the thread has.
struct Host {
    engine: &'static Engine,
    driver: Driver<Client>,
    identity: Identity,
    data: Data,
    switch: Switch,
    began: Instant,
    /// What is published: the revision, whether this server leads, whether requests wait for a change of roles.
    published: Option<(Revision, bool, bool)>,
    /// When the address was last corrected.
    corrected: Option<Instant>,
}

impl Host {
    fn new(engine: &'static Engine, identity: Identity, client: Client, keys: Keys) -> Host {
        let incarnation = draw();
        let (id, address) = (identity.id, identity.address.clone());
        let myself = Replica { id, address, member: None, is_never_promoted: false };
        let copy = Copy::new(id, incarnation, SETTINGS);
        let driver = Driver::new(copy, client, keys, myself, incarnation);
        let (data, switch, began) = (Data::default(), Switch::default(), Instant::now());
        Host { engine, driver, identity, data, switch, began, published: None, corrected: None }
    }

    fn run(mut self) {
        let began = self.began;
        let clock = move || began.elapsed();
        loop {
            if self.data.is_about_to_be_replaced(self.engine) {
                self.driver.copy.reincarnate(draw());
            }
            let mut facts = self.data.facts(self.engine, &self.driver.copy);
            facts.linked = switch::linked(self.engine, &self.driver.copy);
            facts.level = self.switch.level(self.engine, &self.driver.copy);
            let actions = self.driver.turn(&clock, &facts);
            // What ends this server's leadership is seen by clients before, what begins it after the fact.
            self.publish();
            actions.into_iter().for_each(|action| self.act(action));
            self.switch.follow(self.engine, &self.driver.copy);
            self.publish();
            self.correct_address();
            let look = if self.switch.is_on() { LOOK_AT_SWITCH } else { LOOK };
            if !self.driver.wait(&clock, look) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Lead(epoch) => {
                log!(Notice, "Cluster: this node leads its shard in epoch {}", epoch.0);
                let stopped = self.engine.keyspace.world().stop();
                self.engine.stop_following();
                drop(stopped);
            }
            Action::Follow(holder, epoch) => {
                log!(Notice, "Cluster: node {} leads the shard in epoch {}", holder.id, epoch.0);
                let (host, port) = self.address_of(holder).unwrap_or(owned(NOWHERE));
                self.follow(host, port);
            }
            Action::Freeze(epoch) => {
                log!(Notice, "Cluster: the primary of epoch {} has lost its lease", epoch.0);
                let (host, port) = owned(NOWHERE);
                self.follow(host, port);
                self.data.freeze(epoch);
            }
            // Promises between copies are not there yet; without them a primary of several copies stops with its lease.
            Action::Ask(_) => {}
            Action::Lease(_) | Action::Read | Action::Commit(_) => {}
        }
    }

    /// Where to follow a primary; `None`: it is this server itself, with data that are gone, or nobody knows.
    fn address_of(&self, holder: Holder) -> Option<(String, u16)> {
        let view = self.driver.copy.view()?;
        let copy = view.topology.value.copies().find(|copy| copy.id == holder.id)?;
        if copy.id == self.identity.id {
            return None;
        }
        let address = &copy.address;
        let by_tls = self.engine.config.tls_replication();
        let port = if by_tls { address.tls_port } else { address.port };
        Some((address.host.clone(), port))
    }

    fn follow(&self, host: String, port: u16) {
        let primary = Some((host, port));
        if self.engine.upstream.link().primary == primary {
            return;
        }
        let Some((host, port)) = primary else { return };
        let stopped = self.engine.keyspace.world().stop();
        self.engine.follow(&host, port);
        drop(stopped);
    }

    /// Shows readers the newest view.
    fn publish(&mut self) {
        let copy = &self.driver.copy;
        let Some(view) = copy.view() else { return };
        let now = self.began.elapsed();
        let is_leader = matches!(copy.role(), Role::Leads(_)) && !self.engine.upstream.is_replica();
        // While a switch waits for its successor, writes wait at a gate of their own; when it may have been made, all do.
        let is_pausing = copy.is_switching() && copy.is_alone(now);
        let leads = is_leader && (is_pausing || copy.may_confirm(now));
        let may_be_switched = is_leader && copy.is_switching() && !is_pausing;
        // The view is ahead of the role for a moment.
        let will_lead = !is_leader && copy.is_named() && copy.is_coordinator_present();
        let changes_roles = will_lead || may_be_switched || self.switch.has_handed_over(copy);
        let newest = Some((view.revision, leads, changes_roles));
        if newest != self.published {
            self.published = newest;
            let published = Published::new(view.clone(), self.identity.id, leads, changes_roles);
            self.engine.publish_membership(published);
        }
    }

    /// Tells the others a new address, if this server was restarted with one.
    fn correct_address(&mut self) {
        let (id, address) = (self.identity.id, &self.identity.address);
        let Some(view) = self.driver.copy.view() else { return };
        let known = view.topology.value.copies().find(|copy| copy.id == id);
        let is_due = self.corrected.is_none_or(|at| at.elapsed() > Duration::from_secs(1));
        if known.is_none_or(|copy| copy.address == *address) || !is_due {
            return;
        }
        self.corrected = Some(Instant::now());
        let address = address.clone();
        let outcome = self.driver.operate(|view| {
            let mut topology = view.topology.value.clone();
            for shard in &mut topology.shards {
                for copy in shard.copies.iter_mut().filter(|copy| copy.id == id) {
                    copy.address = address.clone();
                }
            }
            Ok(view.replace(&topology))
        });
        if let Err(why) = outcome {
            log!(Warning, "Cluster: the new address of this node is not written yet: {why}");
        }
    }
}

fn draw() -> Incarnation {
    Incarnation(structs::hashing::os_random())
}

fn owned((host, port): (&str, u16)) -> (String, u16) {
    (host.into(), port)
}
