//! TLS on both sides of the proxy.

use crate::support::{Proxy, dunlin};
use harness::client::{Client, ask};
use harness::reply::Reply;
use harness::server::{Options, Program, Server, free_port};
use harness::tls::Authority;

fn encrypted(program: &Program, authority: &Authority) -> (Server, u16) {
    let port = free_port().expect("a port");
    let mut arguments = authority.options(port, "server");
    arguments.extend(["--io-threads", "1", "--tls-auth-clients", "yes"].map(str::to_owned));
    (Server::start(program, Options::arguments(&arguments)).expect("it starts"), port)
}

/// Clients come plain and by TLS; the server asks the proxy for a certificate.
fn pool(authority: &Authority, plain: u16, tls: u16, server: u16) -> String {
    let path = |file: &str| authority.path(file);
    format!(
        "[pool.main]\nkind = \"single\"\nlisten = [\"127.0.0.1:{plain}\"]\n\
         listen_tls = [\"127.0.0.1:{tls}\"]\nserver = \"127.0.0.1:{server}\"\n\
         [pool.main.tls]\ncert_file = {:?}\nkey_file = {:?}\n\
         [pool.main.server_tls]\nca_cert_file = {:?}\ncert_file = {:?}\nkey_file = {:?}\n",
        path("proxy.crt"),
        path("proxy.key"),
        path("ca.crt"),
        path("proxy.crt"),
        path("proxy.key"),
    )
}

#[test]
fn clients_and_servers_speak_tls() {
    let Some(program) = dunlin() else { return };
    let authority = Authority::new("proxy");
    authority.sign("server");
    let shown = authority.sign("proxy");
    let (server, server_port) = encrypted(&program, &authority);
    let (plain, tls) = (free_port().expect("a port"), free_port().expect("a port"));
    let file = server.directory().join("proxy.toml");
    // The certificate is for another name than the address.
    let config = pool(&authority, plain, tls, server_port);
    let proxy = Proxy::run(&program, &file, plain, &config);
    let mut client = Client::connect(proxy.address).expect("it listens");
    let refused = ask(&mut client, &["GET", "a"]);
    assert!(matches!(&refused, Reply::Error(why) if why.starts_with(b"NOREPLY server")));
    drop(proxy);
    let proxy = Proxy::run(&program, &file, plain, &format!("{config}name = \"localhost\"\n"));
    let mut client = Client::connect(proxy.address).expect("it listens");
    let mut encrypted = authority.connect(tls);
    assert_eq!(encrypted.certificate(), shown);
    encrypted.send(&["SET", "a", "1"]);
    encrypted.receives(b"+OK\r\n");
    assert_eq!(ask(&mut client, &["GET", "a"]).text(), Some(&b"1"[..]));
    let long = "v".repeat(300_000);
    encrypted.send(&["SET", "long", &long]);
    encrypted.receives(b"+OK\r\n");
    encrypted.send(&["GET", "long"]);
    encrypted.receives(format!("$300000\r\n{long}\r\n").as_bytes());
}
