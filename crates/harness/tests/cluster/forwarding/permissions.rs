//! What runs inside a request at another node is held against the permissions of its client's user.

use super::{alone, bulk, one_address, pipeline};
use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, text};
use harness::reply::Reply;
use harness::server::Server;
use harness::wait::eventually;

/// A key of each shard that begins as the user's keys do, and one of the same slot that does not.
const KEYS: [(&str, &str); 3] =
    [("app{a}", "other{a}"), ("app{b}", "other{b}"), ("app{c}", "other{c}")];

fn logged_in(node: &Server, user: &str) -> Client {
    let mut client = node.client();
    ok(&mut client, &format!("AUTH {user} word"));
    client
}

fn scripts(client: &mut Client, (own, other): (&str, &str)) {
    let run = |client: &mut Client, script: &str, key: &str, argument: &str| {
        client.command(&["EVAL", script, "1", key, argument]).expect("it answers")
    };
    let set = "return redis.call('SET', KEYS[1], ARGV[1])";
    assert_eq!(run(client, set, own, "1"), Reply::Simple(b"OK".to_vec()));
    let reply = error(&run(client, set, other, "1"));
    assert!(reply.starts_with("NOPERM "), "{reply}");
    // The node that the client is connected to sees only the declared key.
    for script in ["return redis.call('SET', ARGV[1], 1)", "return redis.call('GET', ARGV[1])"] {
        let reply = error(&run(client, script, own, other));
        assert!(
            reply.starts_with("ERR ACL failure in script: No permissions to access a key"),
            "{reply}"
        );
    }
    let reply = error(&run(client, "return redis.call('DEL', KEYS[1])", own, ""));
    assert!(reply.contains("has no permissions to run the 'del' command"), "{reply}");
    let may = "return redis.acl_check_cmd('SET', ARGV[1], 'v')";
    assert_eq!(run(client, may, own, own), Reply::Integer(1));
    assert_eq!(run(client, may, own, other), Reply::Nil);
    // Inside a transaction, too.
    let forbidden = format!("EVAL \"return redis.call('SET','{other}','1')\" 1 {own}");
    let replies = pipeline(client, &["MULTI", &forbidden, "EXEC"]);
    let Reply::Array(done) = &replies[2] else { panic!("{replies:?}") };
    let reply = error(&done[0]);
    assert!(reply.starts_with("ERR ACL failure in script"), "{reply}");
}

#[test]
fn what_a_request_does_at_another_node_is_held_against_its_user() {
    let _alone = alone();
    let etcd = Etcd::start("permissions");
    let nodes = one_address(&etcd, &["--cluster-share-users", "yes"]);
    let mut operator = nodes[0].client();
    ok(&mut operator, "ACL SETUSER app on >word ~app* +@all -del");
    ok(&mut operator, "ACL SETUSER peer on >word ~other* +@all");
    eventually("all nodes know the users", || {
        let knows = |node: &Server| !ask(&mut node.client(), "AUTH peer word").is_error();
        nodes.iter().all(knows)
    });
    for (at, node) in nodes.iter().enumerate() {
        let mut client = logged_in(node, "app");
        for (own, other) in KEYS {
            scripts(&mut client, (own, other));
            ok(&mut logged_in(node, "peer"), &format!("SET {other} {at}"));
            ok(&mut client, &format!("UNLINK {own}"));
            assert_eq!(ask(&mut client, &format!("RPUSH {own} 2 1")), Reply::Integer(2));
            let sorted = ask(&mut client, &format!("SORT {own} BY {other}* GET {other}*"));
            let refused = error(&sorted);
            assert!(refused.contains("denied due to insufficient ACL permissions"), "{refused}");
            assert_eq!(
                ask(&mut client, &format!("SORT {own}")),
                Reply::Array(vec![bulk("1"), bulk("2")])
            );
            ok(&mut client, &format!("UNLINK {own}"));
            // A user that may do everything is not held up by the permissions of others.
            let mut superuser = node.client();
            let set = "return redis.call('SET', ARGV[1], 'x')";
            ok(&mut superuser, &["EVAL", set, "1", own, other][..]);
        }
    }

    // A transaction takes the text of a script to the other node, though the user sends the digest.
    ok(&mut operator, "ACL SETUSER app -eval");
    let script = "return redis.call('GET', KEYS[1])";
    let sha = text(operator.command(&["SCRIPT", "LOAD", script]).expect("it answers"));
    for (own, other) in KEYS {
        ok(&mut nodes[0].client(), &format!("SET {own} 1"));
        let run = |key| ["MULTI".to_owned(), format!("EVALSHA {sha} 1 {key}"), "EXEC".to_owned()];
        let mut client = logged_in(&nodes[0], "app");
        let replies = pipeline(&mut client, &run(own).each_ref().map(String::as_str));
        assert_eq!(replies[2], Reply::Array(vec![bulk("1")]));
        let replies = pipeline(&mut client, &run(other).each_ref().map(String::as_str));
        assert!(error(&replies[1]).starts_with("NOPERM"), "{replies:?}");
    }
    ok(&mut operator, "ACL SETUSER app +eval");

    // The rules change between MULTI and EXEC, and while a client waits.
    let node = &nodes[6];
    for (own, _) in KEYS {
        let mut client = logged_in(node, "app");
        ok(&mut client, "MULTI");
        assert_eq!(ask(&mut client, &format!("INCR {own}")), Reply::Simple(b"QUEUED".to_vec()));
        ok(&mut operator, "ACL SETUSER app -incr");
        let Reply::Array(done) = ask(&mut client, "EXEC") else { panic!("EXEC has replies") };
        let reply = error(&done[0]);
        assert!(reply.starts_with("NOPERM ACLs rules changed"), "{reply}");
        ok(&mut operator, "ACL SETUSER app +incr");
    }
}
