//! `repl-diskless-load swapdb`: the old data set stays until the new one is complete.

use harness::client::{Client, ask, ok};
use harness::info::{field, fields, number};
use harness::replicas::{compare, dunlin, is_linked, until_linked};
use harness::sentinel::hang;
use harness::server::Server;
use harness::wait::eventually;

const KEYS: &str = "3000";

fn primary() -> (Server, Client) {
    let server = dunlin(&["--repl-backlog-size", "16kb", "--rdbcompression", "no"]);
    let mut client = server.client();
    // More than sockets hold, so that a snapshot can be cut off.
    ok(&mut client, &["DEBUG", "POPULATE", KEYS, "key", "20000"]);
    ok(&mut client, &["SET", "state", "old"]);
    ok(&mut client, &["SET", "goes", "1"]);
    ok(&mut client, &["SET", "large", "1"]);
    (server, client)
}

fn follow(replica: &mut Client, primary: &Server) {
    ok(replica, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
}

/// Has the primary cut its replicas off.
fn cut(primary: &mut Client) {
    ask(primary, &["CLIENT", "KILL", "TYPE", "REPLICA"]);
}

/// `loading` and `async_loading`.
fn state(client: &mut Client) -> [String; 2] {
    fields(client, ["loading", "async_loading"])
}

fn until(client: &mut Client, wanted: [&str; 2]) {
    eventually("a state of loading", || state(client) == wanted);
}

#[test]
fn an_earlier_state_of_the_same_data_is_served_meanwhile() {
    let (primary, mut ours) = primary();
    let replica = dunlin(&["--repl-diskless-load", "swapdb", "--appendonly", "yes"]);
    let mut theirs = replica.client();
    follow(&mut theirs, &primary);
    until_linked(&replica);
    let keys = number(&mut theirs, "rdb_last_load_keys_loaded");
    let size = ask(&mut theirs, &["DBSIZE"]).integer();
    assert!(keys > 3000, "{keys}");
    ok(&mut theirs, &["CONFIG", "SET", "key-load-delay", "2000"]);

    // What it lacks is more than the backlog, and what comes last is behind more than sockets hold.
    hang(&replica, true).expect("it hangs");
    let large = "x".repeat(1 << 20);
    (0..40).for_each(|_| drop(ok(&mut ours, &["SET", "large", &large])));
    ok(&mut ours, &["SET", "state", "new"]);
    ok(&mut ours, &["DEL", "goes"]);
    ok(&mut ours, &["SELECT", "5"]);
    ok(&mut ours, &["SET", "other", "1"]);
    let library = "#!lua name=lib\nserver.register_function('two', function() return 2 end)";
    ok(&mut ours, &["FUNCTION", "LOAD", library]);
    cut(&mut ours);
    hang(&replica, false).expect("it goes on");

    let old = |client: &mut Client| {
        assert_eq!(ask(client, &["GET", "state"]).shown(), "old");
        assert_eq!(ask(client, &["DBSIZE"]).integer(), size);
        assert!(ask(client, &["FCALL", "two", "0"]).is_error());
    };
    until(&mut theirs, ["0", "1"]);
    old(&mut theirs);
    assert_eq!(field(&mut theirs, "master_link_status"), "down");
    let refused = ask(&mut theirs, &["BGREWRITEAOF"]);
    assert!(refused.is_error() && refused.shown().starts_with("LOADING"), "{refused:?}");

    // It does not come to its end, twice.
    for _ in 0..2 {
        until(&mut theirs, ["0", "1"]);
        cut(&mut ours);
        until(&mut theirs, ["0", "0"]);
        old(&mut theirs);
    }
    assert_eq!(field(&mut theirs, "role"), "slave");

    let mut watcher = replica.client();
    ok(&mut watcher, &["WATCH", "goes"]);
    ok(&mut theirs, &["CONFIG", "SET", "key-load-delay", "0"]);
    eventually("the link is up", || is_linked(&mut theirs));
    assert_eq!(state(&mut theirs), ["0", "0"]);
    assert_eq!(ask(&mut theirs, &["GET", "state"]).shown(), "new");
    assert_eq!(ask(&mut theirs, &["FUNCTION", "LIST"]).elements().map(<[_]>::len), Some(1));
    ok(&mut watcher, &["MULTI"]);
    ask(&mut watcher, &["PING"]);
    assert!(ask(&mut watcher, &["EXEC"]).is_nil(), "what was watched is gone");
    ok(&mut ours, &["SET", "behind", "1"]);
    compare(&primary, &replica);
}

#[test]
fn other_data_is_kept_until_all_has_come() {
    let (primary, mut ours) = primary();
    let mut replica = dunlin(&["--repl-diskless-load", "swapdb", "--appendonly", "yes"]);
    let mut theirs = replica.client();
    ok(&mut theirs, &["SET", "own", "1"]);
    ok(&mut theirs, &["CONFIG", "SET", "key-load-delay", "2000"]);
    follow(&mut theirs, &primary);
    until(&mut theirs, ["1", "0"]);
    let refused = ask(&mut theirs, &["GET", "own"]);
    assert!(refused.shown().starts_with("LOADING"), "{refused:?}");
    cut(&mut ours);
    until(&mut theirs, ["0", "0"]);
    assert_eq!(ask(&mut theirs, &["GET", "own"]).shown(), "1");
    assert_eq!(ask(&mut theirs, &["DBSIZE"]).integer(), Some(1));
    ok(&mut theirs, &["CONFIG", "SET", "key-load-delay", "0"]);
    eventually("the link is up", || is_linked(&mut theirs));
    assert!(ask(&mut theirs, &["GET", "own"]).is_nil());
    compare(&primary, &replica);
    eventually("its log is written", || field(&mut theirs, "aof_rewrite_in_progress") == "0");
    drop(theirs);
    replica.restart().expect("it starts");
    let mut theirs = replica.client();
    assert!(ask(&mut theirs, &["GET", "own"]).is_nil());
    assert_eq!(ask(&mut theirs, &["GET", "state"]).shown(), "old");
}

#[test]
fn clients_that_wait_get_what_the_new_data_has() {
    let (primary, mut ours) = primary();
    let options = ["--repl-diskless-load", "swapdb", "--replica-read-only", "no"];
    let replica = dunlin(&options);
    let mut theirs = replica.client();
    follow(&mut theirs, &primary);
    until_linked(&replica);
    let (mut reader, mut popper, mut other) =
        (replica.client(), replica.client(), replica.client());
    reader.send(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "0"]).expect("it is sent");
    popper.send(&["BLPOP", "list", "0"]).expect("it is sent");
    other.send(&["BLPOP", "nothing", "0"]).expect("it is sent");
    eventually("they wait", || number(&mut theirs, "blocked_clients") == 3);
    // What comes meanwhile comes with a snapshot.
    hang(&replica, true).expect("it hangs");
    let large = "x".repeat(1 << 20);
    (0..40).for_each(|_| drop(ok(&mut ours, &["SET", "large", &large])));
    ask(&mut ours, &["XADD", "stream", "1-1", "field", "value"]);
    ask(&mut ours, &["RPUSH", "list", "element"]);
    (0..40).for_each(|_| drop(ok(&mut ours, &["SET", "large", &large])));
    cut(&mut ours);
    hang(&replica, false).expect("it goes on");
    let entry = reader.reply().expect("a reply");
    assert!(entry.elements().is_some_and(|streams| streams.len() == 1), "{entry:?}");
    let popped = popper.reply().expect("a reply");
    assert_eq!(popped.elements().map(|pair| pair[1].shown()), Some("element".to_owned()));
    until_linked(&replica);
    assert_eq!(number(&mut theirs, "blocked_clients"), 1);
    assert_eq!(number(&mut ours, "sync_full"), 2);
}
