//! The admin port of a node with TLS.

use crate::support::{Machine, run};
use harness::tls::Authority;
use harness::wait::eventually;
use std::process::Command;

#[test]
fn the_admin_port_speaks_tls_alone_and_takes_renewed_certificates() {
    let [first, second] = ["first", "second"].map(Authority::new);
    first.sign("node");
    let files = ["node.crt", "node.key"];
    let [cert, key] = files.map(|file| first.path(file));
    let more = ["--admin-tls-cert-file", &cert, "--admin-tls-key-file", &key];
    let machine = Machine::first_with("admin-tls", "a", &more);
    let place = format!("https://localhost:{}", machine.admin_port);
    let ask = |authority: &Authority| {
        run(&["nodes", "--json", "--node", &place, "--cacert", &authority.path("ca.crt")])
    };
    let (is_done, text) = ask(&first);
    assert!(is_done && text.contains("\"name\": \"a\""), "{text}");
    let (is_done, text) = machine.ask(&["nodes"]);
    assert!(!is_done && text.contains("https://"), "without TLS: {text}");
    let (is_done, text) = ask(&second);
    assert!(!is_done && text.contains("certificate"), "of another authority: {text}");

    second.sign("node");
    for file in files {
        std::fs::copy(second.path(file), first.path(file)).expect("it is copied");
    }
    eventually("the new certificate is shown", || ask(&second).0);
    assert!(!ask(&first).0, "the old one is not");
}

#[test]
fn the_admin_port_shows_a_certificate_of_the_tokens_authority() {
    let more = ["--admin-tls", "--admin-tls-name", "nodes.example"];
    let machine = Machine::first_with("admin-own-tls", "a", &more);
    let place = format!("https://127.0.0.1:{}", machine.admin_port);
    let ask = |option: &str, file: &str| run(&["nodes", "--node", &place, option, file]);
    let token = machine.path("tls/join-token");
    for (option, file) in [("--cacert", machine.path("tls/ca.pem")), ("--token-file", token)] {
        let (is_done, text) = ask(option, &file);
        assert!(is_done, "{option}: {text}");
    }
    let folder = machine.directory.join("of-the-test");
    std::fs::create_dir_all(&folder).expect("a folder");
    let other = folder.join("secret");
    std::fs::write(&other, "0123456789abcdef0123456789abcdef").expect("it is written");
    let (is_done, text) = ask("--token-file", &other.to_string_lossy());
    assert!(!is_done && text.contains("certificate"), "of another cluster: {text}");
    std::fs::write(&other, "short").expect("it is written");
    let (is_done, text) = ask("--token-file", &other.to_string_lossy());
    assert!(!is_done && text.contains("at least 32"), "no secret: {text}");
    // Without TLS nothing is said, least of all a password.
    let plain = format!("127.0.0.1:{}", machine.admin_port);
    let token = machine.path("tls/join-token");
    let (is_done, text) = run(&["nodes", "--node", &plain, "--token-file", &token]);
    assert!(!is_done && text.contains("https://HOST:PORT"), "{text}");

    let names = Command::new("openssl")
        .args(["x509", "-noout", "-ext", "subjectAltName", "-in", &machine.path("tls/machine.pem")])
        .output()
        .expect("openssl runs");
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    assert!(names.contains("DNS:nodes.example"), "{names}");
    assert!(names.contains("DNS:localhost") && names.contains("IP Address:127.0.0.1"), "{names}");
}
