//! A client that waits for an element has it before any client on another thread, whatever that one
//! does with the key.

use harness::client::{ask, encode};
use harness::crowd::Crowd;
use harness::info::field;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

const ROUNDS: usize = 300;
const OTHERS: usize = 4;

/// Has a client wait, again and again, while others take from the same key as fast as they can, and
/// another one puts something there.
fn serve_beside_others(waits: &[&str], puts: &[&[&str]], takes: &[&str]) {
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options { backend, ..Options::arguments(&["--io-threads", "3"]) };
        let server = Server::start(&program, options).expect("it starts");
        let mut client = server.client();
        let mut waiting = server.client();
        let others = Crowd::start(&server, OTHERS, (encode(takes).repeat(50), 50));
        for round in 0..ROUNDS {
            waiting.send(waits).expect("it is sent");
            eventually("it waits", || field(&mut client, "blocked_clients") == "1");
            for words in puts {
                client.send(words).expect("it is sent");
            }
            for _ in puts {
                let reply = client.reply().expect("a reply");
                assert!(!reply.is_error(), "round {round}: {reply:?}");
            }
            let served = waiting.reply();
            assert!(
                served.as_ref().is_ok_and(|reply| !matches!(reply, Reply::Nil | Reply::NilArray)),
                "round {round}: {served:?}"
            );
        }
        others.stop();
        assert_eq!(ask(&mut client, &["DBSIZE"]).integer(), Some(0));
    }
}

#[test]
fn nobody_else_pops_it() {
    serve_beside_others(&["BLPOP", "list", "0"], &[&["LPUSH", "list", "x"]], &["LPOP", "list"]);
}

#[test]
fn nobody_deletes_it() {
    let puts: &[&[&str]] = &[&["MULTI"], &["ZADD", "zset", "1", "x"], &["EXEC"]];
    serve_beside_others(&["BZPOPMIN", "zset", "0"], puts, &["DEL", "zset"]);
}

/// The other keys are in stripes of their own, which no other client uses.
#[test]
fn nobody_pops_what_one_of_several_keys_got() {
    let waits = ["BLMPOP", "0", "4", "a", "b", "list", "c", "LEFT"];
    serve_beside_others(&waits, &[&["LPUSH", "list", "x"]], &["LPOP", "list"]);
}

#[test]
fn nobody_flushes_it() {
    let puts: &[&[&str]] = &[&["SELECT", "1"], &["RPUSH", "list", "x"], &["SWAPDB", "0", "1"]];
    let back: &[&[&str]] = &[&["SELECT", "0"]];
    serve_beside_others(&["BRPOP", "list", "0"], &[puts, back].concat(), &["LPOP", "list"]);
}
