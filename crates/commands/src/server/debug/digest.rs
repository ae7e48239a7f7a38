//! `DEBUG DIGEST`, `DEBUG DIGEST-VALUE key [key …]`
//!
//! The signatures are those of Redis and Valkey, so that data sets can be compared across servers.
//! What has no order (keys, members, fields) is combined by exclusive or, what has one by hashing
//! the signature so far together with the next part.

use super::raw;
use crate::value::view;
use engine::cold_values::with_value;
use engine::{Args, Cx, Outcome};
use keyspace::{Entry, Kind};
use rdb::{Compression, Encoder, ObjectRef};
use std::ops::ControlFlow;
use structs::listpack::Element;
use structs::numbers::{F64_MAX_LEN, INT_MAX_LEN, format_f64_digits, format_i64};
use structs::sha1::sha1;
use structs::stream::Range;

/// A signature under construction.
#[derive(Clone, Copy, Default)]
struct Digest([u8; 20]);

impl Digest {
    /// Adds a part whose place does not matter.
    fn add(&mut self, part: &[u8]) {
        let hash = sha1(part);
        self.0.iter_mut().zip(hash).for_each(|(byte, other)| *byte ^= other);
    }

    /// Adds a part that comes after all before.
    fn append(&mut self, part: &[u8]) {
        self.add(part);
        self.0 = sha1(&self.0);
    }

    fn append_element(&mut self, element: Element<'_>) {
        element.with_bytes(|bytes| self.append(bytes));
    }

    fn hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(super) fn digest(cx: &mut Cx<'_>) -> Outcome {
    let mut total = Digest::default();
    for db in cx.engine.keyspace.used_databases() {
        if cx.db.key_count(db) == 0 {
            continue;
        }
        total.append(&db.0.to_be_bytes());
        let mut result = Ok(());
        cx.db.for_each_stripe(|_, data| {
            for entry in data.entries(db) {
                let mut of_key = Digest::default();
                of_key.append(entry.key());
                let added = with_value(cx.engine, entry, |entry| add_value(&mut of_key, entry));
                result = std::mem::replace(&mut result, Ok(())).and(added);
                // Signed once more, as a whole.
                total.add(&of_key.0);
            }
        });
        result?;
    }
    cx.reply.simple(&total.hex());
    Ok(())
}

pub(super) fn digest_value(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    cx.reply.array(args.len() - 2);
    for at in 2..args.len() {
        let mut digest = Digest::default();
        raw(cx, args.key(at), |entry| add_value(&mut digest, entry))?;
        cx.reply.simple(&digest.hex());
    }
    Ok(())
}

/// The number of a type in signatures.
fn type_number(kind: Kind) -> u32 {
    match kind {
        Kind::InlineString | Kind::Integer | Kind::HeapString => 0,
        Kind::List => 1,
        Kind::Set => 2,
        Kind::Zset => 3,
        Kind::Hash => 4,
        Kind::Module => 5,
        Kind::Stream => 6,
    }
}

fn add_value(digest: &mut Digest, entry: &Entry) {
    digest.append(&type_number(entry.kind()).to_be_bytes());
    match view(entry).object() {
        ObjectRef::String(bytes) => digest.append(bytes),
        ObjectRef::Int(number) => digest.append(format_i64(&mut [0; INT_MAX_LEN], number)),
        ObjectRef::List(list) => list.iter().for_each(|element| digest.append_element(element)),
        ObjectRef::Set(set) => {
            set.iter().for_each(|member| member.with_bytes(|bytes| digest.add(bytes)));
        }
        ObjectRef::Hash(hash) => hash.iter().for_each(|(field, value)| {
            let mut pair = Digest::default();
            pair.append_element(field);
            pair.append_element(value);
            digest.add(&pair.0);
        }),
        ObjectRef::Stream(stream) => stream.walk(Range::ALL, |id, fields| {
            // The parts of the ID are joined by a dot here.
            digest.append(format!("{}.{}", id.ms, id.seq).as_bytes());
            for (name, value) in fields {
                digest.append_element(name);
                digest.append_element(value);
            }
            ControlFlow::Continue(())
        }),
        ObjectRef::Module(module) => {
            let mut encoder = Encoder::new(Compression::Off);
            module.save(&mut encoder);
            digest.append(encoder.as_bytes());
        }
        ObjectRef::Zset(zset) => zset.iter().for_each(|(member, score)| {
            let mut pair = Digest::default();
            pair.append_element(member);
            pair.append(format_f64_digits(&mut [0; F64_MAX_LEN], score));
            digest.add(&pair.0);
        }),
    }
    if entry.expiry().is_some() {
        digest.add(b"!!expire!!");
    }
}
