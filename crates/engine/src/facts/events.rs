//! What happened to a key: the names and classes of keyspace notifications.
//!
//! A command says `cx.db.changed(key, events::LPUSH)` for every key it changed, once, after the
//! change; `commit` does all that follows from it.

/// A class of keyspace events, as `notify-keyspace-events` names them.
pub use config::KeyspaceEvents as Class;

/// An event: its class and its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The class it is filtered by.
    pub class: Class,
    /// The name it is published under.
    pub name: &'static str,
}

/// Makes an event of some class. Commands declare their own as constants.
pub const fn event(class: Class, name: &'static str) -> Event {
    Event { class, name }
}

/// A key was deleted.
pub const DEL: Event = event(Class::GENERIC, "del");
/// A key's time came.
pub const EXPIRED: Event = event(Class::EXPIRED, "expired");
/// Fields of a hash expired.
pub const HASH_FIELDS_EXPIRED: Event = event(Class::HASH, "hexpired");
/// A key was evicted.
pub const EVICTED: Event = event(Class::EVICTED, "evicted");
/// A key was created.
pub const NEW: Event = event(Class::NEW, "new");
/// A key that was looked up is not there.
pub const KEY_MISS: Event = event(Class::KEY_MISS, "keymiss");
/// An expiry was set.
pub const EXPIRE: Event = event(Class::GENERIC, "expire");
/// An expiry was removed.
pub const PERSIST: Event = event(Class::GENERIC, "persist");
/// A string was set.
pub const SET: Event = event(Class::STRING, "set");
