//! The long commands whose effect on others is measured.

use super::commander::Commander;
use super::data::{
    Sizes, big_hash, big_list, big_sets, fields, huge_hash, huge_set, key, nothing, reader_keys,
    string_keys,
};
use super::load::{Request, get, get_and_set};
use crate::client::encode;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One kind of long command.
pub struct Phase {
    /// What the command line calls it.
    pub name: &'static str,
    /// What the table shows.
    pub title: &'static str,
    /// Whether the goal names it; the others are run on demand.
    pub is_goal: bool,
    /// Brings the data into place; not measured.
    pub prepare: fn(&mut Commander, &Sizes) -> io::Result<()>,
    /// The command; measured.
    pub act: fn(&mut Commander, &Sizes) -> io::Result<()>,
    /// Whether `prepare` must run before each `act`.
    pub is_once: bool,
    /// What all others do.
    pub load: Request,
}

/// Every phase, in the order of running.
pub const PHASES: &[Phase] = &[
    Phase {
        name: "keys",
        title: "KEYS over 1 M keys, 10 match",
        is_goal: true,
        prepare: nothing,
        act: |commander, _| commander.run(&["KEYS", "key:00000000000?"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "keys-all",
        title: "KEYS * over 1 M keys",
        is_goal: false,
        prepare: nothing,
        act: |commander, _| commander.run(&["KEYS", "*"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "sort",
        title: "SORT of a list of 1 M",
        is_goal: true,
        prepare: big_list,
        act: |commander, _| commander.run(&["SORT", "big:list"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "sort-limit",
        title: "SORT … LIMIT 0 10 of a list of 1 M",
        is_goal: false,
        prepare: big_list,
        act: |commander, _| commander.run(&["SORT", "big:list", "LIMIT", "0", "10"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "sort-store",
        title: "SORT … STORE of a list of 1 M",
        is_goal: false,
        prepare: big_list,
        act: |commander, _| commander.run(&["SORT", "big:list", "STORE", "big:out"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "lrange",
        title: "LRANGE 0 -1 of 1 M",
        is_goal: false,
        prepare: big_list,
        act: |commander, _| commander.run(&["LRANGE", "big:list", "0", "-1"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "smembers",
        title: "SMEMBERS of 1 M",
        is_goal: false,
        prepare: big_sets,
        act: |commander, _| commander.run(&["SMEMBERS", "big:set"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "hgetall",
        title: "HGETALL of 1 M",
        is_goal: false,
        prepare: big_hash,
        act: |commander, _| commander.run(&["HGETALL", "big:hash"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "sunionstore",
        title: "SUNIONSTORE of 2 × 1 M",
        is_goal: false,
        prepare: big_sets,
        act: |commander, _| {
            commander.run(&["SUNIONSTORE", "big:union", "big:set", "big:set2"])?;
            commander.wait_until_freed()
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "zunionstore",
        title: "ZUNIONSTORE of 2 × 500 k",
        is_goal: false,
        prepare: |commander, sizes| {
            let count = sizes.elements(500);
            for name in ["big:zset", "big:zset2"] {
                commander.fill("ZADD", name, count, |n| {
                    vec![(n * 7919 % count).to_string(), format!("{name}:{n}")]
                })?;
            }
            Ok(())
        },
        act: |commander, _| {
            commander.run(&["ZUNIONSTORE", "big:zunion", "2", "big:zset", "big:zset2"])?;
            commander.wait_until_freed()
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "mget",
        title: "MGET of 100 k keys",
        is_goal: false,
        prepare: nothing,
        act: |commander, sizes| {
            let count = sizes.elements(100).min(sizes.keys);
            let mut words = vec!["MGET".to_owned()];
            words.extend((0..count).map(key));
            commander.run(&words).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "scan",
        title: "SCAN COUNT 1000000",
        is_goal: false,
        prepare: nothing,
        act: |commander, _| commander.run(&["SCAN", "0", "COUNT", "1000000"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "memory-usage",
        title: "MEMORY USAGE SAMPLES 0 of 1 M",
        is_goal: false,
        prepare: big_sets,
        act: |commander, _| {
            commander.run(&["MEMORY", "USAGE", "big:set", "SAMPLES", "0"]).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "info",
        title: "INFO, DBSIZE and RANDOMKEY",
        is_goal: false,
        prepare: nothing,
        act: |commander, _| {
            commander.run(&["INFO", "everything"])?;
            commander.run(&["DBSIZE"])?;
            commander.run(&["RANDOMKEY"]).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "digest",
        title: "DEBUG DIGEST of 1 M keys",
        is_goal: false,
        prepare: nothing,
        act: |commander, _| commander.run(&["DEBUG", "DIGEST"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "unlink",
        title: "UNLINK of a set of 5 M",
        is_goal: true,
        prepare: huge_set,
        act: |commander, _| {
            commander.run(&["UNLINK", "huge:set"])?;
            commander.wait_until_freed()
        },
        is_once: true,
        load: get,
    },
    Phase {
        name: "del",
        title: "DEL of a set of 5 M",
        is_goal: false,
        prepare: huge_set,
        act: |commander, _| {
            commander.run(&["DEL", "huge:set"])?;
            commander.wait_until_freed()
        },
        is_once: true,
        load: get,
    },
    Phase {
        name: "del-many",
        title: "DEL of 100 k keys",
        is_goal: false,
        prepare: |commander, sizes| string_keys(commander, "many:", 0, sizes.elements(100), None),
        act: |commander, sizes| {
            let mut words = vec!["DEL".to_owned()];
            words.extend((0..sizes.elements(100)).map(|n| format!("many:{n}")));
            commander.run(&words).map(drop)
        },
        is_once: true,
        load: get,
    },
    Phase {
        name: "bgsave-keys",
        title: "BGSAVE of 1 M keys, half of the load SET",
        is_goal: false,
        prepare: reader_keys,
        act: |commander, _| {
            commander.run(&["BGSAVE"])?;
            commander.wait_until_saved()
        },
        is_once: false,
        load: get_and_set,
    },
    Phase {
        name: "bgsave-hash",
        title: "BGSAVE of a hash of 5 M, the load HSET",
        is_goal: false,
        prepare: huge_hash,
        act: |commander, _| {
            commander.run(&["BGSAVE"])?;
            commander.wait_until_saved()
        },
        is_once: false,
        load: |rng, sizes| {
            let field = format!("field:{:012}", rng.below(sizes.elements(5000)));
            encode(&["HSET", "huge:hash", &field, &"y".repeat(60)])
        },
    },
    Phase {
        name: "growing-hash",
        title: "a hash grows from 1 M to 5 M (HSET of 50)",
        is_goal: false,
        prepare: |commander, sizes| {
            commander.run(&["DEL", "huge:hash"])?;
            fields(commander, 0, sizes.elements(1000), 1000)?;
            commander.wait_until_freed()
        },
        act: |commander, sizes| fields(commander, sizes.elements(1000), sizes.elements(5000), 50),
        is_once: true,
        load: |rng, sizes| {
            let field = format!("field:{:012}", rng.below(sizes.elements(1000)));
            encode(&["HGET", "huge:hash", &field])
        },
    },
    Phase {
        name: "del-hash",
        title: "DEL of a hash of 5 M",
        is_goal: false,
        prepare: huge_hash,
        act: |commander, _| {
            commander.run(&["DEL", "huge:hash"])?;
            commander.wait_until_freed()
        },
        is_once: true,
        load: get,
    },
    Phase {
        name: "del-zset",
        title: "DEL of a sorted set of 5 M",
        is_goal: false,
        prepare: |commander, sizes| {
            let count = sizes.elements(5000);
            commander.fill("ZADD", "huge:zset", count, |n| {
                vec![(n * 7919 % count).to_string(), format!("member:{n}")]
            })
        },
        act: |commander, _| {
            commander.run(&["DEL", "huge:zset"])?;
            commander.wait_until_freed()
        },
        is_once: true,
        load: get,
    },
    Phase {
        name: "del-list",
        title: "DEL of a list of 5 M",
        is_goal: false,
        prepare: |commander, sizes| {
            let count = sizes.elements(5000);
            commander.fill("RPUSH", "huge:list", count, |n| vec![format!("element:{n}")])
        },
        act: |commander, _| {
            commander.run(&["DEL", "huge:list"])?;
            commander.wait_until_freed()
        },
        is_once: true,
        load: get,
    },
    Phase {
        name: "rename",
        title: "RENAME of a hash of 1 M to and fro",
        is_goal: false,
        prepare: big_hash,
        act: |commander, _| {
            commander.run(&["RENAME", "big:hash", "big:other"])?;
            commander.run(&["RENAME", "big:other", "big:hash"]).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "copy",
        title: "COPY REPLACE of a hash of 1 M",
        is_goal: false,
        prepare: big_hash,
        act: |commander, _| {
            commander.run(&["COPY", "big:hash", "big:copy", "REPLACE"])?;
            commander.wait_until_freed()
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "dump",
        title: "DUMP of a hash of 1 M",
        is_goal: false,
        prepare: big_hash,
        act: |commander, _| commander.run(&["DUMP", "big:hash"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "restore",
        title: "RESTORE REPLACE of a hash of 1 M",
        is_goal: false,
        prepare: big_hash,
        act: |commander, _| {
            let payload = commander.bulk(&["DUMP", "big:hash"])?;
            commander.run(&[&b"RESTORE"[..], b"big:copy", b"0", &payload, b"REPLACE"])?;
            commander.wait_until_freed()
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "sinterstore",
        title: "SINTERSTORE of 2 × 1 M that are equal",
        is_goal: false,
        prepare: |commander, sizes| {
            big_sets(commander, sizes)?;
            commander.run(&["COPY", "big:set", "big:same", "REPLACE"]).map(drop)
        },
        act: |commander, _| {
            commander.run(&["SINTERSTORE", "big:inter", "big:set", "big:same"])?;
            commander.wait_until_freed()
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "exec",
        title: "EXEC of 100 k INCR of one key",
        is_goal: false,
        prepare: nothing,
        act: |commander, sizes| {
            let queued = encode(&["INCR", "counter"]).repeat(sizes.elements(100));
            let requests = [encode(&["MULTI"]), queued, encode(&["EXEC"])].concat();
            commander.run_encoded(&requests).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "exec-many",
        title: "EXEC of 100 k SET of as many keys",
        is_goal: false,
        prepare: nothing,
        act: |commander, sizes| {
            let mut requests = encode(&["MULTI"]);
            for number in 0..sizes.elements(100) {
                requests.extend(encode(&["SET", &format!("many:{number}"), "value"]));
            }
            requests.extend(encode(&["EXEC"]));
            commander.run_encoded(&requests).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "sort-by",
        title: "SORT BY and GET patterns of a list of 100 k",
        is_goal: false,
        prepare: |commander, sizes| {
            let count = sizes.elements(100);
            commander.run(&["DEL", "big:ids"])?;
            commander.fill("RPUSH", "big:ids", count, |n| vec![format!("{n:012}")])
        },
        act: |commander, _| {
            let words = ["SORT", "big:ids", "BY", "key:*", "ALPHA", "GET", "key:*"];
            commander.run(&words).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "mset",
        title: "MSET of 100 k keys",
        is_goal: false,
        prepare: nothing,
        act: |commander, sizes| {
            let mut words = vec!["MSET".to_owned()];
            let pair = |n| [format!("many:{n}"), "value".to_owned()];
            words.extend((0..sizes.elements(100)).flat_map(pair));
            commander.run(&words).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "exists",
        title: "EXISTS of 100 k keys",
        is_goal: false,
        prepare: nothing,
        act: |commander, sizes| {
            let mut words = vec!["EXISTS".to_owned()];
            words.extend((0..sizes.elements(100).min(sizes.keys)).map(key));
            commander.run(&words).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "touch",
        title: "TOUCH of 100 k keys",
        is_goal: false,
        prepare: nothing,
        act: |commander, sizes| {
            let mut words = vec!["TOUCH".to_owned()];
            words.extend((0..sizes.elements(100).min(sizes.keys)).map(key));
            commander.run(&words).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "sunion-many",
        title: "SUNION of 100 k sets",
        is_goal: false,
        prepare: |commander, sizes| {
            for start in (0..sizes.elements(100)).step_by(500) {
                let requests: Vec<u8> = (start..start + 500)
                    .flat_map(|n| encode(&["SADD", &format!("small:{n}"), &n.to_string()]))
                    .collect();
                commander.run_encoded(&requests)?;
            }
            Ok(())
        },
        act: |commander, sizes| {
            let mut words = vec!["SUNION".to_owned()];
            words.extend((0..sizes.elements(100)).map(|n| format!("small:{n}")));
            commander.run(&words).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "get-huge",
        title: "GET of a string of 100 MB",
        is_goal: false,
        prepare: |commander, sizes| {
            let end = (sizes.elements(100) * 1000).to_string();
            commander.run(&["SETRANGE", "huge:string", &end, "x"]).map(drop)
        },
        act: |commander, _| commander.run(&["GET", "huge:string"]).map(drop),
        is_once: false,
        load: get,
    },
    Phase {
        name: "swapdb",
        title: "SWAPDB to and fro",
        is_goal: false,
        prepare: nothing,
        act: |commander, _| {
            commander.run(&["SWAPDB", "0", "1"])?;
            commander.run(&["SWAPDB", "0", "1"]).map(drop)
        },
        is_once: false,
        load: get,
    },
    Phase {
        name: "expire",
        title: "1 M keys expire at once",
        is_goal: false,
        prepare: |commander, sizes| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            // Time enough to write them all; the last step waits for the moment.
            let at = now + Duration::from_secs(12);
            string_keys(commander, "volatile:", 0, sizes.elements(1000), Some(at))?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            std::thread::sleep(at.saturating_sub(now));
            Ok(())
        },
        act: |commander, sizes| {
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while commander.dbsize()? > sizes.keys + 100 && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        },
        is_once: true,
        load: get,
    },
    Phase {
        name: "growth",
        title: "growth from 1 M to 8 M keys (MSET of 50)",
        is_goal: true,
        prepare: |commander, sizes| {
            commander.run(&["FLUSHALL", "ASYNC"])?;
            commander.wait_until_freed()?;
            reader_keys(commander, sizes)
        },
        act: |commander, sizes| {
            let (from, to) = (sizes.keys, sizes.keys + sizes.elements(7000));
            for start in (from..to).step_by(50) {
                let mut words = vec!["MSET".to_owned()];
                for number in start..to.min(start + 50) {
                    words.extend([key(number), "value:0123456789".to_owned()]);
                }
                commander.run(&words)?;
            }
            Ok(())
        },
        is_once: true,
        load: get,
    },
    Phase {
        name: "flushall",
        title: "FLUSHALL ASYNC of 1 M keys",
        is_goal: true,
        prepare: reader_keys,
        act: |commander, _| {
            commander.run(&["FLUSHALL", "ASYNC"])?;
            commander.wait_until_freed()
        },
        is_once: true,
        load: get,
    },
    Phase {
        name: "flushall-sync",
        title: "FLUSHALL SYNC of 1 M keys",
        is_goal: false,
        prepare: reader_keys,
        act: |commander, _| commander.run(&["FLUSHALL", "SYNC"]).map(drop),
        is_once: true,
        load: get,
    },
];
