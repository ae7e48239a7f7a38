//! The types that Redis has in modules, as a table: requests that make keys of each type, that
//! change them, and that read them. A test of what holds for every type goes through the table.
//!
//! A request is a line of words. `~` stands before each key, and gives way to a test's tag.

use crate::client::Client;
use crate::reply::Reply;

/// One type.
#[derive(Debug)]
pub struct ModuleType {
    /// What TYPE says of it.
    pub name: &'static str,
    /// The ACL category of its commands.
    pub category: &'static str,
    /// Requests that make keys.
    pub make: &'static [&'static str],
    /// Requests that change them. What they do follows from the values that are there, chance
    /// included.
    pub change: &'static [&'static str],
    /// The event of the first change.
    pub event: &'static str,
    /// A request that reads the key of the first change.
    pub read: &'static str,
}

/// Every type. Together they make [`KEYS`] keys.
pub static TYPES: [ModuleType; 8] = [
    ModuleType {
        name: "ReJSON-RL",
        category: "json",
        make: &[
            r#"JSON.SET ~json $ {"name":"Ann","tags":["a"],"n":[1,2,3],"f":[1.5],"in":{"x":null}}"#,
            "JSON.NUMINCRBY ~json $.n[1] 5",
        ],
        change: &["JSON.ARRAPPEND ~json $.n 9", "JSON.DEL ~json $.tags"],
        event: "json.arrappend",
        read: "JSON.GET ~json $.n",
    },
    ModuleType {
        name: "MBbloom--",
        category: "bloom",
        make: &[
            "BF.RESERVE ~bloom 0.01 20",
            "BF.MADD ~bloom a b c d e f g h i j k l m n o p q r s t u v w x y z",
        ],
        change: &["BF.MADD ~bloom 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"],
        event: "bf.add",
        read: "BF.MEXISTS ~bloom a 7 none",
    },
    ModuleType {
        name: "MBbloomCF",
        category: "cuckoo",
        make: &[
            "CF.RESERVE ~cuckoo 64 BUCKETSIZE 4",
            "CF.INSERT ~cuckoo ITEMS a b c a",
            "CF.DEL ~cuckoo b",
        ],
        change: &["CF.ADD ~cuckoo d"],
        event: "cf.add",
        read: "CF.MEXISTS ~cuckoo a b d",
    },
    ModuleType {
        name: "CMSk-TYPE",
        category: "cms",
        make: &["CMS.INITBYDIM ~cms 100 5", "CMS.INCRBY ~cms a 5 b 70000"],
        change: &["CMS.INCRBY ~cms a 7 c 1"],
        event: "cms.incrby",
        read: "CMS.QUERY ~cms a b c",
    },
    ModuleType {
        name: "TopK-TYPE",
        category: "topk",
        make: &["TOPK.RESERVE ~topk 2 50 4 0.9", "TOPK.INCRBY ~topk a 3 b 2 c 9"],
        change: &["TOPK.ADD ~topk d d d d e f g"],
        event: "topk.add",
        read: "TOPK.LIST ~topk WITHCOUNT",
    },
    ModuleType {
        name: "TDIS-TYPE",
        category: "tdigest",
        make: &["TDIGEST.CREATE ~tdigest", "TDIGEST.ADD ~tdigest 1 2 3.5 100 -7"],
        change: &["TDIGEST.ADD ~tdigest 5 6 7"],
        event: "tdigest.add",
        read: "TDIGEST.QUANTILE ~tdigest 0 0.5 1",
    },
    ModuleType {
        name: "TSDB-TYPE",
        category: "timeseries",
        make: &[
            "TS.CREATE ~{series}gauge RETENTION 1000000 DUPLICATE_POLICY LAST LABELS kind gauge \
             room hall",
            "TS.CREATE ~{series}hour LABELS kind hour",
            "TS.CREATERULE ~{series}gauge ~{series}hour AGGREGATION avg 1000",
            "TS.MADD ~{series}gauge 1000 1.5 ~{series}gauge 2600 -3 ~{series}gauge 500 7",
            "TS.CREATE ~plain UNCOMPRESSED",
            "TS.ADD ~plain 1 0.1",
        ],
        change: &["TS.MADD ~{series}gauge 3700 1 ~{series}gauge 1000 4 ~{series}gauge 4800 2"],
        event: "ts.add",
        read: "TS.RANGE ~{series}gauge - +",
    },
    ModuleType {
        name: "vectorset",
        category: "vector",
        make: &[
            r#"VADD ~vectors VALUES 4 1 0.5 -1 0.25 one SETATTR {"year":1979}"#,
            "VADD ~vectors VALUES 4 0.9 0.5 -1 0.3 two",
            "VADD ~vectors VALUES 4 -1 0 0.5 0.75 three",
            "VADD ~reduced REDUCE 3 VALUES 6 1 2 3 4 5 6 one NOQUANT",
            "VADD ~reduced REDUCE 3 VALUES 6 -1 2 -3 4 5 6 two NOQUANT",
        ],
        change: &[
            "VADD ~vectors VALUES 4 0.1 0.2 0.3 0.4 four",
            "VADD ~reduced REDUCE 3 VALUES 6 1 1 1 4 5 6 three NOQUANT",
            "VREM ~vectors two",
        ],
        event: "vadd",
        read: "VSIM ~vectors ELE one WITHSCORES",
    },
];

/// How many keys [`fill`] makes.
pub const KEYS: usize = 11;

impl ModuleType {
    /// Returns the key of the first change, which is the one that is read.
    pub fn key(&self, tag: &str) -> String {
        keys(self.read, tag).remove(0)
    }

    /// Returns all requests, in an order in which they can be sent.
    pub fn requests(&self) -> impl Iterator<Item = &'static str> {
        self.make.iter().chain(self.change).copied().chain([self.read])
    }
}

/// Returns the words of a request, with a tag before each key.
pub fn words(request: &str, tag: &str) -> Vec<String> {
    let word = |word: &str| match word.strip_prefix('~') {
        Some(key) => format!("{tag}{key}"),
        None => word.to_owned(),
    };
    request.split(' ').map(word).collect()
}

/// Returns the keys of a request, with a tag before each.
pub fn keys(request: &str, tag: &str) -> Vec<String> {
    let keys = request.split(' ').filter_map(|word| word.strip_prefix('~'));
    keys.map(|key| format!("{tag}{key}")).collect()
}

/// Sends a request, with a tag before each key.
///
/// # Panics
/// If it is refused: it is for tests.
#[track_caller]
pub fn send(client: &mut Client, request: &str, tag: &str) -> Reply {
    let reply = client.command(&words(request, tag)).expect("it answers");
    assert!(!reply.is_error(), "{request}: {reply:?}");
    reply
}

/// Makes keys of each type. Their names begin with a tag.
///
/// # Panics
/// If a request is refused: it is for tests.
#[track_caller]
pub fn fill(client: &mut Client, tag: &str) {
    for request in TYPES.iter().flat_map(|row| row.make) {
        send(client, request, tag);
    }
}

/// Changes the keys that [`fill`] has made.
///
/// # Panics
/// If a request is refused: it is for tests.
#[track_caller]
pub fn change(client: &mut Client, tag: &str) {
    for request in TYPES.iter().flat_map(|row| row.change) {
        send(client, request, tag);
    }
}
