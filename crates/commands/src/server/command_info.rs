//! A row as COMMAND INFO shows it.

use engine::acl::category::categories;
use engine::table::{CommandTable, Resolved};
use engine::{Begin, Find, Flags, KeyFlags, KeySpec};
use resp::Reply;

/// The flags that clients see, in the order in which they are shown.
static FLAGS: [(Flags, &str); 18] = [
    (Flags::WRITE, "write"),
    (Flags::READONLY, "readonly"),
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_MONITOR, "skip_monitor"),
    (Flags::SKIP_COMMANDLOG, "skip_commandlog"),
    (Flags::ASKING, "asking"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];

static KEY_FLAGS: [(KeyFlags, &str); 11] = [
    (KeyFlags::RO, "RO"),
    (KeyFlags::RW, "RW"),
    (KeyFlags::OW, "OW"),
    (KeyFlags::RM, "RM"),
    (KeyFlags::ACCESS, "access"),
    (KeyFlags::UPDATE, "update"),
    (KeyFlags::INSERT, "insert"),
    (KeyFlags::DELETE, "delete"),
    (KeyFlags::NOT_KEY, "not_key"),
    (KeyFlags::INCOMPLETE, "incomplete"),
    (KeyFlags::VARIABLE, "variable_flags"),
];

/// Writes the description of one command, its subcommands included.
pub(super) fn write(reply: &mut Reply<'_>, table: &CommandTable, row: &Resolved) {
    let command = row.command;
    let range = Range::of(command.keys);
    reply.array(10);
    reply.bulk(row.full_name.as_bytes());
    reply.integer(i64::from(command.arity));
    let flags = FLAGS.iter().filter(|(flag, _)| command.flags.has(*flag));
    let movable = range.is_partial.then_some("movablekeys");
    write_set(reply, flags.map(|&(_, name)| name).chain(movable));
    reply.integer(range.first as i64);
    reply.integer(range.last as i64);
    reply.integer(range.step as i64);
    let categories = categories().filter(|category| category.contains(command));
    let categories: Vec<String> =
        categories.map(|category| format!("@{}", category.name())).collect();
    write_set(reply, categories.iter().map(String::as_str));
    reply.set(command.tips.len());
    command.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(command.keys.len());
    command.keys.iter().for_each(|spec| write_key_spec(reply, spec));
    reply.array(command.subcommands.len());
    table.subcommands(row).for_each(|sub| write(reply, table, sub));
}

/// Writes a set of simple strings.
pub(super) fn write_set<'a>(reply: &mut Reply<'_>, names: impl Iterator<Item = &'a str>) {
    let place = reply.deferred();
    let mut len = 0;
    for name in names {
        reply.simple(name);
        len += 1;
    }
    reply.finish_set(place, len);
}

/// Writes what becomes of a key.
pub(super) fn write_key_flags(reply: &mut Reply<'_>, flags: KeyFlags) {
    let shown = KEY_FLAGS.iter().filter(|(flag, _)| flags.has(*flag));
    write_set(reply, shown.map(|&(_, name)| name));
}

fn write_key_spec(reply: &mut Reply<'_>, spec: &KeySpec) {
    reply.map(if spec.notes.is_empty() { 3 } else { 4 });
    if !spec.notes.is_empty() {
        reply.bulk(b"notes");
        reply.bulk(spec.notes.as_bytes());
    }
    reply.bulk(b"flags");
    write_key_flags(reply, spec.flags);
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => write_typed(reply, "index", &[("index", index as i64)]),
        Begin::Keyword(keyword, from) => {
            write_type(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(keyword.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(i64::from(from));
        }
        Begin::Unknown => write_typed(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => write_typed(
            reply,
            "range",
            &[("lastkey", i64::from(last)), ("keystep", step as i64), ("limit", limit as i64)],
        ),
        Find::KeyNum { index, first, step } => write_typed(
            reply,
            "keynum",
            &[("keynumidx", index as i64), ("firstkey", first as i64), ("keystep", step as i64)],
        ),
        Find::Unknown => write_typed(reply, "unknown", &[]),
    }
}

fn write_type(reply: &mut Reply<'_>, kind: &str, fields: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields);
}

fn write_typed(reply: &mut Reply<'_>, kind: &str, fields: &[(&str, i64)]) {
    write_type(reply, kind, fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.integer(*value);
    }
}

/// First key, last key and step: all that clients older than key specifications understand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Range {
    first: usize,
    /// Negative: from the end.
    last: i32,
    step: usize,
    /// There are keys that the range does not cover.
    is_partial: bool,
}

impl Range {
    /// A lone range specification as it is; of several, those that follow each other word by word.
    fn of(specs: &[KeySpec]) -> Range {
        let mut range = Range::default();
        for (number, spec) in specs.iter().enumerate() {
            range.is_partial |= spec.flags.has(KeyFlags::INCOMPLETE);
            let (Begin::Index(first), Find::Range { last, step, limit: _ }) =
                (spec.begin, spec.find)
            else {
                range.is_partial = true;
                continue;
            };
            let last = if last >= 0 { last + first as i32 } else { last };
            if specs.len() == 1 {
                return Range { first, last, step, ..range };
            }
            let follows = range.first == 0 || range.last + 1 == first as i32;
            if step != 1 || !follows {
                range.is_partial = true;
                continue;
            }
            debug_assert!(number == 0 || first > range.first, "specifications go forward");
            let first = if range.first == 0 { first } else { range.first };
            range = Range { first, last, step, ..range };
        }
        range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(specs: &[KeySpec], expected: (usize, i32, usize, bool)) {
        let range = Range::of(specs);
        assert_eq!((range.first, range.last, range.step, range.is_partial), expected);
    }

    #[test]
    fn ranges_for_old_clients() {
        let ro = KeyFlags::RO;
        check(&[], (0, 0, 0, false));
        check(&[KeySpec::at(2, ro)], (2, 2, 1, false));
        check(&[KeySpec::rest(1, 2, ro)], (1, -1, 2, false));
        check(&[KeySpec::one(ro), KeySpec::at(2, ro)], (1, 2, 1, false));
        check(&[KeySpec::at(2, ro), KeySpec::rest(3, 1, ro)], (2, -1, 1, false));
        check(&[KeySpec::one(ro), KeySpec::counted(2, ro)], (1, 1, 1, true));
        check(&[KeySpec::counted(1, ro)], (0, 0, 0, true));
        check(&[KeySpec::one(ro), KeySpec::at(3, ro)], (1, 1, 1, true));
        check(&[KeySpec::one(ro.with(KeyFlags::INCOMPLETE))], (1, 1, 1, true));
    }
}
