//! A node of a cluster: the thread that drives this server's copy at the coordinator, and the one
//! that makes operators' changes.
//!
//! ```text
//!   identity   the node's name and address, and the file that keeps the name
//!   adopt      a start from the files of a Redis Cluster
//!   data       the data: their name, how far they go, which acknowledgements count
//!   known      what this server knew last, for the day on which etcd knows less
//!   promises   between copies, while the coordinator is away
//!   publish    what reactors are shown
//!   rescue     what only this copy has, before it is discarded
//!   switch     the pause of a planned switch
//!   leave      the planned switch before this server goes down
//!   moves      slots that move: the steps of MIGRATESLOTS
//!   rehash     keys that move, when the rule from keys to slots changes
//!   target     where keys are sent
//!   silence    members that have been silent for too long to be promoted
//!   shared     users and functions that all nodes have alike
//!   refusal    what a client is told if its request is not carried out
//!   operator   CLUSTER MEET, ADDSLOTS, REPLICATE …: transactions, on a thread of their own
//! ```
//!
//! The decisions are the `cluster` crate's; `docs/internals/cluster.md` has them. Reactors read
//! what is published here and never wait for it.

mod adopt;
pub mod data;
pub mod identity;
mod known;
pub mod leave;
mod moves;
mod operator;
mod probe;
mod promises;
mod publish;
mod refusal;
mod rehash;
mod rescue;
mod shared;
mod silence;
mod switch;
mod target;

use crate::bus;
use crate::inside::Inside;
use crate::log;
use crate::replication::has_unread;
use adopt::Adoption;
use cluster::Moment;
use cluster::change;
use cluster::coordinator::Revision;
use cluster::copy::{Action, Copy, Facts, Role, Settings};
use cluster::driver::Driver;
use cluster::id::{Epoch, Id};
use cluster::topology::{Holder, ROLLED_BACK, Replica};
use cluster::view::Keys;
use config::Config;
use data::{Data, voter_of};
use engine::Engine;
use engine::epochs::Leadership;
use engine::long::LateReply;
use engine::membership::Request;
use etcd::{Client, Credentials, Endpoint, Way};
use identity::{Announcer, Identity};
use known::Notebook;
use probe::Probe;
use process::thread;
use promises::Promises;
use publish::Publisher;
use replication::vote::Voter;
use silence::Silence;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use switch::Switch;

/// How long a call of an operator's transaction may take: no lease depends on it.
const OPERATION: Moment = Moment::from_secs(1);

/// How long the thread waits for a change before it looks at the time and the data again.
const LOOK: Moment = Moment::from_millis(50);

/// The same during a switch, in which writes wait.
const LOOK_AT_SWITCH: Moment = Moment::from_millis(5);

/// How long a copy that is about to refuse an epoch takes what lies in its link, at most and
/// without anything coming.
const LAST_WORDS: Duration = Duration::from_millis(300);
const SILENCE: Duration = Duration::from_millis(20);

/// The place of a primary that is not to be followed: nothing can listen there.
const NOWHERE: (&str, u16) = ("127.0.0.1", 0);

/// A request, and the client that waits for an answer, if one does.
type Asked = (Request, Option<LateReply>);

/// The way for operators' requests.
pub type Requests = Sender<Asked>;

/// A server that is to be a node of a cluster.
pub struct Node {
    identity: Identity,
    coordinator: Way,
    name: String,
    /// Where commands leave operators' requests.
    pub requests: Requests,
    asked: Receiver<Asked>,
}

/// Reads where the coordinator is, and the node's name. `None`: the server is no node of a cluster.
/// The working directory is that of the configuration already.
///
/// # Errors
/// The configuration does not say enough, or the file with the name cannot be used.
pub fn prepare(config: &Config) -> Result<Option<Node>, String> {
    if !config.cluster_enabled() {
        return Ok(None);
    }
    bus::check(config)?;
    let coordinator = coordinator(config)?;
    let identity = Identity::find(config, &coordinator.endpoints()[0])?;
    let (requests, asked) = channel();
    let name = config.cluster_name().to_string_lossy().into_owned();
    Ok(Some(Node { identity, coordinator, name, requests, asked }))
}

/// Reads where the coordinator is, and the files that prove this server's identity.
///
/// # Errors
/// The option is not set, or is no list of addresses, or a file cannot be used.
pub fn coordinator(config: &Config) -> Result<Way, String> {
    let text = config.cluster_coordinator();
    let text = text.to_string_lossy();
    if text.is_empty() {
        return Err("cluster-enabled is set, but cluster-coordinator is not. Name the etcd that the cluster's \
                    nodes share, e.g. cluster-coordinator etcd://127.0.0.1:2379, or remove \
                    cluster-enabled"
            .into());
    }
    let list = Endpoint::list(&text).map_err(|why| format!("cluster-coordinator: {why}"))?;
    let text = |value: config::Text| value.to_string_lossy().into_owned();
    let credentials = Credentials {
        ca_cert_file: text(config.cluster_coordinator_ca_cert_file()),
        cert_file: text(config.cluster_coordinator_cert_file()),
        key_file: text(config.cluster_coordinator_key_file()),
        user: text(config.cluster_coordinator_user()),
        password: text(config.cluster_coordinator_password()),
    };
    Way::new(list, &credentials)
        .map_err(|why| format!("cluster-coordinator: {why} (cluster-coordinator-ca-cert-file, …)"))
}

impl Node {
    /// Its name.
    pub fn id(&self) -> Id {
        self.identity.id
    }

    /// Says where others reach it.
    pub fn announcer(&self) -> Announcer {
        self.identity.announcer.clone()
    }

    /// Starts its threads. What there was to load is loaded.
    ///
    /// # Errors
    /// The system can start no thread, or the name of the data cannot be written.
    pub fn start(self, engine: &'static Engine, inside: Inside) -> io::Result<&'static Data> {
        let Node { identity, coordinator, name, requests, asked } = self;
        leave::prepare(requests);
        let keys = Keys::new(&name);
        let settings = Settings::of_lease(Moment::from_secs(engine.config.cluster_lease().into()));
        // How long a call may take: so long that several servers of etcd can be asked while the
        // lease lasts.
        let limit = settings.ttl / 4;
        let clients = || coordinator.client(limit.max(OPERATION));
        let (changes, ready) = shared::start(engine, clients, &keys, identity.id, inside)?;
        operator::start(engine, clients(), keys.clone(), name, identity.id, (asked, changes))?;
        rehash::start(engine, clients(), identity.id)?;
        let client = coordinator.client(limit);
        let adoption = identity.layout.clone().map(|layout| {
            let (id, address) = (identity.id, identity.address.clone());
            (Adoption { layout, id, address }, coordinator.client(OPERATION), keys.clone())
        });
        let connect = Box::new(move || coordinator.client(limit.max(OPERATION)));
        moves::start(engine, connect, keys.clone(), identity.id)?;
        engine.membership.begin(engine.clock.wall());
        let data = Data::find(engine, identity.id)?;
        let notebook = Notebook::open(&engine.config)?;
        let host = Host::new(engine, identity, (data, notebook), client, keys, settings);
        data.promise_by(host.promises.clone());
        host.promises.start()?;
        thread::spawn("cluster", move || {
            if let Some((adoption, client, keys)) = adoption {
                adoption.run(client, &keys);
            }
            ready.wait();
            host.run();
        })?;
        Ok(data)
    }
}

/// A node of a cluster that is about to load data waits for its role as a replica of nothing: no
/// key that expires by its own hand branches the history of the data off. A node without data has
/// no history to protect.
pub fn await_role(engine: &Engine, has_data: bool) {
    if has_data && engine.membership.is_on() {
        let (host, port) = NOWHERE;
        engine.follow(host, port);
    }
}

/// What the thread has.
struct Host {
    engine: &'static Engine,
    driver: Driver<Client>,
    identity: Identity,
    data: &'static Data,
    notebook: Notebook,
    promises: Promises,
    switch: Switch,
    silence: Silence,
    probe: Probe,
    publisher: Publisher,
    /// The leadership that this server has begun last.
    leadership: Leadership,
    /// What is counted: in which leadership, whose acknowledgements, and how many copies a quorum
    /// has.
    counted: (Leadership, Vec<Voter>, usize),
    began: Instant,
    /// When the topology was last corrected.
    corrected: Option<Instant>,
}

impl Host {
    fn new(
        engine: &'static Engine,
        identity: Identity,
        (data, notebook): (&'static Data, Notebook),
        client: Client,
        keys: Keys,
        settings: Settings,
    ) -> Host {
        let incarnation = data.incarnation();
        let (id, address) = (identity.id, identity.address.clone());
        let myself = Replica { id, address, member: None, is_never_promoted: false };
        let mut copy = Copy::new(id, incarnation, settings);
        copy.remember(notebook.noted());
        let began = Instant::now();
        let driver = Driver::new(copy, client, keys, myself, incarnation);
        Host {
            engine,
            promises: Promises::new(engine, driver.shared(), began),
            driver,
            identity,
            data,
            notebook,
            switch: Switch::default(),
            silence: Silence::default(),
            probe: Probe::new(engine),
            publisher: Publisher::new(engine, id, began),
            leadership: Leadership::default(),
            counted: Default::default(),
            began,
            corrected: None,
        }
    }

    fn run(mut self) {
        let began = self.began;
        let clock = move || began.elapsed();
        loop {
            let facts = self.facts();
            let seen = self.revision();
            let (publisher, switch) = (&mut self.publisher, &self.switch);
            let actions =
                self.driver.turn(&clock, &facts, |copy| publisher.before_commit(copy, switch));
            self.notebook.follow(&self.driver.copy());
            // What ends this server's leadership is seen by clients before, what begins it after
            // the fact.
            self.publisher.publish(&self.driver.copy(), &self.switch);
            actions.into_iter().for_each(|action| self.act(action));
            self.count();
            let decided = {
                let copy = self.driver.copy();
                (copy.is_switching(), copy.role())
            };
            self.switch.follow(self.engine, decided);
            self.publisher.publish(&self.driver.copy(), &self.switch);
            self.correct();
            // A new view may change the role, or let this copy take over: that is the next turn's.
            if self.revision() != seen {
                continue;
            }
            let look = if self.switch.is_on() { LOOK_AT_SWITCH } else { LOOK };
            if !self.driver.wait(&clock, look) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// The revision of the newest view.
    fn revision(&self) -> Option<Revision> {
        self.driver.copy().view().map(|view| view.revision)
    }

    fn facts(&mut self) -> Facts {
        let mut copy = self.driver.copy();
        copy.reincarnate(self.data.incarnation());
        copy.listens_on_bus(bus::announced_port(&self.engine.config));
        self.probe.follow(&mut copy);
        let mut facts = self.data.facts(&copy);
        facts.linked = switch::linked(self.engine, &copy);
        facts.level = self.switch.level(self.engine);
        facts.silent = self.silence.too_long(self.engine, &copy);
        facts
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Lead(epoch) => {
                log!(Notice, "Cluster: this node leads its shard in epoch {}", epoch.0);
                let stopped = self.engine.keyspace.world().stop();
                self.engine.stop_following();
                // In epoch 0 the shard has no other copy.
                self.leadership = match epoch.0 {
                    0 => Leadership::default(),
                    epoch => self.engine.begin_epoch(epoch),
                };
                drop(stopped);
            }
            Action::Follow(holder, epoch) => {
                match holder.incarnation {
                    ROLLED_BACK => log!(
                        Notice,
                        "Cluster: the shard elects a primary by the data of its copies"
                    ),
                    _ => log!(
                        Notice,
                        "Cluster: node {} leads the shard in epoch {}",
                        holder.id,
                        epoch.0
                    ),
                }
                let address = self.address_of(holder);
                let copy = address.is_some().then_some(holder.id);
                self.data.thaw();
                self.follow(copy, address.unwrap_or(owned(NOWHERE)));
            }
            Action::Freeze(epoch) => {
                log!(Notice, "Cluster: the primary of epoch {} has lost its lease", epoch.0);
                self.data.freeze(epoch);
                self.take_what_has_come();
                self.follow(None, owned(NOWHERE));
            }
            Action::Ask(epoch) => self.promises.ask(epoch),
            Action::Lease(_) | Action::Read | Action::Commit(_) => {}
        }
    }

    /// Takes what the primary sent while it led: without a quorum it has confirmed writes that may
    /// be nowhere else. The link of a primary that has ended is closed, and one that stands still
    /// sends nothing more.
    fn take_what_has_come(&self) {
        let (upstream, journal) = (&self.engine.upstream, &self.engine.journal);
        let until = Instant::now() + LAST_WORDS;
        let (mut position, mut since) = (journal.position(), Instant::now());
        while upstream.is_link_up() && Instant::now() < until && since.elapsed() < SILENCE {
            std::thread::sleep(Duration::from_millis(1));
            let holds = upstream.link().held_bytes > 0;
            let comes = holds || upstream.with_socket(has_unread) == Some(true);
            let now = journal.position();
            if comes || now != position {
                (position, since) = (now, Instant::now());
            }
        }
    }

    /// Counts acknowledgements as the newest view says: those of the members of the shard that this
    /// server leads.
    fn count(&mut self) {
        let copy = self.driver.copy();
        let topology = copy.view().map(|view| &view.topology.value);
        let leads = copy.role() == Role::Leads(Epoch(self.leadership.epoch));
        let shard = topology.and_then(|topology| topology.shard_of(self.identity.id));
        let counted = match (topology, shard) {
            (Some(topology), Some(shard)) if leads => {
                let members = shard.members().filter_map(|copy| {
                    Some(voter_of(Holder { id: copy.id, incarnation: copy.member? }))
                });
                (self.leadership, members.collect(), topology.quorum)
            }
            _ => Default::default(),
        };
        drop(copy);
        if counted != self.counted {
            let (leadership, members, quorum) = counted.clone();
            self.data.count(leadership, members);
            self.engine.set_quorum(quorum);
            self.counted = counted;
        }
    }

    /// Returns where to follow a primary. `None`: it is this server itself, with data that are gone,
    /// or its address is not known, or the copies are about to elect one by what they have.
    fn address_of(&self, holder: Holder) -> Option<(String, u16)> {
        let decisions = self.driver.copy();
        let view = decisions.view()?;
        let copy = view.topology.value.copies().find(|copy| copy.id == holder.id)?;
        if copy.id == self.identity.id || holder.incarnation == ROLLED_BACK {
            return None;
        }
        let address = &copy.address;
        let port = address.naming_port(self.engine.config.tls_replication());
        Some((address.host.clone(), port))
    }

    fn follow(&self, copy: Option<Id>, (host, port): (String, u16)) {
        let primary = Some((host, port));
        let link = self.engine.upstream.link();
        if link.primary == primary && link.copy == copy {
            return;
        }
        drop(link);
        let Some((host, port)) = primary else { return };
        let stopped = self.engine.keyspace.world().stop();
        self.engine.follow_copy(copy, &host, port);
        drop(stopped);
    }

    /// Corrects what the topology says of this server: its address, if it was restarted with
    /// another one, whether it may be promoted (`cluster-replica-no-failover`), and the quorum that
    /// its configuration, or a client, asks for.
    fn correct(&mut self) {
        let decisions = self.driver.copy();
        let Some(view) = decisions.view() else { return };
        let is_due = self.corrected.is_none_or(|at| at.elapsed() > Duration::from_secs(1));
        let id = self.identity.id;
        let announced = self.engine.membership.address();
        let address = announced.unwrap_or_else(|| self.identity.address.clone());
        let is_never_promoted = self.engine.config.cluster_replica_no_failover();
        let differs =
            |copy: &Replica| copy.address != address || copy.is_never_promoted != is_never_promoted;
        let has_changed = view.topology.value.copies().any(|copy| copy.id == id && differs(copy));
        let leads = matches!(decisions.role(), Role::Leads(_));
        let quorum = self.engine.config.commit_quorum() as usize + 1;
        let wants_quorum =
            leads && self.engine.wants_quorum() && quorum > view.topology.value.quorum;
        if !is_due || !(has_changed || wants_quorum) {
            return;
        }
        drop(decisions);
        self.corrected = Some(Instant::now());
        let outcome = self.driver.operate(|view| {
            if wants_quorum {
                return Ok(change::promise_quorum(view, quorum));
            }
            let mut topology = view.topology.value.clone();
            for shard in &mut topology.shards {
                for copy in shard.copies.iter_mut().filter(|copy| copy.id == id) {
                    copy.address = address.clone();
                    copy.is_never_promoted = is_never_promoted;
                }
            }
            Ok(view.replace(&topology))
        });
        if let Err(why) = outcome {
            let what = if wants_quorum { "quorum" } else { "address or role" };
            log!(Warning, "Cluster: the new {what} of this node is not written yet: {why}");
        }
    }
}

fn owned((host, port): (&str, u16)) -> (String, u16) {
    (host.into(), port)
}
