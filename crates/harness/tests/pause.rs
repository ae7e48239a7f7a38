//! CLIENT PAUSE beside writers on all threads: who has its reply may rely on what is there.

use harness::client::{Client, encode, is_gone};
use harness::info::find;
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

const WRITERS: usize = 4;
const PAUSES: usize = 400;

fn ask(client: &mut Client, words: &[&str]) -> Reply {
    client.command(words).unwrap_or_else(|why| panic!("{words:?}: {why}"))
}

/// Counts, and lets keys expire, until the connection is shut down.
fn write(mut client: Client) {
    let mut batch = Vec::new();
    for number in 0..16 {
        batch.extend(encode(&["INCR", "n"]));
        batch.extend(encode(&["SET", &format!("short-lived:{number}"), "v", "PX", "2"]));
    }
    loop {
        if let Err(why) = client.send_raw(&batch) {
            assert!(is_gone(&why), "{why}");
            return;
        }
        for _ in 0..32 {
            match client.reply() {
                Ok(reply) => assert!(!reply.is_error(), "{reply:?}"),
                Err(why) => {
                    assert!(is_gone(&why), "{why}");
                    return;
                }
            }
        }
    }
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
        let mut client = server.connect(Protocol::Resp2).expect("it answers");
        let connect = || server.connect(Protocol::Resp2).expect("it answers");
        let writers: Vec<Client> = (0..WRITERS).map(|_| connect()).collect();
        let streams: Vec<_> =
            writers.iter().map(|writer| writer.stream().try_clone().expect("a handle")).collect();
        thread::scope(|scope| {
            for writer in writers {
                scope.spawn(|| write(writer));
            }
            let mut last = String::new();
            for _ in 0..PAUSES {
                assert_eq!(
                    ask(&mut client, &["CLIENT", "PAUSE", "100000", "WRITE"]).text(),
                    Some(&b"OK"[..])
                );
                let at_once = state(&mut client);
                thread::sleep(Duration::from_millis(3));
                assert_eq!(state(&mut client), at_once);
                assert_ne!(last, at_once[1], "the writers have not gone on");
                last.clone_from(&at_once[1]);
                assert_eq!(ask(&mut client, &["CLIENT", "UNPAUSE"]).text(), Some(&b"OK"[..]));
                thread::sleep(Duration::from_millis(2));
            }
            for stream in streams {
                stream.shutdown(Shutdown::Both).expect("it is shut down");
            }
        });
        assert!(server.stop().expect("it stops").success());
    }
}
