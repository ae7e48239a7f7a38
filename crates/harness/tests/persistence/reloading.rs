//! `DEBUG RELOAD` of files that are damaged, and expiries that no server writes.

use harness::client::{Client, ask, ok};
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::path::PathBuf;

/// A server whose files have no checksum, so that a test can change them.
fn start() -> Server {
    let options = Options::arguments(&["--rdbchecksum", "no", "--save", ""]);
    Server::start(&Program::under_test(), options).expect("it starts")
}

fn snapshot_of(server: &Server) -> PathBuf {
    server.directory().join("dump.rdb")
}

fn shown(client: &mut Client, command: &str) -> String {
    ask(client, command).shown()
}

/// The file with these bytes in the place of others.
fn patched(file: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let at = file.windows(old.len()).position(|window| window == old).expect("it is there");
    let mut file = file.to_vec();
    file.splice(at..at + old.len(), new.iter().copied());
    file
}

#[test]
fn a_file_that_is_damaged_at_its_end_leaves_the_data_as_it_is() {
    let server = start();
    let mut client = server.client();
    ok(&mut client, "DEBUG POPULATE 100000");
    ok(&mut client, "SADD members first other");
    ok(&mut client, "SAVE");
    ok(&mut client, "SET later 1");
    let digest = shown(&mut client, "DEBUG DIGEST");
    let sound = std::fs::read(snapshot_of(&server)).expect("it is there");
    let cut = sound[..sound.len() - 12].to_vec();
    let mut of_unknown_type = sound.clone();
    let end = of_unknown_type.len() - 9;
    of_unknown_type[end] = 0xC8;
    // A member that is there twice.
    let twice = patched(&sound, b"other", b"first");
    for (what, file) in [("cut", cut), ("type", of_unknown_type), ("member", twice)] {
        std::fs::write(snapshot_of(&server), file).expect("it is written");
        for command in ["DEBUG RELOAD NOSAVE", "DEBUG RELOAD NOSAVE MERGE"] {
            assert!(ask(&mut client, command).is_error(), "{what}: {command}");
            assert_eq!(shown(&mut client, "DEBUG DIGEST"), digest, "{what}: {command}");
        }
    }
    std::fs::write(snapshot_of(&server), &sound).expect("it is written");
    ok(&mut client, "DEBUG RELOAD NOSAVE");
    assert_eq!(shown(&mut client, "EXISTS later"), "0");
    assert_eq!(shown(&mut client, "DBSIZE"), "100001");
}

#[test]
fn a_part_of_a_file_is_not_served_in_the_place_of_the_data() {
    let server = start();
    let mut client = server.client();
    ok(&mut client, "SET key value");
    ok(&mut client, "SAVE");
    // That a key is there twice is seen only while the file is loaded.
    let file = std::fs::read(snapshot_of(&server)).expect("it is there");
    let record = b"\0\x03key\x05value";
    let twice = patched(&file, record, &record.repeat(2));
    std::fs::write(snapshot_of(&server), twice).expect("it is written");
    // It ends instead.
    assert!(client.command(&["DEBUG", "RELOAD", "NOSAVE"]).is_err());
    let last = "# Fatal error loading the DB, check server logs. Exiting.";
    eventually("its last line", || {
        server.log().lines().next_back().is_some_and(|line| line.ends_with(last))
    });
    server.logs("DEBUG RELOAD: ");
}

#[test]
fn expiries_that_no_server_writes_are_taken_as_the_reference_takes_them() {
    let mut programs = vec![Program::under_test()];
    programs.extend(Program::reference_or_skip());
    for program in programs {
        let name = program.name().to_owned();
        let arguments = ["--rdbchecksum", "no", "--save", "", "--enable-debug-command", "yes"];
        let server = Server::start(&program, Options::arguments(&arguments)).expect("it starts");
        let mut client = server.client();
        ok(&mut client, "DEBUG SET-ACTIVE-EXPIRE 0");
        let at: i64 = 4_102_444_800_123;
        assert_eq!(shown(&mut client, "SET key value PXAT 4102444800123"), "OK");
        ok(&mut client, "SAVE");
        let file = std::fs::read(snapshot_of(&server)).expect("it is there");
        let mark = [&[0xFC][..], &at.to_le_bytes()].concat();
        for (expiry, expected) in [
            // To all others it stands for none.
            (-1, Some("-1")),
            (-2, None),
            (0, None),
            (i64::MIN, None),
            (i64::MAX, Some("9223372036854775807")),
            (at, Some("4102444800123")),
        ] {
            let changed = patched(&file, &mark, &[&[0xFC], &expiry.to_le_bytes()[..]].concat());
            std::fs::write(snapshot_of(&server), changed).expect("it is written");
            ok(&mut client, "DEBUG RELOAD NOSAVE");
            let found = shown(&mut client, "PEXPIRETIME key");
            assert_eq!(found, expected.unwrap_or("-2"), "{name}: {expiry}");
            let value = expected.map_or("", |_| "value");
            assert_eq!(shown(&mut client, "GET key"), value, "{name}: {expiry}");
            // Nothing of it overflows.
            for command in ["TTL key", "PTTL key", "EXPIRETIME key", "OBJECT ENCODING key"] {
                ask(&mut client, command);
            }
        }
    }
}
