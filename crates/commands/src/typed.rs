//! Values of module types (documents, filters, sketches) as commands ask for them.

use engine::{Args, Cx, Db, Error, Key};
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

/// What a request creates a value by.
pub(crate) struct TypedOptions<O> {
    /// What the request says; for the rest what the configuration says, or where history is
    /// repeated what the journal says, which is what is built in unless a command says otherwise.
    pub chosen: O,
    /// Whether the request alone makes the same value where history is repeated.
    pub is_usual: bool,
}

impl<O: PartialEq> TypedOptions<O> {
    /// Returns the options that `read` makes of defaults: those of the configuration, or those that
    /// are built in.
    pub fn read(
        cx: &Cx<'_>,
        configured: impl FnOnce(&config::Config) -> O,
        built_in: O,
        read: impl Fn(O) -> Result<O, Error>,
    ) -> Result<TypedOptions<O>, Error> {
        let usual = read(built_in)?;
        if cx.db.repeats_history() {
            return Ok(TypedOptions { chosen: usual, is_usual: true });
        }
        let chosen = read(configured(&cx.engine.config))?;
        let is_usual = chosen == usual;
        Ok(TypedOptions { chosen, is_usual })
    }

    /// Has the journal get a command that creates the value, and behind it the request if that did
    /// more, unless the request alone makes the same value elsewhere.
    pub fn propagate(&self, cx: &mut Cx<'_>, creation: &[Vec<u8>], request: Option<Args<'_>>) {
        if self.is_usual {
            return;
        }
        cx.db.propagate_as(|journal| {
            let words: Vec<&[u8]> = creation.iter().map(|word| &**word).collect();
            journal.command(&words);
            if let Some(request) = request {
                journal.command(request.words());
            }
        });
    }
}

/// How a request has created its value, if it has.
pub(crate) type Created<O> = Option<TypedOptions<O>>;

/// Creates the value that `make` returns for the options and the limit of bytes, if the key is
/// absent. The first item of a request fits, so the value is never left behind empty.
pub(crate) fn create_if_absent<T: module::Value, O: Copy>(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    options: impl FnOnce(&Cx<'_>) -> Result<TypedOptions<O>, Error>,
    make: impl FnOnce(O, usize) -> Result<T, Error>,
) -> Result<Created<O>, Error> {
    if read_for_write::<T>(&cx.db, key)?.is_some() {
        return Ok(None);
    }
    let options = options(cx)?;
    let limit = limit(&cx.db, &cx.engine.config);
    create(&mut cx.db, key, make(options.chosen, limit)?);
    Ok(Some(options))
}

/// Has the journal get how a request has created its value, if the request does not say all of it.
pub(crate) fn propagate_creation<O: Copy + PartialEq>(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    created: Created<O>,
    reservation: impl FnOnce(Key<'_>, O) -> Vec<Vec<u8>>,
) {
    if let Some(options) = created {
        options.propagate(cx, &reservation(args.key(1), options.chosen), Some(args));
    }
}

/// Returns a number as a word.
pub(crate) fn word(number: impl std::fmt::Display) -> Vec<u8> {
    number.to_string().into_bytes()
}
