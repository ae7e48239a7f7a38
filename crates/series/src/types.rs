//! What the type is for files and the keyspace.

use crate::Series;
use crate::file::{self, NAME, VERSION};
use crate::redis_file::REDIS_VERSION;
use rdb::module::{Type, Value, Writer};
use std::sync::Arc;
use structs::labels::Labels;

/// The row of the type.
pub static SERIES: Type = Type {
    name: NAME,
    version: VERSION,
    reads: &[VERSION, REDIS_VERSION],
    load: |from, version| Ok(Box::new(file::load(from, version)?)),
};

impl Value for Series {
    fn row(&self) -> &'static Type {
        &SERIES
    }
    fn save(&self, to: &mut Writer<'_>) {
        Series::save(self, to);
    }
    fn duplicate(&self) -> Box<dyn Value> {
        Box::new(self.clone())
    }
    fn allocated_bytes(&self) -> usize {
        size_of::<Series>() + Series::allocated_bytes(self)
    }
    fn free_effort(&self) -> usize {
        1 + 2 * self.chunks().len()
    }
    fn elements(&self) -> usize {
        1 + self.count()
    }
    fn labels(&self) -> Option<&Arc<Labels>> {
        Some(Series::labels(self))
    }
}
