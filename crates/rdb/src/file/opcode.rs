//! The bytes that stand in a file where a value's type could.

/// The state of a slot that is being moved (Valkey 9.0, cluster mode).
pub const SLOT_IMPORT: u8 = 243;
/// Metadata of the slot that the following keys are in (Redis 7.4 and later, cluster mode).
pub const SLOT_INFO: u8 = 244;
/// A library of functions, as source text.
pub const FUNCTION2: u8 = 245;
/// A function in the form of the release candidates of Redis 7.0, which no release reads.
pub const FUNCTION_PRE_GA: u8 = 246;
/// What a module stores outside of keys.
pub const MODULE_AUX: u8 = 247;
/// Seconds since the next key's last access.
pub const IDLE: u8 = 248;
/// The next key's logarithmic access counter.
pub const FREQ: u8 = 249;
/// A field of metadata: a name and a value.
pub const AUX: u8 = 250;
/// How many keys, and how many that expire, the database has.
pub const RESIZE_DB: u8 = 251;
/// The next key's expiry in milliseconds.
pub const EXPIRE_TIME_MS: u8 = 252;
/// The next key's expiry in seconds (Redis before 2.6).
pub const EXPIRE_TIME: u8 = 253;
/// The following keys are in this database.
pub const SELECT_DB: u8 = 254;
/// The end; a checksum follows from version 5 on.
pub const EOF: u8 = 255;
