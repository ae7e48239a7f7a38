//! etcd stands still or is killed for several lease times: a shard whose copies all answer goes on.

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, list, operate, text};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server, signal};
use harness::wait::{SetAtEnd, eventually};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Longer than two leases.
const OUTAGE: Duration = Duration::from_secs(9);

/// Makes a cluster of one shard with two copies. The first leads.
pub(crate) fn pair(etcd: &Etcd, options: &[&str]) -> [Server; 2] {
    let nodes = [etcd.node_with(options), etcd.node_with(options)];
    let [mut first, mut second] = [nodes[0].client(), nodes[1].client()];
    operate(&mut first, "CLUSTER ADDSLOTSRANGE 0 16383");
    let id = text(ask(&mut first, "CLUSTER MYID"));
    operate(&mut second, &format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port()));
    operate(&mut second, &format!("CLUSTER REPLICATE {id}"));
    eventually("the shard takes writes", || {
        ask(&mut first, "SET a 1") == Reply::Simple(b"OK".to_vec())
    });
    eventually("the replica has the data", || ask(&mut first, "WAIT 1 100") == Reply::Integer(1));
    nodes
}

fn replication(client: &mut Client) -> String {
    text(ask(client, "INFO replication"))
}

/// The epoch in which the stream's last entry was written.
fn epoch(client: &mut Client) -> u64 {
    let info = replication(client);
    let line = info.lines().find_map(|line| line.strip_prefix("stream_epoch:"));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn until_coordinator(nodes: &[Server], is: &str) {
    for node in nodes {
        let mut client = node.client();
        eventually(&format!("the coordinator is {is}"), || {
            replication(&mut client).contains(&format!("cluster_coordinator:{is}"))
        });
    }
}

/// Writes and reads over one connection until it is over. Each request has to succeed.
fn use_it(mut client: Client, done: &AtomicUsize, is_over: &AtomicBool) {
    while !is_over.load(SeqCst) {
        let number = done.load(SeqCst).to_string();
        ok(&mut client, &format!("SET number {number}"));
        assert_eq!(ask(&mut client, "GET number"), Reply::Bulk(number.into_bytes()));
        done.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_shard_whose_copies_answer_goes_on_without_etcd() {
    let mut etcd = Etcd::start("away");
    let mut nodes = pair(&etcd, &[]);
    let (done, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut client = nodes[0].client();
    std::thread::scope(|threads| {
        let over = SetAtEnd(&is_over);
        let user = nodes[0].client();
        let user = threads.spawn(|| use_it(user, &done, &is_over));
        for is_killed in [false, true] {
            let before = epoch(&mut client);
            match is_killed {
                true => etcd.kill(),
                false => etcd.stop(),
            }
            until_coordinator(&nodes, "away");
            let begun = Instant::now();
            while begun.elapsed() < OUTAGE {
                let before = done.load(SeqCst);
                eventually("requests are answered", || {
                    done.load(SeqCst) > before + 10 || user.is_finished()
                });
                assert!(!user.is_finished(), "a request failed after {:?}", begun.elapsed());
            }
            match is_killed {
                true => etcd.start_again(),
                false => etcd.go_on(),
            }
            until_coordinator(&nodes, "up");
            if !is_killed {
                // Its lease has ended. It must know the answer to its request for a new epoch before
                // etcd is gone again: until then it may not serve, because its replica does.
                eventually("it leads in another epoch", || {
                    epoch(&mut client) > before || user.is_finished()
                });
            }
            assert!(replication(&mut client).contains("role:master"), "another has taken over");
        }
        drop(over);
        user.join().expect("each request succeeds");
    });
    ok(&mut client, "SET last 1");
    eventually("the replica has the data", || ask(&mut client, "WAIT 1 100") == Reply::Integer(1));

    // With etcd back, a replica takes over again.
    nodes[0].kill().expect("it runs");
    let mut second = nodes[1].client();
    eventually("the replica takes over", || {
        ask(&mut second, "SET last 2") == Reply::Simple(b"OK".to_vec())
    });

    // The other copy is gone: without etcd this one cannot know that it is alone.
    // Connections whose requests were under way are closed.
    let is_taken = |request: &str| {
        let words: Vec<&str> = request.split(' ').collect();
        let reply = nodes[1].connect(Protocol::Resp2).and_then(|mut client| client.command(&words));
        reply.is_ok_and(|reply| reply == Reply::Simple(b"OK".to_vec()))
    };
    etcd.stop();
    eventually("it refuses", || !is_taken("SET last 3"));
    etcd.go_on();
    eventually("it leads on", || is_taken("SET last 4"));
}

/// redis-cli ignores what a server answers to REPLICATE: a replica would be missing for good.
#[test]
fn changes_wait_for_a_coordinator_that_stands_still() {
    // Longer than a call to it may take, and shorter than a lease.
    const PAUSE: Duration = Duration::from_millis(1500);
    let etcd = Etcd::start("still");
    let nodes = [etcd.node(), etcd.node()];
    let [mut first, mut second] = [nodes[0].client(), nodes[1].client()];
    operate(&mut first, "CLUSTER ADDSLOTSRANGE 0 16383");
    let id = text(ask(&mut first, "CLUSTER MYID"));
    let changes = [
        format!("CLUSTER MEET 127.0.0.1 {}\r\n", nodes[0].port()),
        format!("CLUSTER REPLICATE {id}\r\n"),
    ];
    for change in changes {
        etcd.stop();
        second.send_raw(change.as_bytes()).expect("it is sent");
        std::thread::sleep(PAUSE);
        etcd.go_on();
        assert_eq!(
            second.reply().expect("it is answered"),
            Reply::Simple(b"OK".to_vec()),
            "{change}"
        );
    }
    eventually("the replica follows", || ask(&mut first, "WAIT 1 100") == Reply::Integer(1));
}

/// `redis-cli --cluster create` asks as soon as a server listens.
#[test]
fn what_is_asked_of_a_new_server_waits_for_the_first_answer_of_etcd() {
    let etcd = Etcd::start("first-answer");
    etcd.stop();
    let coordinator = Etcd::coordinator(std::slice::from_ref(&etcd));
    let arguments = ["--cluster-enabled", "yes", "--cluster-coordinator", &coordinator];
    let node = Server::start(&Program::under_test(), Options::arguments(&arguments));
    let node = node.expect("it listens without etcd");
    let mut client = node.client();
    client.send(&["CLUSTER", "INFO"]).expect("it is sent");
    let mut other = node.client();
    // Others are served meanwhile.
    assert_eq!(ask(&mut other, "PING"), Reply::Simple(b"PONG".to_vec()));
    assert!(!client.has_data().expect("it is connected"));
    etcd.go_on();
    let info = text(client.reply().expect("it is answered"));
    assert!(info.contains("cluster_known_nodes:1"), "{info}");
}

/// `cluster-replica-no-failover`: nothing takes the place of a primary that has gone.
#[test]
fn a_replica_that_is_never_promoted_lets_its_shard_wait() {
    let etcd = Etcd::start("never-promoted");
    let mut nodes = pair(&etcd, &[]);
    let mut replica = nodes[1].client();
    ok(&mut replica, "CONFIG SET cluster-replica-no-failover yes");
    let mut primary = nodes[0].client();
    eventually("the primary knows it", || {
        text(ask(&mut primary, "CLUSTER NODES")).contains(" slave,nofailover ")
    });
    nodes[0].kill().expect("it runs");
    eventually("the primary's lease has ended", || {
        text(ask(&mut replica, "CLUSTER NODES")).contains(" master,fail ")
    });
    assert!(replication(&mut replica).contains("role:slave"));
    ok(&mut replica, "CONFIG SET cluster-replica-no-failover no");
    eventually("it takes writes", || !ask(&mut replica, "SET a 2").is_error());
}

/// `cluster-replica-validity-factor`: a replica that was silent for long is not promoted with old data.
#[test]
fn a_replica_with_old_data_lets_its_shard_wait() {
    let etcd = Etcd::start("old-data");
    let options = [
        "--cluster-lease",
        "1",
        "--cluster-replica-validity-factor",
        "1",
        "--repl-ping-replica-period",
        "1",
    ];
    let mut nodes =
        pair(&etcd, &[&options[..], &["--appendonly", "yes", "--appendfsync", "always"]].concat());
    signal(nodes[1].process_id(), "STOP").expect("it runs");
    ok(&mut nodes[0].client(), "SET a 2");
    eventually("the primary says so", || {
        nodes[0].log().contains("cluster-replica-validity-factor")
    });
    // The transaction is made within a moment.
    eventually("the replica is no member", || {
        replication(&mut nodes[0].client()).contains("cluster_members:1\r\n")
    });
    nodes[0].kill().expect("it runs");
    signal(nodes[1].process_id(), "CONT").expect("it is there");
    let mut replica = nodes[1].client();
    eventually("the primary's lease has ended", || {
        text(ask(&mut replica, "CLUSTER NODES")).contains(" master,fail ")
    });
    assert!(replication(&mut replica).contains("role:slave"));
    nodes[0].start_again().expect("it starts");
    eventually("the shard has its data", || {
        ask(&mut nodes[0].client(), "GET a") == Reply::Bulk(b"2".to_vec())
    });
    eventually("the replica has the data", || {
        ask(&mut nodes[0].client(), "WAIT 1 100") == Reply::Integer(1)
    });
    eventually("the replica is a member again", || {
        replication(&mut nodes[0].client()).contains("cluster_members:2\r\n")
    });
}

/// No quorum confirms anything to a replica: it answers what it is asked, also a client that has
/// written while it was the primary.
#[test]
fn a_replica_answers_without_a_quorum() {
    let etcd = Etcd::start("replica-answers");
    let options = ["--commit-mode", "quorum", "--commit-timeout-ms", "100000"];
    let nodes = pair(&etcd, &[&options[..], &["--enable-debug-command", "yes"]].concat());
    let mut writer = nodes[0].client();
    ok(&mut writer, "SET a 2");
    let answers = |client: &mut Client| {
        assert_eq!(ask(client, "DBSIZE"), Reply::Integer(1));
        ok(client, "DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
        ok(client, "READONLY");
        assert_eq!(ask(client, "GET a"), Reply::Bulk(b"2".to_vec()));
    };
    let mut replica = nodes[1].client();
    eventually("the replica has the value", || {
        replication(&mut replica).contains("link_status:up")
    });
    answers(&mut replica);
    ok(&mut replica, "CLUSTER FAILOVER");
    eventually("the primary is a replica", || replication(&mut writer).contains("role:slave"));
    answers(&mut writer);
    answers(&mut nodes[0].client());
}

/// A client that may read at a replica may run there what writes no key by its row, or by what its
/// script says. A script that writes all the same finds no key there.
#[test]
fn a_replica_for_readers_answers_scripts_counts_and_messages() {
    let etcd = Etcd::start("replica-scripts");
    let nodes = pair(&etcd, &[]);
    let mut writer = nodes[0].client();
    ok(&mut writer, "SET k v");
    ok(&mut writer, "PFADD {k}counter a b");
    let mut reader = nodes[1].client();
    ok(&mut reader, "READONLY");
    eventually("the replica has both", || {
        ask(&mut reader, "PFCOUNT {k}counter") == Reply::Integer(2)
    });
    const GET: &str = "return redis.call('GET', KEYS[1])";
    const SET: &str = "return redis.call('SET', KEYS[1], 'x')";
    let digest = text(ok(&mut reader, &["SCRIPT", "LOAD", GET]));
    let value = Reply::Bulk(b"v".to_vec());
    for words in [
        ["EVAL", GET, "1", "k"],
        ["EVAL", &format!("#!lua flags=no-writes\n{GET}"), "1", "k"],
        ["EVALSHA", &digest, "1", "k"],
        ["EVAL_RO", GET, "1", "k"],
    ] {
        assert_eq!(ask(&mut reader, &words), value, "{words:?}");
    }
    ok(&mut reader, "MULTI");
    ok(&mut reader, &["EVAL", GET, "1", "k"]);
    assert_eq!(ask(&mut reader, "EXEC"), Reply::Array(vec![value.clone()]));
    for (words, begin) in [
        (["EVAL", SET, "1", "k"], "ERR Script attempted to access a non local key"),
        (["EVAL", &format!("#!lua\n{GET}"), "1", "k"], "MOVED "),
        (["EVALSHA", &"f".repeat(40), "1", "k"], "NOSCRIPT "),
        (["SORT", "k", "STORE", "k"], "MOVED "),
    ] {
        let said = error(&ask(&mut reader, &words));
        assert!(said.starts_with(begin), "{words:?}: {said}");
    }

    // A message reaches those that listen at the primary, and at the replica once.
    let mut listeners = [nodes[0].client(), nodes[1].client()];
    for listener in &mut listeners {
        ok(listener, "SSUBSCRIBE {k}channel");
    }
    let mut other = nodes[1].client();
    ok(&mut other, "SPUBLISH {k}channel first");
    ok(&mut other, "SPUBLISH {k}channel second");
    for listener in &mut listeners {
        for message in ["first", "second"] {
            let reply = listener.reply().expect("a message");
            let words: Vec<String> = list(&reply).iter().cloned().map(text).collect();
            assert_eq!(words, ["smessage", "{k}channel", message]);
        }
    }
    ok(&mut other, "READWRITE");
    let said = error(&ask(&mut other, &["EVAL", GET, "1", "k"]));
    assert!(said.starts_with("MOVED "), "{said}");
}
