//! What operators and their tools ask for, as transactions. They run on a thread of their own with
//! a connection of its own, so that no renewal of a lease waits for them. A reply is sent when this
//! server's clients see the change.

use super::moves::leftovers;
use super::publish::{wait_until_leading, wait_until_shown};
use super::refusal::{self, away};
use super::shared::Changes;
use super::{Asked, leave};
use crate::log;
use client::{Address, Connector, Patience};
use cluster::change::{self, Refused};
use cluster::coordinator::{Change, Coordinator, Item, Outcome, Revision, Transaction};
use cluster::id::Id;
use cluster::promotion;
use cluster::slots::Slots;
use cluster::stored::check_writer;
use cluster::topology::Topology;
use cluster::view::{self, Keys, View};
use engine::Engine;
use engine::membership::Request;
use etcd::Client;
use process::thread;
use resp::Reply;
use std::collections::BTreeSet;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use structs::hashing::os_random;

/// How often at least, and for [`PATIENCE`], a transaction is made anew because others were faster.
const ATTEMPTS: usize = 16;

/// How long a request waits for a node to be known and for the coordinator, and its reply for this
/// server's view to show the change.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long another server may take to say its name.
const QUESTION: Duration = Duration::from_millis(500);

struct Operator {
    engine: &'static Engine,
    client: Client,
    keys: Keys,
    cluster: String,
    me: Id,
    /// The slots that this server has given up by DELSLOTS or FLUSHSLOTS.
    given_up: Slots,
    /// The slots that this server had or imported when something was asked of it.
    had: Slots,
}

/// Starts the thread.
///
/// # Errors
/// The system can start no thread.
pub(super) fn start(
    engine: &'static Engine,
    client: Client,
    keys: Keys,
    cluster: String,
    me: Id,
    (asked, changes): (Receiver<Asked>, Changes),
) -> io::Result<()> {
    let (given_up, had) = (Slots::default(), Slots::default());
    let mut operator = Operator { engine, client, keys, cluster, me, given_up, had };
    thread::spawn("cluster-change", move || {
        for (request, reply) in asked {
            if let Request::Define(definition) = request {
                // The receiver lives as long as the process does.
                drop(changes.send((definition, reply)));
                continue;
            }
            if let Request::Together(requests) = &request {
                let outcomes = operator.operate_together(requests);
                if let Some(reply) = reply {
                    reply.send(|reply| answer_together(operator.epoch(), outcomes, reply));
                }
                continue;
            }
            let outcome = operator.operate_patiently(&request);
            match (reply, outcome) {
                (Some(reply), Ok(())) => reply.send(|reply| answer(&request, reply)),
                (Some(reply), Err(why)) => reply.send(|reply| reply.error(&refusal::text(&why))),
                (None, Ok(())) => {}
                (None, Err(why)) => log!(Warning, "Cluster: {why}"),
            }
        }
    })
    .map(drop)
}

/// Writes what the client is told when its request is carried out.
fn answer(request: &Request, reply: &mut Reply<'_>) {
    match request {
        Request::ImportSlots { job, .. } => reply.bulk(job.to_string().as_bytes()),
        Request::CancelJobs(names) => reply.integer(names.len() as i64),
        _ => reply.ok(),
    }
}

/// Writes what the client is told of the requests of its transaction.
fn answer_together(epoch: u64, outcomes: Result<Outcomes, Refused>, reply: &mut Reply<'_>) {
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(why) => return reply.error(&format!("EXECABORT {why}")),
    };
    reply.array(outcomes.len());
    for outcome in outcomes {
        match outcome {
            Some(Ok(())) => reply.ok(),
            Some(Err(why)) => reply.error(&refusal::text(&why)),
            None => reply.simple(&format!("STILL {epoch}")),
        }
    }
}

/// What became of the requests of a transaction. `None`: it was to bump the epoch.
type Outcomes = Vec<Option<Result<(), Refused>>>;

fn unknown(copy: Id) -> Refused {
    Refused::Wrong(format!("Unknown node {copy}"))
}

/// Makes the transaction of a request about the owner of slots. `None`: nothing has to be changed.
fn slot_change(view: &View, me: Id, request: &Request) -> Result<Option<Transaction>, Refused> {
    match request {
        Request::AddSlots(slots) => change::add_slots(view, me, slots).map(Some),
        Request::DeleteSlots(slots) => change::delete_slots(view, slots).map(Some),
        Request::SetSlot { slot, setting, has_keys } => {
            change::set_slot(view, me, *slot, *setting, *has_keys)
        }
        _ => Ok(None),
    }
}

/// Returns whether these requests give the slots to this server as well, as `redis-cli --cluster
/// fix` does with those of another.
fn is_taken(slots: &Slots, requests: &[Option<Request>]) -> bool {
    requests.iter().flatten().any(|request| match request {
        Request::AddSlots(added) => slots.without(added).is_empty(),
        _ => false,
    })
}

/// Returns the topology that a transaction writes.
fn topology_of(view: &View, transaction: &Transaction) -> Result<Topology, Refused> {
    let key = view.keys.topology(view.database);
    let written = transaction.changes.iter().find_map(|change| match change {
        Change::Put { key: other, value, .. } if *other == key => Some(value),
        _ => None,
    });
    match written {
        Some(value) => Topology::decode(value).map_err(|invalid| Refused::Wrong(invalid.0)),
        None => Ok(view.topology.value.clone()),
    }
}

impl Operator {
    /// Tries again what may be done twice: a tool that moves thousands of slots gives up at the
    /// first error, and `redis-cli --cluster create` does not even look at the reply to REPLICATE.
    fn operate_patiently(&mut self, request: &Request) -> Result<(), Refused> {
        let began = Instant::now();
        let may_repeat = matches!(
            request,
            Request::SetSlot { .. } | Request::Meet(..) | Request::Replicate { .. }
        );
        let mut outcome = self.operate(request);
        while let Err(Refused::Away(_)) = &outcome
            && may_repeat
            && began.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(20));
            outcome = self.operate(request);
        }
        outcome
    }

    /// Waits until clients see what was changed at this revision.
    fn show(&self, request: &Request, revision: Revision) {
        wait_until_shown(self.engine, revision);
        if let Request::SetSlot { .. } = request {
            // Requests that have begun before do not know that the slot is open.
            drop(self.engine.keyspace.world().stop());
        }
    }

    fn operate(&mut self, request: &Request) -> Result<(), Refused> {
        let (began, mut attempts) = (Instant::now(), 0);
        // Many nodes that have just started change the topology at the same time, and a slow one
        // loses often.
        while attempts < ATTEMPTS || began.elapsed() < PATIENCE {
            attempts += 1;
            let (view, home) = self.view_of(self.me)?;
            self.note_had(&view);
            let Some(transaction) = self.transaction(request, &view, home)? else {
                // Another node has made the change, or this one when its answer came too late.
                self.show(request, view.topology.revision);
                return Ok(());
            };
            if let Outcome::Done(revision) = self.client.commit(&transaction).map_err(away)? {
                self.note_slots(&view, request);
                self.show(request, revision);
                if matches!(request, Request::StandAlone | Request::Reset { .. }) {
                    wait_until_leading(self.engine);
                    leftovers::drop_all_unowned(self.engine);
                }
                return Ok(());
            }
        }
        Err(Refused::Wrong("Others change the cluster at the same time, try again".into()))
    }

    /// Returns the slots of this server's shard.
    fn own_slots(&self, view: &View) -> Slots {
        let own = view.topology.value.shard_of(self.me);
        own.map_or_else(Slots::default, |shard| shard.slots.clone())
    }

    /// Notes which slots this server has or imports.
    fn note_had(&mut self, view: &View) {
        let Some(shard) = view.topology.value.shard_of(self.me) else { return };
        let imported = Slots::from_fn(|slot| shard.importing.contains_key(&slot));
        self.had = self.had.with(&shard.slots).with(&imported);
    }

    /// Notes which slots this server has given up itself, and which it has again.
    fn note_slots(&mut self, before: &View, request: &Request) {
        let own = self.own_slots(before);
        self.given_up = match request {
            Request::DeleteSlots(slots) => self.given_up.with(slots),
            Request::FlushSlots => self.given_up.with(&own),
            Request::AddSlots(slots) => self.given_up.without(slots),
            _ => return,
        };
    }

    /// The epoch of this server's shard.
    fn epoch(&self) -> u64 {
        let published = self.engine.membership.newest();
        published.and_then(|published| Some(published.own_shard()?.epoch.0)).unwrap_or(0)
    }

    /// Makes one transaction of several requests about slots. One that is refused leaves the others
    /// as they are, as in Redis.
    fn operate_together(&mut self, requests: &[Option<Request>]) -> Result<Outcomes, Refused> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let (view, _) = self.view_of(self.me)?;
            self.note_had(&view);
            let mut after = view.clone();
            let mut outcomes = Outcomes::new();
            for request in requests {
                let change = request.as_ref().map(|request| match request {
                    Request::DeleteSlots(slots) if !is_taken(slots, requests) => {
                        let before = (&self.given_up, &self.had);
                        change::delete_own_slots(&after, self.me, slots, before)
                    }
                    _ => slot_change(&after, self.me, request),
                });
                outcomes.push(match change {
                    Some(Ok(Some(transaction))) => {
                        after.topology.value = topology_of(&view, &transaction)?;
                        Some(Ok(()))
                    }
                    Some(Ok(None)) => Some(Ok(())),
                    Some(Err(why)) => Some(Err(why)),
                    None => None,
                });
            }
            let revision = if after.topology.value == view.topology.value {
                view.topology.revision
            } else {
                let transaction = view.replace(&after.topology.value);
                match self.client.commit(&transaction).map_err(away)? {
                    Outcome::Done(revision) => revision,
                    Outcome::Conflict => continue,
                }
            };
            requests.iter().flatten().for_each(|request| self.note_slots(&view, request));
            wait_until_shown(self.engine, revision);
            // Requests that have begun before do not know which slots are open.
            drop(self.engine.keyspace.world().stop());
            return Ok(outcomes);
        }
        Err(Refused::Wrong("Others change the cluster at the same time, try again".into()))
    }

    /// Makes the transaction of a request in this server's database, whose home has this revision.
    /// `None`: nothing has to be changed.
    fn transaction(
        &mut self,
        request: &Request,
        view: &View,
        home: Revision,
    ) -> Result<Option<Transaction>, Refused> {
        let me = self.me;
        match request {
            Request::DeleteSlots(slots) => {
                return change::delete_own_slots(view, me, slots, (&self.given_up, &self.had));
            }
            Request::AddSlots(_) | Request::SetSlot { .. } => {
                return slot_change(view, me, request);
            }
            Request::FlushSlots => {
                let slots = view.topology.value.shard_of(me).map(|shard| shard.slots.clone());
                let slots = slots.filter(|slots| !slots.is_empty());
                let Some(slots) = slots else { return Ok(None) };
                change::delete_slots(view, &slots)
            }
            Request::MigrateSlots(jobs) => {
                let now = super::moves::now_s();
                change::moves::begin(view, me, jobs, now, || Id::draw(os_random))
            }
            Request::CancelMoves => change::moves::cancel(view, me),
            Request::ImportSlots { slots, job } => {
                change::moves::import(view, me, slots, *job, super::moves::now_s())
            }
            Request::CancelJobs(names) => return change::moves::cancel_named(view, me, names),
            Request::PaceJobs { names, rate, priority } => {
                return change::moves::pace(view, me, names, (*rate, *priority));
            }
            Request::SetConfigEpoch(epoch) => change::set_config_epoch(view, me, *epoch),
            Request::Meet(host, port) => {
                let find = |operator: &mut Operator| operator.node_at(host, *port);
                let other = self.patiently(find, || {
                    Refused::Wrong(format!(
                        "No living node of this coordinator and cluster-name announces {host}:{port}"
                    ))
                })?;
                let (theirs, _) = self.view_of(other)?;
                return change::meet(view, &theirs, |copy| Ok(self.view_of(copy)?.1));
            }
            Request::Replicate { primary, has_keys } => {
                change::replicate(view, me, *primary, *has_keys)
            }
            Request::StandAlone => return change::stand_alone(view, me, Id::draw(os_random)),
            Request::Forget(copy) => {
                if view.topology.value.shard_of(*copy).is_none() {
                    let home = self.client.range(&self.keys.home(*copy), None).map_err(away)?;
                    // It has left by RESET, perhaps.
                    return if home.items.is_empty() { Err(unknown(*copy)) } else { Ok(None) };
                }
                let (_, home) = self.view_of(*copy)?;
                change::forget(view, me, *copy, Id::draw(os_random), home)
            }
            Request::Reset { has_keys } => change::reset(view, me, Id::draw(os_random), home, *has_keys),
            Request::Switch => change::ask_switch(view, me),
            Request::HandOver => match leave::successor(self.engine, view, me) {
                Some(to) => change::ask_leave(view, to),
                None => return Ok(None),
            },
            Request::Define(_) | Request::Together(_) => return Ok(None),
            Request::TakeOver => {
                let shard = view.topology.value.shard_of(me).ok_or_else(|| unknown(me))?;
                match view.is_alive(shard.holder) {
                    true => change::ask_switch(view, me),
                    false => promotion::recover(view, shard, me).ok_or_else(|| {
                        let why = "This server has no lease at the coordinator, try again";
                        Refused::Wrong(why.into())
                    }),
                }
            }
        }
        .map(Some)
    }

    /// Asks until there is an answer: a node that was just started is known at the coordinator a
    /// moment later.
    fn patiently<T>(
        &mut self,
        mut ask: impl FnMut(&mut Operator) -> Result<Option<T>, Refused>,
        absent: impl FnOnce() -> Refused,
    ) -> Result<T, Refused> {
        let began = Instant::now();
        loop {
            match ask(self)? {
                Some(answer) => return Ok(answer),
                None if began.elapsed() > PATIENCE => return Err(absent()),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Returns the database of a copy, and the revision of its home.
    fn view_of(&mut self, copy: Id) -> Result<(View, Revision), Refused> {
        let unreadable = |why: String| Refused::Wrong(format!("The coordinator's values: {why}"));
        let home = |operator: &mut Operator| {
            let range = operator.client.range(&operator.keys.home(copy), None).map_err(away)?;
            Ok(range.items.into_iter().next())
        };
        let absent = || Refused::Wrong(format!("The node {copy} is in no cluster yet, try again"));
        let item = self.patiently(home, absent)?;
        let database = view::read_home(&item.value).map_err(|error| unreadable(error.0))?;
        let range = self.client.range(&self.keys.database(database), None).map_err(away)?;
        let view = View::decode(&self.keys, database, &range);
        let view = view.map_err(|error| unreadable(error.0))?;
        let view = view.ok_or_else(|| unknown(copy))?;
        check_writer(view.topology.value.least_writer).map_err(Refused::Wrong)?;
        Ok((view, item.revision))
    }

    /// Returns the living node with this address. If the server there says its name, that counts:
    /// the lease of one that was there before may not have ended.
    fn node_at(&mut self, host: &str, port: u16) -> Result<Option<Id>, Refused> {
        let prefix = format!("/dunlin/{}/db/", self.cluster);
        let range = self.client.range(&prefix, None).map_err(away)?;
        let hosts = (host, port).to_socket_addrs().into_iter().flatten();
        let hosts: BTreeSet<String> = hosts.map(|address| address.ip().to_string()).collect();
        let lease_of = |copy: Id| {
            let end = format!("/alive/{copy}");
            let alive = range.items.iter().find(|item: &&Item| item.key.ends_with(&end));
            alive.map(|item| item.revision)
        };
        let said = ask_name(host, port);
        let topologies = range.items.iter().filter(|item| item.key.ends_with("/topology"));
        let copies = topologies
            .filter_map(|item| Topology::decode(&item.value).ok())
            .flat_map(|topology| topology.shards)
            .flat_map(|shard| shard.copies);
        let found = copies.filter(|copy| match said {
            Some(said) => copy.id == said,
            None => {
                let address = &copy.address;
                let is_host = address.host == host || address.hostname == host;
                (is_host || hosts.contains(&address.host)) && address.has_port(port)
            }
        });
        let living = found.filter_map(|copy| Some((lease_of(copy.id)?, copy.id)));
        Ok(living.max().map(|(_, id)| id))
    }
}

/// Asks the server at this address for its name. `None`: it wants TLS or a password, or does not
/// answer.
fn ask_name(host: &str, port: u16) -> Option<Id> {
    let connector = Connector::plain(Patience::Until(Instant::now() + QUESTION));
    let mut client = connector.open(&Address::tcp(host, port)).ok()?;
    client.ask(&["CLUSTER", "MYID"]).ok()?.text().parse().ok()
}
