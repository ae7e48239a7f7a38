//! The rules of users: they do not panic, and what an ACL file saves makes the same users when it
//! is loaded: they may send the same requests.

use config::Config;
use engine::DbIndex;
use engine::acl::{Acl, Request};
use engine::request_keys::RequestKeys;
use engine::table::CommandTable;
use keyspace::Keyspace;
use keyspace::keyspace::Assignment;
use std::sync::OnceLock;

/// Requests of all that rules are about.
const REQUESTS: [&[&[u8]]; 12] = [
    &[b"get", b"a"],
    &[b"set", b"b", b"v"],
    &[b"set", b"b", b"v", b"get"],
    &[b"mget", b"a", b"\xff"],
    &[b"hdel", b"a", b"f"],
    &[b"publish", b"c", b"m"],
    &[b"psubscribe", b"c*", b"\xff*"],
    &[b"config", b"get", b"x"],
    &[b"select", b"1"],
    &[b"copy", b"a", b"b", b"db", b"2"],
    &[b"flushall"],
    &[b"eval", b"return 1", b"1", b"a"],
];

fn table() -> &'static CommandTable {
    static TABLE: OnceLock<CommandTable> = OnceLock::new();
    TABLE.get_or_init(|| CommandTable::build(&commands::rows(), &[]))
}

/// For each user and request, whether it may send it.
fn answers(acl: &Acl) -> Vec<(String, Vec<bool>)> {
    let keyspace = Keyspace::new(1, Assignment::ByHash);
    let may = |name: &str, words: &[&[u8]]| {
        let user = acl.user(name.as_bytes()).expect("it was listed");
        let row = table().lookup(words).expect("it is a request of this table");
        let keys = RequestKeys::of(&keyspace, row.command, words);
        user.check(&Request { row, words, keys: &keys, db: DbIndex(0), databases: 16 }).is_ok()
    };
    let of_user = |name: String| {
        let answers = REQUESTS.iter().map(|words| may(&name, words)).collect();
        (name, answers)
    };
    acl.names().into_iter().map(of_user).collect()
}

/// The text of an ACL file; each of its lines is also the rules of ACL SETUSER.
pub fn check(text: &[u8]) {
    let acl = Acl::new(table(), &Config::new());
    for line in text.split(|&byte| byte == b'\n') {
        let rules: Vec<&[u8]> =
            line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
        // Whether they are right is not the question here.
        let _ = acl.change(b"someone", &rules);
    }
    same_when_loaded(&acl);
    let _ = acl.remove(b"someone");
    if acl.load(text, "users.acl").is_ok() {
        same_when_loaded(&acl);
    }
}

fn same_when_loaded(acl: &Acl) {
    let show = |acl: &Acl| acl.file_text().escape_ascii().to_string();
    let other = Acl::new(table(), &Config::new());
    if let Err(why) = other.load(&acl.file_text(), "users.acl") {
        panic!("what is saved is not loaded: {why}\n{}", show(acl));
    }
    assert_eq!(show(acl), show(&other));
    assert_eq!(answers(acl), answers(&other), "in {}", show(acl));
}
