//! Files of a log that no manifest names, met by a server that runs, and files that are history.

use super::{BASE, INCR, MANIFEST, NAMES, Patient};
use harness::client::{Client, encode, ok};
use harness::reply::Reply;
use harness::wait::{eventually, until_not_rewriting};
use std::fs;

/// What must not change.
const PRECIOUS: &[&str] = &["SET", "precious", "1"];

fn rewrite(client: &mut Client) {
    ok(client, &["BGREWRITEAOF"]);
    until_not_rewriting(client);
}

#[test]
fn files_without_a_manifest_are_not_overwritten_by_a_server_that_runs() {
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let files = [(BASE, encode(PRECIOUS)), (INCR, encode(PRECIOUS))];
    patient.lay(&[]);
    patient.start().unwrap();
    let mut client = patient.server.client();
    ok(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
    patient.lay(&files.each_ref().map(|(name, bytes)| (*name, &bytes[..])));
    let stay = |what: &str| {
        for (name, bytes) in &files {
            assert_eq!(&fs::read(patient.log_path(name)).unwrap(), bytes, "{what}: {name}");
        }
        assert!(!patient.log_path(MANIFEST).exists(), "{what}");
        eventually(what, || patient.server.log().contains("would be overwritten"));
    };
    let reply = client.command(&["CONFIG", "SET", "appendonly", "yes"]).unwrap();
    let said = reply.text().map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(said.as_ref().is_some_and(|said| said.contains("Unable to turn on AOF")), "{said:?}");
    stay("switched on");
    rewrite(&mut client);
    stay("rewritten");
    for (name, _) in &files {
        fs::remove_file(patient.log_path(name)).unwrap();
    }
    ok(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    until_not_rewriting(&mut client);
    assert!(patient.log_path(MANIFEST).exists(), "the log begins once they are out of the way");
}

#[test]
fn a_new_increment_has_nothing_of_a_file_that_had_its_name() {
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    fs::write(patient.log_path("appendonly.aof.2.incr.aof"), encode(PRECIOUS)).unwrap();
    patient.start().unwrap();
    let mut client = patient.server.client();
    rewrite(&mut client);
    ok(&mut client, &["SET", "k", "v"]);
    patient.server.restart().unwrap();
    assert_eq!(ok(&mut patient.server.client(), &["KEYS", "*"]).elements().unwrap().len(), 1);
}

#[test]
fn a_new_increment_is_not_deleted_with_history() {
    // What a rewrite without a log leaves, if the server is killed before it has deleted history.
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let base = fs::read(patient.log_path(BASE)).unwrap();
    let manifest =
        NAMES.replace("type i", "type h").replace("1.base.rdb seq 1", "2.base.rdb seq 2");
    let old = encode(&["RPUSH", "list", "old"]);
    patient.lay(&[
        ("appendonly.aof.2.base.rdb", &base),
        (INCR, &old),
        (MANIFEST, manifest.as_bytes()),
    ]);
    patient.start().unwrap();
    let wrote = ok(&mut patient.server.client(), &["RPUSH", "list", "new"]);
    assert_eq!(wrote, Reply::Integer(1), "history is not loaded");
    patient.server.restart().unwrap();
    let length = ok(&mut patient.server.client(), &["LLEN", "list"]);
    assert_eq!(length, Reply::Integer(1), "and the new increment is");
    assert!(!patient.log_path(INCR).exists(), "history is deleted");
}
