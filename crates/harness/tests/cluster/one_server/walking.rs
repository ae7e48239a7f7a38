//! Every command of the table in a transaction whose keys another node has, against the same on one
//! server.

use crate::forwarding::{alone, bulk};
use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, owner_and_entry, text};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};

/// What ends or changes the server, or the test's connection, whatever node it is sent to; and what
/// depends on the time.
const NOT_TRIED: [&str; 10] = [
    "bgrewriteaof",
    "bgsave",
    "debug",
    "failover",
    "monitor",
    "psync",
    "quit",
    "reset",
    "shutdown",
    "sync",
];

/// Why a command is answered differently behind one address; the text is a part of the reply.
const REASONS: [(&str, &str); 7] = [
    // The other node does not have the client's connection.
    ("", "is about this connection, and another node of the cluster has the keys"),
    ("", "concerns all shards of the cluster, a transaction only one"),
    // A node of a cluster follows the primary that the cluster names.
    ("replicaof", "REPLICAOF not allowed in cluster mode"),
    ("slaveof", "REPLICAOF not allowed in cluster mode"),
    // It is for the node that it is sent to: tools move keys with it.
    ("restore-asking", "MOVED"),
    ("swapdb", "SWAPDB is not allowed in cluster mode"),
    ("cluster", "This instance has cluster support disabled"),
];

/// The requests to try: each command with as few words as it takes.
fn requests(client: &mut Client) -> Vec<Vec<String>> {
    fn add(row: &Reply, requests: &mut Vec<Vec<String>>) {
        let row = row.elements().expect("a command is a row");
        let name = text(row[0].clone());
        let Reply::Integer(arity) = row[1] else { panic!("the arity is a number") };
        let mut words: Vec<String> = name.split('|').map(str::to_owned).collect();
        if NOT_TRIED.contains(&words[0].as_str()) {
            return;
        }
        words.resize((arity.unsigned_abs() as usize).max(words.len()), "a".to_owned());
        requests.push(words);
        let subcommands = row.get(9).and_then(Reply::elements).unwrap_or_default();
        subcommands.iter().for_each(|row| add(row, requests));
    }
    let mut requests = Vec::new();
    let reply = ask(client, "COMMAND");
    reply.elements().expect("it has rows").iter().for_each(|row| add(row, &mut requests));
    requests.sort();
    requests
}

/// What a transaction with this request between two others is answered.
fn run(node: &Server, request: &[String]) -> Vec<Reply> {
    ok(&mut node.client(), "SET a 1");
    let mut client = node.connect(Protocol::Resp2).expect("it listens");
    let request: Vec<&str> = request.iter().map(String::as_str).collect();
    let requests: [&[&str]; 5] = [&["MULTI"], &["GET", "a"], &request, &["ECHO", "e"], &["EXEC"]];
    let replies = requests.iter().map(|words| client.command(words).expect("it is answered"));
    replies.collect()
}

/// A reply without what differs from one server to the next.
fn kind(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::Integer(_) => "a number".to_owned(),
        Reply::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::Bulk(_) => "a text".to_owned(),
        Reply::Array(_) => "a list".to_owned(),
        other => format!("{other:?}"),
    }
}

fn kinds(replies: &[Reply]) -> Vec<String> {
    let mut kinds: Vec<String> = replies[..4].iter().map(kind).collect();
    match &replies[4] {
        Reply::Array(items) => kinds.extend(items.iter().map(kind)),
        reply => kinds.push(kind(reply)),
    }
    kinds
}

#[test]
fn a_transaction_takes_the_commands_that_one_server_takes() {
    let _alone = alone();
    let etcd = Etcd::start("walking");
    let [_owner, entry] = owner_and_entry(&etcd, &[]);
    let single = Server::start(&Program::under_test(), Options::default()).expect("it starts");
    let mut differences = Vec::new();
    for request in requests(&mut single.client()) {
        let [here, there] = [&single, &entry].map(|node| run(node, &request));
        let (expected, found) = (kinds(&here), kinds(&there));
        let has_reason = REASONS.iter().any(|(name, reason)| {
            request[0].starts_with(name) && found.iter().any(|reply| reply.contains(reason))
        });
        if expected != found && !has_reason {
            differences.push(format!("{request:?}\n  {expected:?}\n  {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // What is about all keys is in a transaction as well where one shard has them all.
    let mut client = entry.client();
    ok(&mut client, "MULTI");
    for request in ["FLUSHALL", "SET b 2", "DBSIZE", "KEYS *"] {
        assert_eq!(ask(&mut client, request), Reply::Simple(b"QUEUED".to_vec()));
    }
    let (done, keys) = (Reply::Simple(b"OK".to_vec()), Reply::Array(vec![bulk("b")]));
    let replies = vec![done.clone(), done, Reply::Integer(1), keys];
    assert_eq!(ask(&mut client, "EXEC"), Reply::Array(replies));
    messages(&entry);
}

/// What a transaction or a script publishes reaches clients of both nodes.
fn messages(entry: &Server) {
    let mut listener = entry.client();
    listener.send(&["SUBSCRIBE", "news"]).expect("it is sent");
    listener.reply().expect("it is subscribed");
    let mut client = entry.client();
    ok(&mut client, "MULTI");
    for request in ["SET a 1", "PUBLISH news 1"] {
        assert_eq!(ask(&mut client, request), Reply::Simple(b"QUEUED".to_vec()));
    }
    assert!(ask(&mut client, "EXEC").elements().is_some_and(|replies| replies.len() == 2));
    let message = |text: &str| Reply::Array(vec![bulk("message"), bulk("news"), bulk(text)]);
    assert_eq!(listener.reply().expect("it comes"), message("1"));
    // Shard channels are at all nodes, too.
    listener.send(&["SSUBSCRIBE", "{a}news"]).expect("it is sent");
    listener.reply().expect("it is subscribed");
    let script = ["EVAL", "return redis.call('SPUBLISH', '{a}news', ARGV[1])", "1", "a", "2"];
    client.command(&script).expect("it is answered");
    let message = Reply::Array(vec![bulk("smessage"), bulk("{a}news"), bulk("2")]);
    assert_eq!(listener.reply().expect("it comes"), message);
}
