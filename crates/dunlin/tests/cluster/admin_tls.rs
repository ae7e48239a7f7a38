//! The admin port of a node with TLS.

use crate::support::{Machine, run};
use harness::tls::Authority;
use harness::wait::eventually;

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
    assert!(!is_done, "without TLS: {text}");
    let (is_done, text) = ask(&second);
    assert!(!is_done && text.contains("certificate"), "of another authority: {text}");

    second.sign("node");
    for file in files {
        std::fs::copy(second.path(file), first.path(file)).expect("it is copied");
    }
    eventually("the new certificate is shown", || ask(&second).0);
    assert!(!ask(&first).0, "the old one is not");
}
