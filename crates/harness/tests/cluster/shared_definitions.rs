//! Users and functions that all nodes of a cluster have alike, kept at a real etcd.

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, operate, text};
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

/// Two shards, the first with a replica; all three nodes are given the endpoint.
fn three(etcd: &Etcd, endpoint: &str) -> Vec<Server> {
    let options = ["--cluster-share-users", "yes", "--repl-diskless-sync-delay", "0"];
    let nodes: Vec<Server> = (0..3).map(|_| etcd.node_with(&options)).collect();
    operate(&mut nodes[0].client(), "CLUSTER ADDSLOTSRANGE 0 8191");
    operate(&mut nodes[1].client(), "CLUSTER ADDSLOTSRANGE 8192 16383");
    for node in &nodes[1..] {
        ok(&mut node.client(), &format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port()));
    }
    let first = text(ask(&mut nodes[0].client(), "CLUSTER MYID"));
    ok(&mut nodes[2].client(), &format!("CLUSTER REPLICATE {first}"));
    for node in &nodes {
        ok(&mut node.client(), &format!("CONFIG SET cluster-endpoint {endpoint}"));
    }
    eventually("all slots are served and the replica is linked", || {
        let info = text(ask(&mut nodes[2].node_client(), "INFO replication"));
        let is_up = |node: &Server| !ask(&mut node.client(), "GET foo").is_error();
        info.contains("master_link_status:up") && (endpoint == "cluster" || nodes.iter().all(is_up))
    });
    nodes
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

/// All texts of a reply, those of its elements too.
fn flat(reply: &Reply) -> String {
    match reply.elements() {
        Some(elements) => elements.iter().map(flat).collect::<Vec<_>>().join(" "),
        None => reply.shown(),
    }
}

/// A client that has logged in, if it may.
fn login(node: &Server, words: &str) -> Option<Client> {
    let mut client = node.client();
    (!ask(&mut client, &format!("AUTH {words}")).is_error()).then_some(client)
}

fn users(node: &Server) -> String {
    flat(&ask(&mut node.client(), "ACL LIST"))
}

#[test]
fn a_user_of_one_node_is_one_of_all() {
    let etcd = Etcd::start("shared-users");
    let mut nodes = three(&etcd, "cluster");
    ok(&mut nodes[2].client(), "ACL SETUSER app on >pw ~* &a* +@all");
    // The reply says that all have it.
    let mut clients: Vec<Client> =
        nodes.iter().map(|node| login(node, "app pw").expect("it may log in")).collect();
    let lists: Vec<String> = nodes.iter().map(users).collect();
    assert!(lists.iter().all(|list| *list == lists[0]), "{lists:?}");

    // Rules are added to what there is, wherever that was said.
    ok(&mut nodes[1].client(), "ACL SETUSER app -flushall");
    for client in &mut clients {
        assert!(error(&ask(client, "FLUSHALL")).starts_with("NOPERM"));
    }
    let wrong = error(&ask(&mut nodes[0].client(), "ACL SETUSER app +nothing"));
    assert!(wrong.starts_with("ERR Error in ACL SETUSER modifier '+nothing'"), "{wrong}");
    ok(&mut clients[1], "MULTI");
    assert_eq!(ask(&mut clients[1], "ACL SETUSER app +flushall"), Reply::Simple(b"QUEUED".into()));
    let reply = flat(&ask(&mut clients[1], "EXEC"));
    assert!(reply.contains("cannot be changed by a transaction"), "{reply}");

    // A subscriber of a channel that is taken away is closed, at any node.
    let mut subscriber = login(&nodes[0], "app pw").expect("it may log in");
    subscriber.command(&["SUBSCRIBE", "a1"]).expect("it is confirmed");
    ok(&mut nodes[2].client(), "ACL SETUSER app resetchannels");
    subscriber.expect_closed().expect("it is closed");

    // The password of the default user is one of these rules, and no option.
    let refusal = error(&ask(&mut nodes[0].client(), "CONFIG SET requirepass x"));
    assert!(refusal.contains("ACL SETUSER default"), "{refusal}");

    // A node that was down has what was changed meanwhile before it serves.
    nodes[1].terminate().expect("it ends");
    ok(&mut nodes[0].client(), "ACL SETUSER late on >pw +ping");
    assert_eq!(ask(&mut nodes[0].client(), "ACL DELUSER app nobody"), Reply::Integer(1));
    assert_eq!(ask(&mut nodes[2].client(), "ACL DELUSER app"), Reply::Integer(0));
    clients[0].expect_closed().expect("its user is gone");
    nodes[1].start_again().expect("it starts");
    eventually("the node serves", || {
        text(ask(&mut nodes[1].client(), "CLUSTER INFO")).contains("cluster_state:ok")
    });
    assert!(login(&nodes[1], "app pw").is_none() && login(&nodes[1], "late pw").is_some());
    assert_eq!(users(&nodes[1]), users(&nodes[2]));
}

#[test]
fn users_in_a_file_and_at_the_coordinator_are_a_contradiction() {
    let etcd = Etcd::start("shared-aclfile");
    let coordinator = Etcd::coordinator(std::slice::from_ref(&etcd));
    let words =
        ["--cluster-enabled", "yes", "--cluster-share-users", "yes", "--aclfile", "users.acl"];
    let words = [&words[..], &["--cluster-coordinator", &coordinator]].concat();
    let started = Server::start(&Program::under_test(), Options::arguments(&words));
    let why = started.err().expect("it does not start").to_string();
    assert!(why.contains("aclfile and cluster-share-users"), "{why}");
}

/// A library with a function that says where it runs.
fn library(name: &str, says: &str) -> String {
    format!(
        "#!lua name={name}\nredis.register_function('{name}_f', function(keys) return '{says}' end)"
    )
}

fn load(client: &mut Client, name: &str, says: &str) -> Reply {
    client.command(&["FUNCTION", "LOAD", &library(name, says)]).expect("it answers")
}

fn names(node: &Server) -> Vec<String> {
    let reply = flat(&ask(&mut node.client(), "FUNCTION LIST"));
    let is_there = |name: &&str| reply.contains(&format!("{name}_f"));
    ["lib", "more", "own"].into_iter().filter(is_there).map(str::to_owned).collect()
}

#[test]
fn a_library_of_one_node_is_one_of_all() {
    let etcd = Etcd::start("shared-functions");
    let nodes = three(&etcd, "single");
    // Keys of both shards, at any node, at once; the replica takes it as well.
    assert_eq!(load(&mut nodes[2].client(), "lib", "one"), bulk("lib"));
    let call = |says: &str| {
        for node in &nodes {
            for key in ["a", "b", "foo"] {
                let reply = ask(&mut node.client(), &format!("FCALL lib_f 1 {key}"));
                assert_eq!(reply, bulk(says), "{key}");
            }
        }
    };
    call("one");
    // Replicas have it with the stream of their primaries.
    eventually("all have it", || nodes.iter().all(|node| names(node) == ["lib"]));
    let taken = "ERR Library 'lib' already exists";
    assert_eq!(error(&load(&mut nodes[1].client(), "lib", "two")), taken);
    let mut client = nodes[1].client();
    let replace = client.command(&["FUNCTION", "LOAD", "REPLACE", &library("lib", "two")]);
    assert_eq!(replace.expect("it answers"), bulk("lib"));
    call("two");
    assert!(error(&load(&mut client, "bad", "' nothing")).starts_with("ERR Error compiling"));
    ok(&mut client, "MULTI");
    assert!(error(&ask(&mut client, "FUNCTION FLUSH")).contains("concerns all shards"));
    ask(&mut client, "DISCARD");

    // What FUNCTION DUMP gives comes back at all nodes.
    let Reply::Bulk(payload) = ask(&mut client, "FUNCTION DUMP") else { panic!("no payload") };
    ok(&mut client, "FUNCTION DELETE lib");
    assert_eq!(error(&ask(&mut nodes[0].client(), "FUNCTION DELETE lib")), "ERR Library not found");
    for node in &nodes {
        assert!(error(&ask(&mut node.client(), "FCALL lib_f 1 a")).contains("Function not found"));
    }
    let restore = [&b"FUNCTION"[..], b"RESTORE", &payload];
    assert_eq!(client.command(&restore).expect("it answers"), Reply::Simple(b"OK".into()));
    assert!(error(&client.command(&restore).expect("it answers")).contains("already exists"));
    call("two");

    // What a shard alone has when it joins is added; then a new shard has all.
    let own = etcd.node_with(&["--cluster-share-users", "yes"]);
    assert_eq!(load(&mut own.client(), "own", "own"), bulk("own"));
    ok(&mut own.client(), &format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port()));
    ok(&mut own.client(), "CONFIG SET cluster-endpoint single");
    let all = || nodes.iter().chain([&own]);
    eventually("all have all libraries", || all().all(|node| names(node) == ["lib", "own"]));
    ok(&mut own.client(), "FUNCTION FLUSH");
    eventually("none has a library", || all().all(|node| names(node).is_empty()));

    // A shard that speaks the cluster's protocol for a while keeps what it got meanwhile.
    assert_eq!(load(&mut client, "lib", "one"), bulk("lib"));
    ok(&mut client, "CONFIG SET cluster-endpoint cluster");
    assert_eq!(load(&mut client, "more", "more"), bulk("more"));
    assert_eq!(names(&nodes[0]), ["lib"]);
    ok(&mut client, "CONFIG SET cluster-endpoint single");
    eventually("all have all libraries", || all().all(|node| names(node) == ["lib", "more"]));
}

#[test]
fn a_change_that_the_coordinator_does_not_answer_is_refused_with_a_code() {
    let etcd = Etcd::start("shared-away");
    let node = etcd.node_with(&["--cluster-share-users", "yes"]);
    let mut client = node.client();
    ok(&mut client, "ACL SETUSER app on >pw ~* +@all");
    etcd.stop();
    let why = error(&ask(&mut client, "ACL SETUSER app off"));
    assert!(why.starts_with("AWAY The coordinator of the cluster is away"), "{why}");
    let why = error(&ask(&mut client, "CLUSTER ADDSLOTS 1"));
    assert!(why.starts_with("AWAY The coordinator of the cluster is away"), "{why}");
    etcd.go_on();
    // The request may be sent again, whether it was carried out or not.
    eventually("the user is off", || {
        let reply = ask(&mut client, "ACL SETUSER app off");
        match reply.is_error() {
            true => assert!(error(&reply).starts_with("AWAY "), "{reply:?}"),
            false => assert!(login(&node, "app pw").is_none()),
        }
        !reply.is_error()
    });
}
