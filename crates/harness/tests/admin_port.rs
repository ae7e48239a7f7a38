//! The admin port of a server: which clients it answers, and that it is no way around the rules of the
//! others.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::ask;
use harness::http::{self, Answer, get};
use harness::replicas;
use harness::server::{Options, Program, Server, free_port};
use harness::tls::Authority;
use harness::wait::eventually;
use std::io::{Read as _, Write as _};

fn status(port: u16, path: &str) -> u16 {
    get(port, path).status
}

#[test]
fn probes_need_no_password_and_say_nothing() {
    let (server, port) = Server::with_admin_port(&["--requirepass", "secret"]);
    for path in ["/healthz", "/readyz"] {
        let answer = get(port, path);
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok\n"), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self'"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    assert_eq!(status(port, "/nothing"), 404);
    assert!(server.stop().unwrap().success());
}

#[test]
fn a_server_that_loads_is_alive_and_not_ready() {
    let (server, port) = Server::with_admin_port(&["--appendonly", "yes"]);
    let (mut loading, mut other) = (server.client(), server.client());
    ask(&mut other, &["DEBUG", "POPULATE", "100"]);
    // Minutes' work, unless the delay is taken back.
    ask(&mut other, &["CONFIG", "SET", "key-load-delay", "1000000"]);
    ask(&mut other, &["BGREWRITEAOF"]);
    harness::wait::until_not_rewriting(&mut other);
    loading.send(&["DEBUG", "LOADAOF"]).unwrap();
    eventually("not ready", || status(port, "/readyz") == 503);
    assert_eq!(status(port, "/healthz"), 200);
    ask(&mut other, &["CONFIG", "SET", "key-load-delay", "0"]);
    loading.reply().unwrap();
    eventually("ready again", || status(port, "/readyz") == 200);
}

#[test]
fn a_replica_is_ready_while_it_is_in_sync() {
    let primary = replicas::dunlin(&[]);
    let (replica, port) = Server::with_admin_port(&["--repl-diskless-load", "disabled"]);
    assert_eq!(status(port, "/readyz"), 200);
    let mut client = replica.client();
    ask(&mut client, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    replicas::until_linked(&replica);
    eventually("in sync", || status(port, "/readyz") == 200);
    assert!(primary.stop().unwrap().success());
    eventually("not in sync", || status(port, "/readyz") == 503);
    ask(&mut client, &["REPLICAOF", "NO", "ONE"]);
    eventually("a primary", || status(port, "/readyz") == 200);
}

#[test]
fn the_port_speaks_tls_where_the_server_does() {
    let authority = Authority::new("admin");
    authority.sign("first");
    let options = authority.options(free_port().unwrap(), "first");
    let (_server, port) =
        Server::with_admin_port(&options.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(answer_by_tls(authority.open(port), "/readyz").status, 200);
    assert!(http::ask(port, "GET", "/healthz", &[], "").is_err(), "plain text is not answered");
}

fn answer_by_tls(mut stream: impl std::io::Read + std::io::Write, path: &str) -> Answer {
    stream.write_all(&http::request("GET", path, &[], "")).unwrap();
    let mut bytes = Vec::new();
    // The other side may close without a notice.
    let _ = stream.read_to_end(&mut bytes);
    Answer::parse(&bytes).unwrap()
}

#[test]
fn probes_need_no_certificate_where_all_else_needs_one() {
    let authority = Authority::new("admin");
    let others = Authority::new("others");
    authority.sign("first");
    others.sign("stranger");
    let mut options = authority.options(free_port().unwrap(), "first");
    options.extend(["--tls-auth-clients".to_owned(), "yes".to_owned()]);
    let (_server, port) =
        Server::with_admin_port(&options.iter().map(String::as_str).collect::<Vec<_>>());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(answer_by_tls(authority.open(port), path).text(), "ok\n", "{path}");
    }
    for path in ["/", "/metrics", "/api/v1/session", "/assets/app.js", "/healthz/../metrics"] {
        let answer = answer_by_tls(authority.open(port), path);
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.text().contains("tls-auth-clients"), "{path}: {}", answer.text());
        let answer = answer_by_tls(authority.open_as(port, "first"), path);
        assert_ne!(answer.status, 403, "{path}: {}", answer.text());
    }
    // A certificate of another authority is worse than none.
    let (cert, key) = (others.path("stranger.crt"), others.path("stranger.key"));
    authority.write("stranger.crt", &std::fs::read_to_string(cert).unwrap());
    authority.write("stranger.key", &std::fs::read_to_string(key).unwrap());
    let mut stream = authority.open_as(port, "stranger");
    let _ = stream.write_all(&http::request("GET", "/healthz", &[], ""));
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert!(bytes.is_empty(), "{}", bytes.escape_ascii());
}

#[test]
fn a_port_that_is_taken_keeps_the_server_from_starting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let options = Options::arguments(&["--admin-port", &port]);
    let Err(error) = Server::start(&Program::under_test(), options) else { panic!("it started") };
    let expected = format!("Could not open the admin port 127.0.0.1:{port}");
    assert!(error.to_string().contains(&expected), "{error}");
}

/// A browser: its cookie and the token for changes.
struct Browser {
    port: u16,
    cookie: String,
    csrf: String,
}

impl Browser {
    fn log_in(port: u16, user: &str, password: &str) -> Browser {
        let body = format!(r#"{{"user":"{user}","password":"{password}"}}"#);
        let answer = http::ask(port, "POST", "/api/v1/session", &[], &body).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let cookie = answer.header("set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let text = answer.text();
        let csrf = text.split(r#""csrf":""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
        Browser { port, cookie, csrf }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let cookie = format!("Cookie: {}", self.cookie);
        let csrf = format!("X-CSRF-Token: {}", self.csrf);
        let path = format!("/api/v1{path}");
        http::ask(self.port, method, &path, &[&cookie, &csrf], body).unwrap()
    }

    #[track_caller]
    fn get(&self, path: &str) -> String {
        let answer = self.ask("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    #[track_caller]
    fn post(&self, path: &str, body: &str) -> String {
        let answer = self.ask("POST", path, body);
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.text()
    }
}

#[test]
fn a_session_needs_a_password_and_changes_need_its_token() {
    let (_server, port) = Server::with_admin_port(&["--requirepass", "secret"]);
    assert_eq!(status(port, "/api/v1/session"), 401);
    assert_eq!(status(port, "/metrics"), 401);
    let wrong = r#"{"user":"default","password":"wrong"}"#;
    assert_eq!(http::ask(port, "POST", "/api/v1/session", &[], wrong).unwrap().status, 401);
    let browser = Browser::log_in(port, "default", "secret");
    browser.get("/now");
    let change = r#"{"db":0,"key":"a","change":{"op":"set","value":"1"}}"#;
    let cookie = format!("Cookie: {}", browser.cookie);
    let forged = http::ask(port, "POST", "/api/v1/key", &[&cookie], change).unwrap();
    assert_eq!(forged.status, 403, "without its token");
    let csrf = format!("X-CSRF-Token: {}", browser.csrf);
    let headers = [cookie.as_str(), &csrf, "Origin: http://elsewhere.example"];
    assert_eq!(http::ask(port, "POST", "/api/v1/key", &headers, change).unwrap().status, 403);
    browser.post("/key", change);
    assert_eq!(browser.ask("DELETE", "/session", "{}").status, 200);
    assert_eq!(browser.ask("GET", "/now", "").status, 401, "the session has ended");
}

#[test]
fn failed_log_ins_are_limited() {
    let (_server, port) = Server::with_admin_port(&["--requirepass", "secret"]);
    let attempt = |password: &str| {
        let body = format!(r#"{{"password":"{password}"}}"#);
        http::ask(port, "POST", "/api/v1/session", &[], &body).unwrap().status
    };
    for _ in 0..10 {
        assert_eq!(attempt("wrong"), 401);
    }
    assert_eq!(attempt("secret"), 429, "the right one has to wait as well");
}

#[test]
fn without_a_password_only_local_names_lead_here() {
    let (server, port) = Server::with_admin_port(&[]);
    assert_eq!(status(port, "/api/v1/now"), 200);
    let headers = ["Host: elsewhere.example"];
    let answer = http::ask(port, "GET", "/api/v1/now", &headers, "").unwrap();
    assert_eq!(answer.status, 401, "DNS rebinding");
    // Names of a network of containers, for Prometheus.
    let of_metrics = |host: &str| http::ask(port, "GET", "/metrics", &[host], "").unwrap().status;
    assert_eq!(of_metrics("Host: dunlin:9121"), 200);
    assert_eq!(of_metrics("Host: elsewhere.example"), 401);
    let answer = http::ask(port, "GET", "/api/v1/now", &["Host: dunlin:9121"], "").unwrap();
    assert_eq!(answer.status, 401, "figures only");
    // Names that the operator vouches for.
    let mut client = server.client();
    ask(&mut client, &["CONFIG", "SET", "admin-hosts", "elsewhere.example .svc.local"]);
    for host in ["Host: elsewhere.example", "Host: dunlin.svc.local:9121"] {
        assert_eq!(
            http::ask(port, "GET", "/api/v1/now", &[host], "").unwrap().status,
            200,
            "{host}"
        );
        assert_eq!(of_metrics(host), 200, "{host}");
    }
    assert_eq!(of_metrics("Host: other.example"), 401);
    let refusal = ask(&mut client, &["CONFIG", "SET", "admin-hosts", "*.example"]);
    assert!(refusal.is_error(), "{refusal:?}");
}

#[test]
fn a_user_can_do_in_the_console_what_its_rules_allow() {
    let (server, port) = Server::with_admin_port(&[]);
    let mut client = server.client();
    ask(&mut client, &["ACL", "SETUSER", "ann", "on", ">pw", "~a:*", "+@read", "+ping", "+info"]);
    ask(&mut client, &["SET", "a:1", "x"]);
    let ann = Browser::log_in(port, "ann", "pw");
    let session = ann.get("/session");
    assert!(session.contains(r#""get":true"#), "{session}");
    assert!(session.contains(r#""set":false"#), "{session}");
    assert!(session.contains(r#""config|set":false"#), "{session}");
    ann.get("/key?key=a:1");
    assert_eq!(ann.ask("GET", "/key?key=b:1", "").status, 403);
    let change = r#"{"key":"a:1","change":{"op":"set","value":"1"}}"#;
    assert_eq!(ann.ask("POST", "/key", change).status, 403);
    assert_eq!(ann.ask("GET", "/config", "").status, 403);
    assert_eq!(ann.ask("GET", "/clients", "").status, 403);
    // A program sends its credentials each time: ann:pw.
    let basic = ["Authorization: Basic YW5uOnB3"];
    assert_eq!(http::ask(port, "GET", "/metrics", &basic, "").unwrap().status, 200);
    ask(&mut client, &["ACL", "DELUSER", "ann"]);
    eventually("the session ends with its user", || ann.ask("GET", "/now", "").status == 401);
}

#[test]
fn values_of_every_type_are_shown_page_by_page_and_changed() {
    let (server, port) = Server::with_admin_port(&[]);
    let mut client = server.client();
    for number in 0..250 {
        ask(&mut client, &["HSET", "hash", &format!("f{number}"), "v"]);
        ask(&mut client, &["RPUSH", "list", &number.to_string()]);
    }
    ask(&mut client, &["SET", "string", &"x".repeat(100_000)]);
    ask(&mut client, &["SADD", "set", "m"]);
    ask(&mut client, &["ZADD", "zset", "1.5", "m"]);
    ask(&mut client, &["XADD", "stream", "1-1", "a", "b"]);
    let browser = Browser::log_in(port, "", "");
    let list = browser.get("/key?key=list&count=100");
    assert!(list.contains(r#""length":250"#) && list.contains(r#""next":"100""#), "{list}");
    let last = browser.get("/key?key=list&count=100&from=200");
    assert!(last.contains(r#""next":null"#) && last.contains(r#""name":"249""#), "{last}");
    let string = browser.get("/key?key=string");
    assert!(string.contains(r#""next":"65536""#) && string.contains(r#""size":100000"#));
    assert!(browser.get("/key?key=hash&pattern=f249").contains(r#""name":"f249""#));
    assert!(browser.get("/key?key=zset").contains(r#""score":"1.5""#));
    assert!(browser.get("/key?key=stream").contains(r#""name":"1-1""#));
    assert_eq!(browser.ask("GET", "/key?key=none", "").status, 404);
    // A name that is no text.
    let binary = r#"{"key":{"base64":"/wA="},"change":{"op":"hash-set","field":"a","value":"b"}}"#;
    browser.post("/key", binary);
    assert!(browser.get("/key?key64=%2FwA%3D").contains(r#""value":["b"]"#));
    assert!(browser.get("/keys").contains(r#"{"base64":"/wA="}"#));
    browser.post("/keys/delete", r#"{"keys":["set",{"base64":"/wA="}]}"#);
    assert_eq!(browser.ask("GET", "/key?key=set", "").status, 404);
}

#[test]
fn a_subtree_is_deleted_in_the_background() {
    let (server, port) = Server::with_admin_port(&[]);
    let mut client = server.client();
    for number in 0..1_000 {
        ask(&mut client, &["SET", &format!("a:{number}"), "x"]);
    }
    ask(&mut client, &["SET", "b:1", "x"]);
    let browser = Browser::log_in(port, "", "");
    let tree = browser.get("/tree");
    assert!(tree.contains(r#"{"name":"a:","keys":1000,"is_key":false}"#), "{tree}");
    browser.post("/jobs", r#"{"kind":"delete","db":0,"prefix":"a:"}"#);
    eventually("it is done", || browser.get("/jobs").contains(r#""status":"done""#));
    assert!(browser.get("/jobs").contains(r#""done":1000"#));
    assert!(browser.get("/databases").contains(r#""keys":1.0"#));
}

#[test]
fn every_part_of_the_api_answers() {
    let (_server, port) = Server::with_admin_port(&[]);
    let browser = Browser::log_in(port, "", "");
    let document = http::get(port, "/api/v1/openapi.json").text();
    assert!(document.contains(r#""openapi": "3.1.0""#));
    for path in [
        "/session",
        "/now",
        "/history?window=60",
        "/info",
        "/databases",
        "/keys",
        "/tree",
        "/jobs",
        "/clients",
        "/slowlog",
        "/slowlog?kind=large-reply",
        "/latency",
        "/statistics",
        "/replication",
        "/config",
        "/users",
        "/users/log",
        "/commands",
        "/events",
    ] {
        browser.get(path);
    }
    assert!(browser.get("/config").contains(r#""name":"maxmemory""#));
    assert!(browser.get("/users").contains(r#""name":"default""#));
    eventually("the first sample", || browser.get("/now").contains(r#""commands":"#));
    eventually("the history has it", || !browser.get("/history").contains(r#""rows":[]"#));
    let outcome = browser.post("/command", r#"{"line":"set 'a b' \"\\xff\""}"#);
    assert!(outcome.contains(r#""reply":{"type":"simple","value":"OK"}"#), "{outcome}");
    browser.post("/command", r#"{"line":"multi"}"#);
    browser.post("/command", r#"{"words":["get","a b"]}"#);
    let outcome = browser.post("/command", r#"{"line":"exec"}"#);
    assert!(outcome.contains(r#"{"type":"array","value":[{"type":"bulk""#), "{outcome}");
    assert_eq!(browser.ask("POST", "/command", r#"{"line":"monitor"}"#).status, 400);
    assert_eq!(browser.ask("GET", "/nothing", "").status, 404);
    assert_eq!(browser.ask("POST", "/now", "{}").status, 405);
}

#[test]
fn the_page_is_kept_by_browsers_until_it_changes() {
    let (_server, port) = Server::with_admin_port(&[]);
    let page = get(port, "/");
    assert!(page.text().contains("/assets/main.js") && page.status == 200);
    let etag = format!("If-None-Match: {}", page.header("etag").unwrap());
    assert_eq!(http::ask(port, "GET", "/", &[&etag], "").unwrap().status, 304);
    let packed = http::ask(port, "GET", "/assets/main.js", &["Accept-Encoding: gzip"], "").unwrap();
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(status(port, "/assets/../Cargo.toml"), 404);
}
