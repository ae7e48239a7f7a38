//! `DEBUG OBJECT key [fast]`, `DEBUG SDSLEN key`, `DEBUG LISTPACK key`, `DEBUG QUICKLIST key [0|1]`

use super::{raw, switch};
use crate::value;
use engine::{Args, Cx, Error, Outcome};
use keyspace::access::{self, Policy};
use keyspace::{Entry, Kind};
use rdb::{Encoder, ObjectRef};
use std::fmt::Write as _;
use std::io::Write as _;
use structs::hash::Hash;
use structs::list::{Chunk, List};
use structs::listpack::Listpack;
use structs::set::Set;
use structs::zset::Zset;

/// What DEBUG OBJECT needs of the server besides the entry.
struct Surroundings {
    now_ms: i64,
    policy: Policy,
    list_size: i64,
    is_compressed: bool,
    compression: rdb::Compression,
    is_fast: bool,
}

pub(super) fn object(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let config = &cx.engine.config;
    let surroundings = Surroundings {
        now_ms: cx.now().0,
        policy: cx.db.access_policy(),
        list_size: config.list_max_listpack_size(),
        is_compressed: config.list_compress_depth() > 0,
        compression: value::compression(&cx.engine.config),
        is_fast: args.is(3, "fast"),
    };
    let line = raw(cx, args.key(2), |entry| describe(entry, &surroundings))?;
    cx.reply.simple(&line.ok_or(Error::NoSuchKey)?);
    Ok(())
}

fn describe(entry: &Entry, surroundings: &Surroundings) -> String {
    let mut line =
        format!("Value at:{:p} refcount:1 encoding:{}", entry.key().as_ptr(), entry.encoding());
    if !surroundings.is_fast {
        let bytes = serialized(value::view(entry).object(), surroundings.compression);
        let _ = write!(line, " serializedlength:{bytes}");
    }
    let idle = access::idle_seconds(surroundings.policy, entry.access(), surroundings.now_ms);
    let _ = write!(line, " lru:{} lru_seconds_idle:{idle}", entry.access());
    if let Some(list) = entry.view::<List>()
        && list.encoding() == "quicklist"
    {
        describe_quicklist(&mut line, &list, surroundings);
    }
    line
}

/// Bytes of the value in a file, without its type.
fn serialized(view: ObjectRef<'_>, compression: rdb::Compression) -> usize {
    let mut encoder = Encoder::new(compression);
    encoder.object(view);
    encoder.as_bytes().len() - 1
}

fn describe_quicklist(line: &mut String, list: &List, surroundings: &Surroundings) {
    let nodes = list.chunks().count();
    let _ = write!(
        line,
        " ql_nodes:{nodes} ql_avg_node:{:.2} ql_listpack_max:{} ql_compressed:{}",
        list.len() as f64 / nodes as f64,
        surroundings.list_size,
        i32::from(surroundings.is_compressed),
    );
    if !surroundings.is_fast {
        let bytes: usize = list.chunks().map(|chunk| bytes_of(&chunk).len()).sum();
        let _ = write!(line, " ql_uncompressed_size:{bytes}");
    }
}

fn bytes_of<'a>(chunk: &'a Chunk<'_>) -> &'a [u8] {
    match chunk {
        Chunk::Packed(bytes) => bytes,
        Chunk::Plain(bytes) => bytes,
    }
}

pub(super) fn sdslen(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let line = raw(cx, args.key(2), |entry| {
        if entry.kind() == Kind::Integer {
            return None;
        }
        let value = entry.string()?.len();
        let total = entry.memory_usage();
        // A string inside the entry has no block of its own.
        let own = if entry.kind() == Kind::HeapString { total - entry.own_bytes() } else { 0 };
        Some(format!(
            "key_sds_len:{} key_sds_avail:0 obj_alloc:{} val_sds_len:{value} val_sds_avail:{} \
             val_alloc:{own}",
            entry.key().len(),
            total - own,
            own.saturating_sub(value),
        ))
    });
    let line = line?.ok_or(Error::NoSuchKey)?;
    cx.reply.simple(&line.ok_or(Error::text("ERR Not an sds encoded string."))?);
    Ok(())
}

pub(super) fn listpack(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(2);
    if cx.db.lookup_no_stats(key).is_none() {
        return Err(Error::NoSuchKey);
    }
    let text = raw(cx, key, |entry| (entry.encoding() == "listpack").then(|| elements(entry)));
    let text = text?.flatten().ok_or(Error::text("ERR Not a listpack encoded object."))?;
    print(&text)?;
    cx.reply.simple("Listpack structure printed on stdout");
    Ok(())
}

pub(super) fn quicklist(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let key = args.key(2);
    if cx.db.lookup_no_stats(key).is_none() {
        return Err(Error::NoSuchKey);
    }
    let with_elements = args.get(3).is_some_and(switch);
    let text = raw(cx, key, |entry| {
        let list = entry.view::<List>().filter(|list| list.encoding() == "quicklist")?;
        Some(nodes(&list, with_elements))
    });
    let text = text?.flatten().ok_or(Error::text("ERR Not a quicklist encoded object."))?;
    print(&text)?;
    cx.reply.simple("Quicklist structure printed on stdout");
    Ok(())
}

/// One line an element, pairs side by side.
fn elements(entry: &Entry) -> String {
    let mut text = String::new();
    let mut line = |parts: &[&[u8]]| {
        let parts: Vec<String> = parts.iter().map(|part| part.escape_ascii().to_string()).collect();
        let _ = writeln!(text, "{}", parts.join(" "));
    };
    if let Some(list) = entry.view::<List>() {
        list.iter().for_each(|element| element.with_bytes(|bytes| line(&[bytes])));
    } else if let Some(set) = entry.view::<Set>() {
        set.iter().for_each(|member| member.with_bytes(|bytes| line(&[bytes])));
    } else if let Some(hash) = entry.view::<Hash>() {
        hash.iter().for_each(|(field, value)| line(&[&field.to_vec(), &value.to_vec()]));
    } else if let Some(zset) = entry.view::<Zset>() {
        zset.iter()
            .for_each(|(member, score)| line(&[&member.to_vec(), score.to_string().as_bytes()]));
    }
    text
}

fn nodes(list: &List, with_elements: bool) -> String {
    let mut text = format!("{} elements\n", list.len());
    for (at, chunk) in list.chunks().enumerate() {
        let bytes = bytes_of(&chunk);
        // A chunk in memory is well-formed; if it were not, this is the place to find out.
        let packed = match &chunk {
            Chunk::Packed(bytes) => Listpack::from_bytes(bytes).ok(),
            Chunk::Plain(_) => None,
        };
        let count = packed.as_ref().map_or(1, Listpack::count);
        let form = if packed.is_some() { "packed" } else { "plain" };
        let _ = writeln!(text, "{at}: {form}, {count} elements, {} bytes", bytes.len());
        if !with_elements {
            continue;
        }
        match packed {
            Some(packed) => packed.iter().for_each(|element| {
                let _ = writeln!(text, "   {}", element.to_vec().escape_ascii());
            }),
            None => {
                let _ = writeln!(text, "   {}", bytes.escape_ascii());
            }
        }
    }
    text
}

fn print(text: &str) -> Outcome {
    let printed = std::io::stdout().lock().write_all(text.as_bytes());
    printed.map_err(|error| Error::format(format!("ERR Can't print: {error}")))
}
