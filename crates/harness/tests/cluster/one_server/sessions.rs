//! What a client says about its connection holds at other nodes, and what it may do there ends with
//! its rights.

use crate::forwarding::{KEYS, alone, bulk, one_address};
use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, list, owner_and_entry, text};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use harness::sessions::{self, Worlds};
use harness::wait::eventually;

#[test]
fn random_sessions_at_a_node_are_those_of_one_server() {
    let _alone = alone();
    let etcd = Etcd::start("sessions");
    let [_owner, entry] = owner_and_entry(&etcd, &["--cluster-databases", "4"]);
    let program = Program::under_test();
    let one = Server::start(&program, Options::arguments(&["--databases", "4"]));
    let one = one.expect("it starts");
    eventually("the entry knows where keys are", || {
        !ask(&mut entry.client(), "SET a 1").is_error()
    });
    let worlds = Worlds {
        reference: &|| one.client(),
        subject: &|| entry.client(),
        keys: ["a", "b", "c"],
        selects_in_multi: false,
    };
    sessions::compare(&worlds, 200..230);
}

/// A client of a user that may do everything, for now.
fn user(node: &Server, keys: &str) -> Client {
    ok(&mut node.client(), &format!("ACL SETUSER u reset on >word +@all {keys}"));
    let mut client = node.client();
    ok(&mut client, "AUTH u word");
    client
}

fn ends_with_noperm(client: &mut Client) {
    let reply = error(&client.reply().expect("it is answered"));
    assert!(reply.starts_with("NOPERM "), "{reply}");
    // The connection goes on.
    assert_eq!(ask(client, "CLIENT GETNAME"), Reply::Nil);
}

/// A command that waits at another node does not outlive the right to send it.
#[test]
fn waits_at_other_nodes_end_with_the_rights() {
    let _alone = alone();
    for shares in ["no", "yes"] {
        let etcd = Etcd::start("rights");
        let [owner, entry] = owner_and_entry(&etcd, &["--cluster-share-users", shares]);
        eventually("the entry knows where keys are", || {
            !ask(&mut entry.client(), "SET a 1").is_error()
        });
        let blocked = || text(ask(&mut owner.client(), "INFO clients"));
        for (keys, waits, rule) in [
            ("~*", "BLPOP b:list 0", "resetkeys ~a:* +@all"),
            ("~*", "BLMOVE b:list b:other LEFT RIGHT 0", "-blmove"),
            ("~b:*", "XREAD BLOCK 0 STREAMS b:stream $", "resetkeys ~a:*"),
        ] {
            let mut client = user(&entry, keys);
            client.send(&waits.split(' ').collect::<Vec<_>>()).expect("it is sent");
            eventually("it waits", || blocked().contains("blocked_clients:1\r\n"));
            ok(&mut entry.client(), &format!("ACL SETUSER u {rule} +client|getname"));
            ends_with_noperm(&mut client);
        }
        // What is still allowed goes on.
        let mut client = user(&entry, "~*");
        client.send(&["BLPOP", "a:list", "0"]).expect("it is sent");
        eventually("it waits", || blocked().contains("blocked_clients:1\r\n"));
        ok(&mut entry.client(), "ACL SETUSER u resetkeys ~a:*");
        assert_eq!(ask(&mut entry.client(), "RPUSH b:list x"), Reply::Integer(1));
        assert_eq!(ask(&mut entry.client(), "RPUSH a:list x"), Reply::Integer(1));
        let served = client.reply().expect("it is answered");
        assert_eq!(served, Reply::Array(vec![bulk("a:list"), bulk("x")]));
        assert_eq!(ask(&mut entry.client(), "LLEN b:list"), Reply::Integer(1));
    }
}

/// Only nodes are passed over by CLIENT LIST and CLIENT KILL.
#[test]
fn no_client_hides_as_a_link() {
    let _alone = alone();
    let etcd = Etcd::start("hiding");
    let [_owner, entry] = owner_and_entry(&etcd, &[]);
    let mut client = user(&entry, "~a:*");
    ok(&mut client, "CLIENT CAPA cluster node for:default client:1");
    ok(&mut client, "CLIENT SETNAME hidden");
    let mut operator = entry.client();
    assert!(text(ask(&mut operator, "CLIENT LIST")).contains("name=hidden"));
    assert_eq!(ask(&mut operator, "CLIENT KILL USER u"), Reply::Integer(1));
    client.expect_closed().expect("it is closed");
}

/// The first page of SCAN has what there is, whichever node has it.
#[test]
fn the_first_page_of_scan_is_filled() {
    let _alone = alone();
    let etcd = Etcd::start("first-page");
    let nodes = one_address(&etcd, &[]);
    let mut operator = nodes[0].client();
    for key in KEYS {
        ok(&mut operator, &format!("SET {key} 1"));
    }
    for node in &nodes {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut client = node.connect(protocol).expect("it listens");
            let reply = ask(&mut client, "SCAN 0");
            assert_eq!(list(&reply)[0], bulk("0"));
            assert_eq!(list(&list(&reply)[1]).len(), KEYS.len());
        }
    }
}
