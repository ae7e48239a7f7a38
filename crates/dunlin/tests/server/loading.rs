//! Snapshots at start: what is loaded, what clients meet meanwhile, and what stops the server.

use crate::support::{Folder, Running, ask, client, command, port, refused};
use harness::server::signal;
use harness::wait::eventually;
use rdb::file::{Access, RecordHead};
use rdb::{Compression, Encoder, Kind, ObjectRef};
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use structs::crc64::crc64;

/// A snapshot with what `write` puts into it.
fn snapshot(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Lzf);
    encoder.file_header();
    encoder.aux("redis-ver", b"7.2.4");
    encoder.aux_integer("used-mem", 3 << 20);
    encoder.select_db(0);
    encoder.resize_db(100_000, 0);
    write(&mut encoder);
    encoder.end_of_file();
    let checksum = crc64(0, encoder.as_bytes());
    encoder.checksum(checksum);
    encoder.into_bytes()
}

fn head(key: &[u8], expiry_ms: Option<i64>) -> RecordHead<'_> {
    RecordHead { key, expiry_ms, access: Access::Unknown }
}

/// `count` strings `k0`, `k1` … that hold their numbers.
fn numbers(encoder: &mut Encoder, count: i64) {
    for number in 0..count {
        encoder.record(&head(format!("k{number}").as_bytes(), None), ObjectRef::Int(number));
    }
}

fn folder_with(file: &[u8]) -> Folder {
    let folder = Folder::new();
    fs::write(folder.path("dump.rdb"), file).unwrap();
    folder
}

#[test]
fn a_snapshot_is_there_when_clients_are() {
    const FIELDS: u64 = 300_000;
    let file = snapshot(|encoder| {
        numbers(encoder, 5000);
        encoder.record(&head(b"past", Some(1)), ObjectRef::Int(1));
        encoder.record(&head(b"future", Some(i64::MAX)), ObjectRef::Int(1));
        // Larger than a piece, so it is built from several.
        encoder.record_head(&head(b"hash", None), Kind::Hash);
        encoder.length(FIELDS);
        for number in 0..FIELDS {
            encoder.string(format!("field {number}").as_bytes());
            encoder.string(format!("value {number}").as_bytes());
        }
        encoder.select_db(9);
        encoder.record(&head(b"far", None), ObjectRef::String(b"away"));
        encoder.record_head(&head(b"empty", None), Kind::Set);
        encoder.length(0);
    });
    assert!(file.len() > 6 << 20);
    let (port, text) = port();
    let running = Running::start(folder_with(&file), &["--port", &text]);
    for line in [
        "* Loading RDB produced by version 7.2.4\n",
        "* RDB memory usage when created 3.00 Mb\n",
        "* Done loading RDB, keys loaded: 5003, keys expired: 1, empty keys skipped: 1.\n",
        "* DB loaded from disk: ",
    ] {
        assert!(running.output().contains(line), "no {line:?} in\n{}", running.output());
    }
    let mut client = client(port);
    assert_eq!(ask(&mut client, &["DBSIZE"]), ["Integer(5002)"]);
    assert_eq!(ask(&mut client, &["MGET", "k0", "k4999", "future"]), ["0", "4999", "1"]);
    assert_eq!(ask(&mut client, &["EXISTS", "past"]), ["Integer(0)"]);
    assert_eq!(ask(&mut client, &["HLEN", "hash"]), [format!("Integer({FIELDS})")]);
    assert_eq!(ask(&mut client, &["HGET", "hash", "field 299999"]), ["value 299999"]);
    assert_eq!(ask(&mut client, &["PEXPIRETIME", "future"]), [format!("Integer({})", i64::MAX)]);
    ask(&mut client, &["SELECT", "9"]);
    assert_eq!(ask(&mut client, &["GET", "far"]), ["away"]);
    let info = ask(&mut client, &["INFO", "persistence"]).remove(0);
    for line in
        ["loading:0\r\n", "rdb_last_load_keys_loaded:5003\r\n", "rdb_last_load_keys_expired:1\r\n"]
    {
        assert!(info.contains(line), "no {line:?} in\n{info}");
    }
    assert!(info.contains("rdb_changes_since_last_save:0\r\n"), "{info}");
}

/// A server that loads slowly, in `folder`, once clients can connect.
fn slow(folder: Folder, port: u16, text: &str) -> Running {
    slow_with(folder, port, text, &[])
}

/// The same with more arguments.
fn slow_with(folder: Folder, port: u16, text: &str, arguments: &[&str]) -> Running {
    let mut start = command(&folder, &["--port", text, "--key-load-delay", "2000"]);
    start
        .args(arguments)
        .stdout(fs::File::create(folder.path("output")).unwrap())
        .stdin(Stdio::null());
    let running = Running { child: start.spawn().unwrap(), folder };
    eventually("listening", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    running
}

#[test]
fn a_time_that_a_file_cannot_have_been_written_at_is_no_trouble() {
    for at in [i64::MIN, i64::MAX] {
        let file = snapshot(|encoder| {
            encoder.aux_integer("ctime", at);
            numbers(encoder, 3);
        });
        let (port, text) = port();
        let _running = Running::start(folder_with(&file), &["--port", &text]);
        assert_eq!(ask(&mut client(port), &["DBSIZE"]), ["Integer(3)"]);
    }
}

#[test]
fn half_a_data_set_takes_no_files_place() {
    let file = snapshot(|encoder| numbers(encoder, 50_000));
    let (port, text) = port();
    let running = slow_with(folder_with(&file), port, &text, &["--enable-debug-command", "yes"]);
    let mut client = client(port);
    for command in ["RELOAD", "LOADAOF"] {
        let refusal = ["-LOADING Redis is loading the dataset in memory"];
        assert_eq!(ask(&mut client, &["DEBUG", command]), refusal);
    }
    assert!(fs::read(running.folder.path("dump.rdb")).unwrap() == file, "it is another file");
}

#[test]
fn clients_hear_of_loading_meanwhile() {
    let file = snapshot(|encoder| numbers(encoder, 50_000));
    let (port, text) = port();
    let running = slow(folder_with(&file), port, &text);
    let mut client = client(port);
    let refusal = ["-LOADING Redis is loading the dataset in memory"];
    assert_eq!(ask(&mut client, &["GET", "k1"]), refusal);
    assert_eq!(ask(&mut client, &["PING"]), refusal);
    // In a transaction too.
    assert_eq!(ask(&mut client, &["MULTI"]), ["OK"]);
    assert_eq!(ask(&mut client, &["SET", "k1", "x"]), refusal);
    assert!(ask(&mut client, &["EXEC"])[0].starts_with("-EXECABORT"));

    // Clients are served a moment before the file's head is read.
    let mut info = String::new();
    eventually("a look at the file", || {
        info = ask(&mut client, &["INFO", "persistence"]).remove(0);
        !info.contains("loading_rdb_used_mem:0\r\n")
    });
    let total = format!("loading_total_bytes:{}\r\n", file.len());
    for line in ["loading:1\r\n", "async_loading:0\r\n", "loading_rdb_used_mem:3145728\r\n", &total]
    {
        assert!(info.contains(line), "no {line:?} in\n{info}");
    }
    for field in
        ["loading_start_time:", "loading_loaded_bytes:", "loading_loaded_perc:", "loading_eta_"]
    {
        assert!(info.contains(field), "no {field:?} in\n{info}");
    }
    // A reply that waits for the log is not put off: nothing is written to one now.
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "aof-preallocation-size", "0"]), ["OK"]);
    assert!(!running.output().contains("Ready to accept connections"));
    // It would take 100 seconds more.
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "key-load-delay", "0"]), ["OK"]);
    eventually("loaded", || ask(&mut client, &["GET", "k49999"]) == ["49999"]);
    assert_eq!(ask(&mut client, &["GET", "k1"]), ["1"]);
    assert_eq!(ask(&mut client, &["DBSIZE"]), ["Integer(50000)"]);
}

#[test]
fn a_server_that_loads_can_be_stopped() {
    let file = snapshot(|encoder| numbers(encoder, 50_000));
    let (port, text) = port();
    let mut running = slow(folder_with(&file), port, &text);
    // Earlier it would not say that it loads when it hears the signal.
    eventually("a start", || running.output().contains("Loading RDB produced by"));
    signal(running.child.id(), "TERM").unwrap();
    assert!(running.child.wait().unwrap().success(), "{}", running.output());
    let output = running.output();
    assert!(output.contains("Received shutdown signal during loading"), "{output}");
    assert_eq!(fs::read(running.folder.path("dump.rdb")).unwrap(), file, "it was left alone");
}

#[test]
fn a_server_that_does_not_load_yet_can_be_stopped() {
    let file = snapshot(|encoder| numbers(encoder, 50_000));
    for append_only in ["no", "yes"] {
        let folder = folder_with(&file);
        folder.file("appendonlydir/appendonly.aof.manifest", "file base.rdb seq 1 type b\n");
        fs::copy(folder.path("dump.rdb"), folder.path("appendonlydir/base.rdb")).unwrap();
        // It listens, and comes to the data set when it has read its users.
        let users = folder.path("users");
        assert!(Command::new("mkfifo").arg(&users).status().unwrap().success());
        let (port, text) = port();
        let arguments = [
            "--aclfile",
            "users",
            "--appendonly",
            append_only,
            "--pidfile",
            "pid",
            "--unixsocket",
            "socket",
        ];
        let mut running = slow_with(folder, port, &text, &arguments);
        eventually("a pid file", || running.folder.path("pid").exists());
        signal(running.child.id(), "TERM").unwrap();
        eventually("a shutdown", || {
            assert_eq!(running.child.try_wait().unwrap(), None, "{}", running.output());
            running.output().contains("User requested shutdown...")
        });
        fs::write(&users, "user default on nopass ~* &* +@all\n").unwrap();
        assert!(running.child.wait().unwrap().success(), "{}", running.output());
        assert!(!running.output().contains("Ready to accept connections"), "{}", running.output());
        for name in ["pid", "socket"] {
            assert!(!running.folder.path(name).exists(), "{name} is left");
        }
        for name in ["dump.rdb", "appendonlydir/base.rdb"] {
            assert_eq!(fs::read(running.folder.path(name)).unwrap(), file, "{name} was left alone");
        }
    }
}

/// Tools wait for this line before they look for what is wrong. Returns the lines behind it.
fn lines_of_failure(words: &str) -> Vec<&str> {
    let (before, after) = words.split_once("* Server initialized\n").expect("initialized");
    assert!(!before.contains("Fatal error"), "{words}");
    after.lines().filter(|line| !line.contains("Removing the unix socket file")).collect()
}

#[test]
fn a_log_that_is_not_sound_stops_the_server() {
    let manifest = "file appendonly.aof.1.incr.aof seq 1 type i\n";
    for (manifest, incr, reason) in [
        ("junk\n", None, "Invalid AOF manifest file format"),
        (manifest, None, "Unable to obtain the AOF file appendonly.aof.1.incr.aof length"),
        (manifest, Some("junk\r\n"), "Bad file format reading the append only file"),
    ] {
        let folder = Folder::new();
        folder.file("appendonlydir/appendonly.aof.manifest", manifest);
        incr.inspect(|text| {
            folder.file("appendonlydir/appendonly.aof.1.incr.aof", text);
        });
        let (_, port) = port();
        let output = refused(&folder, &["--port", &port, "--appendonly", "yes"]);
        let words = String::from_utf8_lossy(&output.stdout);
        let lines = lines_of_failure(&words);
        assert!(lines.iter().any(|line| line.contains(reason)), "{words}");
        let last = lines.last().copied().unwrap_or_default();
        assert!(!last.contains("Fatal error loading the DB"), "{words}");
        // Tools look for this reason in the last line.
        assert!(incr.is_none() || last.contains(reason), "{words}");
    }
}

/// The server's last words when it does not start with this snapshot.
fn last_words(file: &[u8]) -> String {
    let folder = folder_with(file);
    let (_, port) = port();
    let output = refused(&folder, &["--port", &port]);
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(!words.contains("Ready to accept connections"), "{words}");
    assert_eq!(fs::read(folder.path("dump.rdb")).unwrap(), file, "it was left alone");
    let mut lines = lines_of_failure(&words);
    let last = lines.pop().unwrap_or_default();
    assert!(last.ends_with("# Fatal error loading the DB, check server logs. Exiting."), "{words}");
    assert!(!lines.is_empty(), "without our own reason: {words}");
    words
}

#[test]
fn a_snapshot_that_is_not_sound_stops_the_server() {
    let sound = snapshot(|encoder| {
        numbers(encoder, 100);
        encoder.record_head(&head(b"the set", None), Kind::Set);
        encoder.length(2);
        encoder.string(b"one");
        encoder.string(b"two");
    });
    let truncated = &sound[..sound.len() - 20];
    let words = last_words(truncated);
    assert!(words.contains("dump.rdb"), "{words}");
    assert!(words.contains("offset"), "{words}");

    let mut damaged = sound.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let place = format!("dump.rdb is corrupt: RDB CRC error at offset {}", sound.len());
    assert!(last_words(&damaged).contains(&place));

    let mut twice = sound.clone();
    let two = twice.windows(3).position(|word| word == b"two").unwrap();
    twice[two..two + 3].copy_from_slice(b"one");
    let words = last_words(&twice);
    assert!(words.contains(&format!("dump.rdb is corrupt at offset {}", two - 6)), "{words}");
    assert!(words.contains("type 2 set-hashtable), key 'the set'"), "{words}");
}

#[test]
fn a_start_that_fails_takes_down_its_signs() {
    let folder = folder_with(b"REDIS0011 and no more");
    let files = ["pid", "socket"].map(|name| folder.path(name));
    let [pid, socket] = files.each_ref().map(|path| path.to_str().unwrap());
    let output = refused(&folder, &["--port", "0", "--pidfile", pid, "--unixsocket", socket]);
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains("Removing the unix socket file."), "it got so far: {output}");
    assert!(!files.iter().any(|path| path.exists()), "{output}");
}

#[test]
fn what_cannot_be_kept_stops_the_server() {
    let twice = snapshot(|encoder| {
        numbers(encoder, 50);
        numbers(encoder, 1);
    });
    let words = last_words(&twice);
    assert!(words.contains("dump.rdb has a duplicated key in DB 0"), "{words}");
    assert!(words.contains("key 'k0'"), "{words}");
    let far = snapshot(|encoder| encoder.select_db(16));
    assert!(last_words(&far).contains("database 16, but the server is configured for 16"));
    let newer = last_words(b"REDIS0999");
    assert!(newer.contains("unsupported RDB version 999; rdb-version-check relaxed"), "{newer}");
    assert!(!newer.contains("corrupt"), "{newer}");
    assert!(last_words(b"no snapshot").contains("dump.rdb is corrupt at offset 0"));
    assert!(last_words(b"").contains("dump.rdb"));
}

#[test]
fn unknown_types_are_skipped_only_if_asked() {
    let module_value = |encoder: &mut Encoder, key: &[u8]| {
        encoder.raw(b"\x07");
        encoder.string(key);
        // The module's id, a number, a double, a string, the end.
        for number in [1 << 60, 2, 77, 4] {
            encoder.length(number);
        }
        encoder.raw(&1.5f64.to_le_bytes());
        encoder.length(5);
        encoder.string(b"text of a module");
        encoder.length(0);
    };
    let foreign = snapshot(|encoder| {
        numbers(encoder, 3);
        module_value(encoder, b"filter");
        module_value(encoder, b"series");
        encoder.record(&head(b"behind", None), ObjectRef::Int(1));
    });
    let words = last_words(&foreign);
    assert!(words.contains("which is not supported"), "{words}");
    assert!(words.contains("rdb-skip-unknown-types"), "{words}");
    let (port, text) = port();
    let arguments = [
        "--port",
        text.as_str(),
        "--rdb-skip-unknown-types",
        "yes",
        "--enable-debug-command",
        "yes",
    ];
    let running = Running::start(folder_with(&foreign), &arguments);
    assert!(running.output().contains("unknown things skipped: 2."), "{}", running.output());
    assert!(running.output().contains("keep a copy"), "{}", running.output());
    let mut client = client(port);
    let skipped = |client: &mut _, count| {
        let info = ask(client, &["INFO", "persistence"]).remove(0);
        assert!(info.contains(&format!("rdb_last_load_unknown_skipped:{count}\r\n")), "{info}");
    };
    skipped(&mut client, 2);
    assert_eq!(ask(&mut client, &["DBSIZE"]), ["Integer(4)"]);
    assert_eq!(ask(&mut client, &["MGET", "k2", "behind"]), ["2", "1"]);
    // What was saved since has nothing that could be skipped.
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD"]), ["OK"]);
    skipped(&mut client, 0);
}

#[test]
fn a_type_whose_length_nobody_knows_stops_the_server_in_any_case() {
    let mut file = snapshot(|encoder| numbers(encoder, 3));
    // In the place of the end.
    file.truncate(file.len() - 9);
    let offset = file.len() + 8;
    file.extend_from_slice(b"\x1e\x06future\x01\x02\x03\xff\0\0\0\0\0\0\0\0");
    for skips in ["no", "yes"] {
        let folder = folder_with(&file);
        let (_, port) = port();
        let output = refused(&folder, &["--port", &port, "--rdb-skip-unknown-types", skips]);
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}");
        let place =
            format!("dump.rdb has at offset {offset} the value of key 'future', of type 30");
        assert!(words.contains(&place), "{words}");
        assert!(words.contains("not even with rdb-skip-unknown-types"), "{words}");
    }
}

#[test]
fn snapshots_are_checked_without_a_server() {
    let sound = snapshot(|encoder| numbers(encoder, 10));
    let folder = folder_with(&sound);
    fs::write(folder.path("short.rdb"), &sound[..sound.len() - 9]).unwrap();
    let check = |file: &str| {
        let mut check = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        let output = check.args(["check", "rdb"]).arg(folder.path(file)).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, said) = check("dump.rdb");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("\\o/ RDB looks OK! \\o/\n[info] 10 keys read\n"), "{said}");
    let (status, said) = check("short.rdb");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("--- RDB ERROR DETECTED ---\n"), "{said}");
    assert_eq!(check("none.rdb").0, Some(1));

    // What comes through a pipe, as out of an archive, has no length.
    for (file, status) in [(&sound[..], 0), (&sound[..sound.len() - 9], 1)] {
        let mut check = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        check.args(["check", "rdb", "/dev/stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut check = check.spawn().unwrap();
        check.stdin.take().unwrap().write_all(file).unwrap();
        let output = check.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains("[info] 10 keys read\n"), "{said}");
    }
}
