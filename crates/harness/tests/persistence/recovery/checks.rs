//! `dunlin check aof` on what a killed server with `appendfsync always` left.

use super::batches::Sample;
use super::*;
use std::io::Write as _;
use std::process::Stdio;

/// Runs it on the manifest; what it printed, and whether it succeeded.
fn check(patient: &Patient, options: &[&str]) -> (String, bool) {
    let mut command = patient.server.program().subcommand("check");
    command.arg("aof").args(options).arg(patient.log_path(MANIFEST));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It may have ended without a question.
    let _ = child.stdin.take().unwrap().write_all(b"y\n");
    let output = child.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

fn log_len(patient: &Patient) -> usize {
    fs::read(patient.log_path(INCR)).unwrap().len()
}

#[test]
fn a_log_with_room_is_valid() {
    let Some(sample) = Sample::of(&[(1, 20), (2, 600), (1, 30)]) else { return };
    let patient = Patient::new(&["--appendonly", "yes"]);
    for options in [&[][..], &["--fix"], &["--truncate-to-timestamp", "1"]] {
        sample.lay(&patient, &sample.log);
        let (said, is_valid) = check(&patient, options);
        assert!(is_valid && said.contains("All AOF files and manifest are valid"), "{said}");
        assert_eq!(fs::read(patient.log_path(INCR)).unwrap(), sample.log, "it was changed");
    }
    let (said, _) = check(&patient, &[]);
    let end = sample.end();
    assert!(said.contains(&format!("size={end}, ok_up_to={end},")), "room is no data:\n{said}");
}

#[test]
fn a_torn_batch_is_fixed() {
    let Some(sample) = Sample::of(&[(1, 20), (1, 30), (3, 500)]) else { return };
    let mut patient = Patient::new(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--aof-load-truncated",
        "no",
    ]);
    let before = &sample.batches[sample.batches.len() - 2];
    let sectors = sample.last().sectors();
    for sector in &sectors[..sectors.len() - 1] {
        let what = format!("{sector:?} of {:?}", sample.last().at);
        sample.lay(&patient, &sample.without([sector.clone()]));
        let (said, is_valid) = check(&patient, &[]);
        assert!(!is_valid && said.contains("A batch that was never whole"), "{what}:\n{said}");
        assert!(said.contains("Use the --fix option"), "{what}:\n{said}");
        assert_eq!(log_len(&patient), sample.log.len(), "{what}: it was changed");
        let (said, is_fixed) = check(&patient, &["--fix"]);
        assert!(is_fixed && said.contains("Successfully truncated AOF"), "{what}:\n{said}");
        let cut = log_len(&patient);
        // Lines that fill a sector up before the head may stay.
        assert!((before.at.end..sample.last().body).contains(&cut), "{what}: cut at {cut}");
        let (said, is_valid) = check(&patient, &[]);
        assert!(is_valid, "{what}:\n{said}");
        patient.holds(&what, &sample.with_keys(before.keys));
    }
}

#[test]
fn a_damaged_batch_is_not_cut_off_unless_that_is_asked_for() {
    let Some(sample) = Sample::of(&[(1, 20), (2, 600), (1, 30)]) else { return };
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let mut log = sample.log.clone();
    log[sample.batches[1].body + 100] ^= 1;
    sample.lay(&patient, &log);
    let (said, is_valid) = check(&patient, &[]);
    assert!(!is_valid && said.contains("The checksum of the batch is not that"), "{said}");
    assert!(said.contains(&format!("ok_up_to={},", sample.batches[0].at.end)), "{said}");
    assert_eq!(fs::read(patient.log_path(INCR)).unwrap(), log, "it was changed");
    let (said, is_fixed) = check(&patient, &["--fix"]);
    let lost = sample.end() - sample.batches[0].at.end;
    assert!(is_fixed && said.contains(&format!("with {lost} bytes, to")), "{said}");
    patient.holds("fixed", &sample.with_keys(sample.batches[0].keys));
}

#[test]
fn a_log_with_batches_is_cut_back_to_a_time() {
    if !has_preallocated_logs() {
        return;
    }
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    let times = ["--aof-timestamp-enabled", "yes", "--aof-preallocation-size", "64kb"];
    let mut patient = Patient::new(&[&arguments[..], &times].concat());
    patient.start().unwrap();
    let mut client = patient.server.client();
    let log = |patient: &Patient| fs::read(patient.log_path(INCR)).unwrap();
    let count = |log: &[u8]| log.windows(4).filter(|bytes| bytes == b"#TS:").count();
    let mut number = 0;
    eventually("two seconds with batches", || {
        number += 1;
        ok(&mut client, &["SET", &format!("key:{number}"), "value"]);
        count(&log(&patient)) == 3
    });
    patient.server.kill().unwrap();
    let bytes = log(&patient);
    let places = bytes.windows(4).enumerate().filter(|(_, bytes)| bytes == b"#TS:");
    let second = places.map(|(at, _)| at).nth(1).unwrap();
    let time = String::from_utf8(bytes[second + 4..second + 14].to_vec()).unwrap();
    let earlier = (time.parse::<i64>().unwrap() - 1).to_string();
    let (said, is_done) = check(&patient, &["--truncate-to-timestamp", &earlier]);
    assert!(is_done && said.contains("Successfully truncated AOF"), "{said}");
    let cut = log(&patient);
    assert!(cut == bytes[..cut.len()] && cut.len() <= second, "{} of {second}", cut.len());
    assert_eq!(count(&cut), 1);
    let keys = cut.windows(6).filter(|bytes| bytes.ends_with(b"key:")).count();
    patient.start().unwrap();
    assert_eq!(all(&patient.server).len(), keys, "what was before is there");
    // It goes on behind the cut.
    ok(&mut patient.server.client(), &["SET", "more", "1"]);
    patient.server.kill().unwrap();
    patient.start().unwrap();
    assert_eq!(all(&patient.server).len(), keys + 1);
}
