//! CLIENT PAUSE beside writers on all threads: a client that has its reply may rely on what is
//! there.

use harness::client::{Client, ask, encode};
use harness::crowd::Crowd;
use harness::info::find;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::thread;
use std::time::Duration;

const WRITERS: usize = 4;
const PAUSES: usize = 400;

/// Requests that count and let keys expire.
fn writes() -> (Vec<u8>, usize) {
    let mut batch = Vec::new();
    for number in 0..16 {
        batch.extend(encode(&["INCR", "n"]));
        batch.extend(encode(&["SET", &format!("short-lived:{number}"), "v", "PX", "2"]));
    }
    (batch, 32)
}

/// What a write would change: the counter, the number of keys, and where the journal ends.
fn state(client: &mut Client) -> [String; 3] {
    let [n, keys] =
        [&["GET", "n"][..], &["DBSIZE"]].map(|words| format!("{:?}", ask(client, words)));
    let position = find(&ask(client, &["INFO", "replication"]), "master_repl_offset");
    [position.expect("a position"), n, keys]
}

#[test]
fn nothing_is_written_once_a_pause_is_acknowledged() {
    let program = Program::under_test();
    for backend in program.backends() {
        // Somebody reads the journal, so that it is kept.
        let arguments = ["--io-threads", "3", "--appendonly", "yes", "--appendfsync", "no"];
        let options = Options { backend, ..Options::arguments(&arguments) };
        let server = Server::start(&program, options).expect("it starts");
        let mut client = server.client();
        let writers = Crowd::start(&server, WRITERS, writes());
        for _ in 0..PAUSES {
            assert_eq!(
                ask(&mut client, &["CLIENT", "PAUSE", "100000", "WRITE"]).text(),
                Some(&b"OK"[..])
            );
            let at_once = state(&mut client);
            thread::sleep(Duration::from_millis(3));
            assert_eq!(state(&mut client), at_once);
            assert_eq!(ask(&mut client, &["CLIENT", "UNPAUSE"]).text(), Some(&b"OK"[..]));
            eventually("the writers go on", || state(&mut client)[1] != at_once[1]);
        }
        writers.stop();
        assert!(server.stop().expect("it stops").success());
    }
}
