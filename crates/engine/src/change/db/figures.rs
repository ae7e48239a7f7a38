//! Figures of whole databases, for INFO and its like; see [`KeyFigures`].

use super::Db;
use crate::scripts::KeyFigures;
use keyspace::DbIndex;

impl Db<'_> {
    /// The figures of a database. For commands with `Flags::WALKS`; where a stripe cannot be had
    /// and no script has left its figures the [visit has failed](Db::visit).
    pub fn figures(&self, db: DbIndex) -> KeyFigures {
        let mut sum = KeyFigures::default();
        for index in 0..self.engine.keyspace.stripes().len() {
            sum.add(&self.figures_of_stripe(index, db));
        }
        sum
    }

    /// The same of one stripe.
    pub fn figures_of_stripe(&self, index: usize, db: DbIndex) -> KeyFigures {
        let now = self.now;
        let seen = self.try_visit(index, |data| KeyFigures::of(data, db, now));
        let seen = seen.or_else(|| self.engine.scripts.figures.get(index, db));
        seen.or_else(|| self.visit(index, |data| KeyFigures::of(data, db, now))).unwrap_or_default()
    }

    /// Number of keys in a database, but for those in stripes that are locked.
    pub fn rough_key_count(&self, db: DbIndex) -> usize {
        let stripes = 0..self.engine.keyspace.stripes().len();
        stripes.filter_map(|index| self.try_visit(index, |data| data.key_count(db))).sum()
    }

    /// Number of keys in a database.
    pub fn key_count(&self, db: DbIndex) -> usize {
        let mut count = 0;
        for index in 0..self.engine.keyspace.stripes().len() {
            let seen = self.try_visit(index, |data| data.key_count(db));
            count += seen.unwrap_or_else(|| self.figures_of_stripe(index, db).keys);
        }
        count
    }
}
