//! Jobs that move slots (CLUSTER MIGRATESLOTS, CLUSTER MIGRATION), under writers and faults.

use super::*;
use harness::client::encode;
use harness::contents::contents;
use harness::module_types;
use harness::wait::SetAtEnd;
use std::time::Instant;

/// The jobs that a node tells of: what each of them says.
pub(crate) fn jobs(node: &Server) -> Vec<BTreeMap<String, String>> {
    let mut client = node.client();
    ok(&mut client, "CLIENT CAPA cluster");
    let reply = ask(&mut client, "CLUSTER GETSLOTMIGRATIONS");
    let told = |job: &Reply| {
        let words: Vec<String> = list(job).iter().map(Reply::shown).collect();
        words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    };
    list(&reply).iter().map(told).collect()
}

fn has_ended(node: &Server, outcome: &str) -> bool {
    jobs(node).first().is_some_and(|job| job["state"] == outcome)
}

#[test]
fn a_job_moves_slots_under_writers() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-job");
    let nodes = three(&etcd);
    let (first, to) = (nodes[0].port(), id_of(&nodes[2]));
    let mut source = nodes[0].client();
    let own = id_of(&nodes[0]);
    let refusals = [
        ("CLUSTER CANCELSLOTMIGRATIONS".to_owned(), "ERR No migrations ongoing"),
        (
            format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 1 NODE {own}"),
            "ERR Target node can not be this node.",
        ),
        (
            format!("CLUSTER MIGRATESLOTS SLOTSRANGE 16000 16001 NODE {to}"),
            "ERR Slots are not served by this node.",
        ),
        ("CLUSTER MIGRATESLOTS SLOTSRANGE 0 1".to_owned(), "ERR syntax error"),
        (
            format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5 1 NODE {to}"),
            "ERR Start slot number 5 is greater than end slot number 1.",
        ),
        (
            format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 1 1 2 NODE {to}"),
            "ERR Slot range 1-2 overlaps with previous range 0-1.",
        ),
        ("CLUSTER MIGRATESLOTS SLOTSRANGE 0 1 NODE abc".to_owned(), "ERR Invalid node name: abc"),
    ];
    for (request, refusal) in refusals {
        assert_eq!(error(&ask(&mut source, &request)), refusal);
    }
    let stop = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let over = SetAtEnd(&stop);
        let writer = scope.spawn(|| write("job", &mut Routed::new(first), &stop));
        change(&mut source, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 499 1000 3999 NODE {to}"));
        eventually("it ends", || {
            // It reads one node after the other, and may see two of them at both sides of the
            // moment.
            assert!((0..5).any(|_| is_silent(first)), "redis-cli finds fault with the cluster");
            has_ended(&nodes[0], "success") && has_ended(&nodes[2], "success")
        });
        drop(over);
        writer.join().expect("it has written")
    });
    let job = jobs(&nodes[0]).remove(0);
    assert_eq!((&*job["operation"], &*job["slot_ranges"]), ("EXPORT", "0-499 1000-3999"));
    assert_eq!((&job["source_node"], &job["target_node"]), (&own, &to));
    assert_eq!(jobs(&nodes[2])[0]["operation"], "IMPORT");
    verify("job", &mut Routed::new(first), rounds);
    assert_eq!(database_size(&nodes), 6 * KEYS as i64);
    let check = redis_cli(&["--cluster", "check", &format!("127.0.0.1:{first}")]);
    assert!(check.contains("All 16384 slots covered") && !check.contains("WARNING"), "{check}");

    // A job whose target is gone waits, and can be cancelled.
    signal(nodes[2].process_id(), "STOP").expect("it runs");
    change(&mut source, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 4000 4009 NODE {to}"));
    eventually("it says why it waits", || !jobs(&nodes[0])[0]["message"].is_empty());
    change(&mut source, "CLUSTER CANCELSLOTMIGRATIONS");
    eventually("it is over", || has_ended(&nodes[0], "cancelled"));
    signal(nodes[2].process_id(), "CONT").expect("it is there");
}

/// Whether `redis-cli --cluster check` finds nothing to say.
fn is_silent(port: u16) -> bool {
    let address = format!("127.0.0.1:{port}");
    let mut check = harness::server::redis_cli().expect("it is installed");
    let output = check.args(["--cluster", "check", &address]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let says = |word: &str| text.contains(word);
    output.status.success() && says("All 16384 slots covered") && !says("WARNING") && !says("[ERR]")
}

/// A job whose source or target is killed while it copies.
fn outlive(name: &str, killed: usize) {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start(name);
    let mut nodes = six(&etcd);
    for node in &nodes {
        ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
    }
    let mut client = nodes[1].client();
    let keys: Vec<String> = (0..3000).map(|key| format!("key:{key}")).collect();
    keys.iter().for_each(|key| _ = ok(&mut client, &format!("SET {key} {key}")));
    let to = id_of(&nodes[2]);
    let mut source = nodes[0].client();
    ok(&mut source, "CLIENT CAPA cluster");
    // What is in front of these writes in the streams of all shards, their replicas have with them.
    ok(&mut source, "SET b last");
    assert_eq!(ask(&mut source, "WAIT 1 60000"), Reply::Integer(1));
    assert_eq!(ask(&mut client, "WAIT 1 60000"), Reply::Integer(1));
    // The target takes nothing, so the job is under way when a node is killed.
    signal(nodes[2].process_id(), "STOP").expect("it runs");
    change(&mut source, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 5460 NODE {to}"));
    eventually("it is under way", || jobs(&nodes[0])[0]["state"] != "success");
    nodes[killed].kill().expect("it runs");
    if killed != 2 {
        signal(nodes[2].process_id(), "CONT").expect("it is there");
    }
    let moved = || {
        let mut client = nodes[1].client();
        ok(&mut client, "CLIENT CAPA cluster");
        let slots = ask(&mut client, "CLUSTER SHARDS");
        let counts = list(&slots).iter().map(|shard| {
            let bounds = list(&list(shard)[1]);
            let bound = |at: usize| bounds[at].shown().parse::<i64>().unwrap_or(0);
            (0..bounds.len()).step_by(2).map(|at| bound(at + 1) - bound(at) + 1).sum::<i64>()
        });
        counts.max() == Some(5461 + 5461)
    };
    eventually("another goes on", moved);
    let has_all = || ask(&mut nodes[1].client(), "DBSIZE") == Reply::Integer(3001);
    eventually("all keys are there", has_all);
    for key in &keys {
        assert_eq!(ask(&mut client, &format!("GET {key}")), Reply::Bulk(key.clone().into()));
    }
}

#[test]
fn a_job_outlives_its_source() {
    outlive("move-kill-source", 0);
}

#[test]
fn a_job_outlives_its_target() {
    outlive("move-kill-target", 2);
}

/// Slot 3300 is that of `b`, and of the first of three primaries.
#[test]
fn a_copy_is_hidden_until_its_slot_has_moved() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-hidden");
    let nodes = three(&etcd);
    let [mut source, mut target] = [nodes[0].client(), nodes[2].client()];
    ok(&mut source, "SET b 1 PX 100000000");
    for number in 0..500 {
        ok(&mut source, &format!("SET {{b}}{number} {number}"));
    }
    let big = [
        "EVAL",
        "for i = 1, 3000 do redis.call('HSET', KEYS[1], i, i) end return 1",
        "1",
        "{b}big",
    ];
    assert_eq!(source.command(&big).expect("it answers"), Reply::Integer(1));
    ask(&mut source, "HPEXPIRE {b}big 100000000 FIELDS 1 7");
    let string = "v".repeat(100_000);
    source.command(&["SET", "{b}long", &string]).expect("it answers");
    ask(&mut source, "XADD {b}stream 1-1 f v");
    ok(&mut source, "XGROUP CREATE {b}stream group 0");
    ask(&mut source, "XREADGROUP GROUP group consumer COUNT 1 STREAMS {b}stream >");
    module_types::fill(&mut source, "{b}");
    let expected = contents(&mut source);
    let digest = text(ask(&mut source, "DEBUG DIGEST"));
    let mut listener = nodes[0].client();
    assert!(!ask(&mut listener, "SSUBSCRIBE {b}channel").is_error());
    // With the target's replies held back the job stays where it is.
    let to = id_of(&nodes[2]);
    ok(&mut target, "CLIENT PAUSE 100000 WRITE");
    change(&mut source, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {to}"));
    ok(&mut target, "CLIENT UNPAUSE");
    eventually("it ends", || has_ended(&nodes[0], "success") && has_ended(&nodes[2], "success"));
    assert_eq!(ask(&mut target, "DBSIZE"), Reply::Integer((504 + module_types::KEYS) as i64));
    assert_eq!(ask(&mut source, "DBSIZE"), Reply::Integer(0));
    assert_eq!(text(ask(&mut target, "DEBUG DIGEST")), digest);
    assert_eq!(contents(&mut target), expected);
    assert!(matches!(ask(&mut target, "PTTL b"), Reply::Integer(90_000_000..)));
    // Rules and labels have come along.
    assert_eq!(ask(&mut target, "TS.ADD {b}{series}gauge 3700 1"), Reply::Integer(3700));
    let averages = ask(&mut target, "TS.RANGE {b}{series}hour - +");
    assert_eq!(list(&averages).len(), 3, "{averages:?}");
    assert_eq!(list(&ask(&mut target, "TS.QUERYINDEX kind=hour")).len(), 1);
    eventually("the source has dropped its copy", || {
        ask(&mut source, "CLUSTER COUNTKEYSINSLOT 3300") == Reply::Integer(0)
    });
    let told =
        list(&listener.reply().expect("it is told")).iter().map(Reply::shown).collect::<Vec<_>>();
    assert_eq!(told, ["sunsubscribe", "{b}channel", "0"]);
}

/// Counts up as fast as the server takes it, until it is told to stop. Returns the last value of
/// each key.
fn pour(name: &str, source: &Server, target: &Server, stop: &AtomicBool) -> Vec<i64> {
    const PIPELINED: usize = 100;
    let mut client = source.client();
    let mut last = vec![0; PIPELINED];
    let key = |number: usize| format!("{{b}}{name}{number}");
    let batch: Vec<u8> =
        (0..PIPELINED).flat_map(|number| encode(&["INCR", &key(number)])).collect();
    while !stop.load(SeqCst) {
        client.send_raw(&batch).expect("it takes it");
        let mut has_moved = false;
        for last in &mut last {
            match client.reply().expect("it answers") {
                Reply::Integer(value) => {
                    *last += 1;
                    assert_eq!(value, *last, "none is lost or done twice");
                }
                Reply::Error(line) => {
                    assert!(line.starts_with(b"MOVED "), "{}", String::from_utf8_lossy(&line));
                    has_moved = true;
                }
                other => panic!("{other:?}"),
            }
        }
        if has_moved {
            client = target.client();
        }
    }
    last
}

/// `./test cluster-moves` has more values, and shows the figures.
#[test]
fn a_job_catches_up_with_writers_that_never_rest() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-pour");
    let nodes = three(&etcd);
    let megabytes = std::env::var("DUNLIN_MOVE_MIB").ok().and_then(|text| text.parse().ok());
    let mut source = nodes[0].client();
    for number in 0..megabytes.unwrap_or(8) * 1024 {
        let key = format!("{{b}}filler{number}");
        source.send(&["SET", &key, &"v".repeat(1000)]).expect("it takes it");
        if number % 100 == 99 {
            (0..100).for_each(|_| _ = source.reply().expect("it answers"));
        }
    }
    let (to, back) = (id_of(&nodes[2]), id_of(&nodes[0]));
    (0..megabytes.unwrap_or(8) * 1024 % 100).for_each(|_| _ = source.reply().expect("it answers"));
    // Without writers, and back with them.
    let move_from = |node: &Server, id: &str| {
        let began = Instant::now();
        change(&mut node.client(), &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {id}"));
        eventually("it ends", || has_ended(node, "success"));
        began.elapsed()
    };
    let idle = move_from(&nodes[0], &to);
    eventually("the copy is dropped", || {
        ask(&mut nodes[0].client(), "CLUSTER COUNTKEYSINSLOT 3300") == Reply::Integer(0)
    });
    let stop = AtomicBool::new(false);
    let (writes, busy) = std::thread::scope(|scope| {
        let over = SetAtEnd(&stop);
        let writers: Vec<_> = ["x", "y"]
            .map(|name| {
                let (nodes, stop) = (&nodes, &stop);
                scope.spawn(move || pour(name, &nodes[2], &nodes[0], stop))
            })
            .into();
        let busy = move_from(&nodes[2], &back);
        drop(over);
        let writes: Vec<Vec<i64>> =
            writers.into_iter().map(|writer| writer.join().expect("it has written")).collect();
        (writes, busy)
    });
    let status = ask(&mut nodes[2].client(), "CLUSTER MIGRATION STATUS ALL");
    let words: Vec<String> = list(&list(&status)[0]).iter().map(Reply::shown).collect();
    let pause = words.iter().position(|word| word == "write_pause_ms").map(|at| &words[at + 1]);
    let total: i64 = writes.iter().flatten().sum();
    println!(
        "{} MiB moved in {idle:?}; beside {:.0} writes/s in {busy:?}, pause {pause:?} ms",
        megabytes.unwrap_or(8),
        total as f64 / busy.as_secs_f64()
    );
    let mut client = nodes[0].client();
    eventually("the target knows", || !ask(&mut client, "GET {b}x0").is_error());
    for (name, last) in ["x", "y"].iter().zip(&writes) {
        for (number, last) in last.iter().enumerate() {
            let value = text(ask(&mut client, &format!("GET {{b}}{name}{number}")));
            assert_eq!(value, last.to_string());
        }
    }
}

/// Slots 3300 and 5061 are those of `b` and `bar`, and of the first of three primaries.
#[test]
fn what_a_file_has_of_slots_that_have_moved_is_dropped() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-leftovers");
    let mut nodes = three(&etcd);
    let mut source = nodes[0].client();
    for number in 0..200 {
        ok(&mut source, &format!("SET {{b}}{number} old"));
    }
    ok(&mut source, "SET bar stays");
    ok(&mut source, "SAVE");
    let (first, to) = (id_of(&nodes[0]), id_of(&nodes[2]));
    change(&mut source, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {to}"));
    eventually("it ends", || has_ended(&nodes[0], "success") && has_ended(&nodes[2], "success"));
    let mut target = nodes[2].client();
    assert_eq!(ask(&mut target, "DEL {b}0"), Reply::Integer(1));
    ok(&mut target, "SET {b}1 new");
    // What it has saved is older than the move.
    nodes[0].kill().expect("it runs");
    nodes[0].start_again().expect("it starts");
    eventually("it leads again", || !ask(&mut nodes[0].client(), "SET bar again").is_error());
    let mut source = nodes[0].client();
    assert_eq!(ask(&mut source, "DBSIZE"), Reply::Integer(1));
    assert_eq!(list(&ask(&mut source, "KEYS *")).len(), 1);
    let importing = format!("CLUSTER SETSLOT 3300 IMPORTING {to}");
    eventually("leftovers are dropped", || match ask(&mut source, &importing) {
        Reply::Error(line) => {
            let line = String::from_utf8_lossy(&line).into_owned();
            assert!(
                line.contains("still drops its old copy") || line.starts_with("AWAY "),
                "{line}"
            );
            false
        }
        _ => true,
    });
    assert_eq!(ask(&mut source, "CLUSTER COUNTKEYSINSLOT 3300"), Reply::Integer(0));
    // They do not come back together with the slot.
    ok(&mut source, "CLUSTER SETSLOT 3300 STABLE");
    change(&mut target, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {first}"));
    // The restarted node may know nothing of the first job, which was over then.
    let have_moved_back = |node: &Server, operation: &str| {
        let jobs = jobs(node);
        jobs.iter().all(|job| job["state"] == "success")
            && jobs.iter().any(|job| job["operation"] == operation)
    };
    eventually("it ends", || {
        have_moved_back(&nodes[0], "IMPORT") && have_moved_back(&nodes[2], "EXPORT")
    });
    assert_eq!(ask(&mut source, "GET {b}0"), Reply::Nil);
    assert_eq!(ask(&mut source, "GET {b}1"), Reply::Bulk("new".into()));
    assert_eq!(ask(&mut source, "DBSIZE"), Reply::Integer(200));
}

/// A connection that is taken for the source's is about to hand the slots over, and does not.
#[test]
fn all_keys_can_be_deleted_while_a_source_that_is_gone_has_not_decided() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-undecided");
    let nodes = three(&etcd);
    let [mut source, mut target] = [nodes[0].client(), nodes[2].client()];
    (0..100).for_each(|number| _ = ok(&mut source, &format!("SET {{b}}{number} {number}")));
    // `a` is the target's own.
    ok(&mut target, "SET a 1");
    signal(nodes[0].process_id(), "STOP").expect("it runs");
    change(&mut target, "CLUSTER MIGRATION IMPORT 3300 3300");
    let mut client = nodes[2].client();
    ok(&mut client, "CLIENT CAPA cluster");
    let status = ask(&mut client, "CLUSTER MIGRATION STATUS ALL");
    let name = list(&list(&status)[0])[1].shown();
    let mut link = nodes[2].client();
    ok(&mut link, "CLIENT CAPA cluster");
    ok(&mut link, &format!("CLUSTER SYNCSLOTS IMPORT {name}"));
    link.send(&["RPUSH", "{b}list", "1"]).expect("it takes it");
    ok(&mut link, "CLUSTER SYNCSLOTS PREPARE");
    // Another connection would drop the copy that may be handed over at this moment.
    let other = ask(&mut client, &format!("CLUSTER SYNCSLOTS IMPORT {name}"));
    assert_eq!(error(&other), "TRYAGAIN Another server is about to hand these slots over");
    assert_eq!(ask(&mut client, "CLUSTER COUNTKEYSINSLOT 3300"), Reply::Integer(1));
    ok(&mut client, "FLUSHALL");
    assert!(link.command(&["CLUSTER", "SYNCSLOTS", "PREPARE"]).map_or(true, |it| it.is_error()));
    assert_eq!(ask(&mut client, "EXISTS a"), Reply::Integer(0));
    // The source's keys were not meant.
    signal(nodes[0].process_id(), "CONT").expect("it is there");
    eventually("it ends", || has_ended(&nodes[2], "success"));
    assert_eq!(ask(&mut client, "DBSIZE"), Reply::Integer(100));
}

/// What CLUSTER MIGRATION STATUS says of the newest job.
pub(super) fn status(node: &Server) -> BTreeMap<String, String> {
    let mut client = node.client();
    ok(&mut client, "CLIENT CAPA cluster");
    let reply = ask(&mut client, "CLUSTER MIGRATION STATUS ALL");
    let words: Vec<String> = list(&list(&reply)[0]).iter().map(Reply::shown).collect();
    words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

#[test]
fn the_rate_and_the_priority_of_a_job_are_changed_while_it_runs() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-rate");
    let nodes = three(&etcd);
    let mut source = nodes[0].client();
    ok(&mut source, "CLIENT CAPA cluster");
    let value = "v".repeat(10_000);
    for number in 0..400 {
        source.command(&["SET", &format!("{{b}}{number}"), &value]).expect("it answers");
    }
    let refusals = [
        ("CLUSTER MIGRATION SET ALL RATE 5", "ERR No such migration is under way"),
        ("CLUSTER MIGRATION SET ALL RATE -5", "ERR RATE is bytes per second, or 0 for no limit"),
        ("CLUSTER MIGRATION SET ALL", "ERR syntax error"),
        ("CLUSTER MIGRATION SET ALL SPEED 5", "ERR syntax error"),
    ];
    for (request, refusal) in refusals {
        assert_eq!(error(&ask(&mut source, request)), refusal, "{request}");
    }
    let to = id_of(&nodes[2]);
    // The job waits for the target, and begins with the rate that it has then.
    signal(nodes[2].process_id(), "STOP").expect("it runs");
    change(&mut source, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {to}"));
    ok(&mut source, "CLUSTER MIGRATION SET ALL RATE 1000 PRIORITY 7");
    signal(nodes[2].process_id(), "CONT").expect("it is there");
    eventually("a piece is sent", || status(&nodes[0])["sent_bytes"] != "0");
    let slow = status(&nodes[0]);
    assert_eq!((&*slow["rate"], &*slow["priority"]), ("1000", "7"));
    // All of it takes an hour.
    assert_eq!(slow["state"], "snapshotting");
    // Writers are not slowed down, and what they write is not counted.
    (0..200).for_each(|number| _ = ok(&mut source, &format!("SET {{b}}{number} new")));
    ok(&mut source, &format!("CLUSTER MIGRATION SET ID {} RATE 0", slow["id"]));
    eventually("it ends", || has_ended(&nodes[0], "success") && has_ended(&nodes[2], "success"));
    let mut target = nodes[2].client();
    assert_eq!(ask(&mut target, "DBSIZE"), Reply::Integer(400));
    assert_eq!(ask(&mut target, "GET {b}199"), Reply::Bulk("new".into()));
    assert_eq!(ask(&mut target, "STRLEN {b}200"), Reply::Integer(10_000));
}

/// A payload has to fit into one argument of a request, which is 512 MB by default.
#[test]
fn values_that_are_too_large_for_a_payload_move_in_pieces() {
    const MEGABYTES: usize = 66;
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-large");
    let nodes = three(&etcd);
    let mut source = nodes[0].client();
    ok(&mut source, "CLIENT CAPA cluster");
    for number in 0..MEGABYTES {
        let element = format!("{number}{}", "v".repeat(1 << 20));
        source.send(&["RPUSH", "{b}list", &element]).expect("it takes it");
        source.send(&["HSET", "{b}hash", &number.to_string(), &element]).expect("it takes it");
        (0..2).for_each(|_| assert!(!source.reply().expect("it answers").is_error()));
    }
    let expiring = ask(&mut source, "HPEXPIRE {b}hash 100000000 FIELDS 2 7 8");
    assert_eq!(list(&expiring), [Reply::Integer(1), Reply::Integer(1)]);
    let len = (MEGABYTES << 20) as i64;
    assert_eq!(
        ask(&mut source, &format!("SETRANGE {{b}}string {} end", len - 3)),
        Reply::Integer(len)
    );
    assert_eq!(ask(&mut source, "PEXPIRE {b}string 100000000"), Reply::Integer(1));
    let digest = text(ask(&mut source, "DEBUG DIGEST"));
    let to = id_of(&nodes[2]);
    change(&mut source, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {to}"));
    eventually("it ends", || has_ended(&nodes[0], "success") && has_ended(&nodes[2], "success"));
    let mut target = nodes[2].client();
    assert_eq!(text(ask(&mut target, "DEBUG DIGEST")), digest);
    assert!(matches!(ask(&mut target, "PTTL {b}string"), Reply::Integer(90_000_000..)));
    let fields = ask(&mut target, "HPTTL {b}hash FIELDS 2 7 9");
    assert!(matches!(list(&fields), [Reply::Integer(90_000_000..), Reply::Integer(-1)]));
}
