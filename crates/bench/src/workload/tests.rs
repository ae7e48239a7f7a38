//! The tests that redis-benchmark and valkey-benchmark know by name.

use super::Effect;

/// One test.
#[derive(Debug)]
pub struct Test {
    /// Its name for `-t`.
    pub name: &'static str,
    /// What reports call it.
    pub title: &'static str,
    /// Names that select it together with others.
    pub groups: &'static [&'static str],
    /// Its command; `@` stands for the tag that a cluster needs. Words beginning with `__` are
    /// placeholders.
    pub command: &'static str,
    /// What it does.
    pub effect: Effect,
    /// Left out unless asked for by name.
    pub on_request: bool,
}

const fn test(name: &'static str, title: &'static str, command: &'static str) -> Test {
    Test { name, title, groups: &[], command, effect: Effect::Other, on_request: false }
}

const fn lrange(name: &'static str, title: &'static str, command: &'static str) -> Test {
    Test { groups: &["lrange"], ..test(name, title, command) }
}

/// What MULTI-key tests repeat.
const MSET: &str = "MSET __key__ __data__ __key__ __data__ __key__ __data__ __key__ __data__ \
    __key__ __data__ __key__ __data__ __key__ __data__ __key__ __data__ __key__ __data__ \
    __key__ __data__";

/// In the order in which they are run. LRANGE reads what `FILL` has pushed.
pub static TESTS: &[Test] = &[
    Test { groups: &["ping"], ..test("ping_inline", "PING_INLINE", "") },
    Test { groups: &["ping"], ..test("ping_mbulk", "PING_MBULK", "PING") },
    Test { effect: Effect::Writes, ..test("set", "SET", "SET __key__ __data__") },
    Test { effect: Effect::Reads, ..test("get", "GET", "GET __key__") },
    test("incr", "INCR", "INCR counter@:__rand_int__"),
    test("lpush", "LPUSH", "LPUSH mylist@ __data__"),
    test("rpush", "RPUSH", "RPUSH mylist@ __data__"),
    test("lpop", "LPOP", "LPOP mylist@"),
    test("rpop", "RPOP", "RPOP mylist@"),
    test("sadd", "SADD", "SADD myset@ element:__rand_int__"),
    test("hset", "HSET", "HSET myhash@ element:__rand_int__ __data__"),
    test("spop", "SPOP", "SPOP myset@"),
    test("zadd", "ZADD", "ZADD myzset@ __score__ element:__rand_int__"),
    test("zpopmin", "ZPOPMIN", "ZPOPMIN myzset@"),
    lrange("lrange_100", "LRANGE_100 (first 100 elements)", "LRANGE mylist@ 0 99"),
    lrange("lrange_300", "LRANGE_300 (first 300 elements)", "LRANGE mylist@ 0 299"),
    lrange("lrange_500", "LRANGE_500 (first 500 elements)", "LRANGE mylist@ 0 499"),
    lrange("lrange_600", "LRANGE_600 (first 600 elements)", "LRANGE mylist@ 0 599"),
    Test { effect: Effect::Writes, ..test("mset", "MSET (10 keys)", MSET) },
    Test {
        effect: Effect::Reads,
        ..test(
            "mget",
            "MGET (10 keys)",
            "MGET __key__ __key__ __key__ __key__ __key__ __key__ __key__ __key__ __key__ __key__",
        )
    },
    test("xadd", "XADD", "XADD mystream@ * myfield __data__"),
    Test {
        on_request: true,
        ..test("function_load", "FUNCTION LOAD", "FUNCTION LOAD REPLACE __library__")
    },
    Test { on_request: true, ..test("fcall", "FCALL", "FCALL function_0 1 __key__") },
];

/// What has to run before the first LRANGE.
pub static FILL: Test =
    test("lpush", "LPUSH (needed to benchmark LRANGE)", "LPUSH mylist@ __data__");

/// Which tests a list for `-t` selects, in the order of the table; the error names the word that
/// selects none.
pub fn select(list: &str) -> Result<Vec<&'static Test>, String> {
    let words: Vec<String> = list
        .split(',')
        .map(|word| word.trim().to_ascii_lowercase())
        .filter(|w| !w.is_empty())
        .collect();
    // redis-benchmark's own older names.
    let matches = |test: &Test, word: &str| {
        test.name == word
            || test.groups.contains(&word)
            || (word == "lrange_450" && test.name == "lrange_500")
    };
    for word in &words {
        if !TESTS.iter().any(|test| matches(test, word)) {
            let names: Vec<&str> = TESTS.iter().map(|test| test.name).collect();
            return Err(format!("there is no test '{word}'; the tests are {}", names.join(", ")));
        }
    }
    if words.is_empty() {
        return Err("-t needs the name of a test".into());
    }
    Ok(TESTS.iter().filter(|test| words.iter().any(|word| matches(test, word))).collect())
}

/// The tests that run when none is asked for.
pub fn usual() -> Vec<&'static Test> {
    TESTS.iter().filter(|test| !test.on_request).collect()
}

/// A library of functions for FUNCTION LOAD and FCALL.
pub fn library(functions: u32) -> String {
    let mut source = String::from("#!lua name=benchlib\n");
    for index in 0..functions {
        source.push_str(&format!(
            "redis.register_function('function_{index}', function(keys, args) return 'ok' end)\n"
        ));
    }
    source
}

impl Test {
    /// The words of the command. `tagged`: for a cluster, where a connection leads to one node.
    /// `spread`: scores differ, because `-r` was given.
    pub fn words(&self, tagged: bool, spread: bool, functions: u32) -> Vec<Vec<u8>> {
        let tag = if tagged { ":{tag}" } else { "" };
        self.command
            .split_whitespace()
            .map(|word| match word {
                "__score__" => (if spread { "__rand_int__" } else { "0" }).into(),
                "__library__" => library(functions).into_bytes(),
                _ => word.replace('@', tag).into_bytes(),
            })
            .collect()
    }
}

#[cfg(test)]
mod selection {
    use super::*;

    #[test]
    fn names_and_groups_select() {
        let names =
            |list| -> Vec<&str> { select(list).unwrap().iter().map(|test| test.name).collect() };
        assert_eq!(names("get,set"), ["set", "get"]);
        assert_eq!(names("PING"), ["ping_inline", "ping_mbulk"]);
        assert_eq!(names("lrange").len(), 4);
        assert!(select("set,gat").unwrap_err().contains("'gat'"));
        assert!(usual().iter().all(|test| !test.on_request));
    }
}
