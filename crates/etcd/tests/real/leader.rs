//! What the client repeats when etcd has another leader: reads, and nothing else. A gateway of the
//! test's own says so.

use crate::process::TIMEOUT;
use cluster::Moment;
use cluster::coordinator::{Change, Coordinator, Failure, Transaction};
use etcd::Client;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// A server that gives these answers, one to each request, and tells which requests came.
fn server(
    answers: Vec<(&'static str, &'static str)>,
    timeout: Moment,
) -> (Client, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let endpoint = listener.local_addr().expect("it is bound").to_string();
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter();
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut piece) = (Vec::new(), [0; 4096]);
            while let Ok(len @ 1..) = stream.read(&mut piece) {
                request.extend_from_slice(&piece[..len]);
                // The end of its body.
                if !request.ends_with(b"}") {
                    continue;
                }
                let text = String::from_utf8_lossy(&std::mem::take(&mut request)).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
                let Some((status, body)) = answers.next() else { return };
                sender.send(path).expect("the test waits");
                let len = body.len();
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).expect("it waits");
            }
        }
    });
    let endpoint = endpoint.parse().expect("it is one");
    (Client::new(vec![endpoint], timeout), requests)
}

const CHANGED: (&str, &str) = (
    "503 Service Unavailable",
    r#"{"error":"leader changed","code":14,"message":"etcdserver: leader changed"}"#,
);

#[test]
fn a_read_is_repeated_when_the_leader_has_changed() {
    let found = r#"{"header":{"revision":"7"},"responses":[]}"#;
    let answers = vec![CHANGED, CHANGED, ("200 OK", found), CHANGED, ("200 OK", found)];
    let (mut client, requests) = server(answers, TIMEOUT);
    assert_eq!(client.range("/a/", None).map(|range| range.revision), Ok(7));
    assert_eq!(client.parts("/a/", &["b"]).map(|(range, _)| range.revision), Ok(7));
    let asked: Vec<String> = requests.try_iter().collect();
    assert_eq!(asked, [&["/v3/kv/range"; 3][..], &["/v3/kv/txn"; 2]].concat());
}

#[test]
fn a_change_and_another_refusal_are_not_repeated() {
    let full = ("503 Service Unavailable", r#"{"code":14,"message":"etcdserver: no space"}"#);
    let (mut client, requests) = server(vec![CHANGED, full], TIMEOUT);
    let change = Change::Put { key: "/a".into(), value: Vec::new(), lease: None };
    let transaction = Transaction { compares: Vec::new(), changes: vec![change] };
    assert!(matches!(client.commit(&transaction), Err(Failure::Away(_))));
    let Err(Failure::Away(why)) = client.range("/a/", None) else { panic!("it is refused") };
    assert!(why.contains("no space"), "{why}");
    assert_eq!(requests.try_iter().count(), 2);
}

#[test]
fn a_read_is_given_up_when_its_time_is_over() {
    let (mut client, requests) = server(vec![CHANGED; 1000], Moment::from_millis(100));
    assert!(matches!(client.range("/a/", None), Err(Failure::Away(_))));
    assert!(requests.try_iter().count() <= 6, "it rests between the attempts");
}
