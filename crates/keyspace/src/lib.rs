//! The keyspace: entries, stripes, expiry, eviction, and the lock that stops the world.
//!
//! ```text
//!  Keyspace ── World                      access to everything (big-reader lock)
//!     └─ 1024 × Stripe ── lock            access to this stripe
//!           └─ database ── Table<Entry>   key → entry, in the order of hashes
//!              (or slot)└── Table<Expiring> the entries that have an expiry
//! ```
//!
//! What must *not* be here: commands, replies, sockets, a clock (time is an argument), effects.

pub mod access;
mod by_slot;
mod byte_lock;
pub mod cold;
pub mod collection;
mod enclosing;
pub mod entry;
pub mod field_times;
pub mod holds;
pub mod keyspace;
pub mod kind;
pub mod locks;
pub mod opened;
pub mod outgrown;
pub mod relocate;
mod slot_bits;
pub mod slots;
pub mod snapshot;
pub mod stripe;
pub mod tables;
mod thaw;
pub mod types;
pub mod world;

pub use cold::{ColdError, ColdLocation, ColdRef, ColdStore};
pub use collection::Collection;
pub use entry::{CollectionView, Entry, Slots, StringRef, View};
pub use holds::{HeldEntry, Hold};
pub use keyspace::Keyspace;
pub use kind::{Fillable, Kind, Object, Value, Whole};
pub use locks::Locks;
pub use slot_bits::SlotBits;
pub use stripe::{Stripe, StripeData, StripeGuard};
pub use structs::heap_string::HeapString;
pub use structs::memory;
pub use tables::TableId;
pub use thaw::{Moved, Record};
pub use types::{DbIndex, Key, Millis, Slot};
pub use world::World;
