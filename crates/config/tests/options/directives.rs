//! Every directive of the servers whose configuration files are to work is known, and has the
//! default that it has there. `directives.txt` lists them.

use config::{DEPRECATED, Loaded, find, load_text};

/// The rows of `directives.txt`: marks, name, value.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let lines = include_str!("../directives.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let (marks, rest) = line.split_at(2);
        let (name, value) = rest.trim_start().split_once(' ').unwrap_or((rest.trim(), ""));
        (marks.trim(), name, value)
    })
}

fn directives() -> impl Iterator<Item = (&'static str, &'static str)> {
    rows().filter(|(marks, ..)| *marks != "A").map(|(_, name, value)| (name, value))
}

fn load(text: &str) -> Loaded {
    load_text(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn value_in(loaded: &Loaded, name: &str) -> String {
    let found = loaded.config.get(&[name.as_bytes()]);
    let [(found, value)] = &found[..] else { panic!("{name}: {found:?}") };
    assert_eq!(String::from_utf8_lossy(found), name);
    String::from_utf8_lossy(value).into_owned()
}

#[test]
fn each_is_known_and_has_its_default() {
    let defaults = load("");
    let mut count = 0;
    for (name, value) in directives() {
        assert_eq!(value_in(&defaults, name), value, "{name}");
        count += 1;
    }
    assert!(count > 200, "{count}");
}

#[test]
fn a_file_may_say_each_default() {
    for (name, value) in directives() {
        // An empty value is written as none; nothing can be said of a primary that is not there.
        let line = match (name, value) {
            ("replicaof" | "slaveof", "") => continue,
            // One value with blanks in it.
            ("proc-title-template", value) => format!("proc-title-template \"{value}\""),
            (name, "") => format!("{name} \"\""),
            (name, value) => format!("{name} {value}"),
        };
        let said = load(&line);
        assert_eq!(value_in(&said, name), value, "{line}");
    }
}

#[test]
fn older_names_mean_the_new_ones() {
    let mut count = 0;
    for (_, name, now) in rows().filter(|(marks, ..)| *marks == "A") {
        let spec = find(name.as_bytes()).unwrap_or_else(|| panic!("{name} is not known"));
        assert_eq!(find(now.as_bytes()).map(|spec| spec.name()), Some(spec.name()), "{name}");
        count += 1;
    }
    assert!(count > 10, "{count}");
}

#[test]
fn what_no_version_heeds_any_more_is_ignored() {
    for name in DEPRECATED {
        load(&format!("{name} no"));
    }
    for name in ["gopher-enabled", "lua-replicate-commands", "list-max-ziplist-entries"] {
        assert!(DEPRECATED.contains(&name), "{name}");
    }
}

#[test]
fn options_of_modules_are_ignored_beside_their_module() {
    let of_redis_8 =
        "search-timeout 500\nts-encoding COMPRESSED\nbf-error-rate 0.01\ncf-bucket-size 2\n";
    let loaded = load(&format!("loadmodule ./modules/any.so\n{of_redis_8}"));
    assert_eq!(loaded.without_effect, ["loadmodule"]);
    assert!(load_text(of_redis_8.as_bytes()).is_err());
}

#[test]
fn a_maxmemory_of_0_is_given_too() {
    let is_given = |text: &str| load_text(text.as_bytes()).unwrap().has_maxmemory;
    assert!(is_given("maxmemory 0") && is_given("MAXMEMORY 1gb"));
    assert!(!is_given("maxmemory-policy allkeys-lru"));
}
