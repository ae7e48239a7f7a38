//! This server's data as the decisions know it: its name, how far it goes, and which
//! acknowledgements count.
//!
//! The name is on the disk (`persistence::incarnation`) and changes before data are discarded. A
//! full synchronisation and the freeze of an epoch exclude each other: what a copy has said that it
//! holds, it does not discard until it follows another primary.

use super::promises::Promises;
use super::rescue;
use crate::log;
use crate::persistence::incarnation;
use cluster::copy::{Copy, Facts, Role};
use cluster::id::{Epoch, Id, Incarnation, Position};
use cluster::topology::Holder;
use config::Config;
use engine::Engine;
use engine::epochs::Leadership;
use engine::votes::{Keeper, Rule};
use replication::promise::{Promise, Question};
use replication::replica::Stage;
use replication::vote::Voter;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock};
use structs::sync::lock;

/// Above all epochs that there will be.
const LAST_EPOCH: u64 = u64::MAX - 1;

/// See the head of this file.
pub struct Data {
    engine: &'static Engine,
    me: Id,
    /// Taken after the decisions of the copy (`Promises`), never before.
    kept: Mutex<Kept>,
    promises: OnceLock<Promises>,
}

/// What changes together.
struct Kept {
    name: incarnation::Incarnation,
    /// An epoch is frozen, and no later primary is followed yet.
    is_frozen: bool,
}

impl Kept {
    fn ensure_not_frozen(&self) -> Result<(), String> {
        match self.is_frozen {
            true => Err("this copy has told the cluster what it holds".into()),
            false => Ok(()),
        }
    }
}

/// The copy and its data, as acknowledgements name them.
pub(super) fn voter_of(holder: Holder) -> Voter {
    let id = holder.id.to_string().into_bytes();
    let id = id.try_into().expect("an id is written as 40 digits");
    Voter { id, incarnation: holder.incarnation.0 }
}

/// The same the other way round.
pub(super) fn holder_of(voter: &Voter) -> Option<Holder> {
    let id = str::from_utf8(&voter.id).ok()?.parse().ok()?;
    Some(Holder { id, incarnation: Incarnation(voter.incarnation) })
}

impl Data {
    /// Finds out which data this server has. What there was to load is loaded.
    ///
    /// # Errors
    /// The name cannot be kept on the disk, so nothing may be acknowledged.
    pub(super) fn find(engine: &'static Engine, me: Id) -> std::io::Result<&'static Data> {
        let config = &engine.config;
        let (extent, has_log) = (extent(engine), config.appendonly());
        let name = incarnation::Incarnation::at_start(&path(config), extent, has_log)?;
        let kept = Mutex::new(Kept { name, is_frozen: false });
        let data: &'static Data =
            Box::leak(Box::new(Data { engine, me, kept, promises: OnceLock::new() }));
        data.identify(&data.kept());
        // Nothing counts, and nothing is confirmed by a quorum, before the coordinator says which
        // copies are members.
        data.count(Leadership::default(), Vec::new());
        engine.set_quorum(0);
        engine.votes.keep_by(Box::new(data));
        Ok(data)
    }

    /// These answer when the primary asks, from now on.
    pub(super) fn promise_by(&self, promises: Promises) {
        let _ = self.promises.set(promises);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    fn identify(&self, kept: &Kept) {
        let incarnation = Incarnation(kept.name.name());
        self.engine.votes.identify(voter_of(Holder { id: self.me, incarnation }));
    }

    /// The name.
    pub(super) fn incarnation(&self) -> Incarnation {
        Incarnation(self.kept().name.name())
    }

    /// The names that the data had before restarts.
    fn restored(&self) -> Vec<Incarnation> {
        self.kept().name.former().iter().map(|&name| Incarnation(name)).collect()
    }

    /// Nothing of this epoch is acknowledged any more, and what there is stays.
    pub(super) fn freeze(&self, epoch: Epoch) {
        self.kept().is_frozen = true;
        self.engine.votes.freeze(epoch.0);
    }

    /// A later primary is followed, whose data may replace these.
    pub(super) fn thaw(&self) {
        self.kept().is_frozen = false;
    }

    /// Only acknowledgements of these members count, in this leadership.
    pub(super) fn count(&self, leadership: Leadership, members: Vec<Voter>) {
        self.engine.count_votes(Some(Rule { leadership, members }));
    }

    /// The server ends. If its files are found as far as this is now, the data keep their name.
    pub fn close(&self) {
        self.engine.votes.freeze(LAST_EPOCH);
        let mut kept = self.kept();
        kept.is_frozen = true;
        if let Err(error) = kept.name.close(extent(self.engine)) {
            log!(Warning, "Cluster: the next start cannot tell what this one had: {error}");
        }
    }

    /// What holds now.
    pub(super) fn facts(&self, copy: &Copy) -> Facts {
        let engine = self.engine;
        let link = engine.upstream.link().clone();
        let is_loading = engine.loading.is_on() || engine.loading.is_beside();
        let (epoch, offset) = extent(engine);
        let position = Position { epoch: Epoch(epoch), offset };
        // The keys are looked at only if they may decide.
        let follows = !matches!(copy.role(), Role::Leads(_));
        let has_keys = position != Position::default() || (follows && engine.keyspace.has_keys());
        Facts {
            position,
            has_keys,
            restored: self.restored(),
            is_whole: !is_loading && !link.is_incomplete && link.stage != Stage::Receiving,
            frozen: engine.votes.frozen().map(Epoch),
            is_listed: self.is_linked(copy, link.primary.as_ref()),
            holding: self.holding(copy),
            linked: Vec::new(),
            level: Vec::new(),
            silent: Vec::new(),
        }
    }

    /// Whether the stream comes from the holder: the link may still be the one to the primary
    /// before.
    fn is_linked(&self, copy: &Copy, primary: Option<&(String, u16)>) -> bool {
        let Role::Follows(holder, _) = copy.role() else { return false };
        let view = copy.view();
        let found =
            view.and_then(|view| view.topology.value.copies().find(|it| it.id == holder.id));
        let address = found.map(|copy| &copy.address);
        self.engine.upstream.is_link_up()
            && address.zip(primary).is_some_and(|(address, (host, port))| {
                address.host == *host && address.has_port(*port)
            })
    }

    /// How many members hold all that a quorum may have confirmed.
    fn holding(&self, copy: &Copy) -> usize {
        let leads = matches!(copy.role(), Role::Leads(_));
        let shard = copy.view().and_then(|view| view.topology.value.shard_of(self.me));
        let Some(shard) = shard.filter(|_| leads) else { return 0 };
        let begins_at = self.engine.epochs.last().begins_at;
        let confirmed = self.engine.verdict().confirmed.max(begins_at);
        let mine = Holder { id: self.me, incarnation: self.incarnation() };
        let voters = self.engine.holders_at(confirmed);
        let holders = shard
            .members()
            .filter_map(|copy| Some(voter_of(Holder { id: copy.id, incarnation: copy.member? })));
        holders.filter(|voter| *voter == voter_of(mine) || voters.contains(voter)).count()
    }
}

impl Keeper for &'static Data {
    fn before_discard(&self) -> Result<(), String> {
        self.kept().ensure_not_frozen()?;
        // Without `kept`: the cluster's thread takes it while it has the decisions, and a rescue
        // takes long.
        if let Some(promises) = self.promises.get() {
            let surplus = promises.with_copy(|copy| rescue::surplus(self.engine, copy, self.me));
            surplus.map_or(Ok(()), |surplus| surplus.rescue(self.engine)).map_err(|error| {
                format!("what only this copy has cannot be written to a file: {error}")
            })?;
        }
        let mut kept = self.kept();
        kept.ensure_not_frozen()?;
        kept.name.renew().map_err(|error| format!("its new name cannot be written: {error}"))?;
        self.identify(&kept);
        Ok(())
    }

    fn promise(&self, question: &Question) -> Option<u64> {
        self.promises.get()?.give(question)
    }

    fn promised(&self, promise: &Promise) {
        if let Some(promises) = self.promises.get() {
            promises.take(promise);
        }
    }
}

/// The epoch of the last entry, and where the stream ends.
fn extent(engine: &Engine) -> (u64, u64) {
    let (last, end) = engine.epochs.position(|| engine.journal.position());
    (last.epoch, end.0)
}

/// Beside the file with the copy's own name.
fn path(config: &Config) -> PathBuf {
    let mut name = PathBuf::from(config.cluster_config_file().as_path()).into_os_string();
    name.push(".data");
    name.into()
}
