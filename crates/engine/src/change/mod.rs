//! What a command works with: its context, one database, and the commit of what it did.

pub mod commit;
pub mod cx;
pub mod db;
pub mod effects;
pub mod field_expiry;
pub mod held_keys;
pub mod load;
pub mod outbox;
pub mod staging;
pub mod tier;
