//! The audit log of a machine: what is changed by REST, and by clients of its copies, in one file.

use crate::data::client;
use crate::support::Machine;
use harness::client::ok;
use harness::http;
use harness::wait::eventually;
use serde_json::Value;
use std::path::Path;

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    whole.lines().map(parse).collect()
}

#[test]
fn a_machine_has_one_audit_log() {
    let folder = std::env::temp_dir().join(format!("dunlin-audit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (path, password) = (folder.join("audit.log"), folder.join("password"));
    std::fs::write(&password, "pw-1").expect("a file");
    let words = [
        "--audit-log",
        path.to_str().expect("a text"),
        "--password-file",
        password.to_str().expect("a text"),
    ];
    let machine = Machine::first_with("audit", "a", &words);
    let ask = |user: &str, body: &str| {
        let pair = http::base64(format!("{user}:pw-1").as_bytes());
        let login = format!("Authorization: Basic {pair}");
        let path = "/api/v1/cluster/databases";
        let answer = http::ask(machine.admin_port, "POST", path, &[&login], body);
        answer.expect("an answer").status
    };
    let port = crate::support::row_of_ports();
    let body = format!(r#"{{"name":"d","settings":{{"memory_bytes":104857600,"port":{port}}}}}"#);
    assert_eq!(ask("eve", &body), 401);
    let status = ask("admin", &body);
    let find = |action: &str, outcome: &str| {
        lines(&path)
            .into_iter()
            .rev()
            .find(|line| line["action"] == action && line["outcome"] == outcome)
    };
    let create = "POST /api/v1/cluster/databases";
    eventually("the log-in that failed", || find(create, "refused").is_some());
    let refused = find(create, "refused").expect("there is one");
    assert_eq!((&refused["user"], &refused["why"]), (&"eve".into(), &"401 WRONGPASS".into()));
    assert!((200..300).contains(&status), "{status}");
    eventually("the database", || find(create, "ok").is_some());
    let created = find(create, "ok").expect("there is one");
    assert_eq!((&created["source"], &created["user"]), (&"node".into(), &"admin".into()));
    assert_eq!(created["instance"], "a");

    // Its copy writes to the same file.
    eventually("a copy", || {
        lines(&path).iter().any(|line| line["source"] == "server" && line["action"] == "start")
    });
    eventually("it serves", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut of_copy = client(port);
    eventually("a primary", || !of_copy.command(&["SET", "a", "1"]).expect("a reply").is_error());
    ok(&mut of_copy, "FLUSHALL");
    let instance = port.to_string();
    eventually("the copy's line", || {
        find("flushall", "ok").is_some_and(|line| line["instance"] == instance)
    });
    let text = std::fs::read_to_string(&path).expect("it is text");
    assert!(!text.contains("pw-1"), "{text}");
    drop(machine);
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
