//! The table of options: every directive of Redis 7.2 to 8.0 and Valkey 9.1, and Dunlin's own.
//!
//! A row is plain data. Everything else is derived from it: how the words of a configuration file
//! are read, `CONFIG GET`, `CONFIG SET`, `CONFIG REWRITE`, the storage (a row's position is its
//! place in [`crate::Config`]) and the list of directives that have no effect yet. To add an
//! option, add a row to the group it belongs to and, if code reads it often, an accessor.

mod cluster;
mod encoding;
mod general;
mod maxmemory;
mod modules;
mod network;
mod persistence;
mod replication;
mod tls;

use crate::spec::{Kind, Spec};

/// The options by subject.
pub(crate) const GROUPS: [&[Spec]; 9] = [
    network::OPTIONS,
    tls::OPTIONS,
    general::OPTIONS,
    maxmemory::OPTIONS,
    encoding::OPTIONS,
    modules::OPTIONS,
    persistence::OPTIONS,
    replication::OPTIONS,
    cluster::OPTIONS,
];

/// How many options there are.
pub const OPTION_COUNT: usize = {
    let mut count = 0;
    let mut group = 0;
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

/// Every option of the configuration.
pub static OPTIONS: [Spec; OPTION_COUNT] = {
    let mut rows = [GROUPS[0][0]; OPTION_COUNT];
    let mut at = 0;
    let mut group = 0;
    while group < GROUPS.len() {
        let mut row = 0;
        while row < GROUPS[group].len() {
            rows[at] = GROUPS[group][row];
            at += 1;
            row += 1;
        }
        group += 1;
    }
    rows
};

/// Directives that older configuration files hold and that no version heeds any more: each takes
/// one value, which is ignored.
pub const DEPRECATED: [&str; 5] = [
    "gopher-enabled",
    "list-max-ziplist-entries",
    "list-max-ziplist-value",
    "lua-replicate-commands",
    "io-threads-do-reads",
];

/// Finds an option by its name or an alias, in any case.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    position(name).map(|at| &OPTIONS[at])
}

pub(crate) fn position(name: &[u8]) -> Option<usize> {
    OPTIONS.iter().position(|spec| spec.answers_to(name))
}

/// The place of an option, worked out by the compiler: a name that is not in the table does not
/// compile.
pub(crate) const fn index_of(name: &str) -> usize {
    let mut at = 0;
    while at < OPTION_COUNT {
        if same(OPTIONS[at].name, name) {
            return at;
        }
        at += 1;
    }
    panic!("no such option in the table")
}

/// The place of an option whose value is a number, for the same use.
pub(crate) const fn number_index(name: &str) -> usize {
    let at = index_of(name);
    match OPTIONS[at].kind {
        Kind::Bool
        | Kind::Int { .. }
        | Kind::Octal { .. }
        | Kind::Memory { .. }
        | Kind::MemoryOrPercent
        | Kind::Enum(_)
        | Kind::Shutdown
        | Kind::Events => at,
        _ => panic!("the option's value is not a number"),
    }
}

/// The place of an option whose value is text, for the same use.
pub(crate) const fn text_index(name: &str) -> usize {
    let at = index_of(name);
    match OPTIONS[at].kind {
        Kind::Text { .. } | Kind::Directory => at,
        _ => panic!("the option's value is not text"),
    }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::store::default_of;
    use crate::value::{parse, render, words_of_argument};

    #[test]
    fn names_are_unique_and_lower_case() {
        let mut seen = HashSet::new();
        for name in OPTIONS.iter().flat_map(Spec::names).chain(DEPRECATED) {
            assert!(seen.insert(name), "{name} appears twice");
            let allowed = |byte: u8| byte.is_ascii_lowercase() || b"0123456789-_".contains(&byte);
            assert!(name.bytes().all(allowed), "{name}");
        }
    }

    #[test]
    fn defaults_can_be_read() {
        for (at, spec) in OPTIONS.iter().enumerate() {
            let value = default_of(at);
            let reported = render(spec, &value);
            if reported.is_empty() {
                continue;
            }
            let again = parse(spec, &words_of_argument(spec, &reported), &value);
            assert_eq!(again, Ok(value), "{}", spec.name());
        }
    }

    #[test]
    fn every_option_is_documented_in_a_line() {
        for spec in &OPTIONS {
            let doc = spec.doc();
            assert!(!doc.is_empty() && !doc.contains('\n'), "{}", spec.name());
            assert!(!doc.ends_with('.'), "{}: a fragment, not a sentence", spec.name());
        }
    }

    #[test]
    fn flags_agree() {
        for spec in &OPTIONS {
            let name = spec.name();
            assert!(!(spec.is_immutable() && spec.is_protected()), "{name}: protected from whom?");
            assert!(!(spec.is_immutable() && spec.is_volatile()), "{name}: applied when?");
            assert!(spec.frozen.is_none() || !spec.is_immutable(), "{name}: frozen twice");
        }
    }
}
