//! The admin port of a server: which clients it answers, and that it is no way around the rules of the
//! others.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, patience};
use harness::http::{self, Answer, get};
use harness::replicas;
use harness::reply::Reply;
use harness::server::{Options, Program, Server, free_port};
use harness::tls::Authority;
use harness::wait::eventually;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

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
fn failed_log_ins_of_a_user_wait_for_their_turn() {
    let (server, port) = Server::with_admin_port(&["--requirepass", "secret"]);
    let mut client = server.client();
    ask(&mut client, &["AUTH", "secret"]);
    ask(&mut client, &["ACL", "SETUSER", "ann", "on", ">pw", "+@all", "~*"]);
    let browser = Browser::log_in(port, "default", "secret");
    let attempt = |user: &str, password: &str| {
        let body = format!(r#"{{"user":"{user}","password":"{password}"}}"#);
        http::ask(port, "POST", "/api/v1/session", &[], &body).unwrap().status
    };
    for _ in 0..10 {
        assert_eq!(attempt("default", "wrong"), 401);
    }
    assert_eq!(attempt("ann", "pw"), 200, "another user of the address");
    browser.get("/now");
    let began = Instant::now();
    assert_eq!(attempt("default", "secret"), 200, "the right one waits as well, and is let in");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let attempts: Vec<_> =
            (0..20).map(|_| scope.spawn(|| attempt("default", "wrong"))).collect();
        attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
    });
    assert!(statuses.contains(&429), "few wait: {statuses:?}");
}

#[test]
fn a_password_counts_as_long_as_the_server_accepts_it() {
    let (server, port) = Server::with_admin_port(&["--requirepass", "secret"]);
    let mut client = server.client();
    ask(&mut client, &["AUTH", "secret"]);
    ask(&mut client, &["ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all"]);
    ask(&mut client, &["ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all"]);
    // ann:pw
    let program = |path: &str| {
        http::ask(port, "GET", path, &["Authorization: Basic YW5uOnB3"], "").unwrap().status
    };
    let bob = Browser::log_in(port, "bob", "pw");
    bob.get("/now");
    for path in ["/api/v1/now", "/metrics"] {
        assert_eq!(program(path), 200, "{path}");
    }
    ask(&mut client, &["ACL", "SETUSER", "ann", "<pw", ">other"]);
    ask(&mut client, &["ACL", "SETUSER", "bob", "off"]);
    for path in ["/api/v1/now", "/metrics"] {
        assert_eq!(program(path), 401, "{path}");
    }
    assert_eq!(bob.ask("GET", "/now", "").status, 401, "the user is off");
    ask(&mut client, &["ACL", "SETUSER", "bob", "on"]);
    assert_eq!(bob.ask("GET", "/now", "").status, 401, "the session has ended");
    ask(&mut client, &["ACL", "SETUSER", "ann", ">pw"]);
    assert_eq!(program("/api/v1/now"), 200);
}

#[test]
fn pages_elsewhere_ask_nothing() {
    let (_server, port) = Server::with_admin_port(&[]);
    let status =
        |path: &str, headers: &[&str]| http::ask(port, "GET", path, headers, "").unwrap().status;
    for path in ["/api/v1/now", "/api/v1/monitor", "/api/v1/stream", "/metrics", "/healthz", "/"] {
        for header in
            ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: http://a.example"]
        {
            assert_eq!(status(path, &[header]), 403, "{path} {header}");
        }
    }
    let opening =
        ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"];
    assert_eq!(status("/", &opening), 200, "a link to the page");
    assert_eq!(status("/api/v1/now", &opening), 403);
    for site in ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none"] {
        assert_eq!(status("/api/v1/now", &[site]), 200, "{site}");
    }
    assert_eq!(status("/api/v1/now", &["Host: 0.0.0.0:80"]), 403, "browsers hide who sends it");
    // Behind a reverse proxy, which has another name than the server.
    let behind = ["Sec-Fetch-Site: same-origin", "Origin: https://console.example"];
    assert_eq!(status("/api/v1/now", &behind), 200);
}

/// Sends a part of a request. The connection stays open until it is dropped.
fn begin(port: u16, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(6 * patience())).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

#[test]
fn half_requests_hold_up_none_and_long_bodies_are_not_read() {
    let (_server, port) = Server::with_admin_port(&["--requirepass", "secret"]);
    let head = |path: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        )
    };
    let answer = |mut stream: TcpStream| {
        let mut bytes = Vec::new();
        // The rest of the request is not waited for.
        let _ = stream.read_to_end(&mut bytes);
        Answer::parse(&bytes).unwrap().status
    };
    assert_eq!(answer(begin(port, &head("/api/v1/session", 64 << 20))), 413);
    assert_eq!(answer(begin(port, &head("/api/v1/key", 64 << 20))), 401, "without a log-in");
    let chunks = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                  Transfer-Encoding: chunked\r\n\r\n1388\r\n";
    let chunked = begin(port, &format!("{chunks}{}\r\n", " ".repeat(5000)));
    assert_eq!(answer(chunked), 413);
    let silent = begin(port, &head("/api/v1/session", 100));
    let half_bodies: Vec<TcpStream> =
        (0..300).map(|_| begin(port, &(head("/api/v1/session", 100) + "{"))).collect();
    let half_heads: Vec<TcpStream> =
        (0..300).map(|_| begin(port, "GET /healthz HTTP/1.1\r\n")).collect();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(port, path), 200, "{path}");
    }
    Browser::log_in(port, "default", "secret").get("/now");
    drop((half_bodies, half_heads, silent));
    let late = begin(port, &(head("/api/v1/session", 100) + "{"));
    assert_eq!(answer(late), 408, "a body that does not come");
    let browser = Browser::log_in(port, "default", "secret");
    let value = "x".repeat(8 << 20);
    browser.post("/key", &format!(r#"{{"key":"a","change":{{"op":"set","value":"{value}"}}}}"#));
    let long = format!(r#"{{"options":{{"a":"{}"}}}}"#, "x".repeat(2 << 20));
    let cookie = format!("Cookie: {}", browser.cookie);
    let csrf = format!("X-CSRF-Token: {}", browser.csrf);
    let headers = [cookie.as_str(), &csrf];
    // The server may answer and close while the request is still being written.
    if let Ok(answer) = http::ask(port, "POST", "/api/v1/config", &headers, &long) {
        assert_eq!(answer.status, 413);
    }
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
fn a_shortened_name_is_not_taken_for_the_whole() {
    let (server, port) = Server::with_admin_port(&[]);
    let browser = Browser::log_in(port, "", "");
    let mut client = server.client();
    // Names of 6000 bytes 0xff, and of the first 4096 of them.
    let (long, short) = ("////".repeat(2000), "////".repeat(1365) + "/w==");
    let shown = format!(r#"{{"base64":"{short}","size":6000}}"#);
    for name in [&long, &short] {
        let name = format!(r#"{{"base64":"{name}"}}"#);
        browser.post("/key", &format!(r#"{{"key":{name},"change":{{"op":"set","value":"v"}}}}"#));
        for (key, op) in [("hash", "hash-set"), ("set", "set-add")] {
            let change = format!(r#"{{"op":"{op}","field":{name},"member":{name},"value":"v"}}"#);
            browser.post("/key", &format!(r#"{{"key":"{key}","change":{change}}}"#));
        }
    }
    assert!(browser.get("/keys").contains(&shown));
    assert!(browser.get("/key?key=hash").contains(&shown));
    for change in [
        format!(r#"{{"key":{shown},"change":{{"op":"set","value":"other"}}}}"#),
        format!(r#"{{"key":{shown},"change":{{"op":"expire","ttl_ms":1}}}}"#),
        format!(r#"{{"key":{shown},"change":{{"op":"rename","to":"a"}}}}"#),
        format!(r#"{{"key":"hash","change":{{"op":"hash-set","field":{shown},"value":"x"}}}}"#),
        format!(r#"{{"key":"hash","change":{{"op":"hash-delete","field":{shown}}}}}"#),
        format!(r#"{{"key":"set","change":{{"op":"set-remove","member":{shown}}}}}"#),
    ] {
        let answer = browser.ask("POST", "/key", &change);
        assert_eq!(answer.status, 400, "{change}: {}", answer.text());
        assert!(
            answer.text().contains("shortened: it has 4096 of 6000 bytes"),
            "{}",
            answer.text()
        );
    }
    let delete = browser.ask("POST", "/keys/delete", &format!(r#"{{"keys":[{shown}]}}"#));
    let job = format!(r#"{{"kind":"delete","db":0,"prefix":{shown}}}"#);
    assert_eq!((delete.status, browser.ask("POST", "/jobs", &job).status), (400, 400));
    for (request, expected) in
        [(&["DBSIZE"][..], 4), (&["HLEN", "hash"][..], 2), (&["SCARD", "set"][..], 2)]
    {
        assert_eq!(ask(&mut client, request), Reply::Integer(expected), "{request:?}");
    }
}

#[test]
fn an_edit_changes_nothing_else() {
    let (server, port) = Server::with_admin_port(&[]);
    let mut client = server.client();
    let (at, field) = ("4102444800000", ["FIELDS", "1", "f"]);
    let ask_field =
        |client: &mut Client, words: &[&str]| ask(client, &[words, &field[..]].concat()[..]);
    ask(&mut client, &["HSET", "h", "f", "before", "g", "stays"]);
    ask_field(&mut client, &["HPEXPIREAT", "h", at]);
    ask(
        &mut client,
        &["ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@read", "+hset", "+hpexpireat"],
    );
    ask(&mut client, &["ACL", "SETUSER", "bob", "on", ">pw", "~*", "+hset", "+ping"]);
    ask(&mut client, &["ACL", "SETUSER", "ann", "+multi", "+exec"]);
    let change = r#"{"key":"h","change":{"op":"hash-set","field":"f","value":"a\r\nb"}}"#;
    // With HSETEX, and by a user that may not send it.
    for (user, password) in [("", ""), ("ann", "pw")] {
        ask(&mut client, &["HSETEX", "h", "KEEPTTL", "FIELDS", "1", "f", "before"]);
        Browser::log_in(port, user, password).post("/key", change);
        assert_eq!(ask(&mut client, &["HGET", "h", "f"]).text(), Some(&b"a\r\nb"[..]), "{user}");
        let expiry = ask_field(&mut client, &["HPEXPIRETIME", "h"]);
        assert_eq!(expiry, Reply::Array(vec![Reply::Integer(4_102_444_800_000)]), "{user}");
    }
    // One that may not see whether there is an expiry, and one that may run no transaction.
    ask(&mut client, &["HSETEX", "h", "KEEPTTL", "FIELDS", "1", "f", "before"]);
    for rule in ["-hpexpiretime", "-multi"] {
        ask(&mut client, &["ACL", "SETUSER", "ann", rule]);
        let answer = Browser::log_in(port, "ann", "pw").ask("POST", "/key", change);
        assert_eq!(answer.status, 403, "{rule}: {}", answer.text());
        ask(&mut client, &["ACL", "SETUSER", "ann", &rule.replace('-', "+")]);
    }
    assert_eq!(ask(&mut client, &["HGET", "h", "f"]).text(), Some(&b"before"[..]), "refused");
    ask(&mut client, &["HSETEX", "h", "KEEPTTL", "FIELDS", "1", "f", "a\r\nb"]);
    assert_eq!(Browser::log_in(port, "bob", "pw").ask("POST", "/key", change).status, 403);
    let shown = Browser::log_in(port, "", "").get("/key?key=h");
    assert!(
        shown.contains(r#""name":"g","value":["stays"],"score":null,"ttl_ms":null"#),
        "{shown}"
    );
    let ttl = shown.split(r#""name":"f","value":["a\r\nb"],"score":null,"ttl_ms":"#).nth(1);
    assert!(
        ttl.is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit())),
        "{shown}"
    );
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
    // Below a path of a reverse proxy, too.
    assert!(page.text().contains(r#"src="assets/main.js""#) && page.status == 200);
    let etag = format!("If-None-Match: {}", page.header("etag").unwrap());
    assert_eq!(http::ask(port, "GET", "/", &[&etag], "").unwrap().status, 304);
    let packed = http::ask(port, "GET", "/assets/main.js", &["Accept-Encoding: gzip"], "").unwrap();
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(status(port, "/assets/../Cargo.toml"), 404);
}
