//! Figures of whole databases, for INFO and its like; see [`KeyFigures`].

use super::Db;
use crate::scripts::KeyFigures;
use keyspace::DbIndex;

impl Db<'_> {
    /// The figures of a database. For commands with `Flags::WALKS`; where a stripe cannot be had
    /// and no script has left its figures the [visit has failed](Db::visit). An operator gets the
    /// last figures that there were then.
    pub fn figures(&self, db: DbIndex) -> KeyFigures {
        if self.is_for_operator {
            return self.figures_for_operator(db);
        }
        let mut sum = KeyFigures::default();
        for index in 0..self.engine.keyspace.stripes().len() {
            sum.add(&self.figures_of_stripe(index, db));
        }
        sum
    }

    /// The same of one stripe.
    pub fn figures_of_stripe(&self, index: usize, db: DbIndex) -> KeyFigures {
        let seen = self.try_figures_of_stripe(index, db);
        let now = self.now;
        seen.or_else(|| self.visit(index, |data| KeyFigures::of(data, db, now))).unwrap_or_default()
    }

    /// The same, if the stripe can be had or a script has left its figures.
    fn try_figures_of_stripe(&self, index: usize, db: DbIndex) -> Option<KeyFigures> {
        let now = self.now;
        let seen = self.try_visit(index, |data| KeyFigures::of(data, db, now));
        seen.or_else(|| self.engine.scripts.figures.get(index, db))
    }

    fn figures_for_operator(&self, db: DbIndex) -> KeyFigures {
        let noted = &self.engine.scripts.figures;
        let Some(figures) = self.try_figures(db) else { return noted.last(db) };
        noted.note_last(db, figures);
        figures
    }

    fn try_figures(&self, db: DbIndex) -> Option<KeyFigures> {
        if self.is_outside {
            return None;
        }
        let mut sum = KeyFigures::default();
        for index in 0..self.engine.keyspace.stripes().len() {
            sum.add(&self.try_figures_of_stripe(index, db)?);
        }
        Some(sum)
    }

    /// Notes the figures of all databases. Operators get these while the present ones cannot be
    /// had.
    pub fn note_figures(&self) {
        for db in self.engine.keyspace.used_databases() {
            if let Some(figures) = self.try_figures(db) {
                self.engine.scripts.figures.note_last(db, figures);
            }
        }
    }

    /// Number of keys in a database, but for those in stripes that are locked.
    pub fn rough_key_count(&self, db: DbIndex) -> usize {
        let stripes = 0..self.engine.keyspace.stripes().len();
        stripes.filter_map(|index| self.try_visit(index, |data| data.key_count(db))).sum()
    }

    /// Number of keys in a database.
    pub fn key_count(&self, db: DbIndex) -> usize {
        if self.is_for_operator {
            return self.figures_for_operator(db).keys;
        }
        let mut count = 0;
        for index in 0..self.engine.keyspace.stripes().len() {
            let seen = self.try_visit(index, |data| data.key_count(db));
            count += seen.unwrap_or_else(|| self.figures_of_stripe(index, db).keys);
        }
        count
    }
}
