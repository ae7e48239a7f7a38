//! Errors say what to do, and nothing is changed by a dry run.

use crate::support::{Machine, port, run, until_ok};
use harness::http;
use harness::server::signal;
use harness::wait::eventually;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;

#[test]
fn what_makes_no_sense_is_refused_with_what_to_do() {
    for (words, expected) in [
        (&["status", "--node", "127.0.0.1:1"][..], "Start one with dunlin cluster up"),
        (&["create-db", "a", "--memory", "much", "--port", "1"], "a number with a unit"),
        (&["create-db", "a", "--memory", "1gb", "--port", "0"], "from 1 to 65535"),
        (&["create-db", "a", "--memory", "1gb", "--port", "1", "--eviction", "x"], "allkeys-lru"),
        (&["delete-db", "a"], "add --confirm a"),
        (&["up", "--name", "a/b"], "is no name for a cluster"),
        (&["down", "--dir", "/nonexistent"], "name the machine's directory with --dir"),
    ] {
        let (is_done, text) = run(words);
        assert!(!is_done && text.contains(expected), "{words:?}: {text}");
    }
}

#[test]
fn a_node_plans_and_refuses_without_changing_anything() {
    let machine = Machine::first("words", "a");
    let port = port().to_string();
    let create =
        ["create-db", "d", "--shards", "2", "--replicas", "1", "--port", &port, "--memory"];
    let user = ["64mb", "--user", "app on >secret ~app:* +@nothing"];
    let (is_done, text) = machine.ask(&[&create[..], &user].concat());
    assert!(!is_done && text.contains("'+@nothing': Unknown command or category"), "{text}");
    let (is_done, text) = machine.ask(&[&create[..], &["64mb", "--dry-run"]].concat());
    assert!(
        is_done && text.contains("Nothing was changed.") && text.contains("32.0 MiB"),
        "{text}"
    );
    assert!(text.contains("Copies of shard 1, 2 share a machine"), "{text}");
    for (words, expected) in [
        (&[&create[..], &["100gb"]].concat()[..], "no room for"),
        (&[&create[..], &["1gb", "--zones"]].concat(), "cannot be in different zones"),
        (&["databases", "d"], "there is no database 'd'"),
        (&["update-db", "d", "--memory", "1gb"], "there is no database 'd'"),
        (&["delete-db", "d", "--confirm", "d"], "there is no database 'd'"),
        (&["watch", "x"], "there is no job 'x'"),
        (&["cancel", "x"], "there is no job 'x'"),
        (&["forget", "a"], "is alive: stop its node first"),
        (&["forget", "x"], "there is no machine 'x'"),
    ] {
        let (is_done, text) = machine.ask(words);
        assert!(!is_done && text.contains(expected), "{words:?}: {text}");
    }
    assert_eq!(machine.json(&["databases"]), serde_json::json!([]));
    let directory = machine.directory.to_string_lossy().into_owned();
    let (is_done, text) = run(&["up", "--name", "t", "--dir", &directory]);
    assert!(!is_done && text.contains("another node runs in"), "{text}");
}

/// The names of series with this beginning in our dashboard and alerts.
fn asked_for(beginnings: &[&str]) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/compose");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).expect("it is there");
    let text = read("grafana/dunlin.json") + &read("alerts.yml");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    let names = words.filter(|word| beginnings.iter().any(|name| word.starts_with(name)));
    names.map(str::to_owned).collect()
}

/// Fails if a text lacks one of these series.
fn assert_has(text: &str, names: &BTreeSet<String>) {
    let is_there = |name: &&String| {
        let rest = |line: &'_ str| {
            line.strip_prefix(name.as_str()).map(|rest| rest.starts_with(['{', ' ']))
        };
        !text.lines().any(|line| rest(line) == Some(true))
    };
    let missing: Vec<&String> = names.iter().filter(is_there).collect();
    assert!(missing.is_empty(), "{missing:?} are missing: {text}");
}

#[test]
fn alarms_and_panels_find_the_series_of_machines_and_copies() {
    let machine = Machine::first("scrapes", "a");
    machine.create("d", "1");
    until_ok(&machine, "d");
    let get = |path: &str| http::get(machine.admin_port, path).text();
    assert_has(&get("/metrics"), &asked_for(&["dunlin_cluster_"]));
    // How many copies have this label and value at the end of their line.
    let count = |text: &str, end: &str| {
        let lines = text.lines().filter(|line| line.starts_with("redis_up{"));
        lines.filter(|line| line.ends_with(end)).count()
    };
    let mut text = String::new();
    eventually("all copies answer", || {
        text = get("/metrics/copies");
        count(&text, "} 1") == 6
    });
    let names = asked_for(&["redis_", "dunlin_thread_", "dunlin_unconfirmed_"]);
    assert!(names.len() > 20, "{names:?}");
    assert_has(&text, &names);
    assert_eq!(text.matches("# TYPE redis_up gauge\n").count(), 1, "{text}");
    // Each has figures of its own, although each answers clients for all keys.
    let ports: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.starts_with("redis_instance_info{database=\"d\",shard=\""))
        .filter_map(|line| line.split("tcp_port=\"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(ports.len(), 6, "{text}");
    // A copy that does not answer is down, and holds up no other.
    let copy = &machine.copies("d")[0];
    let process = machine.process_of(copy).expect("it runs");
    signal(process, "STOP").expect("it runs");
    let end = format!("copy=\"{}\"}} 0", copy["id"].as_str().expect("a copy has an id"));
    eventually("the stopped copy is down, and the others answer", || {
        let text = get("/metrics/copies");
        count(&text, "} 1") == 5 && count(&text, &end) == 1
    });
    signal(process, "CONT").expect("it runs");
}

#[test]
fn the_admin_port_of_a_node_is_for_probes_scrapes_and_programs() {
    let machine = Machine::first("rest", "a");
    let get = |path: &str| http::get(machine.admin_port, path);
    assert_eq!((get("/healthz").status, get("/readyz").status), (200, 200));
    let metrics = get("/metrics").text();
    assert!(metrics.contains("dunlin_cluster_etcd_up 1\n"), "{metrics}");
    assert!(metrics.contains("dunlin_cluster_machine_up{machine=\"a\"} 1\n"), "{metrics}");
    let document: serde_json::Value =
        serde_json::from_str(&get("/api/v1/openapi.json").text()).expect("it is JSON");
    assert!(document["paths"]["/cluster/databases"]["patch"].is_object(), "{document}");
    assert_eq!(get("/availability?database=none").status, 404);
    assert_eq!(get("/api/v1/cluster/nothing").status, 404);
    let send = |headers: &[&str], body: &str| {
        let path = "/api/v1/cluster/databases";
        http::ask(machine.admin_port, "POST", path, headers, body).expect("it answers").status
    };
    let change = |query: &str, zone: &str| {
        let path = format!("/api/v1/cluster/machines/zone{query}");
        let headers = ["Content-Type: application/json", "Idempotency-Key: zone"];
        let body = format!(r#"{{"name":"a","zone":"{zone}"}}"#);
        http::ask(machine.admin_port, "POST", &path, &headers, &body).expect("it answers").status
    };
    let zone = || machine.json(&["nodes"])[0]["zone"].clone();
    let before = zone();
    assert_eq!((change("?dry_run=true", "hall"), zone()), (200, before), "it is only planned");
    assert_eq!((change("", "hall"), zone()), (200, "hall".into()));
    let (is_done, text) = machine.ask(&["set-zone", "a", "cellar"]);
    assert!(is_done, "{text}");
    assert_eq!((change("", "hall"), zone()), (200, "cellar".into()), "it was served before");
    assert_eq!(change("", "roof"), 422, "another request of this name");
    assert_eq!(send(&["Origin: http://a.example"], "{}"), 403, "a page elsewhere");
    let elsewhere = ["Sec-Fetch-Site: cross-site"];
    for path in
        ["/api/v1/cluster", "/api/v1/cluster/backups?at=/tmp", "/metrics", "/metrics/copies"]
    {
        let read = http::ask(machine.admin_port, "GET", path, &elsewhere, "").expect("it answers");
        assert_eq!(read.status, 403, "a page elsewhere: {path}");
    }
    assert_eq!(get("/api/v1/cluster/backups?at=/tmp").status, 405, "storages are asked by POST");
    let count = "/api/v1/cluster/databases/slots/count?name=d";
    assert_eq!(get(count).status, 405, "primaries are made to count by POST");
    assert_eq!(send(&["Host: a.example"], "{}"), 401, "a name that leads here");
    assert_eq!(send(&[], "{"), 400);
    assert_eq!(send(&["Idempotency-Key: "], "{}"), 400, "a request with an empty name");
    let other = http::ask(machine.admin_port, "PUT", "/api/v1/cluster/job", &[], "{}");
    assert_eq!(other.expect("it answers").status, 405, "jobs are only read");
    let head = http::ask(machine.admin_port, "HEAD", "/api/v1/cluster/machines", &[], "");
    let head = head.expect("it answers");
    assert_eq!((head.status, head.text()), (200, String::new()), "as GET, without the text");
    assert_eq!(send(&[], r#"{"name":"d","settings":{"memory_bytes":1,"port":1}}"#), 422);
}

#[test]
fn storages_that_do_not_answer_hold_up_none() {
    let machine = Machine::first("storages", "a");
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    silent.set_nonblocking(true).expect("it can be");
    let place = silent.local_addr().expect("it has one");
    let at = |endpoint: &str| {
        format!("s3://b/p?endpoint={endpoint}&region=r&access-key-id=k&secret-access-key=s")
    };
    let list = |at: &str| {
        let body = format!(r#"{{"at":"{at}"}}"#);
        let path = "/api/v1/cluster/backups/list";
        http::ask(machine.admin_port, "POST", path, &[], &body).expect("it answers")
    };
    for refused in [at("http://169.254.169.254"), "s3:///p?region=r".into()] {
        let answer = list(&refused);
        assert_eq!(answer.status, 422, "{refused}: {}", answer.text());
    }
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..8).map(|_| scope.spawn(|| list(&at(&format!("http://{place}"))))).collect();
        let mut connection = None;
        eventually("the storage is asked", || {
            connection = silent.accept().ok();
            connection.is_some()
        });
        let paths = [
            "/healthz",
            "/readyz",
            "/metrics",
            "/metrics/copies",
            "/api/v1/cluster",
            "/api/v1/cluster/jobs",
        ];
        for path in paths {
            assert_eq!(http::get(machine.admin_port, path).status, 200, "{path}");
        }
        let running = asked.iter().filter(|asked| !asked.is_finished()).count();
        assert!(running > 0, "none of them has held up the others");
        for asked in asked {
            let answer = asked.join().expect("it answers");
            assert!(answer.status == 503 && answer.text().contains("in time"), "{}", answer.text());
        }
    });
}

#[test]
fn a_password_of_a_node_is_not_guessed() {
    let file = std::env::temp_dir().join(format!("dunlin-node-password-{}", std::process::id()));
    std::fs::write(&file, "secret-of-the-node").expect("it is written");
    let machine =
        Machine::first_with("guessed", "a", &["--password-file", &file.to_string_lossy()]);
    std::fs::remove_file(&file).expect("the node has read it");
    let ask = |path: &str, login: &str, cookie: &str| {
        let login = format!("Authorization: Basic {login}");
        let cookie = format!("Cookie: {cookie}");
        let headers = [login.as_str(), &cookie];
        http::ask(machine.admin_port, "GET", path, &headers, "").expect("it answers")
    };
    // admin:secret-of-the-node and admin:wrong
    let (right, wrong) = ("YWRtaW46c2VjcmV0LW9mLXRoZS1ub2Rl", "YWRtaW46d3Jvbmc=");
    let log_in = |password: &str| {
        let headers = ["Content-Type: application/json"];
        let body = format!(r#"{{"user":"admin","password":"{password}"}}"#);
        let path = "/api/v1/session";
        http::ask(machine.admin_port, "POST", path, &headers, &body).expect("it answers")
    };
    let session = log_in("secret-of-the-node");
    assert_eq!(session.status, 200, "{}", session.text());
    let cookie = session.header("set-cookie").expect("the browser is known from now on");
    let cookie = cookie.split(';').next().unwrap_or_default();
    let statuses: Vec<u16> = (0..10)
        .map(|turn| match turn {
            0 => log_in("wrong").status,
            _ => ask("/api/v1/cluster/jobs", wrong, "").status,
        })
        .collect();
    assert_eq!(statuses, [401; 10]);
    let guesses: Vec<u16> = std::thread::scope(|scope| {
        let guess = || ask("/api/v1/cluster/jobs", wrong, "").status;
        let guesses: Vec<_> = (0..20).map(|_| scope.spawn(guess)).collect();
        // The administrator's browser is not held up.
        assert_eq!(ask("/api/v1/cluster/jobs", right, cookie).status, 200);
        assert_eq!(ask("/api/v1/cluster/jobs", wrong, cookie).status, 401, "it is no password");
        guesses.into_iter().map(|guess| guess.join().expect("it answers")).collect()
    });
    assert!(guesses.contains(&429), "few wait: {guesses:?}");
    assert_eq!(ask("/healthz", wrong, "").status, 200);
}
