//! The long commands whose effect on others is measured.

use super::commander::Commander;
use super::load::key;
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
}

/// How big everything is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Keys that the readers ask for.
    pub keys: usize,
    /// A thousandth of what the big values hold; 1000 for the sizes of the issue.
    pub scale: usize,
}

impl Sizes {
    fn elements(self, thousands: usize) -> usize {
        thousands * self.scale
    }
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
    },
    Phase {
        name: "keys-all",
        title: "KEYS * over 1 M keys",
        is_goal: false,
        prepare: nothing,
        act: |commander, _| commander.run(&["KEYS", "*"]).map(drop),
        is_once: false,
    },
    Phase {
        name: "sort",
        title: "SORT of a list of 1 M",
        is_goal: true,
        prepare: big_list,
        act: |commander, _| commander.run(&["SORT", "big:list"]).map(drop),
        is_once: false,
    },
    Phase {
        name: "sort-limit",
        title: "SORT … LIMIT 0 10 of a list of 1 M",
        is_goal: false,
        prepare: big_list,
        act: |commander, _| commander.run(&["SORT", "big:list", "LIMIT", "0", "10"]).map(drop),
        is_once: false,
    },
    Phase {
        name: "sort-store",
        title: "SORT … STORE of a list of 1 M",
        is_goal: false,
        prepare: big_list,
        act: |commander, _| commander.run(&["SORT", "big:list", "STORE", "big:out"]).map(drop),
        is_once: false,
    },
    Phase {
        name: "lrange",
        title: "LRANGE 0 -1 of 1 M",
        is_goal: false,
        prepare: big_list,
        act: |commander, _| commander.run(&["LRANGE", "big:list", "0", "-1"]).map(drop),
        is_once: false,
    },
    Phase {
        name: "smembers",
        title: "SMEMBERS of 1 M",
        is_goal: false,
        prepare: big_sets,
        act: |commander, _| commander.run(&["SMEMBERS", "big:set"]).map(drop),
        is_once: false,
    },
    Phase {
        name: "hgetall",
        title: "HGETALL of 1 M",
        is_goal: false,
        prepare: |commander, sizes| {
            let count = sizes.elements(1000);
            commander.fill("HSET", "big:hash", count, |n| vec![format!("field:{n}"), n.to_string()])
        },
        act: |commander, _| commander.run(&["HGETALL", "big:hash"]).map(drop),
        is_once: false,
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
    },
    Phase {
        name: "scan",
        title: "SCAN COUNT 1000000",
        is_goal: false,
        prepare: nothing,
        act: |commander, _| commander.run(&["SCAN", "0", "COUNT", "1000000"]).map(drop),
        is_once: false,
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
    },
    Phase {
        name: "digest",
        title: "DEBUG DIGEST of 1 M keys",
        is_goal: false,
        prepare: nothing,
        act: |commander, _| commander.run(&["DEBUG", "DIGEST"]).map(drop),
        is_once: false,
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
    },
    Phase {
        name: "flushall-sync",
        title: "FLUSHALL SYNC of 1 M keys",
        is_goal: false,
        prepare: reader_keys,
        act: |commander, _| commander.run(&["FLUSHALL", "SYNC"]).map(drop),
        is_once: true,
    },
];

fn nothing(_: &mut Commander, _: &Sizes) -> io::Result<()> {
    Ok(())
}

/// Writes the keys that the readers ask for.
pub fn reader_keys(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    for start in (0..sizes.keys).step_by(1000) {
        let mut words = vec!["MSET".to_owned()];
        for number in start..sizes.keys.min(start + 1000) {
            words.extend([key(number), "value:0123456789".to_owned()]);
        }
        commander.run(&words)?;
    }
    Ok(())
}

fn string_keys(
    commander: &mut Commander,
    prefix: &str,
    from: usize,
    to: usize,
    expiry: Option<Duration>,
) -> io::Result<()> {
    for start in (from..to).step_by(500) {
        let mut requests = Vec::new();
        for number in start..to.min(start + 500) {
            let key = format!("{prefix}{number}");
            match expiry {
                Some(at) => {
                    let at = at.as_millis().to_string();
                    requests.extend(encode(&["SET", &key, "value", "PXAT", &at]));
                }
                None => requests.extend(encode(&["SET", &key, "value"])),
            }
        }
        commander.run_encoded(&requests)?;
    }
    Ok(())
}

fn big_list(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    let count = sizes.elements(1000);
    commander.run(&["DEL", "big:list"])?;
    commander.fill("RPUSH", "big:list", count, |n| vec![(n * 7919 % count).to_string()])
}

fn big_sets(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    let count = sizes.elements(1000);
    commander.fill("SADD", "big:set", count, |n| vec![format!("member:{n}")])?;
    commander.fill("SADD", "big:set2", count, |n| vec![format!("other:{n}")])
}

fn huge_set(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    let count = sizes.elements(5000);
    commander.fill("SADD", "huge:set", count, |n| vec![format!("member:{n}")])
}
