//! One address: clients of a cluster with `cluster-endpoint single` see one ordinary server, whichever node they are
//! connected to.

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, create, error, redis_cli, text};
use harness::reply::{Protocol, Reply};
use harness::server::Server;
use harness::wait::eventually;

/// A cluster of six servers that clients see as one, and a seventh node that has nothing.
fn one_address(etcd: &Etcd, options: &[&str]) -> Vec<Server> {
    let mut nodes: Vec<Server> = (0..6).map(|_| etcd.node_with(options)).collect();
    create(&nodes);
    let idle = etcd.node_with(options);
    let first = format!("127.0.0.1:{}", nodes[0].port());
    redis_cli(&["--cluster", "add-node", &format!("127.0.0.1:{}", idle.port()), &first]);
    nodes.push(idle);
    eventually("all nodes know each other", || {
        nodes.iter().all(|node| {
            text(ask(&mut node.client(), "CLUSTER INFO")).contains("cluster_known_nodes:7")
        })
    });
    for node in &nodes {
        ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
    }
    nodes
}

/// Keys of three shards.
const KEYS: [&str; 3] = ["a", "b", "foo"];

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

/// Sends requests in one write, and reads their replies.
fn pipeline(client: &mut Client, requests: &[&str]) -> Vec<Reply> {
    let mut bytes = Vec::new();
    for request in requests {
        bytes.extend_from_slice(request.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    client.send_raw(&bytes).expect("it is sent");
    requests.iter().map(|_| client.reply().expect("it is answered")).collect()
}

#[test]
fn any_node_answers_for_any_key_in_order() {
    let etcd = Etcd::start("one-address");
    let nodes = one_address(&etcd, &[]);
    for (number, node) in nodes.iter().enumerate() {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut client = node.connect(protocol).expect("it listens");
            for key in KEYS {
                ok(&mut client, &format!("SET {key} {number}"));
                assert_eq!(ask(&mut client, &format!("GET {key}")), bulk(&number.to_string()));
            }
            assert!(error(&ask(&mut client, "LPUSH a x")).starts_with("WRONGTYPE"));
            // Requests for all shards and for none, in one write.
            let requests: Vec<String> = (0..200)
                .map(|at| match at % 5 {
                    0 => format!("ECHO {at}"),
                    1 => format!("SET {{a}}{at} {at}"),
                    2 => format!("INCR {}{{foo}}", at % 7),
                    3 => format!("GETSET {{b}} {at}"),
                    _ => format!("STRLEN {{a}}{}", at - 3),
                })
                .collect();
            let before: Vec<i64> = (0..7)
                .map(|at| text_or_zero(ask(&mut client, &format!("GET {at}{{foo}}"))))
                .collect();
            let mut counts = before;
            ok(&mut client, "SET {b} -2");
            let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
            let replies = pipeline(&mut client, &requests);
            for (at, reply) in replies.into_iter().enumerate() {
                let expected = match at % 5 {
                    0 => bulk(&at.to_string()),
                    1 => Reply::Simple(b"OK".to_vec()),
                    2 => {
                        counts[at % 7] += 1;
                        Reply::Integer(counts[at % 7])
                    }
                    3 => bulk(&(at as i64 - 5).to_string()),
                    _ => Reply::Integer((at - 3).to_string().len() as i64),
                };
                assert_eq!(reply, expected, "{at}: {}", requests[at]);
            }
        }
    }
}

fn text_or_zero(reply: Reply) -> i64 {
    reply.text().map_or(0, |text| String::from_utf8_lossy(text).parse().expect("a number"))
}

#[test]
fn clients_see_no_cluster() {
    let etcd = Etcd::start("no-cluster");
    let node = etcd.node();
    let mut client = node.client();
    ok(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383");
    ok(&mut client, "CONFIG SET cluster-endpoint single");
    eventually("the node leads", || !ask(&mut client, "SET foo 1").is_error());
    assert!(text(ask(&mut client, "INFO cluster")).contains("cluster_enabled:0"));
    assert!(text(ask(&mut client, "INFO server")).contains("redis_mode:standalone"));
    let disabled = "ERR This instance has cluster support disabled";
    for request in ["CLUSTER INFO", "CLUSTER SLOTS", "CLUSTER MEET 127.0.0.1 1", "ASKING"] {
        assert_eq!(error(&ask(&mut client, request)), disabled, "{request}");
    }
    // Keys of several slots are together here.
    ok(&mut client, "MSET a 1 b 2");
    assert_eq!(ask(&mut client, "EXISTS a b foo x"), Reply::Integer(3));
    // A connection that says that it understands the protocol has it.
    ok(&mut client, "CLIENT CAPA cluster");
    assert!(text(ask(&mut client, "CLUSTER INFO")).contains("cluster_state:ok"));
    ok(&mut client, "CONFIG SET cluster-endpoint cluster");
    let crossing = error(&ask(&mut node.client(), "MSET a 1 b 2"));
    assert_eq!(crossing, "CROSSSLOT Keys in request don't hash to the same slot");
}
