//! Copies that come to a shard and leave it, as transactions on the database and its topology. No
//! I/O but for [`Of::let_go`], which asks the copies.

use crate::change::{Step, address};
use crate::keys::SiteKeys;
use crate::site::{Database, Placed, Site, encode, unchanged};
use crate::store::put;
use crate::switch;
use crate::unplaced;
use cluster::change::{add_copy, add_shard, remove_copy, remove_shard};
use cluster::coordinator::Transaction;
use cluster::id::Id;
use cluster::slots::Slots;
use cluster::topology::Shard;
use cluster::view::{At, View};

/// A database as it was read.
#[derive(Clone, Copy)]
pub struct Of<'a> {
    /// Keys of nodes and databases.
    pub keys: &'a SiteKeys,
    /// The database's name.
    pub name: &'a str,
    /// The database.
    pub at: &'a At<Database>,
    /// Its topology.
    pub view: &'a View,
}

impl Of<'_> {
    /// Returns the shard with this number, known by its copies.
    pub fn shard(&self, number: usize) -> Option<&Shard> {
        let copies = self.at.value.copies.iter().filter(|placed| placed.shard == number);
        let mut found = copies.filter_map(|it| self.view.topology.value.shard_of(it.copy));
        found.next()
    }

    /// Gives a shard another copy. `None`: the topology has no such shard.
    pub fn add(&self, site: &Site, new: &Placed) -> Option<Transaction> {
        let shard = self.shard(new.shard)?.id;
        let mut transaction =
            add_copy(self.view, shard, new.copy, address(&self.at.value.settings, new))?;
        self.place(site, std::slice::from_ref(new), &mut transaction);
        Some(transaction)
    }

    /// Adds a shard of these copies, the first of which leads. `None`: there are none.
    pub fn add_shard(&self, site: &Site, new: &[Placed]) -> Option<Transaction> {
        let copies = new.iter();
        let copies = copies.map(|it| (it.copy, address(&self.at.value.settings, it))).collect();
        let shard = Shard::planned(crate::change::draw(), Slots::default(), copies)?;
        let mut transaction = add_shard(self.view, shard);
        self.place(site, new, &mut transaction);
        Some(transaction)
    }

    fn place(&self, site: &Site, new: &[Placed], transaction: &mut Transaction) {
        let mut copies = self.at.value.copies.clone();
        copies.extend_from_slice(new);
        copies.sort_by_key(|placed| placed.shard);
        self.replace(copies, transaction);
        transaction.compares.push(unchanged(self.keys.placement(), site.placement));
        transaction.changes.push(put(self.keys.placement(), self.name.into()));
    }

    /// Tells the nodes of copies to end them, with their files.
    pub fn end(&self, gone: &[Id]) -> Transaction {
        let mut copies = self.at.value.copies.clone();
        for placed in copies.iter_mut().filter(|placed| gone.contains(&placed.copy)) {
            placed.is_leaving = true;
        }
        let mut transaction = Transaction::default();
        self.replace(copies, &mut transaction);
        transaction
    }

    /// Ends a copy as soon as no other sends it requests. Until then the step waits, at this
    /// percent.
    pub fn let_go(&self, copy: Id, percent: u8) -> Step {
        match switch::still_sent_to(&self.at.value, self.view, copy) {
            Some(text) => Step::Waits(percent, text),
            None => Step::Changes(self.end(&[copy])),
        }
    }

    /// Takes a copy that has ended out of everything. `None`: it has a lease, or its shard has no
    /// primary.
    pub fn take_out(&self, site: &Site, copy: Id) -> Option<Transaction> {
        let mut transaction = remove_copy(self.view, copy)?;
        self.displace(site, |placed| placed.copy == copy, &mut transaction);
        Some(transaction)
    }

    /// Takes a shard whose copies have ended out of everything. `None`: a copy has a lease, or
    /// there are slots.
    pub fn take_out_shard(&self, site: &Site, number: usize) -> Option<Transaction> {
        let mut transaction = match self.shard(number) {
            Some(shard) => remove_shard(self.view, shard.id)?,
            None => Transaction::default(),
        };
        self.displace(site, |placed| placed.shard == number, &mut transaction);
        Some(transaction)
    }

    /// Takes copies out of the database. Nodes that are away find an order to end theirs.
    fn displace(
        &self,
        site: &Site,
        is_out: impl Fn(&Placed) -> bool,
        transaction: &mut Transaction,
    ) {
        let (out, kept): (Vec<Placed>, Vec<Placed>) =
            self.at.value.copies.iter().cloned().partition(|placed| is_out(placed));
        let away = out.iter().filter(|placed| !site.is_alive(&placed.machine));
        let order = |it: &Placed| unplaced::gone(self.keys, it.copy, &it.machine, self.name);
        transaction.changes.extend(away.map(order));
        self.replace(kept, transaction);
    }

    fn replace(&self, copies: Vec<Placed>, transaction: &mut Transaction) {
        self.put(&Database { copies, ..self.at.value.clone() }, transaction);
    }

    /// Adds the new value of the database to a transaction, which compares the old one.
    pub fn put(&self, database: &Database, transaction: &mut Transaction) {
        let key = self.keys.database(self.name);
        transaction.compares.push(unchanged(key.clone(), self.at.revision));
        transaction.changes.push(put(key, encode(database)));
    }
}
