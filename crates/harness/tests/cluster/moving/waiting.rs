//! Clients that wait for a key whose slot moves: they are sent to its new node, and none is
//! answered by what its former node has left.

use super::phases::{hold, settle};
use super::*;
use harness::slot_jobs::Phase::Paused;

/// A key of slot 3300, which the first node has at first, as `b` is.
const SERIES: &str = "{b}series";

/// Requests that wait.
const WAITS: [&str; 5] = [
    "BLPOP {b}list 0",
    "XREAD BLOCK 0 STREAMS {b}stream $",
    "XREADGROUP GROUP g c BLOCK 0 STREAMS {b}stream >",
    "TS.READ {b}series + BLOCK 0 5",
    "TS.READ {b}none - BLOCK 600000 1",
];

fn fill(client: &mut Client) {
    ok(client, "XGROUP CREATE {b}stream g $ MKSTREAM");
    assert_eq!(ask(client, "TS.ADD {b}series 1000 21.5"), Reply::Integer(1000));
    assert_eq!(ask(client, "TS.ADD {b}series 2000 21.7"), Reply::Integer(2000));
}

fn until_blocked(node: &Server, clients: usize) {
    let line = format!("blocked_clients:{clients}\r\n");
    eventually("clients wait", || text(ask(&mut node.client(), "INFO clients")).contains(&line));
}

/// Clients of a node of which each waits with one of the requests.
fn waiting(node: &Server, requests: &[&str]) -> Vec<Client> {
    let clients = requests.iter().map(|request| {
        let mut client = node.client();
        let words: Vec<&str> = request.split(' ').collect();
        client.send(&words).expect("it is sent");
        client
    });
    let clients = clients.collect();
    until_blocked(node, requests.len());
    clients
}

fn migrate(nodes: &[Server], target: usize) -> Client {
    let mut admin = nodes[0].client();
    let to = id_of(&nodes[target]);
    change(&mut admin, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {to}"));
    admin
}

#[test]
fn clients_that_wait_are_sent_to_where_a_slot_has_moved() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-waiting");
    let nodes = three(&etcd);
    fill(&mut nodes[0].client());
    let mut clients = waiting(&nodes[0], &WAITS);
    migrate(&nodes, 2);
    let moved = format!("MOVED 3300 127.0.0.1:{}", nodes[2].port());
    for (client, request) in clients.iter_mut().zip(WAITS) {
        let reply = client.reply().expect("the connection stays");
        assert_eq!(error(&reply), moved, "{request}");
        assert_eq!(ask(client, "PING"), Reply::Simple(b"PONG".to_vec()));
    }
    // There they wait again, and are served.
    eventually("the target serves the slot", || {
        ask(&mut nodes[2].client(), "EXISTS {b}series") == Reply::Integer(1)
    });
    let mut again = waiting(&nodes[2], &["TS.READ {b}series $ BLOCK 0 1"]);
    ask(&mut nodes[2].client(), "TS.ADD {b}series 3000 21.9");
    let reply = again[0].reply().expect("it is answered");
    assert_eq!(list(&reply).len(), 1, "{reply:?}");
}

/// A reader whose time is up while the new owner is decided on is answered by what is here if the
/// slot stays, and sent on if it leaves.
#[test]
fn a_last_look_waits_until_the_owner_of_a_slot_is_known() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-last-look");
    let nodes = three(&etcd);
    fill(&mut nodes[0].client());
    for is_cancelled in [true, false] {
        let mut client = nodes[0].client();
        let Reply::Integer(id) = ask(&mut client, "CLIENT ID") else { panic!("no number") };
        client.send(&["TS.READ", SERIES, "-", "BLOCK", "0", "5"]).expect("it is sent");
        until_blocked(&nodes[0], 1);
        hold(&nodes, Paused, true);
        let mut admin = migrate(&nodes, 2);
        eventually("requests wait", || {
            jobs::jobs(&nodes[0]).iter().any(|job| Paused.state() == Some(&*job["state"]))
        });
        // As if its time were up.
        let unblock = format!("CLIENT UNBLOCK {id} TIMEOUT");
        assert_eq!(ask(&mut nodes[0].client(), &unblock), Reply::Integer(1));
        if is_cancelled {
            ok(&mut admin, "CLIENT CAPA cluster");
            ok(&mut admin, "CLUSTER CANCELSLOTMIGRATIONS");
        }
        hold(&nodes, Paused, false);
        let reply = client.reply().expect("it is answered");
        match is_cancelled {
            true => assert_eq!(list(&reply).len(), 2, "{reply:?}"),
            false => {
                let moved = format!("MOVED 3300 127.0.0.1:{}", nodes[2].port());
                assert_eq!(error(&reply), moved);
            }
        }
        settle(&nodes);
    }
}

/// While a slot moves key by key, a key that leaves has not been deleted.
#[test]
fn clients_that_wait_for_a_key_that_leaves_are_sent_after_it() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("set-slot-waiting");
    let nodes = three(&etcd);
    let [mut source, mut target] = [nodes[0].client(), nodes[1].client()];
    let (from, to) = (id_of(&nodes[0]), id_of(&nodes[1]));
    fill(&mut source);
    let mut clients = waiting(&nodes[0], &WAITS);
    change(&mut target, &format!("CLUSTER SETSLOT 3300 IMPORTING {from}"));
    change(&mut source, &format!("CLUSTER SETSLOT 3300 MIGRATING {to}"));
    let port = nodes[1].port().to_string();
    let keys = ["{b}stream", SERIES];
    let words = [&["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"][..], &keys].concat();
    assert_eq!(source.command(&words).expect("it answers"), Reply::Simple(b"OK".to_vec()));
    let [list_reader, stream, group, series, none] = &mut clients[..] else { panic!("five") };
    for client in [group, series] {
        let reply = client.reply().expect("the connection stays");
        assert_eq!(error(&reply), format!("ASK 3300 127.0.0.1:{port}"));
    }
    // What is not here, and whose slot leaves, may be there.
    until_blocked(&nodes[0], 3);
    let mut late = nodes[0].client();
    late.send(&["TS.READ", "{b}none", "-", "BLOCK", "0", "1"]).expect("it is sent");
    let reply = late.reply().expect("it is answered");
    assert_eq!(error(&reply), format!("ASK 3300 127.0.0.1:{port}"));
    // One that asks waits there, and is served there.
    let mut asking = nodes[1].client();
    ok(&mut asking, "ASKING");
    asking.send(&["TS.READ", SERIES, "$", "BLOCK", "0", "1"]).expect("it is sent");
    until_blocked(&nodes[1], 1);
    ok(&mut target, "ASKING");
    assert_eq!(ask(&mut target, "TS.ADD {b}series 3000 21.9"), Reply::Integer(3000));
    let reply = asking.reply().expect("it is answered");
    assert_eq!(list(&reply).len(), 1, "{reply:?}");
    change(&mut target, &format!("CLUSTER SETSLOT 3300 NODE {to}"));
    change(&mut source, &format!("CLUSTER SETSLOT 3300 NODE {to}"));
    for client in [list_reader, stream, none] {
        let reply = client.reply().expect("the connection stays");
        assert_eq!(error(&reply), format!("MOVED 3300 127.0.0.1:{port}"));
    }
}

/// Clients of one address are moved with what they wait for by the node that they are connected to.
#[test]
fn clients_of_one_address_wait_on_where_a_slot_has_moved() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-waiting-single");
    let nodes = three(&etcd);
    for node in &nodes {
        ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
    }
    fill(&mut nodes[0].client());
    let mut clients = Vec::new();
    for home in [&nodes[1], &nodes[2]] {
        for request in ["BLPOP {b}list 0", "TS.READ {b}series $ BLOCK 0 1"] {
            let mut client = home.client();
            client.send(&request.split(' ').collect::<Vec<_>>()).expect("it is sent");
            clients.push(client);
        }
    }
    until_blocked(&nodes[0], clients.len());
    let mut admin = nodes[0].client();
    ok(&mut admin, "CLIENT CAPA cluster");
    let to = id_of(&nodes[2]);
    change(&mut admin, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {to}"));
    settle(&nodes);
    until_blocked(&nodes[2], clients.len());
    let mut writer = nodes[1].client();
    ok(&mut writer, "RPUSH {b}list x y");
    ask(&mut writer, "TS.ADD {b}series 3000 21.9");
    for client in &mut clients {
        let reply = client.reply().expect("it is answered");
        assert!(!reply.is_error(), "{reply:?}");
    }
}
