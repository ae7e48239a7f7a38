//! Files of a log that no manifest names, met by a server that runs, and files that are history.

use super::{BASE, INCR, MANIFEST, NAMES, Patient};
use harness::client::{Client, encode, ok};
use harness::reply::Reply;
use harness::wait::until_not_rewriting;
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
        patient.server.logs("would be overwritten");
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

/// Names of a log of two increments.
const TWO: &str = "file appendonly.aof.1.base.rdb seq 1 type b\n\
                   file appendonly.aof.1.incr.aof seq 1 type i\n\
                   file appendonly.aof.2.incr.aof seq 2 type i\n";
const SECOND: &str = "appendonly.aof.2.incr.aof";

#[test]
fn a_file_that_the_manifest_misses_stops_the_start() {
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let base = fs::read(patient.log_path(BASE)).unwrap();
    let precious = encode(PRECIOUS);
    let files = [(BASE, &base[..]), (INCR, &precious[..]), (SECOND, &precious[..])];
    for missed in [INCR, SECOND] {
        let lines = TWO.split_inclusive('\n').filter(|line| !line.contains(missed));
        let manifest: String = lines.collect();
        patient.lay(&[&files[..], &[(MANIFEST, manifest.as_bytes())]].concat());
        patient.refuses(missed, &[missed, "does not name it", "move the file away"]);
        for (name, bytes) in files {
            assert_eq!(fs::read(patient.log_path(name)).unwrap(), bytes, "{missed}: {name}");
        }
    }
    // A log whose manifest has lost the line of its base.
    let manifest: String = TWO.split_inclusive('\n').skip(1).collect();
    let full = [(BASE, &precious[..]), (INCR, &precious[..]), (SECOND, &precious[..])];
    patient.lay(&[&full[..], &[(MANIFEST, manifest.as_bytes())]].concat());
    patient.refuses("base", &[BASE, "does not name it"]);
    patient.lay(&[&files[..], &[(MANIFEST, TWO.as_bytes())]].concat());
    patient.start().unwrap();
}

#[test]
fn what_a_crash_leaves_beside_a_log_goes_at_the_next_start() {
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let base = fs::read(patient.log_path(BASE)).unwrap();
    let (old, new) = (encode(&["SET", "k", "old"]), encode(PRECIOUS));
    let next = "appendonly.aof.2.base.aof";
    let lay = |patient: &Patient, more: &[(&str, &[u8])]| {
        let log = [(BASE, &base[..]), (INCR, &old[..]), (MANIFEST, NAMES.as_bytes())];
        patient.lay(&[&log[..], more].concat());
    };
    let keeps_old = |patient: &mut Patient, gone: &[&str]| {
        let said = patient.start().unwrap();
        assert!(said.contains("which a rewrite left that a crash ended"), "{said}");
        let keys = ok(&mut patient.server.client(), &["KEYS", "*"]);
        assert_eq!(keys.elements().unwrap().len(), 1);
        for name in gone {
            assert!(!patient.log_path(name).exists(), "{name}");
        }
        patient.server.kill().unwrap();
    };
    // Killed before the manifest named the new base.
    lay(&patient, &[(next, &new), (SECOND, b"")]);
    keeps_old(&mut patient, &[next]);
    // Killed before the manifest named the files of a log that was switched on.
    let mark = "temp-appendonly.aof.beginning";
    lay(&patient, &[(next, &new), (SECOND, &new), (mark, b"")]);
    keeps_old(&mut patient, &[next, SECOND, mark]);
    // An increment alone is never left by a crash.
    lay(&patient, &[(SECOND, &new)]);
    patient.refuses("an increment", &[SECOND, "does not name it"]);
}

#[test]
fn a_file_that_appears_while_the_server_runs_is_not_overwritten() {
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    patient.start().unwrap();
    let precious = encode(PRECIOUS);
    fs::write(patient.log_path(SECOND), &precious).unwrap();
    let mut client = patient.server.client();
    rewrite(&mut client);
    assert_eq!(fs::read(patient.log_path(SECOND)).unwrap(), precious);
    patient.server.logs("does not name it");
    fs::remove_file(patient.log_path(SECOND)).unwrap();
    rewrite(&mut client);
    ok(&mut client, &["SET", "k", "v"]);
    patient.server.restart().unwrap();
    assert_eq!(ok(&mut patient.server.client(), &["KEYS", "*"]).elements().unwrap().len(), 1);
}

#[test]
fn what_a_killed_server_was_writing_goes_at_the_next_start() {
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    // No process has a number this large.
    let left =
        [patient.path("temp-4194305.rdb"), patient.log_path("temp-rewriteaof-bg-4194305.aof")];
    left.iter().for_each(|path| fs::write(path, b"half").unwrap());
    let kept = patient.path("temp-mine.rdb");
    fs::write(&kept, b"whole").unwrap();
    let said = patient.start().unwrap();
    assert!(!left.iter().any(|path| path.exists()), "{said}");
    assert!(kept.exists() && said.contains("which a process that has ended was writing"), "{said}");
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
