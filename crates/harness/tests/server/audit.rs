//! The audit log: a line of JSON for each change and each refusal, whatever clients send, and no
//! secret in it.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::ask;
use harness::http;
use harness::info::number;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A file that is removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        let name = format!("dunlin-audit-{}-{name}.log", std::process::id());
        File(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The lines, each of which is an object.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    whole.lines().map(parse).collect()
}

/// Waits until there is a line of this action, and returns the last one.
#[track_caller]
fn last(path: &Path, action: &str) -> Value {
    let find = || lines(path).into_iter().rev().find(|line| line["action"] == action);
    eventually(action, || find().is_some());
    find().unwrap()
}

/// The user, the target and the outcome of a line, with the reason of a refusal.
fn shown(line: &Value) -> String {
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let target = line["target"].to_string();
    format!("{} {target} {} {}", text("user"), text("outcome"), text("why")).trim().to_owned()
}

fn server(log: &File, more: &[&str]) -> Server {
    let own = ["--audit-log", log.path(), "--enable-debug-command", "yes"];
    let options = Options::arguments(&[&own, more].concat());
    Server::start(&Program::under_test(), options).unwrap()
}

#[test]
fn changes_and_refusals_are_lines_without_secrets() {
    let log = File::new("changes");
    let server = server(&log, &[]);
    let mut client = server.client();
    ask(&mut client, &["SET", "a", "1"]);
    ask(&mut client, &["CONFIG", "SET", "maxmemory", "1gb", "masterauth", "pw-1"]);
    let line = last(&log.0, "config|set");
    let address = client.stream().local_addr().unwrap().to_string();
    assert_eq!(shown(&line), r#"default ["maxmemory","1gb","masterauth","(redacted)"] ok"#);
    assert_eq!((&line["source"], &line["address"]), (&"server".into(), &address.into()));
    let instance = server.port().to_string();
    assert_eq!(line["instance"], instance);
    assert!(line["id"].as_u64().unwrap() > 0);
    let time = line["time"].as_str().unwrap();
    assert!(
        time.len() == 29 && time.as_bytes()[10] == b'T' && time.as_bytes()[19] == b'.',
        "{time}"
    );

    ask(&mut client, &["CONFIG", "SET", "maxmemory", "plenty"]);
    eventually("a refusal", || shown(&last(&log.0, "config|set")).contains("refused"));
    let refused = shown(&last(&log.0, "config|set"));
    assert!(
        refused.starts_with(r#"default ["maxmemory","plenty"] refused ERR CONFIG SET failed"#),
        "{refused}"
    );

    let rules = ["ACL", "SETUSER", "bob", "on", ">pw-2", "#pw-3", "~k:*", "+get", "+config|get"];
    ask(&mut client, &rules[..]);
    ask(&mut client, &["ACL", "SETUSER", "bob", ">pw-2", "~k:*", "+get", "on"]);
    eventually("a user", || shown(&last(&log.0, "acl|setuser")).ends_with(" ok"));
    let set = shown(&last(&log.0, "acl|setuser"));
    assert_eq!(set, r#"default ["bob","(redacted)","~k:*","+get","on"] ok"#);
    // A hash that is none spoils the whole; the error quotes it, and so is cut.
    let all = lines(&log.0);
    let first = all.iter().find(|line| line["action"] == "acl|setuser").unwrap();
    assert!(shown(first).ends_with("refused ERR"), "{first}");

    let mut bob = server.client();
    ask(&mut bob, &["AUTH", "bob", "pw-4"]);
    assert_eq!(
        shown(&last(&log.0, "auth")),
        "bob [] refused WRONGPASS invalid username-password pair or user is disabled."
    );
    ask(&mut bob, &["AUTH", "bob", "pw-2"]);
    ask(&mut bob, &["GET", "k:1"]);
    ask(&mut bob, &["GET", "other"]);
    assert_eq!(
        shown(&last(&log.0, "get")),
        r#"bob ["other"] refused NOPERM No permissions to access a key"#
    );
    ask(&mut bob, &["FLUSHALL"]);
    let flushed = shown(&last(&log.0, "flushall"));
    assert!(flushed.starts_with("bob [] refused NOPERM User bob has no permissions"), "{flushed}");

    ask(&mut client, &["MULTI"]);
    ask(&mut client, &["FLUSHDB", "ASYNC"]);
    ask(&mut client, &["EXEC"]);
    assert_eq!(shown(&last(&log.0, "flushdb")), r#"default ["ASYNC"] ok"#);
    ask(&mut client, &["EVAL", "return redis.call('flushall')", "0"]);
    eventually("of a script", || shown(&last(&log.0, "flushall")) == "default [] ok");
    ask(&mut client, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(shown(&last(&log.0, "replicaof")), r#"default ["NO","ONE"] ok"#);
    ask(&mut client, &["DEBUG", "SLEEP", "0"]);
    assert_eq!(shown(&last(&log.0, "debug")), r#"default ["SLEEP","0"] ok"#);
    ask(&mut client, &["FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', print)"]);
    last(&log.0, "function|load");
    ask(&mut client, &["CLIENT", "KILL", "USER", "bob"]);
    assert_eq!(shown(&last(&log.0, "client|kill")), r#"default ["USER","bob"] ok"#);
    ask(&mut client, &["MODULE", "LOAD", "/x.so"]);
    assert!(shown(&last(&log.0, "module|load")).contains("refused"));
    ask(&mut client, &["ACL", "DELUSER", "bob"]);
    assert_eq!(shown(&last(&log.0, "acl|deluser")), r#"default ["bob"] ok"#);

    client.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    client.expect_closed().unwrap();
    eventually("the end", || lines(&log.0).last().is_some_and(|line| line["action"] == "end"));
    let all = lines(&log.0);
    assert_eq!(shown(&last(&log.0, "shutdown")), r#"default ["NOSAVE"] begun"#);
    assert_eq!(all[0]["action"], "start");
    let text = std::fs::read_to_string(&log.0).unwrap();
    assert!(!text.contains("pw-"), "{text}");
    assert!(!all.iter().any(|line| line["action"] == "set"), "{text}");
}

#[test]
fn hostile_words_stay_one_line_of_json_each() {
    let log = File::new("hostile");
    let server = server(&log, &[]);
    let mut client = server.client();
    let hostile: [&[u8]; 5] =
        [b"a\nb\r\n{\"time\":1}", b"\xff\xfe\0\x1b", b"\"},{\"", b"", &[b'x'; 1 << 20]];
    let mut send = |words: &[&[u8]]| client.command(words).unwrap();
    for word in hostile {
        send(&[b"AUTH", word, b"pw"]);
        send(&[b"CLIENT", b"KILL", word]);
        send(&[b"CONFIG", b"SET", word, word]);
        send(&[b"ACL", b"DELUSER", word]);
        send(&[b"DEBUG", word, word]);
    }
    let many: Vec<String> = (0..20_000).map(|n| format!("user{n}")).collect();
    let many: Vec<&str> =
        ["ACL", "DELUSER"].into_iter().chain(many.iter().map(String::as_str)).collect();
    ask(&mut client, &many[..]);
    eventually("all lines", || lines(&log.0).len() == 1 + 5 * hostile.len() + 1);
    let all = lines(&log.0);
    assert!(all.iter().all(|line| line["time"].is_string() && line["target"].is_array()));
    let killed = all.iter().filter(|line| line["action"] == "client|kill");
    let first: Vec<&Value> = killed.map(|line| &line["target"][0]).collect();
    assert_eq!(*first[0], "a\nb\r\n{\"time\":1}");
    assert_eq!(*first[1], "\\xff\\xfe\0\u{1b}");
    assert!(first[4].as_str().unwrap().ends_with("more bytes)"));
    let size = std::fs::metadata(&log.0).unwrap().len();
    assert!(size < 64 << 10, "{size} bytes");
}

#[test]
fn requests_to_the_admin_port_are_lines() {
    let log = File::new("rest");
    let own = ["--audit-log", log.path(), "--requirepass", "pw-1"];
    let (server, port) = Server::with_admin_port(&own);
    let login = |pair: &str| format!("Authorization: Basic {}", http::base64(pair.as_bytes()));
    let (right, wrong) = (login("default:pw-1"), login("eve:pw-2"));
    let body = r#"{"options":{"maxmemory":"1gb"}}"#;
    let post = |headers: &[&str], body: &str| {
        http::ask(port, "POST", "/api/v1/config", headers, body).unwrap().status
    };
    assert_eq!(post(&[&right], body), 200);
    let line = last(&log.0, "POST /api/v1/config");
    assert_eq!((shown(&line), &line["source"]), ("default [] ok".into(), &"console".into()));
    assert!(line["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    // The console is a client of the server, which has the request, too.
    assert_eq!(shown(&last(&log.0, "config|set")), r#"default ["maxmemory","1gb"] ok"#);
    assert_eq!(post(&[&right], r#"{"options":{"maxmemory":"x"}}"#), 422);
    eventually("a refusal", || {
        shown(&last(&log.0, "POST /api/v1/config")) == "default [] refused 422 ERR"
    });
    assert_eq!(post(&[], body), 401);
    eventually("no user", || shown(&last(&log.0, "POST /api/v1/config")) == "[] refused 401 LOGIN");
    // A log-in that fails is a line even if it only reads.
    let read = http::ask(port, "GET", "/api/v1/now", &[&wrong], "").unwrap();
    assert_eq!(read.status, 401);
    let line = last(&log.0, "GET /api/v1/now");
    assert_eq!(shown(&line), "eve [] refused 401 WRONGPASS");
    let before = lines(&log.0).len();
    assert_eq!(http::ask(port, "GET", "/api/v1/now", &[&right], "").unwrap().status, 200);
    let session = r#"{"user":"mallory","password":"pw-3"}"#;
    let refused = http::ask(port, "POST", "/api/v1/session", &[], session).unwrap();
    assert_eq!(refused.status, 401);
    assert!(shown(&last(&log.0, "POST /api/v1/session")).starts_with("mallory [] refused 401"));
    // The server has the log-in as well. What only read is no line.
    assert_eq!(lines(&log.0).len(), before + 2);
    let text = std::fs::read_to_string(&log.0).unwrap();
    assert!(!text.contains("pw-"), "{text}");
    drop(server);
}

#[test]
fn a_full_disk_delays_nothing_and_is_shown() {
    let options = Options::arguments(&["--audit-log", "/dev/full"]);
    let server = Server::start(&Program::under_test(), options).unwrap();
    let mut client = server.client();
    eventually("it fails", || number(&mut client, "audit_log_failing") == 1);
    // More than the buffer keeps.
    const COUNT: usize = 8000;
    for _ in 0..COUNT {
        client.send(&["CONFIG", "SET", "maxmemory", "1gb"]).unwrap();
    }
    for _ in 0..COUNT {
        assert!(!client.reply().unwrap().is_error());
    }
    assert!(number(&mut client, "audit_log_dropped") > 0);
    assert_eq!(number(&mut client, "audit_log_lines"), 0);
    server.logs("The audit log cannot be written: No space left on device");
    assert!(server.stop().unwrap().success());
}

#[test]
fn a_log_that_cannot_be_opened_keeps_the_server_from_starting() {
    let options = Options::arguments(&["--audit-log", "/nonexistent/audit.log"]);
    let error = Server::start(&Program::under_test(), options).map(drop).unwrap_err().to_string();
    assert!(error.contains("Can't open the audit log: No such file or directory"), "{error}");
}
