//! The commands of the group `hash`, one file each or a tight family.

mod all_fields;
mod fields;
mod get_fields;
mod hdel;
mod hexpire;
mod hgetdel;
mod hgetex;
mod hincrby;
mod hpersist;
mod hrandfield;
mod hsetex;
mod httl;
mod set_fields;

use engine::{Command, Db, Error, Key};
use structs::hash::{Hash, Live};

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &hrandfield::HRANDFIELD,
    &hincrby::HINCRBYFLOAT,
    &hincrby::HINCRBY,
    &hdel::HDEL,
    &all_fields::HVALS,
    &all_fields::HKEYS,
    &all_fields::HGETALL,
    &get_fields::HLEN,
    &get_fields::HSTRLEN,
    &get_fields::HEXISTS,
    &get_fields::HMGET,
    &get_fields::HGET,
    &set_fields::HSETNX,
    &set_fields::HMSET,
    &set_fields::HSET,
    &hexpire::HEXPIRE,
    &hexpire::HPEXPIRE,
    &hexpire::HEXPIREAT,
    &hexpire::HPEXPIREAT,
    &httl::HTTL,
    &httl::HPTTL,
    &httl::HEXPIRETIME,
    &httl::HPEXPIRETIME,
    &hpersist::HPERSIST,
    &hgetex::HGETEX,
    &hsetex::HSETEX,
    &hgetdel::HGETDEL,
];

/// The hash of a key, without the fields that have expired.
fn read<'d>(db: &'d Db<'_>, key: Key<'_>) -> Result<Option<Live<'d>>, Error> {
    let horizon = db.horizon().0;
    Ok(db.read::<Hash>(key)?.map(|hash| hash.live(horizon)))
}
