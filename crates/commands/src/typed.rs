//! Values of module types (documents, filters, sketches) as commands ask for them.

use engine::{Db, Error, Key};
use keyspace::Value;
use rdb::module::{self, Module};

/// Returns the value of a key, of a type of its own.
pub(crate) fn read<'d, T: module::Value>(
    db: &'d Db<'_>,
    key: Key<'_>,
) -> Result<Option<&'d T>, Error> {
    let module = db.read::<Module>(key)?;
    module.map(|module| module.get().ok_or(Error::WrongType)).transpose()
}

/// The same of a key that the command goes on to change.
pub(crate) fn read_for_write<'d, T: module::Value>(
    db: &'d Db<'_>,
    key: Key<'_>,
) -> Result<Option<&'d T>, Error> {
    let module = db.object_for_write::<Module>(key)?;
    module.map(|module| module.get().ok_or(Error::WrongType)).transpose()
}

/// Returns the value of a key to change it in place.
pub(crate) fn write<'d, T: module::Value>(
    db: &'d mut Db<'_>,
    key: Key<'_>,
) -> Result<Option<&'d mut T>, Error> {
    let module = db.write::<Module>(key)?;
    module.map(|module| module.get_mut().ok_or(Error::WrongType)).transpose()
}

/// Creates a key that was found to be absent.
pub(crate) fn create(db: &mut Db<'_>, key: Key<'_>, value: impl module::Value) {
    db.put(key, Value::Module(Module::new(value)), None);
}

/// Returns how many bytes a filter or sketch may have: as many as it has elsewhere, where it is
/// repeated.
pub(crate) fn limit(db: &Db<'_>, config: &config::Config) -> usize {
    if db.repeats_history() { usize::MAX } else { config.bf_max_memory() }
}
