//! An etcd that lets in only those with a certificate or a password.

use super::process::{Etcd, PATIENCE, TIMEOUT, start, start_with_tls};
use super::{commit, done, put};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::Moment;
use cluster::coordinator::{Coordinator, Failure, LeaseCall, LeaseReply};
use etcd::{Access, Client, Endpoint};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const DUNLIN: Option<(&str, &str)> = Some(("dunlin", "secret"));

/// Asks an etcd for what the client has no call for.
fn administer(etcd: &Etcd, path: &str, body: &Value) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(etcd.endpoint.to_string()).expect("it listens");
    let request = format!(
        "POST /v3/auth/{path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it answers");
    assert!(reply.starts_with("HTTP/1.1 200"), "{path}: {reply}");
}

/// Makes two users, `root` and one with the keys below `/dunlin/`, and demands passwords from then
/// on.
fn demand_passwords(etcd: &Etcd) {
    for name in ["root", "dunlin"] {
        administer(etcd, "user/add", &json!({ "name": name, "password": "secret" }));
        administer(etcd, "role/add", &json!({ "name": name }));
        administer(etcd, "user/grant", &json!({ "user": name, "role": name }));
    }
    let (first, end) = (STANDARD.encode("/dunlin/"), STANDARD.encode("/dunlin0"));
    let keys = json!({ "permType": "READWRITE", "key": first, "range_end": end });
    administer(etcd, "role/grant", &json!({ "name": "dunlin", "perm": keys }));
    administer(etcd, "enable", &json!({}));
}

/// Why etcd does not answer.
fn refusal(client: &mut Client, key: &str) -> String {
    match client.range(key, None) {
        Err(Failure::Away(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_user_has_a_password() {
    let mut etcd = start("users");
    demand_passwords(&etcd);
    let mut client = etcd.client_of(DUNLIN);
    let first = done(commit(&mut client, &[], vec![put("/dunlin/a", b"1")]));
    let changes = client.watch("/dunlin/", first, PATIENCE).expect("it may");
    assert_eq!(changes.keys, ["/dunlin/a"]);
    let reply = client.lease(LeaseCall::Grant(Moment::from_secs(60)));
    let Ok(LeaseReply::Held { id, .. }) = reply else { panic!("{reply:?}") };
    assert!(matches!(client.lease(LeaseCall::Renew(id)), Ok(LeaseReply::Held { .. })));

    let denied = refusal(&mut client, "/other/");
    assert!(denied.contains("permission denied"), "{denied}");
    let nobody = refusal(&mut etcd.client(), "/dunlin/");
    assert!(nobody.contains("user name is empty"), "{nobody}");
    let wrong = refusal(&mut etcd.client_of(Some(("dunlin", "guess"))), "/dunlin/");
    assert!(wrong.contains("authentication failed"), "{wrong}");

    // A server that starts knows no tokens.
    etcd.kill();
    etcd.start_again();
    let begun = Instant::now();
    while client.range("/dunlin/", None).map(|range| range.items.len()) != Ok(1) {
        assert!(begun.elapsed() < PATIENCE, "{}", refusal(&mut client, "/dunlin/"));
    }
    while client.watch("/dunlin/", first, PATIENCE).map(|changes| changes.keys.len()) != Ok(1) {
        assert!(begun.elapsed() < PATIENCE, "the watch does not come back");
    }
}

#[test]
fn certificates_are_shown_and_checked() {
    let etcd = start_with_tls("certificates");
    let mut client = etcd.client();
    let first = done(commit(&mut client, &[], vec![put("/a", &[b'x'; 100_000])]));
    assert_eq!(client.watch("/a", first, PATIENCE).expect("it may").keys, ["/a"]);
    assert_eq!(client.range("/a", None).expect("it may").items[0].value.len(), 100_000);

    let without_rules = || Client::new(vec![etcd.endpoint.clone()], TIMEOUT);
    let refused = without_rules().with_access(Access::default()).err().expect("it wants TLS");
    assert!(refused.to_string().contains("no authority"), "{refused}");
    assert!(matches!(without_rules().health(), Err(Failure::Away(_))));
    let plain = Endpoint { is_tls: false, ..etcd.endpoint.clone() };
    assert!(matches!(Client::new(vec![plain], TIMEOUT).health(), Err(Failure::Away(_))));
    // Signed by somebody else.
    let other = start_with_tls("others");
    let stranger = Endpoint { port: etcd.endpoint.port, ..other.endpoint.clone() };
    let mut stranger = other.client_to(stranger);
    assert!(matches!(stranger.health(), Err(Failure::Away(_))));
}
