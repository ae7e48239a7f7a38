//! Starting from files that are damaged: a byte that is another one anywhere, files that are not
//! there or not whole, manifests that make no sense, directories that may not be read. Whatever it
//! is, the server says which file and where, or has everything that was not hit; it never ends by a
//! signal and never leaves out history without a word.
//!
//! `DUNLIN_FLIPS=2000` damages so many bytes of each kind of file; the seed is printed, and taken
//! from `DUNLIN_SEED`.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

mod batches;
mod checks;
mod strays;

use harness::client::{encode, ok};
use harness::contents::{Contents, contents};
use harness::environment::{has_preallocated_logs, new_seed, skipped, variable};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes damaged in each kind of file by the default run.
const FLIPS: u64 = 40;
const BASE: &str = "appendonly.aof.1.base.rdb";
const INCR: &str = "appendonly.aof.1.incr.aof";
const MANIFEST: &str = "appendonly.aof.manifest";
const NAMES: &str = "file appendonly.aof.1.base.rdb seq 1 type b\n\
                     file appendonly.aof.1.incr.aof seq 1 type i\n";

fn seed() -> u64 {
    let seed = variable("DUNLIN_SEED").unwrap_or_else(new_seed);
    println!("DUNLIN_SEED={seed}");
    seed
}

fn all(server: &Server) -> Contents {
    contents(&mut server.client())
}

/// A server whose files a test may replace while it is down.
struct Patient {
    server: Server,
    /// What earlier starts have logged.
    read: String,
}

impl Patient {
    fn new(arguments: &[&str]) -> Patient {
        Patient::of(&Program::under_test(), arguments)
    }

    fn of(program: &Program, arguments: &[&str]) -> Patient {
        let mut server = Server::start(program, Options::arguments(arguments)).unwrap();
        server.kill().unwrap();
        let read = server.log();
        Patient { server, read }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.server.directory().join(name)
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.path("appendonlydir").join(name)
    }

    /// Puts nothing but these files into the directory of the log.
    fn lay(&self, files: &[(&str, &[u8])]) {
        fs::remove_dir_all(self.path("appendonlydir")).unwrap();
        fs::create_dir(self.path("appendonlydir")).unwrap();
        for (name, bytes) in files {
            fs::write(self.log_path(name), bytes).unwrap();
        }
    }

    /// Starts it; what it has logged, or its last words.
    fn start(&mut self) -> Result<String, String> {
        let outcome = self.server.start_again();
        let log = self.server.log();
        let said = log[self.read.len()..].to_owned();
        self.read = log;
        match outcome {
            Ok(()) => Ok(said),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("ended with exit status: 1"), "{error}");
                Err(said)
            }
        }
    }

    /// It must not start, and all of these be among its last words.
    #[track_caller]
    fn refuses(&mut self, what: &str, words: &[&str]) {
        let said = match self.start() {
            Err(said) => said,
            Ok(said) => panic!("{what}: it starts:\n{said}"),
        };
        for word in words {
            assert!(said.contains(word), "{what}: no {word:?} in\n{said}");
        }
    }

    /// It must start, and hold this.
    #[track_caller]
    fn holds(&mut self, what: &str, wanted: &Contents) -> String {
        let said = self.start().unwrap_or_else(|said| panic!("{what}: it does not start:\n{said}"));
        assert!(all(&self.server) == *wanted, "{what}: the data set is another one");
        self.server.kill().unwrap();
        said
    }
}

/// The place that a message names.
fn offset_in(said: &str) -> Option<u64> {
    let (_, rest) = said.rsplit_once("offset ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// A command in a log, with the transaction that it is in.
struct Part {
    at: Range<usize>,
    /// The whole transaction, or the command itself.
    whole: Range<usize>,
    /// The key it is about.
    key: Option<Vec<u8>>,
    is_select: bool,
}

/// A log of commands each about a key of its own.
fn history() -> (Vec<u8>, Vec<Part>) {
    let long = "long ".repeat(30);
    let mut number = 0;
    let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
    for db in ["0", "3", "0"] {
        groups.push(vec![vec!["SELECT".into(), db.into()]]);
        let mut group = Vec::new();
        for words in [
            &["SET", "", "value"][..],
            &["RPUSH", "", "a", "b", "17"],
            &["#"],
            &["SADD", "", "x", "-12"],
            &["HSET", "", "field", "1", "", ""],
            &["MULTI"],
            &["ZADD", "", "1.5", "a"],
            &["SET", "", &long],
            &["EXEC"],
            &["SET", "", "1", "PXAT", "99999999999999"],
        ] {
            let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            if words.len() > 1 {
                number += 1;
                // No other key by a single byte.
                words[1] = format!("key:{number}{number}");
            }
            let ends =
                !matches!(words[0].as_str(), "MULTI" | "ZADD") && words.last() != Some(&long);
            group.push(words);
            if ends {
                groups.push(std::mem::take(&mut group));
            }
        }
    }
    let (mut bytes, mut parts) = (Vec::new(), Vec::new());
    for group in groups {
        let first = parts.len();
        let begin = bytes.len();
        for words in group {
            let at = bytes.len();
            match words[0].as_str() {
                "#" => bytes.extend_from_slice(b"#TS:1700000000\r\n"),
                _ => bytes.extend(encode(&words)),
            }
            let is_select = words[0] == "SELECT";
            let key = words.get(1).filter(|_| !is_select).map(|key| key.clone().into_bytes());
            parts.push(Part { at: at..bytes.len(), whole: 0..0, key, is_select });
        }
        parts[first..].iter_mut().for_each(|part: &mut Part| part.whole = begin..bytes.len());
    }
    (bytes, parts)
}

/// What the server may do about a damaged byte of `part` of such a log.
fn judge(part: &Part, whole: &Contents, outcome: Result<(String, Contents), String>, size: usize) {
    match outcome {
        Err(said) => {
            assert!(said.contains(INCR), "the file is not named:\n{said}");
            let offset = offset_in(&said).unwrap_or_else(|| panic!("no offset:\n{said}"));
            let (least, most) = (part.whole.start as u64, size as u64);
            assert!((least..=most).contains(&offset), "offset {offset} is not near:\n{said}");
        }
        Ok((said, found)) if said.contains("!!! Truncating") => {
            let cut = format!("Truncating the AOF {INCR} at offset {} ", part.whole.start);
            assert!(said.contains(&cut), "cut elsewhere:\n{said}");
            assert_eq!(part.whole.end, size, "sound history was cut off:\n{said}");
            assert!(found.iter().all(|(key, value)| whole.get(key) == Some(value)));
        }
        Ok((said, found)) => {
            let gone: Vec<_> = whole.iter().filter(|(k, v)| found.get(*k) != Some(v)).collect();
            let new: Vec<_> = found.iter().filter(|(k, v)| whole.get(*k) != Some(v)).collect();
            if part.is_select {
                // The same keys, in a database that does exist.
                let named = |((_, key), value): &(&(u32, Vec<u8>), &(String, i64))| {
                    (key.clone(), (*value).clone())
                };
                let values = |list: &[_]| list.iter().map(named).collect::<BTreeSet<_>>();
                assert_eq!(values(&gone), values(&new), "{said}");
                return;
            }
            assert!(
                gone.iter().all(|((_, key), _)| Some(key) == part.key.as_ref()) && new.len() <= 1,
                "{gone:?} became {new:?}:\n{said}"
            );
            // A command that has no effect was complained about.
            if gone.len() > new.len() && !said.contains("SREM") {
                assert!(said.contains(" failed: "), "{gone:?} is not there:\n{said}");
            }
        }
    }
}

#[test]
fn a_damaged_byte_of_a_log_is_found_or_hits_one_command() {
    let mut rng = Rng::new(seed());
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let base = fs::read(patient.log_path(BASE)).unwrap();
    let (log, parts) = history();
    let lay = |patient: &Patient, log: &[u8]| {
        patient.lay(&[(BASE, &base), (INCR, log), (MANIFEST, NAMES.as_bytes())]);
    };
    lay(&patient, &log);
    patient.start().unwrap();
    let whole = all(&patient.server);
    assert_eq!(whole.len(), parts.iter().filter(|part| part.key.is_some()).count());
    patient.server.kill().unwrap();
    let flips = variable("DUNLIN_FLIPS").unwrap_or(FLIPS) as usize;
    let mut refused = 0;
    for flip in 0..flips {
        // Each part in turn, and the last one more often: there a tear may be seen in a damage.
        let part = match flip % 4 {
            0 => parts.last().unwrap(),
            1 => &parts[parts.len() - 2 - rng.below(6)],
            _ => rng.pick(&parts),
        };
        let place = part.at.start + rng.below(part.at.len());
        let to = match rng.below(3) {
            0 => log[place] ^ (1 << rng.below(8)),
            1 => *rng.pick(b"0123456789*$#\r\n"),
            _ => rng.bits() as u8,
        };
        if to == log[place] {
            continue;
        }
        let mut damaged = log.clone();
        damaged[place] = to;
        lay(&patient, &damaged);
        println!("byte {place}: {:?} for {:?}", char::from(to), char::from(log[place]));
        let outcome = patient.start();
        let outcome = outcome.map(|said| (said, all(&patient.server)));
        refused += usize::from(outcome.is_err());
        judge(part, &whole, outcome, log.len());
        patient.server.kill().unwrap();
    }
    println!("{refused} of {flips} were refused");
}

/// Has a server make a base with every type in it, and the bytes of that.
fn base() -> Vec<u8> {
    let server = Server::start(
        &Program::under_test(),
        Options::arguments(&["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"]),
    )
    .unwrap();
    let mut client = server.client();
    for words in [
        &["SET", "s", "value"][..],
        &["SET", "long", &"abcdefgh".repeat(40)],
        &["RPUSH", "l", "a", "b", "17"],
        &["SADD", "i", "1", "2", "70000"],
        &["SADD", "set", "x", "y"],
        &["HSET", "h", "f", "v"],
        &["ZADD", "z", "1", "a", "-inf", "b"],
        &["PEXPIREAT", "s", "99999999999999"],
        &["SELECT", "9"],
        &["DEBUG", "POPULATE", "20"],
    ] {
        ok(&mut client, words);
    }
    for number in 0..600 {
        ok(&mut client, &["ZADD", "zset", &number.to_string(), &format!("m{number}")]);
        ok(&mut client, &["HSET", "hash", &format!("f{number}"), "v"]);
    }
    ok(&mut client, &["BGREWRITEAOF"]);
    let path = server.directory().join("appendonlydir/appendonly.aof.2.base.rdb");
    server.logs("AOF rewrite finished successfully");
    fs::read(path).unwrap()
}

#[test]
fn a_damaged_byte_of_a_snapshot_is_always_found() {
    let mut rng = Rng::new(seed());
    let base = base();
    let mut with_log = Patient::new(&["--appendonly", "yes"]);
    let mut alone = Patient::new(&[]);
    let flips = variable("DUNLIN_FLIPS").unwrap_or(FLIPS) / 2;
    for flip in 0..flips {
        let mut damaged = base.clone();
        // The front, with all the opcodes, the end with the checksum, and anywhere.
        let place = match flip % 4 {
            0 => rng.below(base.len().min(120)),
            1 => base.len() - 1 - rng.below(12),
            _ => rng.below(base.len()),
        };
        damaged[place] ^= 1 << rng.below(8);
        println!("byte {place} of {}: {:02x} for {:02x}", base.len(), damaged[place], base[place]);
        with_log.lay(&[(BASE, &damaged), (INCR, b""), (MANIFEST, NAMES.as_bytes())]);
        with_log.refuses("base", &[BASE, "offset "]);
        assert_eq!(fs::read(with_log.log_path(BASE)).unwrap(), damaged, "it was changed");
        fs::write(alone.path("dump.rdb"), &damaged).unwrap();
        alone.refuses("dump", &["dump.rdb", "offset "]);
        // And cut off there.
        fs::write(alone.path("dump.rdb"), &base[..place]).unwrap();
        alone.refuses("cut", &["dump.rdb", "offset "]);
    }
    // A base of commands was complete before it had its name, so a torn one is none.
    let (log, _) = history();
    let names = NAMES.replace("base.rdb", "base.aof");
    let name = "appendonly.aof.1.base.aof";
    with_log.lay(&[(name, &log[..log.len() - 3]), (INCR, b""), (MANIFEST, names.as_bytes())]);
    with_log.refuses("torn base", &[name, "offset ", "not the last file"]);
}

#[test]
fn files_that_are_not_there_or_make_no_sense_are_named() {
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let base = fs::read(patient.log_path(BASE)).unwrap();
    let (log, _) = history();
    let whole = [(BASE, &base[..]), (INCR, &log[..])];
    patient.lay(&[whole[0], whole[1], (MANIFEST, NAMES.as_bytes())]);
    patient.start().unwrap();
    let wanted = all(&patient.server);
    patient.server.kill().unwrap();
    // Files that the manifest names.
    patient.lay(&[whole[1], (MANIFEST, NAMES.as_bytes())]);
    patient.refuses("no base", &[BASE, "No such file"]);
    patient.lay(&[whole[0], (MANIFEST, NAMES.as_bytes())]);
    patient.refuses("no increment", &[INCR, "No such file"]);
    // A manifest that is none.
    let manifests: [(&str, &[u8], &str); 9] = [
        ("empty", b"", "Found an empty AOF manifest"),
        ("garbage", b"\x00\xff\xfe garbage\n", "Invalid AOF manifest file format"),
        ("an unknown line", b"file a seq 1 type i\ninclude other\n", "at line 2"),
        ("an unknown type", b"file a.1.incr.aof seq 1 type x\n", "Unknown AOF file type"),
        ("a path", b"file ../a.1.incr.aof seq 1 type i\n", "File can't be a path"),
        ("an absolute path", b"file /etc/passwd seq 1 type b\n", "File can't be a path"),
        ("no order", b"file a seq 2 type i\nfile b seq 1 type i\n", "non-monotonic"),
        ("two bases", b"file a seq 1 type b\nfile b seq 2 type b\n", "duplicate base"),
        ("cut short", &NAMES.as_bytes()[..NAMES.len() - 1], "too long line"),
    ];
    for (what, text, problem) in manifests {
        patient.lay(&[whole[0], whole[1], (MANIFEST, text)]);
        patient.refuses(what, &[problem, MANIFEST]);
        assert_eq!(fs::read(patient.log_path(INCR)).unwrap(), log, "{what}: it was changed");
    }
    // Without a manifest the files would be overwritten.
    patient.lay(&whole);
    patient.refuses("no manifest", &[INCR, MANIFEST, "would be overwritten"]);
    let (stays, base_stays) = (patient.log_path(INCR), patient.log_path(BASE));
    assert_eq!(
        (fs::read(stays).unwrap(), fs::read(base_stays).unwrap()),
        (log.clone(), base.clone())
    );
    // Nor does an old-style file beside them make them others' files.
    let old = encode(&["SET", "old", "1"]);
    for (what, files) in [("beside old", &whole[..]), ("moved", &[("appendonly.aof", &log[..])])] {
        patient.lay(files);
        fs::write(patient.path("appendonly.aof"), &old).unwrap();
        patient.refuses(what, &[files[files.len() - 1].0, MANIFEST, "would be overwritten"]);
        assert_eq!(fs::read(patient.path("appendonly.aof")).unwrap(), old, "{what}");
        for (name, bytes) in files {
            assert_eq!(&fs::read(patient.log_path(name)).unwrap(), bytes, "{what}: {name}");
        }
        fs::remove_file(patient.path("appendonly.aof")).unwrap();
    }
    // A begin that was interrupted leaves files without anything in them.
    patient.lay(&[(BASE, &base), (INCR, b"")]);
    patient.holds("an interrupted begin", &Contents::new());
    // What is harmless.
    let more = format!("# a comment\n{NAMES}file appendonly.aof.9.base.rdb seq 9 type h\n");
    patient.lay(&[whole[0], whole[1], (MANIFEST, more.as_bytes()), ("other", b"x")]);
    patient.holds("history that is gone", &wanted);
    // Torn in the middle, with more behind it.
    let two = format!("{NAMES}file appendonly.aof.2.incr.aof seq 2 type i\n");
    let second = encode(&["SET", "second", "1"]);
    let files = [whole[0], (INCR, &log[..log.len() - 4]), ("appendonly.aof.2.incr.aof", &second)];
    patient.lay(&[files[0], files[1], files[2], (MANIFEST, two.as_bytes())]);
    patient.refuses("a torn file that is not the last", &[INCR, "offset ", "not the last file"]);
    // A database that does not exist is no reason to write into another one.
    let lost = [encode(&["SELECT", "99"]), encode(&["SET", "k", "v"])].concat();
    patient.lay(&[whole[0], (INCR, &lost), (MANIFEST, NAMES.as_bytes())]);
    patient.refuses("SELECT", &[INCR, "offset 0", "out of range"]);
    // What is wrong with a command is said, and nothing else.
    for (words, problem) in [
        (&["NOSUCH", "k"], "Unknown command 'NOSUCH' reading the append only file"),
        (&["NOSUCH", "two\nlines"], "beginning with: 'two lines'"),
        (&["SET", "k"], "Error reading the append only file"),
    ] {
        patient.lay(&[whole[0], (INCR, &encode(words)), (MANIFEST, NAMES.as_bytes())]);
        patient.refuses("a command that cannot be", &[problem, INCR, "offset 0: ERR "]);
    }
}

/// The log has them by their own names too: the server wrote it, or it is from before.
#[test]
fn commands_that_clients_may_not_name_are_repeated() {
    let mut arguments = vec!["--appendonly", "yes"];
    let renamed =
        [("DEL", ""), ("UNLINK", ""), ("FLUSHALL", ""), ("PEXPIREAT", ""), ("SET", "put")];
    for (own, now) in renamed {
        arguments.extend(["--rename-command", own, now]);
    }
    let mut patient = Patient::new(&arguments);
    let base = fs::read(patient.log_path(BASE)).unwrap();
    let log = [&["put", "flushed", "v"][..], &["FLUSHALL"], &["SET", "deleted", "v"]];
    let log = [log.map(encode).concat(), encode(&["DEL", "deleted"])].concat();
    patient.lay(&[(BASE, &base), (INCR, &log), (MANIFEST, NAMES.as_bytes())]);
    patient.holds("a log from before", &Contents::new());
    patient.start().unwrap();
    let mut client = patient.server.client();
    assert!(client.command(&["FLUSHALL"]).unwrap().is_error());
    ok(&mut client, &["put", "kept", "v", "EX", "1000"]);
    ok(&mut client, &["put", "expired", "v", "PX", "1"]);
    eventually("it has expired", || ok(&mut client, &["EXISTS", "expired"]) == Reply::Integer(0));
    let wanted = all(&patient.server);
    assert_eq!(wanted.len(), 1);
    eventually("the log has that", || {
        let log = fs::read(patient.log_path(INCR)).unwrap();
        log.ends_with(&encode(&["UNLINK", "expired"]))
    });
    patient.server.kill().unwrap();
    patient.read = patient.server.log();
    patient.holds("the server's own log", &wanted);
}

#[test]
fn a_length_that_is_garbage_takes_no_memory() {
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let base = fs::read(patient.log_path(BASE)).unwrap();
    for end in [&b"*2\r\n$1099511627775\r\nx"[..], b"*2147483648\r\n$1\r\n", b"*1\r\n$900000000000"]
    {
        let log = [&encode(&["SET", "k", "v"])[..], end].concat();
        patient.lay(&[(BASE, &base), (INCR, &log), (MANIFEST, NAMES.as_bytes())]);
        let said = patient.start().unwrap();
        assert!(said.contains("Truncating the AOF"), "{said}");
        assert_eq!(all(&patient.server).len(), 1);
        let status = format!("/proc/{}/status", patient.server.process_id());
        let status = fs::read_to_string(status).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak < 500_000, "{peak} kB");
        patient.server.kill().unwrap();
    }
}

/// Root, but without the right to ignore permissions.
fn without_override() -> Option<Program> {
    let wrapper = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"];
    let works = std::process::Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg("true")
        .status()
        .is_ok_and(|status| status.success());
    works.then(|| Program::under_test().started_by(&wrapper))
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_may_not_be_read_or_written_is_named() {
    let Some(program) = without_override() else {
        skipped("setpriv does not work, so no user is bound by permissions");
        return;
    };
    let mut patient = Patient::of(&program, &["--appendonly", "yes"]);
    let base = fs::read(patient.log_path(BASE)).unwrap();
    let (log, _) = history();
    patient.lay(&[(BASE, &base), (INCR, &log), (MANIFEST, NAMES.as_bytes())]);
    patient.start().unwrap();
    let wanted = all(&patient.server);
    patient.server.kill().unwrap();
    for name in [BASE, INCR, MANIFEST, ""] {
        let path = patient.log_path(name);
        let mode = if name.is_empty() { 0o755 } else { 0o644 };
        set_mode(&path, 0);
        let named = if name.is_empty() { "appendonlydir" } else { name };
        patient.refuses(name, &[named, "Permission denied"]);
        set_mode(&path, mode);
        patient.holds(name, &wanted);
    }
    // A log that may be read and not be written.
    set_mode(&patient.log_path(INCR), 0o444);
    patient.refuses("read-only", &[INCR, "Permission denied"]);
    set_mode(&patient.log_path(INCR), 0o644);
    // While it runs: neither a rewrite nor a save, and nothing is lost by the attempt.
    patient.start().unwrap();
    let mut client = patient.server.client();
    set_mode(&patient.path("appendonlydir"), 0o555);
    set_mode(patient.server.directory(), 0o555);
    ok(&mut client, &["BGREWRITEAOF"]);
    patient.server.logs_after(&patient.read, "AOF rewrite terminated with error");
    assert!(client.command(&["SAVE"]).unwrap().is_error());
    let said = patient.server.log()[patient.read.len()..].to_owned();
    assert!(
        said.contains("temp-appendonly.aof.manifest: Permission denied")
            || said.contains("appendonly.aof.2.incr.aof: Permission denied"),
        "{said}"
    );
    ok(&mut client, &["SET", "key:11", "value"]);
    set_mode(patient.server.directory(), 0o755);
    set_mode(&patient.path("appendonlydir"), 0o755);
    ok(&mut client, &["BGREWRITEAOF"]);
    patient.server.logs_after(&patient.read, "AOF rewrite finished successfully");
    patient.server.kill().unwrap();
    patient.read = patient.server.log();
    patient.holds("after all", &wanted);
    // A snapshot.
    let mut alone = Patient::of(&program, &[]);
    fs::write(alone.path("dump.rdb"), &base).unwrap();
    set_mode(&alone.path("dump.rdb"), 0);
    alone.refuses("dump", &["dump.rdb", "Permission denied"]);
}

/// A command of the log that fails is reported, or ends the server if the configuration says so.
#[test]
fn a_command_of_the_log_that_fails_ends_the_server_on_request() {
    let log =
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*3\r\n$5\r\nLPUSH\r\n$1\r\nk\r\n$1\r\nv\r\n";
    let manifest = format!("file {INCR} seq 1 type i\n");
    for (behavior, is_fatal) in [("ignore", false), ("panic-on-replicas", false), ("panic", true)] {
        let arguments = ["--appendonly", "yes", "--propagation-error-behavior", behavior];
        let mut patient = Patient::new(&arguments);
        patient.lay(&[(MANIFEST, manifest.as_bytes()), (INCR, log)]);
        assert_eq!(patient.server.start_again().is_err(), is_fatal, "{behavior}");
        let said = patient.server.log();
        assert!(said.contains("The command 'LPUSH' at offset"), "{behavior}: {said}");
        let words = "panicked sending an error to its AOF-loading-client after processing the command 'LPUSH'";
        assert_eq!(said.contains(words), is_fatal, "{behavior}: {said}");
    }
}
