//! What Valkey 9.1 and Redis 8 know, default to and refuse, against what this crate does.
//!
//! The fixtures were recorded from the real servers by `fixtures/record.sh`. Every deviation is
//! listed here with its reason; `docs/configuration.md` tells users about those that matter.

use std::collections::{BTreeMap, BTreeSet};

use config::{Config, Effect, LoadError, OPTIONS, SetContext, load_text};

/// Options whose default differs from Valkey's.
const OTHER_DEFAULT: &[(&str, &str)] = &[
    ("io-threads", "0 chooses one reactor per core"),
    ("syslog-ident", "it is the name of the product"),
];

/// Options that Valkey does not report for `*`.
const NOT_IN_VALKEY: &[(&str, &str)] = &[
    ("bf-max-memory", "Dunlin's own, for what is a module elsewhere"),
    ("bf-error-rate", "of a module of Redis 8"),
    ("bf-initial-size", "of a module of Redis 8"),
    ("bf-expansion-factor", "of a module of Redis 8"),
    ("cf-initial-size", "of a module of Redis 8"),
    ("cf-bucket-size", "of a module of Redis 8"),
    ("cf-max-iterations", "of a module of Redis 8"),
    ("cf-expansion-factor", "of a module of Redis 8"),
    ("cf-max-expansions", "of a module of Redis 8"),
    ("ts-compaction-policy", "of a module of Redis 8"),
    ("ts-duplicate-policy", "of a module of Redis 8"),
    ("ts-encoding", "of a module of Redis 8"),
    ("ts-retention-policy", "of a module of Redis 8"),
    ("ts-chunk-size-bytes", "of a module of Redis 8"),
    ("ts-ignore-max-time-diff", "of a module of Redis 8"),
    ("ts-ignore-max-val-diff", "of a module of Redis 8"),
    ("ts-num-threads", "of a module of Redis 8"),
    ("hash-shared-fields", "Dunlin's own"),
    ("io-backend", "Dunlin's own"),
    ("admin-port", "Dunlin's own"),
    ("admin-bind", "Dunlin's own"),
    ("admin-hosts", "Dunlin's own"),
    ("alert-webhook", "Dunlin's own"),
    ("admin-socket", "Dunlin's own"),
    ("max-waiting-tls-handshakes", "Dunlin's own"),
    ("shed-clients", "Dunlin's own"),
    ("shed-cpu-percent", "Dunlin's own"),
    ("shed-queued-bytes", "Dunlin's own"),
    ("shed-requests", "Dunlin's own"),
    ("shed-turn-usec", "Dunlin's own"),
    ("shed-users", "Dunlin's own"),
    ("rate-limits", "Dunlin's own"),
    ("size-tracking", "Dunlin's own"),
    ("maxmemory-from-limit", "Dunlin's own"),
    ("protected-mode-private-networks", "Dunlin's own"),
    ("io-busy-poll-usec", "Dunlin's own"),
    ("io-coalesce-usec", "Dunlin's own"),
    ("aof-preallocation-size", "Dunlin's own"),
    ("snapshot-buffer-limit", "Dunlin's own"),
    ("snapshot-threads", "Dunlin's own"),
    ("tier-dir", "Dunlin's own"),
    ("tier-max-size", "Dunlin's own"),
    ("tier-segment-size", "Dunlin's own"),
    ("tier-min-value-size", "Dunlin's own"),
    ("tier-max-value-size", "Dunlin's own"),
    ("rdb-skip-unknown-types", "Dunlin's own"),
    ("audit-log", "Dunlin's own"),
    ("commit-mode", "Dunlin's own"),
    ("replica-rdb-version", "Dunlin's own"),
    ("rdb-version", "Dunlin's own"),
    ("commit-quorum", "Dunlin's own"),
    ("commit-quorum-fsync", "Dunlin's own"),
    ("commit-timeout-ms", "Dunlin's own"),
    ("cluster-bus-cert-file", "Dunlin's own"),
    ("cluster-bus-key-file", "Dunlin's own"),
    ("cluster-bus-ca-cert-file", "Dunlin's own"),
    ("cluster-coordinator", "Dunlin's own"),
    ("cluster-coordinator-ca-cert-file", "Dunlin's own"),
    ("cluster-coordinator-cert-file", "Dunlin's own"),
    ("cluster-coordinator-key-file", "Dunlin's own"),
    ("cluster-coordinator-user", "Dunlin's own"),
    ("cluster-coordinator-password", "Dunlin's own"),
    ("cluster-endpoint", "Dunlin's own"),
    ("cluster-lease", "Dunlin's own"),
    ("cluster-share-users", "Dunlin's own"),
    ("cluster-name", "Dunlin's own"),
    ("cluster-compatibility-sample-ratio", "Redis 8"),
    ("dynamic-hz", "Redis"),
    ("replica-full-sync-buffer-limit", "Redis 8"),
    ("sanitize-dump-payload", "Redis"),
];

/// Options Redis 8 has at another default: Dunlin follows Valkey.
const OTHER_DEFAULT_IN_REDIS: &[&str] = &[
    "hide-user-data-from-log",
    "io-threads",
    "lazyfree-lazy-eviction",
    "lazyfree-lazy-expire",
    "lazyfree-lazy-server-del",
    "lazyfree-lazy-user-del",
    "lazyfree-lazy-user-flush",
    "repl-backlog-size",
    "replica-lazy-flush",
    "slave-lazy-flush",
    "syslog-ident",
];

/// Lines of a configuration file that are judged otherwise than by Valkey.
const OTHER_VERDICT: &[(&str, &str)] = &[
    ("io-threads -5", "the least number is 0 here"),
    ("io-threads 9223372036854775807", "the least number is 0 here"),
    ("io-threads 257", "the least number is 0 here"),
    ("locale-collate zz!", "Valkey finds out only when it applies the locale"),
];

fn fixture(text: &'static str) -> BTreeMap<&'static str, &'static str> {
    text.lines().map(|line| line.split_once('\t').unwrap_or((line.trim_end(), ""))).collect()
}

fn ours() -> BTreeMap<String, String> {
    let utf8 = |bytes| String::from_utf8(bytes).expect("defaults are ASCII");
    Config::new().get(&[b"*"]).into_iter().map(|(name, value)| (utf8(name), utf8(value))).collect()
}

#[test]
fn names_and_defaults_are_valkeys() {
    let valkey = fixture(include_str!("../fixtures/valkey-defaults.txt"));
    let ours = ours();
    let excused: BTreeSet<&str> = OTHER_DEFAULT.iter().map(|(name, _)| *name).collect();
    let mut wrong: Vec<String> = Vec::new();
    for (name, default) in &valkey {
        match ours.get(*name) {
            None => wrong.push(format!("{name} is missing")),
            Some(value) if value != default && !excused.contains(name) => {
                wrong.push(format!("{name} is {value:?}, not {default:?}"));
            }
            Some(_) => {}
        }
    }
    for name in ours.keys().filter(|name| !valkey.contains_key(name.as_str())) {
        if !NOT_IN_VALKEY.iter().any(|(known, _)| known == name) {
            wrong.push(format!("{name} is not Valkey's"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_and_defaults_are_redis() {
    let ours = ours();
    let mut wrong: Vec<String> = Vec::new();
    for (name, default) in fixture(include_str!("../fixtures/redis-defaults.txt")) {
        match ours.get(name) {
            None => wrong.push(format!("{name} is missing")),
            Some(value) if value != default && !OTHER_DEFAULT_IN_REDIS.contains(&name) => {
                wrong.push(format!("{name} is {value:?}, not {default:?}"));
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with the first line of a text, in the words of the fixture.
fn verdict(line: &str) -> String {
    match load_text(format!("{line}\nbogus\n").as_bytes()) {
        Err(LoadError::Line { origin, reason, .. }) if origin.number == 1 => reason,
        Err(LoadError::Line { .. }) => "accepted".into(),
        other => panic!("the second line is always wrong: {other:?}"),
    }
}

#[test]
fn lines_are_refused_in_valkeys_words() {
    let mut wrong: Vec<String> = Vec::new();
    for case in include_str!("../fixtures/line-reasons.txt").lines() {
        let (line, expected) = case.split_once("\t=> ").expect("a line and a reason");
        let excused = OTHER_VERDICT.iter().any(|(known, _)| *known == line);
        let found = verdict(line);
        if found != expected && !excused {
            wrong.push(format!("{line}: {found:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn config_set_replies_are_valkeys() {
    let mut wrong: Vec<String> = Vec::new();
    for case in include_str!("../fixtures/set-replies.txt").lines() {
        let (words, expected) = case.split_once("\t=> ").expect("words and a reply");
        let words: Vec<&[u8]> = words.split('\t').map(str::as_bytes).collect();
        let (pairs, rest) = words.as_chunks::<2>();
        assert!(rest.is_empty(), "{case}");
        let pairs: Vec<(&[u8], &[u8])> =
            pairs.iter().map(|[name, value]| (*name, *value)).collect();
        let found = match Config::new().set(&pairs, SetContext::default(), &mut |_| Ok(())) {
            Ok(_) => "OK".to_string(),
            Err(error) => format!("ERR {error}"),
        };
        if found != expected {
            wrong.push(format!("{case}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The directives of the stock files of Redis 7.2 to 8.0 and Valkey 9.1 that are not comments.
#[test]
fn stock_files_are_accepted() {
    for text in [
        include_str!("../fixtures/redis-8.0-excerpt.conf"),
        include_str!("../fixtures/valkey-9.1-excerpt.conf"),
    ] {
        let loaded = load_text(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(loaded.config.port(), 6379);
        assert!(!loaded.without_effect.is_empty(), "replication is to come");
    }
}

#[test]
fn every_option_takes_the_value_it_reports() {
    for spec in &OPTIONS {
        let config = Config::new();
        let value = config.value_of(spec.name()).expect("it is in the table");
        if spec.is_immutable() || spec.is_protected() {
            continue;
        }
        let changed = config
            .set(&[(spec.name().as_bytes(), &value)], SetContext::default(), &mut |_| Ok(()))
            .unwrap_or_else(|error| panic!("{}: {error}", spec.name()));
        assert!(changed.iter().all(|_| spec.is_volatile()), "{} has changed", spec.name());
    }
}

#[test]
fn options_the_core_is_about_are_live() {
    for name in
        ["port", "bind", "maxmemory", "maxclients", "timeout", "hz", "notify-keyspace-events"]
    {
        assert_eq!(config::find(name.as_bytes()).expect(name).effect(), Effect::Live, "{name}");
    }
}
