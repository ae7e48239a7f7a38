//! A real cluster, of the reference's nodes.

use crate::support::{measure, only};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use std::thread;
use std::time::{Duration, Instant};

fn cluster() -> Option<Vec<Server>> {
    let program = Program::reference_or_skip()?;
    let start = || {
        let options = Options::arguments(&["--cluster-enabled", "yes"]);
        Server::start(&program, options).unwrap()
    };
    let nodes: Vec<Server> = (0..3).map(|_| start()).collect();
    let port = nodes[0].port().to_string();
    for (index, node) in nodes.iter().enumerate() {
        let mut client = node.connect(Protocol::Resp2).unwrap();
        let slots = [index * 16384 / 3, (index + 1) * 16384 / 3 - 1].map(|slot| slot.to_string());
        client.command(&["CLUSTER", "ADDSLOTSRANGE", &slots[0], &slots[1]]).unwrap();
        client.command(&["CLUSTER", "MEET", "127.0.0.1", &port]).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(180);
    for node in &nodes {
        let mut client = node.connect(Protocol::Resp2).unwrap();
        loop {
            let info = client.command(&["CLUSTER", "INFO"]).unwrap();
            let ranges = client.command(&["CLUSTER", "SLOTS"]).unwrap();
            let ready = info.text().is_some_and(|text| text.starts_with(b"cluster_state:ok"));
            if ready && matches!(&ranges, Reply::Array(ranges) if ranges.len() == 3) {
                break;
            }
            assert!(Instant::now() < deadline, "the cluster does not form: {info:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }
    Some(nodes)
}

#[test]
fn every_request_reaches_the_right_node() {
    let Some(nodes) = cluster() else { return };
    let port = nodes[1].port();
    for line in [
        "-t set,get,mset,lpush -r 1000 -P 4",
        "--ratio 1:1 --key-maximum 5000 -P 4 --threads 2",
        "--ratio 1:0 --key-pattern P:P --key-maximum 999",
        "--verify --ratio 1:1 --key-prefix checked: --key-maximum 300",
        "-r 100 SET {tag}:__rand_int__ __data__",
    ] {
        let (status, result) = measure(port, &format!("--cluster -c 9 -n 1500 {line}"));
        assert_eq!(status, 0, "{line}: {result}");
        for run in result["runs"].as_array().unwrap() {
            assert_eq!((&run["moved"], &run["total"]["errors"]), (&0.into(), &0.into()), "{line}");
        }
    }
    // All nodes had their share.
    for node in &nodes {
        let mut client = node.connect(Protocol::Resp2).unwrap();
        let Reply::Integer(keys) = client.command(&["DBSIZE"]).unwrap() else { panic!() };
        assert!(keys > 500, "{keys} keys");
    }
    // Without --cluster, redirections are errors that are counted.
    let (status, result) = measure(port, "-n 300 -t set -r 1000");
    assert_eq!(status, 1);
    assert!(only(&result)["moved"].as_u64().unwrap() > 100, "{result}");
}
