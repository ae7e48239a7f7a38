//! The commands of the group `generic`, one file each or a tight family.

mod copy;
mod del;
mod dump;
mod element_scan;
mod exists;
pub(crate) mod expire;
mod keys;
mod migrate;
mod move_key;
mod object;
mod persist;
mod randomkey;
mod rename;
pub(crate) mod scan;
mod sort;
pub(crate) mod ttl;
mod type_of;
mod wait;

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &wait::WAITAOF,
    &wait::WAIT,
    &sort::SORT_RO,
    &sort::SORT,
    &migrate::MIGRATE,
    &dump::RESTORE,
    &dump::RESTORE_ASKING,
    &dump::DUMP,
    &element_scan::ZSCAN,
    &element_scan::HSCAN,
    &element_scan::SSCAN,
    &object::OBJECT,
    &move_key::MOVE,
    &copy::COPY,
    &rename::RENAMENX,
    &rename::RENAME,
    &randomkey::RANDOMKEY,
    &scan::SCAN,
    &keys::KEYS,
    &persist::PERSIST,
    &ttl::PEXPIRETIME,
    &ttl::EXPIRETIME,
    &ttl::PTTL,
    &ttl::TTL,
    &expire::PEXPIREAT,
    &expire::EXPIREAT,
    &expire::PEXPIRE,
    &expire::EXPIRE,
    &type_of::TYPE,
    &exists::TOUCH,
    &exists::EXISTS,
    &del::UNLINK,
    &del::DEL,
];
