//! The health check of the container image: a server that loads is not healthy, by whatever it is
//! asked.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, ok};
use harness::server::{Server, free_port};
use harness::tls::Authority;
use harness::wait::eventually;
use std::process::Output;

/// Runs the check with these variables.
fn check(server: &Server, variables: &[(&str, &str)]) -> Output {
    let mut check = server.program().subcommand("container");
    check.arg("--healthcheck").envs(variables.iter().copied());
    check.output().unwrap()
}

fn said(output: &Output) -> String {
    let bytes = [&output.stdout[..], &output.stderr].concat();
    format!("{}: {}", output.status, String::from_utf8_lossy(&bytes))
}

/// Asserts that a check says loading while the server loads, and nothing before and after.
fn assert_sees_loading(server: &Server, operator: &mut Client, checks: &[&[(&str, &str)]]) {
    let assert_healthy = || {
        for variables in checks {
            let output = check(server, variables);
            assert!(output.status.success(), "{variables:?}: {}", said(&output));
            assert_eq!((&output.stdout[..], &output.stderr[..]), (&b""[..], &b""[..]));
        }
    };
    assert_healthy();
    ask(operator, &["DEBUG", "POPULATE", "100"]);
    // Minutes' work, unless the delay is taken back.
    ask(operator, &["CONFIG", "SET", "key-load-delay", "1000000"]);
    ask(operator, &["BGREWRITEAOF"]);
    harness::wait::until_not_rewriting(operator);
    let mut loading = Client::unix(&server.directory().join("clients.socket")).unwrap();
    ok(&mut loading, "AUTH secret");
    loading.send(&["DEBUG", "LOADAOF"]).unwrap();
    eventually("it loads", || ask(operator, "GET key").is_error());
    for variables in checks {
        let output = check(server, variables);
        assert_eq!(output.status.code(), Some(1), "{variables:?}: {}", said(&output));
        let said = said(&output);
        assert!(said.contains("LOADING") || said.contains("503"), "{variables:?}: {said}");
    }
    ask(operator, &["CONFIG", "SET", "key-load-delay", "0"]);
    loading.reply().unwrap();
    eventually("it has loaded", || !ask(operator, "GET key").is_error());
    assert_healthy();
}

const OPTIONS: [&str; 8] = [
    "--appendonly",
    "yes",
    "--requirepass",
    "secret",
    "--unixsocket",
    "clients.socket",
    "--admin-socket",
    "operators.socket",
];

/// Returns a client that has logged in.
fn operator(server: &Server) -> Client {
    let mut operator = Client::unix(&server.directory().join("clients.socket")).unwrap();
    ok(&mut operator, "AUTH secret");
    operator
}

#[test]
fn a_server_that_loads_is_not_healthy() {
    let (server, admin_port) = Server::with_admin_port(&OPTIONS);
    let (port, admin_port) = (server.port().to_string(), admin_port.to_string());
    let file = server.directory().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let sockets = ["clients.socket", "operators.socket"].map(|name| server.directory().join(name));
    let [clients, operators] = sockets.each_ref().map(|path| path.to_str().unwrap());
    let password = ("VALKEY_PASSWORD", "secret");
    assert_sees_loading(
        &server,
        &mut operator(&server),
        &[
            &[("DUNLIN_HEALTH_PORT", &admin_port)],
            &[("DUNLIN_HEALTH_PORT", &port), password],
            &[("DUNLIN_HEALTH_PORT", &port), ("REDIS_PASSWORD_FILE", file.to_str().unwrap())],
            &[("DUNLIN_HEALTH_SOCKET", clients), password],
            &[("DUNLIN_HEALTH_SOCKET", operators), password],
        ],
    );
}

#[test]
fn a_port_with_tls_alone_is_asked_by_tls() {
    let authority = Authority::new("health");
    authority.sign("server");
    let tls_port = free_port().unwrap();
    let of_tls = authority.options(tls_port, "server");
    let of_tls: Vec<&str> = of_tls.iter().map(String::as_str).collect();
    let options = [&OPTIONS[..], &of_tls].concat();
    let (server, admin_port) = Server::with_admin_port(&options);
    let (tls_port, admin_port) = (tls_port.to_string(), admin_port.to_string());
    let password = ("REDIS_PASSWORD", "secret");
    let mut operator = operator(&server);
    assert_sees_loading(
        &server,
        &mut operator,
        &[&[("DUNLIN_HEALTH_PORT", &tls_port), password], &[("DUNLIN_HEALTH_PORT", &admin_port)]],
    );
    // One that wants a certificate is there, and the check says that it knows no more. The admin
    // port asks probes for none.
    ok(&mut operator, "CONFIG SET tls-auth-clients yes");
    let output = check(&server, &[("DUNLIN_HEALTH_PORT", &tls_port), password]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("set DUNLIN_HEALTH_SOCKET"), "{}", said(&output));
    let socket = server.directory().join("operators.socket");
    let socket = [("DUNLIN_HEALTH_SOCKET", socket.to_str().unwrap()), password];
    assert_sees_loading(&server, &mut operator, &[&socket, &[("DUNLIN_HEALTH_PORT", &admin_port)]]);
}

#[test]
fn a_server_that_is_not_there_is_not_healthy() {
    let (server, _) = Server::with_admin_port(&[]);
    let output = check(&server, &[("DUNLIN_HEALTH_PORT", &free_port().unwrap().to_string())]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let output = check(&server, &[("DUNLIN_HEALTH_SOCKET", "/nonexistent")]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}
