//! Dunlin as a replica: of the reference servers and of itself, in chains, with links that are cut.

use harness::client::{Client, ask, ok};
use harness::info::{field, number};
use harness::replicas::{Link, compare, is_linked, while_writing, write};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

fn start(program: &Program, arguments: &[&str]) -> Server {
    let all = [&["--save", "", "--repl-diskless-sync-delay", "0"], arguments].concat();
    Server::start(program, Options::arguments(&all)).expect("it starts")
}

fn dunlin(arguments: &[&str]) -> Server {
    start(&Program::under_test(), arguments)
}

fn reference() -> Program {
    Program::reference().expect("there is a reference")
}

fn follow(replica: &mut Client, port: u16) {
    ok(replica, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
}

fn until_linked(server: &Server) {
    let mut client = server.client();
    eventually("the link is up", || is_linked(&mut client));
}

fn fill(server: &Server, seed: u64, writes: usize) {
    let (mut client, mut rng) = (server.client(), Rng::new(seed));
    (0..writes).for_each(|_| write(&mut client, &mut rng));
}

/// The text of an error.
fn error(reply: Reply) -> String {
    let Reply::Error(text) = reply else { panic!("not an error: {reply:?}") };
    String::from_utf8_lossy(&text).into_owned()
}

/// Follows a primary under writes, loading its snapshot in both ways, and cuts the link at random bytes.
fn follows(program: &Program) {
    for (mode, is_diskless) in [("disabled", "yes"), ("flush-before-load", "no")] {
        let primary = start(program, &["--repl-diskless-sync", is_diskless]);
        fill(&primary, 1, 3000);
        let link = Link::to(primary.address()).expect("a link");
        let replica = dunlin(&["--repl-diskless-load", mode]);
        fill(&replica, 2, 100);
        let mut theirs = replica.client();
        let mut rng = Rng::new(3);
        while_writing(&primary, 100, || {
            follow(&mut theirs, link.port());
            until_linked(&replica);
            for _ in 0..5 {
                link.cut_after(rng.below(200_000) as u64);
                eventually("the cut", || !link.is_to_be_cut());
                until_linked(&replica);
            }
        });
        compare(&primary, &replica);
        let mut ours = primary.client();
        assert_eq!(number(&mut ours, "sync_full"), 1, "a cut needs no snapshot");
        assert_eq!(number(&mut theirs, "unexpected_error_replies"), 0);
    }
}

#[test]
fn a_replica_of_the_reference() {
    follows(&reference());
}

#[test]
fn a_replica_of_redis() {
    follows(&reference().beside("redis-server"));
}

#[test]
fn a_replica_of_dunlin() {
    follows(&Program::under_test());
}

#[test]
fn a_chain_goes_on_after_its_middle_is_promoted() {
    let first = dunlin(&[]);
    fill(&first, 4, 1000);
    let second = dunlin(&["--appendonly", "yes"]);
    follow(&mut second.client(), first.port());
    until_linked(&second);
    let third = start(&reference(), &[]);
    follow(&mut third.client(), second.port());
    until_linked(&third);
    while_writing(&first, 300, || {
        std::thread::sleep(std::time::Duration::from_millis(300));
    });
    compare(&first, &third);
    compare(&first, &second);
    let (mut old, mut new) = (first.client(), second.client());
    ok(&mut new, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(field(&mut new, "role"), "master");
    follow(&mut old, second.port());
    until_linked(&first);
    until_linked(&third);
    fill(&second, 5, 1000);
    compare(&second, &third);
    compare(&second, &first);
    assert_eq!(number(&mut new, "sync_full"), 1, "the others went on from where they were");
    assert_eq!(number(&mut old, "sync_full"), 1);
    // Its append-only file has the stream as it came.
    let before = harness::contents::contents(&mut new);
    let mut second = second;
    drop(new);
    second.kill().expect("it was there");
    second.start_again().expect("it starts");
    let after = harness::contents::contents(&mut second.client());
    assert!(before == after, "the log has everything");
}

#[test]
fn what_a_replica_refuses_and_shows() {
    let primary = start(&reference(), &["--requirepass", "secret"]);
    let mut ours = primary.client();
    ok(&mut ours, &["AUTH", "secret"]);
    ok(&mut ours, &["SET", "volatile", "v", "PX", "1500"]);
    let replica = dunlin(&["--primaryauth", "secret"]);
    let mut theirs = replica.client();
    let mut waiting = replica.client();
    waiting.send(&["BLPOP", "list", "0"]).expect("it is sent");
    eventually("it waits", || number(&mut theirs, "blocked_clients") == 1);
    follow(&mut theirs, primary.port());
    let told = waiting.reply().expect("a reply");
    assert!(error(told).starts_with("UNBLOCKED force unblock"));
    until_linked(&replica);
    assert_eq!(field(&mut theirs, "role"), "slave");
    assert_eq!(number(&mut theirs, "master_port"), u64::from(primary.port()));
    assert!(error(ask(&mut theirs, &["SET", "k", "v"])).contains("READONLY You can't write"));
    let script = ask(&mut theirs, &["EVAL", "return redis.call('SET', 'k', 'v')", "0"]);
    assert!(error(script).contains("READONLY"));
    assert_eq!(ask(&mut theirs, &["GET", "volatile"]), Reply::Bulk(b"v".to_vec()));
    // The primary alone deletes what has expired; here it is only not seen.
    ok(&mut ours, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    eventually("it has expired", || ask(&mut theirs, &["GET", "volatile"]) == Reply::Nil);
    assert_eq!(ask(&mut theirs, &["DBSIZE"]), Reply::Integer(1));
    assert_eq!(ask(&mut ours, &["GET", "volatile"]), Reply::Nil);
    eventually("it is deleted", || ask(&mut theirs, &["DBSIZE"]) == Reply::Integer(0));
    // Readers wait for what the primary brings.
    let mut reader = replica.client();
    reader.send(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]).expect("it is sent");
    eventually("it waits", || number(&mut theirs, "blocked_clients") == 1);
    ask(&mut ours, &["XADD", "s", "1-1", "a", "b"]);
    assert!(!reader.reply().expect("a reply").elements().expect("a stream").is_empty());
    assert_eq!(ask(&mut ours, &["WAIT", "1", "5000"]), Reply::Integer(1));
    ok(&mut theirs, &["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    ask(&mut theirs, &["GET", "k"]);
    drop((ours, primary));
    eventually("it has noticed", || !is_linked(&mut theirs));
    assert!(error(ask(&mut theirs, &["GET", "k"])).contains("MASTERDOWN"));
    ok(&mut theirs, &["REPLICAOF", "NO", "ONE"]);
    ok(&mut theirs, &["SET", "k", "v"]);
}

#[test]
fn a_reader_never_sees_half_a_transaction() {
    let primary = dunlin(&[]);
    let replica = dunlin(&[]);
    let (mut ours, mut theirs) = (primary.client(), replica.client());
    ok(&mut ours, &["MSET", "a", "0", "b", "0"]);
    follow(&mut theirs, primary.port());
    until_linked(&replica);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for number in 1..2000 {
                let number = number.to_string();
                ok(&mut ours, &["MULTI"]);
                ask(&mut ours, &["SET", "a", &number]);
                ask(&mut ours, &["SET", "b", &number]);
                ask(&mut ours, &["EXEC"]);
            }
        });
        while !writer.is_finished() {
            let both = ask(&mut theirs, &["MGET", "a", "b"]);
            let both = both.elements().expect("two values").to_vec();
            assert_eq!(both[0], both[1]);
        }
    });
}
