//! The admin port of the proxy.

use crate::support::{Proxy, dunlin, okay, servers, single, stop, until};
use harness::client::ask;
use harness::http;
use harness::reply::{Protocol, Reply};
use harness::server::{free_port, signal};

/// Status and text of an answer.
fn get(port: u16, path: &str) -> (u16, String) {
    let answer = http::ask(port, "GET", path, &[], "").expect("an answer");
    (answer.status, answer.text())
}

/// The figure of a series.
fn figure(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn pages_elsewhere_whose_name_leads_here_see_nothing() {
    let Some(program) = dunlin() else { return };
    let servers = servers(&program);
    let admin = free_port().expect("a port");
    let all = format!("admin = \"127.0.0.1:{admin}\"\nadmin_hosts = [\"proxy.example\", \".svc\"]");
    let _proxy = single(&program, &servers[0], &all, "");
    let status = |host: &str, path: &str| {
        let host = format!("Host: {host}");
        http::ask(admin, "GET", path, &[&host], "").expect("an answer").status
    };
    for path in ["/metrics", "/"] {
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80"] {
            assert_eq!(status(host, path), 403, "{host} {path}");
            assert_eq!(status(host, "/readyz"), 200, "{host}");
        }
        for host in ["127.0.0.1", "localhost:1", "proxy.example", "a.svc"] {
            assert_eq!(status(host, path), 200, "{host} {path}");
        }
    }
    assert_eq!((status("dunlin", "/metrics"), status("dunlin", "/")), (200, 403));
}

#[test]
fn figures_and_probes_are_served() {
    let Some(program) = dunlin() else { return };
    let servers = servers(&program);
    let (port, admin) = (free_port().expect("a port"), free_port().expect("a port"));
    let config = format!(
        "admin = \"127.0.0.1:{admin}\"\n[pool.main]\nkind = \"servers\"\nlisten = [\"127.0.0.1:{port}\"]\n\
         timeout_ms = 300\nservers = [{{ address = \"127.0.0.1:{}\", name = \"one\" }}]\n",
        servers[0].port()
    );
    let file = servers[0].directory().join("proxy.toml");
    let proxy = Proxy::run(&program, &file, port, &config);
    let mut client = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, &["SET", "<hot>", &"v".repeat(70_000)]), okay());
    for _ in 0..1000 {
        assert!(ask(&mut client, &["GET", "<hot>"]).text().is_some());
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(admin, path), (200, "ok\n".to_owned()));
    }
    let (status, text) = get(admin, "/metrics");
    assert_eq!(status, 200);
    let of = "{pool=\"main\",server=\"one\"}";
    let series = |name: &str| figure(&text, &format!("dunlin_proxy_{name}{of} "));
    assert_eq!(series("requests_total"), Some(1001.0), "{text}");
    assert_eq!(series("responses_total"), Some(1001.0));
    assert_eq!(series("large_responses_total"), Some(1000.0));
    assert_eq!(series("queue"), Some(0.0));
    assert_eq!(series("response_seconds_count"), Some(1001.0));
    assert!(series("response_bytes_total") > Some(70e6));
    assert_eq!(figure(&text, "dunlin_proxy_clients{pool=\"main\"} "), Some(1.0));
    // They survive a reload, also where the pool becomes another one.
    for (more, second) in [("server_connections = 2\n", ""), ("", "two")] {
        let mut changed = format!("{config}{more}");
        if !second.is_empty() {
            let two = format!("[{{ address = \"127.0.0.1:{}\" }}, ", servers[1].port());
            changed = changed.replace("servers = [", &format!("servers = {two}"));
        }
        let count = |proxy: &Proxy| proxy.log().matches("pool main has changed").count();
        let before = count(&proxy);
        std::fs::write(&proxy.file, changed).expect("a file");
        signal(proxy.process_id(), "HUP").expect("it runs");
        until("the proxy reloads", || count(&proxy) > before);
        until("the figures are as before", || {
            let text = get(admin, "/metrics").1;
            let total = figure(&text, &format!("dunlin_proxy_requests_total{of} "));
            let clients = figure(&text, "dunlin_proxy_clients{pool=\"main\"} ");
            (total, clients) == (Some(1001.0), Some(1.0))
        });
    }
    std::fs::write(&proxy.file, &config).expect("a file");
    signal(proxy.process_id(), "HUP").expect("it runs");
    until("all keys are at one server again", || {
        let text = get(admin, "/metrics").1;
        figure(&text, "dunlin_proxy_servers{pool=\"main\"} ") == Some(1.0)
    });
    let (status, page) = get(admin, "/");
    assert_eq!(status, 200);
    assert!(page.contains("Pool main") && page.contains("&lt;hot&gt;"), "{page}");
    assert_eq!(get(admin, "/nothing").0, 404);

    // A proxy whose servers all fail is not ready.
    let stopped = servers[0].process_id();
    stop(stopped);
    until("the proxy is not ready", || {
        let is_error = matches!(ask(&mut client, &["GET", "<hot>"]), Reply::Error(_));
        is_error && get(admin, "/readyz").0 == 503
    });
    signal(stopped, "CONT").expect("it goes on");
    until("the proxy is ready again", || {
        let _ = ask(&mut client, &["GET", "<hot>"]);
        get(admin, "/readyz").0 == 200
    });
}
