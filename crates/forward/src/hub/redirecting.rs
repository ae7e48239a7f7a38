//! Redirections of a cluster, step by step: order is kept, and commands that wait move.

use super::tests::{Memory, every_command, id};
use super::{Common, Hub};
use crate::policy::Policy;
use crate::policy::samples::{Front, Node};
use crate::pool::{Places, Shared};
use crate::settings::{Address, Pool, PoolKind};
use crate::wire::Stall;
use route::{raw, slots};
use std::time::Duration;

fn address(port: u16) -> Address {
    Address::Tcp("10.0.0.1".into(), port)
}

/// A hub with two servers, of which the first has all slots, and its client.
fn cluster() -> (Hub<Front>, Memory, u32) {
    before(Pool::new("p", PoolKind::Cluster { seeds: vec![address(1)] }))
}

fn before<P: Policy>(pool: Pool) -> (Hub<P>, Memory, u32) {
    let shared = Shared::new(pool);
    shared.change(|topology| {
        topology.servers = vec![address(1).into(), address(2).into()];
        topology.ejected = vec![None, None];
        topology.slots = vec![Some(0); slots::SLOTS];
    });
    let common = Common::new(&every_command(), vec![Some(shared)], |_| {});
    let (mut hub, mut net) = (Hub::new(&common), Memory::default());
    let client = net.open();
    hub.accepted(&mut net, id(client), 0, "client");
    (hub, net, client)
}

/// Takes a connection that the hub has begun, and answers what it says first.
fn connect<P: Policy>(hub: &mut Hub<P>, net: &mut Memory, port: u16) -> u32 {
    let slot = take(hub, net, port);
    if net.has_got(slot, raw::AGAIN) {
        net.take(slot, raw::AGAIN.len());
        // A server that does not know it.
        hub.data(net, id(slot), b"-ERR unknown subcommand\r\n");
    }
    slot
}

/// Takes a connection that the hub has begun.
fn take<P: Policy>(hub: &mut Hub<P>, net: &mut Memory, port: u16) -> u32 {
    let at = net.connecting.iter().position(|(_, to)| *to == address(port)).expect("it connects");
    let (slot, _) = net.connecting.remove(at);
    hub.connected(net, id(slot));
    if net.has_got(slot, b"*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n") {
        let name = raw::request(&[b"CLIENT", b"SETNAME", hub.common.link_name.as_bytes()]);
        assert_eq!(net.take(slot, name.len()), name);
        hub.data(net, id(slot), b"+OK\r\n");
    }
    slot
}

/// Takes a connection of a node that the hub has begun, and answers what it says first.
fn open(hub: &mut Hub<Node>, net: &mut Memory, port: u16) -> u32 {
    let server = connect(hub, net, port);
    net.take(server, usize::MAX);
    hub.data(net, id(server), b"+OK\r\n");
    server
}

fn request(words: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    raw::request(&words)
}

fn moved(key: &[u8]) -> Vec<u8> {
    format!("-MOVED {} 10.0.0.1:2\r\n", slots::of(key)).into_bytes()
}

#[test]
fn requests_do_not_overtake_those_that_are_redirected() {
    let (mut hub, mut net, client) = cluster();
    let set = |value| request(&["SET", "k", value]);
    hub.data(&mut net, id(client), &[set("1"), set("2")].concat());
    let old = connect(&mut hub, &mut net, 1);
    assert_eq!(net.take(old, usize::MAX), [set("1"), set("2")].concat());
    hub.data(&mut net, id(old), &moved(b"k"));
    hub.end_of_turn(&mut net);
    let new = connect(&mut hub, &mut net, 2);
    assert_eq!(net.take(new, usize::MAX), set("1"));
    // The second is redirected, too, but its reply has not come.
    let done = hub.data(&mut net, id(client), &set("3"));
    assert_eq!((done.bytes, done.stall), (0, Stall::Held));
    hub.data(&mut net, id(old), &moved(b"k"));
    hub.end_of_turn(&mut net);
    assert_eq!(net.take(new, usize::MAX), set("2"));
    hub.data(&mut net, id(new), b"+OK\r\n+OK\r\n");
    hub.end_of_turn(&mut net);
    assert_eq!(net.take(client, usize::MAX), b"+OK\r\n+OK\r\n");
    assert!(net.resumed.contains(&client));
    hub.data(&mut net, id(client), &set("3"));
    assert_eq!(net.take(new, usize::MAX), set("3"));
}

#[test]
fn an_address_without_a_host_is_at_the_host_of_the_server_that_says_it() {
    for host in ["", "?"] {
        let (mut hub, mut net, client) = cluster();
        let set = request(&["SET", "k", "1"]);
        hub.data(&mut net, id(client), &set);
        let old = connect(&mut hub, &mut net, 1);
        net.take(old, usize::MAX);
        let moved = format!("-MOVED {} {host}:2\r\n", slots::of(b"k"));
        hub.data(&mut net, id(old), moved.as_bytes());
        hub.end_of_turn(&mut net);
        // The address is 10.0.0.1:2.
        let new = connect(&mut hub, &mut net, 2);
        assert_eq!(net.take(new, usize::MAX), set);
        let asked = format!("-ASK {} {host}:1\r\n", slots::of(b"k"));
        hub.data(&mut net, id(new), asked.as_bytes());
        hub.end_of_turn(&mut net);
        assert_eq!(net.take(old, usize::MAX), [&b"*1\r\n$6\r\nASKING\r\n"[..], &set].concat());
    }
}

/// Servers name the ports of clients. Nodes reach each other at others.
#[test]
fn a_node_goes_where_a_named_server_is_for_nodes() {
    let pool = Pool::new("p", PoolKind::Cluster { seeds: vec![address(1)] });
    let (mut hub, mut net, client) = before::<Node>(pool);
    let find = |host: &str, port| (host == "10.0.0.1" && port == 2).then(|| address(12).into());
    let set_once = hub.pools[0].shared.places.set(Places(Box::new(find)));
    assert!(set_once.is_ok());
    let set = request(&["SET", "k", "1"]);
    hub.data(&mut net, id(client), &set);
    let old = open(&mut hub, &mut net, 1);
    assert_eq!(net.take(old, usize::MAX), set);
    // Where this one is for nodes has not been read yet.
    hub.data(&mut net, id(old), format!("-MOVED {} 10.0.0.1:3\r\n", slots::of(b"k")).as_bytes());
    hub.end_of_turn(&mut net);
    assert!(net.connecting.is_empty() && net.take(old, usize::MAX).is_empty());
    later(&mut hub, &mut net);
    assert_eq!(net.take(old, usize::MAX), set);
    hub.data(&mut net, id(old), &moved(b"k"));
    hub.end_of_turn(&mut net);
    let new = open(&mut hub, &mut net, 12);
    assert_eq!(net.take(new, usize::MAX), set);
    hub.data(&mut net, id(new), b"+OK\r\n");
    hub.end_of_turn(&mut net);
    assert_eq!(net.take(client, usize::MAX), b"+OK\r\n");
}

#[test]
fn requests_do_not_overtake_those_that_are_at_the_server_of_before() {
    let (mut hub, mut net, client) = cluster();
    let (set, get) = (request(&["SET", "k", "1"]), request(&["GET", "k"]));
    hub.data(&mut net, id(client), &set);
    let old = connect(&mut hub, &mut net, 1);
    assert_eq!(net.take(old, usize::MAX), set);
    // Another thread finds out.
    let shared = hub.pools[0].shared.clone();
    shared.change(|topology| topology.slots = vec![Some(1); slots::SLOTS]);
    hub.end_of_turn(&mut net);
    let done = hub.data(&mut net, id(client), &get);
    assert_eq!((done.bytes, done.stall), (0, Stall::Held));
    hub.data(&mut net, id(old), b"+OK\r\n");
    hub.end_of_turn(&mut net);
    hub.data(&mut net, id(client), &get);
    let new = connect(&mut hub, &mut net, 2);
    assert_eq!(net.take(new, usize::MAX), get);
}

#[test]
fn a_command_that_waits_moves_with_its_key() {
    let (mut hub, mut net, client) = cluster();
    let pop = request(&["BLPOP", "k", "0"]);
    hub.data(&mut net, id(client), &pop);
    let old = connect(&mut hub, &mut net, 1);
    // The server's number of the connection is for CLIENT UNBLOCK.
    let number = request(&["CLIENT", "ID"]);
    assert_eq!(net.take(old, usize::MAX), [&number[..], &pop].concat());
    // A server says so when the slot of a key that is waited for leaves.
    hub.data(&mut net, id(old), &[&b":5\r\n"[..], &moved(b"k")].concat());
    hub.end_of_turn(&mut net);
    let new = connect(&mut hub, &mut net, 2);
    assert_eq!(net.take(new, usize::MAX), [&number[..], &pop].concat());
    hub.data(&mut net, id(new), b":6\r\n");
    // It has the new connection for itself.
    let other = net.open();
    hub.accepted(&mut net, id(other), 0, "other");
    hub.data(&mut net, id(other), &request(&["GET", "k"]));
    let shared = connect(&mut hub, &mut net, 2);
    hub.data(&mut net, id(shared), b"$1\r\nv\r\n");
    assert_eq!(net.take(other, usize::MAX), b"$1\r\nv\r\n");
    hub.data(&mut net, id(new), b"*2\r\n$1\r\nk\r\n$1\r\nx\r\n");
    assert_eq!(net.take(client, usize::MAX), b"*2\r\n$1\r\nk\r\n$1\r\nx\r\n");
}

#[test]
fn a_transaction_whose_slot_has_moved_runs_at_the_new_server() {
    let (mut hub, mut net, client) = cluster();
    let (multi, incr, exec) = (request(&["MULTI"]), request(&["INCR", "k"]), request(&["EXEC"]));
    hub.data(&mut net, id(client), &[&multi[..], &incr].concat());
    let old = connect(&mut hub, &mut net, 1);
    assert_eq!(net.take(old, usize::MAX), [&multi[..], &incr].concat());
    hub.data(&mut net, id(old), &[&b"+OK\r\n"[..], &moved(b"k")].concat());
    hub.end_of_turn(&mut net);
    // The client sees nothing of it.
    assert_eq!(net.take(client, usize::MAX), b"+OK\r\n+QUEUED\r\n");
    hub.data(&mut net, id(client), &[&incr[..], &exec].concat());
    assert_eq!(net.take(old, usize::MAX), [&incr[..], &exec].concat());
    let aborted = b"-EXECABORT Transaction discarded because of previous errors.\r\n";
    hub.data(&mut net, id(old), &[&moved(b"k")[..], aborted].concat());
    hub.end_of_turn(&mut net);
    let new = connect(&mut hub, &mut net, 2);
    assert_eq!(net.take(new, usize::MAX), [&multi[..], &incr, &incr, &exec].concat());
    let done = b"*2\r\n:1\r\n:2\r\n";
    hub.data(&mut net, id(new), &[&b"+OK\r\n+QUEUED\r\n+QUEUED\r\n"[..], done].concat());
    hub.end_of_turn(&mut net);
    assert_eq!(net.take(client, usize::MAX), [&b"+QUEUED\r\n"[..], done].concat());
}

#[test]
fn a_slot_that_moves_counts_as_a_change_of_watched_keys() {
    let (mut hub, mut net, client) = cluster();
    let (watch, multi) = (request(&["WATCH", "k"]), request(&["MULTI"]));
    let (set, exec) = (request(&["SET", "k", "v"]), request(&["EXEC"]));
    hub.data(&mut net, id(client), &watch);
    let old = connect(&mut hub, &mut net, 1);
    assert_eq!(net.take(old, usize::MAX), watch);
    hub.data(&mut net, id(old), b"+OK\r\n");
    hub.data(&mut net, id(client), &[&multi[..], &set, &exec].concat());
    hub.data(&mut net, id(old), &[&b"+OK\r\n+QUEUED\r\n"[..], &moved(b"k")].concat());
    hub.end_of_turn(&mut net);
    let replies = b"+OK\r\n+OK\r\n+QUEUED\r\n*-1\r\n";
    assert_eq!(net.take(client, usize::MAX), replies);
    // WATCH itself goes where the slot is, the transaction behind it, too.
    hub.data(&mut net, id(client), &watch);
    let new = connect(&mut hub, &mut net, 2);
    assert_eq!(net.take(new, usize::MAX), watch);
    hub.data(&mut net, id(new), b"-ASK 5 10.0.0.1:1\r\n");
    hub.end_of_turn(&mut net);
    let asking = request(&["ASKING"]);
    assert_eq!(net.take(old, usize::MAX), [&multi[..], &set, &exec, &asking, &watch].concat());
    hub.data(&mut net, id(old), b"+OK\r\n+OK\r\n");
    hub.end_of_turn(&mut net);
    hub.data(&mut net, id(client), &[&multi[..], &set, &exec].concat());
    assert_eq!(net.take(old, usize::MAX), [&asking[..], &multi, &set, &exec].concat());
    hub.data(&mut net, id(old), b"+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    assert_eq!(net.take(client, usize::MAX), b"+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
}

#[test]
fn a_transaction_outlives_the_connection_on_which_it_was_queued() {
    let (mut hub, mut net, client) = cluster();
    let (multi, incr, exec) = (request(&["MULTI"]), request(&["INCR", "k"]), request(&["EXEC"]));
    hub.data(&mut net, id(client), &[&multi[..], &incr].concat());
    let old = connect(&mut hub, &mut net, 1);
    hub.closed(&mut net, id(old), None);
    hub.end_of_turn(&mut net);
    assert_eq!(net.take(client, usize::MAX), b"+OK\r\n+QUEUED\r\n");
    hub.data(&mut net, id(client), &exec);
    let new = connect(&mut hub, &mut net, 1);
    assert_eq!(net.take(new, usize::MAX), [&multi[..], &incr, &exec].concat());
    // What EXEC may have done nobody knows.
    hub.closed(&mut net, id(new), None);
    assert!(net.take(client, usize::MAX).starts_with(b"-NOREPLY server"));
}

/// A node of a cluster knows which requests another has not run that goes down, and repeats what
/// changes nothing.
#[test]
fn what_a_node_has_not_run_runs_at_the_next_primary() {
    let pool = Pool::new("p", PoolKind::Cluster { seeds: vec![address(1)] });
    let (mut hub, mut net, client) = before::<Node>(pool);
    let (set, get) = (request(&["SET", "k", "1"]), request(&["GET", "k"]));
    let later = |hub: &mut Hub<Node>, net: &mut Memory| {
        net.passed += Duration::from_millis(60);
        hub.tick(net);
    };
    hub.data(&mut net, id(client), &[&set[..], &set, &set].concat());
    let old = open(&mut hub, &mut net, 1);
    assert_eq!(net.take(old, usize::MAX), [&set[..], &set, &set].concat());
    hub.pools[0].shared.clone().change(|topology| topology.slots = vec![Some(1); slots::SLOTS]);
    hub.data(&mut net, id(old), &[b"+OK\r\n", raw::GOES_DOWN].concat());
    hub.end_of_turn(&mut net);
    later(&mut hub, &mut net);
    let new = open(&mut hub, &mut net, 2);
    assert_eq!(net.take(new, usize::MAX), [&set[..], &set].concat());
    hub.data(&mut net, id(new), b"+OK\r\n+OK\r\n");
    hub.end_of_turn(&mut net);
    assert_eq!(net.take(client, usize::MAX), b"+OK\r\n+OK\r\n+OK\r\n");
    // A connection that just ends says nothing of writes.
    hub.data(&mut net, id(client), &[&get[..], &set].concat());
    assert_eq!(net.take(new, usize::MAX), [&get[..], &set].concat());
    hub.closed(&mut net, id(new), None);
    hub.end_of_turn(&mut net);
    later(&mut hub, &mut net);
    let again = open(&mut hub, &mut net, 2);
    assert_eq!(net.take(again, usize::MAX), get);
    hub.data(&mut net, id(again), b"$1\r\n1\r\n");
    let replies = net.take(client, usize::MAX);
    assert!(replies.starts_with(b"$1\r\n1\r\n-NOREPLY server"), "{replies:?}");
}

const CAME_BACK: &[u8] = b"-TRYAGAIN PAUSED The slot is about to move, or stays\r\n";

/// Two clients of a cluster's node, or of a proxy before the cluster, and its link to the first
/// server.
fn two_clients<P: Policy>() -> (Hub<P>, Memory, [u32; 2], u32) {
    let mut pool = Pool::new("p", PoolKind::Cluster { seeds: vec![address(1)] });
    pool.timeout = Some(Duration::from_secs(1));
    let (mut hub, mut net, client) = before(pool);
    let other = net.open();
    hub.accepted(&mut net, id(other), 0, "other");
    hub.data(&mut net, id(client), &request(&["SET", "k", "0"]));
    let link = take(&mut hub, &mut net, 1);
    net.take(link, usize::MAX);
    hub.data(&mut net, id(link), b"+OK\r\n");
    net.take(link, usize::MAX);
    hub.data(&mut net, id(link), b"+OK\r\n");
    assert_eq!(net.take(client, usize::MAX), b"+OK\r\n");
    (hub, net, [client, other], link)
}

fn later<P: Policy>(hub: &mut Hub<P>, net: &mut Memory) {
    net.passed += Duration::from_millis(60);
    hub.tick(net);
    hub.end_of_turn(net);
}

/// The slot of the requests waits. Others go on meanwhile, on another link; this one is used again
/// when nothing is under way on it.
fn requests_that_come_back<P: Policy>() {
    let (mut hub, mut net, [client, other], link) = two_clients::<P>();
    let set = |value| request(&["SET", "k", value]);
    let get = request(&["GET", "other"]);
    hub.data(&mut net, id(client), &[set("1"), set("2")].concat());
    hub.data(&mut net, id(other), &get);
    assert_eq!(net.take(link, usize::MAX), [set("1"), set("2"), get.clone()].concat());
    hub.data(&mut net, id(link), CAME_BACK);
    hub.end_of_turn(&mut net);
    // What comes now does not know of it.
    let third = net.open();
    hub.accepted(&mut net, id(third), 0, "third");
    hub.data(&mut net, id(third), &get);
    let second = take(&mut hub, &mut net, 1);
    net.take(second, usize::MAX);
    hub.data(&mut net, id(second), b"+OK\r\n");
    assert_eq!(net.take(second, usize::MAX), get);
    hub.data(&mut net, id(second), b"$1\r\nv\r\n");
    assert_eq!(net.take(third, usize::MAX), b"$1\r\nv\r\n");
    let done = hub.data(&mut net, id(client), &set("3"));
    assert_eq!((done.bytes, done.stall), (0, Stall::Held));
    // The first goes to the other link; the second waits for it, whatever it comes to.
    later(&mut hub, &mut net);
    assert_eq!(net.take(second, usize::MAX), set("1"));
    hub.data(&mut net, id(link), &[CAME_BACK, b"$1\r\nv\r\n"].concat());
    assert_eq!(net.take(other, usize::MAX), b"$1\r\nv\r\n");
    later(&mut hub, &mut net);
    assert_eq!(net.take(second, usize::MAX), b"");
    assert_eq!(net.take(link, usize::MAX), raw::AGAIN, "nothing is under way on it");
    hub.data(&mut net, id(link), b"+OK\r\n");
    hub.data(&mut net, id(second), CAME_BACK);
    hub.end_of_turn(&mut net);
    later(&mut hub, &mut net);
    // Nothing else was under way on it, so it stays the shared one.
    assert_eq!(net.take(second, usize::MAX), [raw::AGAIN, &set("1")].concat());
    hub.data(&mut net, id(second), b"+OK\r\n+OK\r\n");
    hub.end_of_turn(&mut net);
    assert_eq!(net.take(second, usize::MAX), set("2"));
    hub.data(&mut net, id(second), b"+OK\r\n");
    hub.end_of_turn(&mut net);
    assert_eq!(net.take(client, usize::MAX), b"+OK\r\n+OK\r\n");
    hub.data(&mut net, id(client), &set("3"));
    assert_eq!(net.take(second, usize::MAX), set("3"));
}

#[test]
fn requests_that_come_back_to_a_node_are_sent_again_in_order() {
    requests_that_come_back::<Node>();
}

#[test]
fn requests_that_come_back_to_the_proxy_are_sent_again_in_order() {
    requests_that_come_back::<Front>();
}

/// A request that comes back again and again is answered when a server that is silent would be
/// given up.
#[test]
fn requests_that_come_back_are_given_up_after_the_timeout() {
    let (mut hub, mut net, [client, other], link) = two_clients::<Front>();
    let (set, get) = (request(&["SET", "k", "1"]), request(&["GET", "other"]));
    hub.data(&mut net, id(client), &set);
    assert_eq!(net.take(link, usize::MAX), set);
    let mut returns = 0;
    let reply = loop {
        hub.data(&mut net, id(link), CAME_BACK);
        hub.end_of_turn(&mut net);
        returns += 1;
        assert!(returns < 100);
        let reply = net.take(client, usize::MAX);
        if !reply.is_empty() {
            break reply;
        }
        later(&mut hub, &mut net);
        assert_eq!(net.take(link, usize::MAX), [raw::AGAIN, &set[..]].concat());
        hub.data(&mut net, id(link), b"+OK\r\n");
    };
    assert_eq!(reply, CAME_BACK);
    assert!(returns > 10, "{returns}");
    hub.data(&mut net, id(other), &get);
    assert_eq!(net.take(link, usize::MAX), [raw::AGAIN, &get[..]].concat());
}

/// A slot that stands half moved, and a transaction with keys that neither server has: the old owner
/// says ASK, the new one TRYAGAIN. A client does not know of servers.
#[test]
fn a_transaction_that_no_server_can_run_is_to_be_tried_again() {
    let (mut hub, mut net, client) = cluster();
    let set = request(&["MSET", "k", "1", "{k}2", "2"]);
    let (multi, exec) = (request(&["MULTI"]), request(&["EXEC"]));
    let whole = [&multi[..], &set, &exec].concat();
    hub.data(&mut net, id(client), &whole);
    let old = connect(&mut hub, &mut net, 1);
    let (queued, aborted) = (&b"+OK\r\n+QUEUED\r\n"[..], &b"-TRYAGAIN Multiple keys\r\n"[..]);
    let ask = format!("-ASK {} 10.0.0.1:2\r\n", slots::of(b"k")).into_bytes();
    let (mut at_old, mut rounds, mut at_new) = (Some(old), 0, None);
    while let Some(from) = at_old {
        assert_eq!(net.take(from, usize::MAX), whole);
        hub.data(&mut net, id(from), &[queued, &ask].concat());
        later(&mut hub, &mut net);
        at_new = asked(&mut hub, &mut net, 2, at_new);
        let Some(to) = at_new else { break };
        assert_eq!(net.take(to, usize::MAX), [&request(&["ASKING"])[..], &whole].concat());
        hub.data(&mut net, id(to), &[&b"+OK\r\n"[..], queued, aborted].concat());
        later(&mut hub, &mut net);
        rounds += 1;
        at_old = asked(&mut hub, &mut net, 1, at_old);
    }
    let answer = String::from_utf8_lossy(&net.take(client, usize::MAX)).into_owned();
    assert!(answer.starts_with("+OK\r\n+QUEUED\r\n-TRYAGAIN "), "{answer}");
    assert!((10..1000).contains(&rounds), "{rounds}");
}

/// The connection to a server that something was sent on: a new one, or the one of before.
fn asked<P: Policy>(
    hub: &mut Hub<P>,
    net: &mut Memory,
    port: u16,
    before: Option<u32>,
) -> Option<u32> {
    match net.connecting.iter().any(|(_, to)| *to == address(port)) {
        true => Some(connect(hub, net, port)),
        false => before.filter(|&slot| net.has_got(slot, b"*")),
    }
}
