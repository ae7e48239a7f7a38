use super::*;
use proptest::prelude::*;

fn hashing(rules: &[&str]) -> Result<Hashing, String> {
    let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
    Hashing::new(&rules).map_err(|flaw| flaw.to_string())
}

fn tag<'k>(rules: &[&str], key: &'k str) -> Option<&'k str> {
    let tag = hashing(rules).expect("rules are fine").tag(key.as_bytes())?;
    Some(std::str::from_utf8(tag).expect("text"))
}

#[test]
fn the_first_rule_that_matches_from_the_start_wins() {
    let rules = ["user:(?<tag>[0-9]+)", "(?P<tag>[a-z]+):.*", "(?:x|(?<tag>y))z"];
    assert_eq!(tag(&rules, "user:17:name"), Some("17"));
    assert_eq!(tag(&rules, "user:x"), Some("user"));
    assert_eq!(tag(&rules, "a user:17"), None);
    assert_eq!(tag(&rules, "yz"), Some("y"));
    assert_eq!(tag(&rules, "xz"), None);
    assert_eq!(tag(&[], "a{b}{c}"), Some("b"));
    let rules = hashing(&rules).expect("rules are fine");
    assert_eq!(rules.explain(b"user:17"), Some((1, &b"17"[..])));
    assert_eq!(rules.explain(b"ab:c"), Some((2, &b"ab"[..])));
    assert_eq!(rules.slot(b"user:foo"), Some(crc16::key_slot(b"user")));
}

#[test]
fn rules_of_redis_enterprise_mean_the_same() {
    for (key, expected) in [
        ("plain", "plain"),
        ("a{b}c", "b"),
        ("a{b}{c}", "c"),
        ("{a}b}", "a}b"),
        ("a{}b", ""),
        ("a}b{c", "a}b{c"),
        ("", ""),
    ] {
        assert_eq!(tag(&ENTERPRISE, key), Some(expected), "{key}");
    }
    assert_eq!(tag(&["k{(?<tag>[^{}]{2,3})}"], "k{abc}"), Some("abc"));
    assert_eq!(tag(&["[]{}](?<tag>.)"], "{a"), Some("a"));
    assert_eq!(tag(&[r"\x{7B}(?<tag>.)"], "{a"), Some("a"));
}

#[test]
fn rules_are_about_bytes() {
    let rules = hashing(&["(?<tag>.+):"]).expect("a rule");
    assert_eq!(rules.tag(b"\xff\n\0:x"), Some(&b"\xff\n\0"[..]));
    assert_eq!(tag(&["é(?<tag>.*)"], "éa"), Some("a"));
}

#[test]
fn what_cannot_work_is_refused_with_a_reason() {
    let long = format!("(?<tag>{})", "a".repeat(249));
    let many: Vec<String> = (0..33).map(|n| format!("{n}(?<tag>.)")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let cases: [(&[&str], &str); 12] = [
        (&["(?<tag>.*"], "rule 1 '(?<tag>.*': it is no regular expression: unclosed group"),
        (&["(.*)"], "no group 'tag'"),
        (&["(?<tag>a)(?<tag>b)"], "duplicate capture group name"),
        (&[&long], "its 257 characters are more than 256"),
        (&many, "33 hashing rules are more than 32"),
        (&["(?<tag>.*)", "a(?<tag>.)"], "rule 2 'a(?<tag>.)': it can never match, because rule 1"),
        (&["^(?<tag>.*)$", "a(?<tag>.)"], "never match"),
        (&["(?<tag>x?).*", "a(?<tag>.)"], "never match"),
        (&["a(?<tag>.)", "a(?<tag>.)"], "it is rule 1 again"),
        (&["(?<tag>(?:a{999}){999})"], "too large"),
        (&[r"(?<tag>\pL+)"], "nicode"),
        (&["(?<tag>a)(?=b)"], "look-around"),
    ];
    for (rules, expected) in cases {
        let why = hashing(rules).expect_err(expected);
        assert!(why.contains(expected), "{why}: {expected}");
    }
    assert!(hashing(&["(?<tag>.)", "(?<tag>a*)$", "(?<tag>)"]).is_ok());
    let unreadable = Hashing::of_checked(&["(".to_owned()]);
    assert!(matches!(unreadable, Hashing::Unreadable(_)) && unreadable.slot(b"a").is_none());
}

/// Rules of the kinds that people write.
const PATTERNS: [&str; 12] = [
    ".*{(?<tag>.*)}.*",
    "(?<tag>.*)",
    "(?<tag>[^:]*):",
    "(?<tag>(a|b)+)",
    "(a)?(?<tag>b*)",
    "(?:a|(?<tag>b))",
    "(?i)A(?<tag>.)",
    "^(?<tag>a+?)b$",
    "(?<tag>[ab]{1,2})[:{]",
    ".*:(?<tag>[^:]+)$",
    "((?<tag>a)|b)*",
    "[^{]*[{](?<tag>[^}]+)[}]",
];

proptest! {
    /// The tag is what the crate `regex` captures, and the slot is its checksum.
    #[test]
    fn tags_are_those_of_the_regex_crate(
        rules in prop::sample::subsequence(PATTERNS.to_vec(), 1..5),
        key in prop::collection::vec(prop::sample::select(b"ab:{}\n\xffA".to_vec()), 0..12),
    ) {
        let Ok(made) = hashing(&rules) else { return Ok(()) };
        let by_regex = rules.iter().find_map(|rule| {
            let text = format!(r"\A(?:{})", with_literal_braces(rule));
            let mut builder = regex::bytes::RegexBuilder::new(&text);
            let regex = builder.unicode(false).dot_matches_new_line(true).build().expect("it parses");
            Some(regex.captures(&key)?.name("tag")?.as_bytes())
        });
        prop_assert_eq!(made.tag(&key), by_regex);
        prop_assert_eq!(made.slot(&key), by_regex.map(|tag| crc16::crc16(tag) % 16384));
    }

    /// A rule that is taken for one that matches all keys does so.
    #[test]
    fn a_rule_for_all_keys_matches_them(
        rule in prop::sample::select(PATTERNS.to_vec()),
        key in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let (made, is_for_all) = Rule::new(rule).expect("it parses");
        prop_assert!(!is_for_all || made.tag(&key).is_some());
    }

    /// Nothing that is given as a rule stops the server.
    #[test]
    fn any_text_is_read_or_refused(text in "[(?<tag>.*)\\[\\]{}a0-9,|$^\\\\x]{0,24}") {
        let _ = hashing(&[&text]);
        let _ = hashing(&[&format!("{text}(?<tag>.*)")]);
    }
}
