//! The commands of the group `stream`, one file each or a tight family.

mod aside;
mod entries;
mod idempotency;
mod ids;
mod read_options;
mod references;
mod trim_options;
mod trimming;
mod xack;
mod xadd;
mod xautoclaim;
mod xcfgset;
mod xclaim;
mod xdel;
mod xgroup;
mod xinfo;
mod xlen;
mod xnack;
mod xpending;
mod xrange;
mod xread;
mod xreadgroup;
mod xsetid;

use engine::journal::Effect;
use engine::{Command, Cx, Error, Key};
use structs::stream::{Group, Pending, Stream, StreamId};

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &xinfo::XINFO,
    &xautoclaim::XAUTOCLAIM,
    &xclaim::XCLAIM,
    &xpending::XPENDING,
    &xack::XACKDEL,
    &xack::XACK,
    &xgroup::XGROUP,
    &xreadgroup::XREADGROUP,
    &xread::XREAD,
    &xsetid::XSETID,
    &xcfgset::XIDMPRECORD,
    &xcfgset::XCFGSET,
    &xnack::XNACK,
    &xdel::XDELEX,
    &xdel::XDEL,
    &trimming::XTRIM,
    &xrange::XREVRANGE,
    &xrange::XRANGE,
    &xlen::XLEN,
    &xadd::XADD,
];

/// The journal's form of how far a group has read.
fn last_id_effect(p: &mut Effect<'_>, key: &[u8], name: &[u8], last_id: StreamId, reads: i64) {
    p.begin(7);
    [b"XGROUP", b"SETID".as_slice(), key, name].iter().for_each(|word| p.word(word));
    last_id.with_text(|text| p.word(text));
    p.word(b"ENTRIESREAD");
    p.integer(reads);
}

/// The journal's form of a pending entry that has come about or changed.
fn claim_effect(p: &mut Effect<'_>, key: &[u8], name: &[u8], group: &Group, pending: &Pending) {
    p.begin(14);
    let words = [b"XCLAIM", key, name, group.owner(pending), b"0"];
    words.iter().for_each(|word| p.word(word));
    pending.id.with_text(|text| p.word(text));
    p.word(b"TIME");
    p.integer(pending.time);
    p.word(b"RETRYCOUNT");
    p.integer(pending.deliveries as i64);
    p.word(b"FORCE");
    p.word(b"JUSTID");
    p.word(b"LASTID");
    group.last_id.with_text(|text| p.word(text));
}

/// Has `write` put what was done to a group into the journal in place of the request.
fn propagate_claims(
    cx: &mut Cx<'_>,
    key: Key<'_>,
    name: &[u8],
    write: impl FnOnce(&mut Effect<'_>, &Group),
) {
    // A copy costs next to nothing, and the journal is written while nothing else is borrowed.
    let stream = cx.db.lookup_no_effects(key).and_then(|entry| entry.object::<Stream>()).cloned();
    cx.db.propagate_as(|p| {
        if let Some(group) = stream.as_ref().and_then(|stream| stream.group(name)) {
            write(p, group);
        }
    });
}

/// `NOGROUP`, with the names in the middle.
fn no_group(parts: [&[u8]; 5]) -> Error {
    Error::Bytes([b"NOGROUP ".as_slice(), &parts.concat()].concat())
}

/// The error where neither key nor group may be absent.
fn no_key_or_group(key: &[u8], group: &[u8]) -> Error {
    no_group([b"No such key '", key, b"' or consumer group '", group, b"'"])
}

/// The error where only the group may be absent.
fn no_such_group(key: &[u8], group: &[u8]) -> Error {
    no_group([b"No such consumer group '", group, b"' for key name '", key, b"'"])
}
