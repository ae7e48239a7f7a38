//! The thread of a node: its lease, what the site says of this machine, and the copies.

use crate::bus;
use crate::change;
use crate::copies::Copies;
use crate::leaders::Leaders;
use crate::sealed;
use crate::settings::Wrong;
use crate::shared::Shared;
use crate::site::{CopyReport, Machine, MachineAlive, Site, encode, unchanged};
use crate::store::{Store, put, put_with};
use crate::unplaced::{self, Gone};
use cluster::Moment;
use cluster::coordinator::{
    Change, Failure, LeaseCall, LeaseId, LeaseReply, Outcome, Revision, Transaction,
};
use cluster::id::Id;
use cluster::view::At;
use process::log;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a lease lasts.
const TTL: Moment = Moment::from_secs(6);

/// How long a call to etcd may take: a small part of the lease.
const CALL: Moment = Moment::from_secs(2);

/// How long after a renewal the next one is sent.
const RENEWAL: Duration = Duration::from_millis(1500);

/// How long the thread waits for changes before it looks at the processes.
const LOOK: Moment = Moment::from_millis(200);

/// The same while copies wait for others to start.
const LOOK_STARTING: Moment = Moment::from_millis(20);

/// How often the directories of copies are looked at for what they have kept of data that were
/// given up.
const RESCUE_LOOK: Duration = Duration::from_secs(2);

/// How often everything is read although no change was seen.
const REREAD: Duration = Duration::from_secs(10);

/// Values that are written anew at a time.
const MAX_SEALED: usize = 16;

/// Orders to end copies that are removed at a time.
const MAX_FORGOTTEN: usize = 100;

/// See the head of this file.
pub struct Daemon {
    shared: Arc<Shared>,
    store: Store,
    name: String,
    machine: Machine,
    copies: Copies,
    lease: Option<LeaseId>,
    renewed: Option<Instant>,
    read: Option<Instant>,
    site: Arc<Site>,
    /// What the site has of this machine.
    said: Option<MachineAlive>,
    is_lost: bool,
    /// The servers of etcd are asked for their names: they are ours.
    learns_servers: bool,
    unknown: BTreeSet<PathBuf>,
    notes: Vec<String>,
    /// Notes that another node may write as well.
    shared_notes: Vec<String>,
    /// What needs an operator, as it was said.
    warnings: Vec<String>,
    leaders: Leaders,
    /// When directories of copies were looked at for data that were given up.
    looked: Option<Instant>,
}

impl Daemon {
    /// For a machine with these copies.
    pub fn new(
        shared: Arc<Shared>,
        machine: Machine,
        copies: Copies,
        learns_servers: bool,
    ) -> Daemon {
        let (store, name) = (shared.store(CALL), shared.machine.clone());
        Daemon {
            shared,
            store,
            name,
            machine,
            copies,
            lease: None,
            renewed: None,
            read: None,
            site: Arc::default(),
            said: None,
            is_lost: false,
            learns_servers,
            unknown: BTreeSet::new(),
            notes: Vec::new(),
            shared_notes: Vec::new(),
            warnings: Vec::new(),
            leaders: Leaders::default(),
            looked: None,
        }
    }

    /// Registers the machine, as long as it takes; etcd may still be about to start.
    ///
    /// # Errors
    /// Another machine has the name, or etcd stays away.
    pub fn register(&mut self, patience: Duration) -> Result<(), Wrong> {
        let began = Instant::now();
        loop {
            match self.renew().and_then(|()| self.look()) {
                Ok(()) => {
                    self.check_name()?;
                    // From now on the machine can be given copies.
                    if self.say().is_ok() && self.said.is_some() {
                        return Ok(());
                    }
                }
                Err(Failure::Away(why)) if began.elapsed() >= patience => {
                    return Err(Wrong(format!("etcd does not answer: {why}")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn check_name(&self) -> Result<(), Wrong> {
        let has = |text: &str| self.site.problems.iter().any(|problem| problem.contains(text));
        if has(sealed::NO_KEY) {
            return Err(Wrong(sealed::NO_KEY.into()));
        }
        // One value may be damaged. A node that can read none would end all copies of its pod.
        if has(sealed::OTHER_KEY) && self.site.databases.is_empty() {
            return Err(Wrong(sealed::OTHER_KEY.into()));
        }
        let other = self.site.machines.get(&self.name);
        match other.filter(|known| known.spec.value.id != self.machine.id) {
            Some(known) if known.alive.is_some() => Err(Wrong(format!(
                "a machine named '{}' is in the cluster already ({}): take another --machine",
                self.name, known.spec.value.host
            ))),
            Some(_) if self.site.placed_on(&self.name).next().is_some() => Err(Wrong(format!(
                "a machine named '{}' is in the cluster already, and copies are placed on it. If this is \
                 that machine, start the node with its old --dir; otherwise take another --machine",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    /// Does the work until `is_over`. Copies go on.
    pub fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) && !self.has_ended_copies() {
            let known = self.site.machines.get(&self.name);
            if known.is_some_and(|known| known.is_removed && known.spec.value.id == self.machine.id)
                && !is_over.swap(true, Ordering::Relaxed)
            {
                log!(Notice, "This machine was removed from the cluster");
            }
            if let Err(failure) = self.turn() {
                self.lose(&failure);
            }
            self.tend();
        }
        if let Some(lease) = self.lease {
            // Without it the lease ends by itself, a little later.
            let _ = self.store.lease(LeaseCall::Revoke(lease));
        }
    }

    /// Ends the copies if the node is to take them with it. Returns whether all have ended.
    fn has_ended_copies(&mut self) -> bool {
        if !self.shared.ends_copies() {
            return false;
        }
        self.copies.end_all();
        self.tend();
        self.copies.is_empty()
    }

    /// Looks after the processes. A process that has ended confirms nothing any more, so its shard
    /// need not wait until its lease ends.
    fn tend(&mut self) {
        self.copies.tend(Instant::now());
        for copy in self.copies.take_ended() {
            let released = if self.is_lost { Ok(false) } else { self.store.release(copy) };
            match released {
                Ok(true) => log!(Notice, "Copy {copy:?} gives its lease up"),
                // Its lease ends by itself.
                Ok(false) => {}
                Err(why) => log!(Warning, "Copy {copy:?} keeps its lease until it ends: {why}"),
            }
        }
    }

    fn turn(&mut self) -> Result<(), Failure> {
        if self.renewed.is_none_or(|at| at.elapsed() >= RENEWAL) {
            self.renew()?;
        }
        if self.read.is_none_or(|at| at.elapsed() >= REREAD) {
            if self.learns_servers {
                let (_, members) = self.store.health()?;
                let urls = members.into_iter().flat_map(|member| member.client_urls);
                self.copies.set_coordinator(urls.collect());
            }
            self.look()?;
        }
        self.say()?;
        self.notes.extend(self.leaders.look(&self.name, &self.site, &mut self.store));
        if self.looked.is_none_or(|at| at.elapsed() >= RESCUE_LOOK) {
            self.looked = Some(Instant::now());
            self.notes.extend(self.copies.rescued());
        }
        for note in std::mem::take(&mut self.notes) {
            self.store.note(&note);
        }
        for note in std::mem::take(&mut self.shared_notes) {
            self.store.note_once(&note);
        }
        let look = if self.copies.has_waiting() { LOOK_STARTING } else { LOOK };
        match self.store.watch(self.site.revision, look) {
            Ok(changes) if changes.keys.is_empty() => Ok(()),
            Ok(_) | Err(Failure::Compacted(_)) => self.look(),
            Err(failure) => Err(failure),
        }
    }

    fn renew(&mut self) -> Result<(), Failure> {
        let call = self.lease.map_or(LeaseCall::Grant(TTL), LeaseCall::Renew);
        match self.store.lease(call)? {
            LeaseReply::Held { id, .. } => {
                self.lease = Some(id);
                self.renewed = Some(Instant::now());
            }
            LeaseReply::Gone => {
                log!(Warning, "The lease of this node has ended; it takes another one");
                (self.lease, self.said) = (None, None);
            }
        }
        Ok(())
    }

    /// Writes a database again that is to be taken up, if one of its copies is here. Returns
    /// whether something has changed.
    fn write_again(&mut self, site: &Site) -> Result<bool, Failure> {
        if site.taken_up.is_empty() {
            return Ok(false);
        }
        let views = self.store.views().map_err(|why| Failure::Away(why.to_string()))?;
        let keys = (&self.store.keys, &self.store.copies);
        let known = |name: &str| self.copies.known(name);
        let has_topology = |database: Id| views.contains_key(&database);
        let due = unplaced::write_again(site, keys, known, has_topology);
        let Some((name, transaction)) = due else { return Ok(false) };
        if let Outcome::Done(_) = self.commit(&transaction)? {
            log!(Notice, "Database '{name}' is at etcd again");
        }
        Ok(true)
    }

    /// Reads the site.
    fn look(&mut self) -> Result<(), Failure> {
        let mut site = self.store.read()?;
        // Before the copies are started: they announce the address.
        let (name, host) = (self.name.clone(), self.machine.host.clone());
        let known = site.machines.get(&name);
        let is_mine = known.is_some_and(|known| known.spec.value.id == self.machine.id);
        let relocated = change::relocate(&site, &self.store.keys, &name, &host);
        if let Some(transaction) = relocated.filter(|_| is_mine) {
            if let Outcome::Done(_) = self.commit(&transaction)? {
                let text = format!("machine '{name}' is at {host} from now on");
                log!(Notice, "{text}");
                self.notes.push(text);
            }
            site = self.store.read()?;
        }
        if self.write_again(&site)? {
            site = self.store.read()?;
        }
        sealed::set_active(site.can_seal());
        if site.rank(&self.name) == Some(0) && !site.clear.is_empty() {
            self.seal(&site.clear)?;
        }
        let mut warnings = site.warnings(&self.store.keys);
        warnings.extend(bus::warnings(&site));
        for warning in warnings.iter().filter(|it| !self.warnings.contains(it)) {
            log!(Warning, "{warning}");
            self.shared_notes.push(warning.clone());
        }
        self.warnings = warnings;
        self.read = Some(Instant::now());
        self.note_lost(&site);
        self.site = Arc::new(site);
        // From then on a copy that has ended would be started again.
        if !self.shared.ends_copies() {
            self.copies.want(&self.site, &self.name);
            self.tend();
            self.forget_gone()?;
        }
        self.find_unknown();
        if std::mem::take(&mut self.is_lost) {
            log!(Notice, "etcd is there again");
        }
        self.shared.publish(Arc::clone(&self.site), self.lease);
        Ok(())
    }

    /// Writes what has changed of this machine.
    fn say(&mut self) -> Result<(), Failure> {
        let Some(lease) = self.lease else { return Ok(()) };
        let (id, copies) = (self.machine.id.clone(), self.copies.reports(&self.shared.troubles()));
        let (is_ending, disk_error) = (self.shared.is_leaving(), self.shared.disk().error);
        let has_webhook = self.shared.has_webhook();
        let alive = MachineAlive { id, lease, copies, is_ending, disk_error, has_webhook };
        let known = self.site.machines.get(&self.name);
        let is_known = known.is_some_and(|known| known.spec.value == self.machine);
        if is_known && self.said.as_ref() == Some(&alive) {
            return Ok(());
        }
        let keys = &self.store.keys;
        let revision = known.map_or(0, |known| known.spec.revision);
        let transaction = Transaction {
            compares: vec![unchanged(keys.machine(&self.name), revision)],
            changes: vec![
                put(keys.machine(&self.name), encode(&self.machine)),
                put_with(keys.alive(&self.name), encode(&alive), lease),
            ],
        };
        match self.commit(&transaction)? {
            Outcome::Done(_) => {
                self.note_ends(&alive.copies);
                self.note_disk(&alive.disk_error);
                if self.said.is_none() {
                    self.notes.push(format!("machine '{}' is there", self.name));
                }
                self.said = Some(alive);
            }
            Outcome::Conflict => self.renewed = None,
        }
        self.look()
    }

    /// Notes machines whose nodes have a lease no more. Two of those that are left see to it: one may
    /// be just about to come or go.
    fn note_lost(&mut self, site: &Site) {
        if site.rank(&self.name).is_none_or(|rank| rank > 1) {
            return;
        }
        let is_lost = |name: &&String| self.site.is_alive(name) && !site.is_alive(name);
        for name in site.machines.keys().filter(is_lost) {
            let how = if self.site.is_ending(name) { "has gone down" } else { "is gone" };
            self.shared_notes.push(format!("the node of machine '{name}' {how}"));
        }
    }

    /// Notes that the disk of this machine is full, and that it is not any more.
    fn note_disk(&mut self, error: &str) {
        let before = self.said.as_ref().map_or("", |said| &said.disk_error);
        if before == error {
            return;
        }
        let what = match error {
            "" => "has room on its disk again".to_owned(),
            error => format!("has trouble with its disk: {error}"),
        };
        self.notes.push(format!("machine '{}' {what}", self.name));
    }

    /// Notes copies that have ended, disks that refuse something, and links that are lost.
    fn note_ends(&mut self, reports: &[CopyReport]) {
        let before = self.said.as_ref().map(|said| &*said.copies).unwrap_or_default();
        for report in reports {
            let old = before.iter().find(|old| old.copy == report.copy);
            if old.is_some_and(|old| report.restarts > old.restarts) {
                self.leaders.hurry();
                let CopyReport { copy, database, note, .. } = report;
                self.notes
                    .push(format!("copy {copy:?} of database '{database}' has ended: {note}"));
            }
            let disks = (&*report.disk_error, old.map_or("", |old| &old.disk_error));
            let links = (&*report.link_error, old.map_or("", |old| &old.link_error));
            let of_disk = ("can write to its disk again", "has trouble with its disk");
            let of_link = ("has its primary again", "has lost its primary");
            for ((now, was), (good, bad)) in [(disks, of_disk), (links, of_link)] {
                let what = match now {
                    now if now == was => continue,
                    "" => good.to_owned(),
                    error => format!("{bad}: {error}"),
                };
                let CopyReport { copy, database, .. } = report;
                self.notes.push(format!("copy {copy:?} of database '{database}' {what}"));
            }
        }
    }

    /// Writes values anew whose passwords are in clear. Others do it when they change them.
    fn seal(&mut self, clear: &[(String, Revision, Vec<u8>)]) -> Result<(), Failure> {
        for (key, revision, value) in clear.iter().take(MAX_SEALED) {
            let compares = vec![unchanged(key.clone(), *revision)];
            let changes = vec![put(key.clone(), value.clone())];
            self.commit(&Transaction { compares, changes })?;
        }
        Ok(())
    }

    /// Removes the orders to end copies that have ended.
    fn forget_gone(&mut self) -> Result<(), Failure> {
        let is_over = |(copy, at): &(&Id, &At<Gone>)| {
            at.value.machine == self.name && !self.copies.has(**copy)
        };
        let over: Vec<Id> = self.site.gone.iter().filter(is_over).map(|(copy, _)| *copy).collect();
        if over.is_empty() {
            return Ok(());
        }
        let delete = |copy: &Id| Change::Delete { key: self.store.keys.gone(*copy) };
        let changes = over.iter().take(MAX_FORGOTTEN).map(delete).collect();
        self.commit(&Transaction { changes, ..Transaction::default() }).map(drop)
    }

    /// Makes a transaction. One that this version may not make is left out, as if others had been
    /// faster: the site's warnings say why, and etcd is not away.
    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        match self.store.commit(transaction) {
            Err(Failure::Unreadable(_)) => Ok(Outcome::Conflict),
            outcome => outcome,
        }
    }

    fn find_unknown(&mut self) {
        for path in self.copies.unknown() {
            if self.unknown.insert(path.clone()) {
                let text = format!("{} belongs to no database of the cluster", path.display());
                log!(Warning, "{text}; it is left alone");
                self.notes.push(text);
            }
        }
    }

    fn lose(&mut self, failure: &Failure) {
        let why = match failure {
            Failure::Away(why) => why.clone(),
            Failure::Compacted(_) => "its history is compacted".into(),
            Failure::Unreadable(why) => why.clone(),
        };
        let why = match &*self.shared.disk().error {
            "" => why,
            error => format!("{why}; {error}"),
        };
        if !std::mem::replace(&mut self.is_lost, true) {
            log!(Warning, "etcd is away: {why}");
        }
        self.shared.lose(why);
        (self.read, self.renewed) = (None, None);
        std::thread::sleep(Duration::from_millis(100));
    }
}
