//! SIGHUP reads the configuration again.

use crate::support::{Proxy, dunlin, okay, server, servers, text, until, yml};
use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};
use harness::server::{Server, free_port, signal};
use harness::tls::Authority;

/// Makes the proxy read this file, and waits until it has said so.
fn reload(proxy: &Proxy, file: &str, said: &str) {
    let count = |proxy: &Proxy| proxy.log().matches(said).count();
    let before = count(proxy);
    std::fs::write(&proxy.file, file).expect("a file");
    signal(proxy.process_id(), "HUP").expect("it runs");
    until("the proxy says what it has read", || count(proxy) > before);
}

fn keys(server: &Server) -> Reply {
    ask(&mut server.client(), &["DBSIZE"])
}

#[test]
fn servers_change_and_clients_stay() {
    let Some(program) = dunlin() else { return };
    let servers = servers(&program);
    let (port, other_port) = (free_port().expect("a port"), free_port().expect("a port"));
    let file = servers[0].directory().join("nutcracker.yml");
    let proxy = Proxy::run(&program, &file, port, &yml(port, &servers[..1], ""));
    let mut plain = proxy.client(Protocol::Resp2);
    let mut waiting = proxy.client(Protocol::Resp3);
    let mut transaction = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut plain, &["SET", "a", "old"]), okay());
    waiting.send(&["BLPOP", "queue", "0"]).expect("it is sent");
    assert_eq!(ask(&mut transaction, &["MULTI"]), okay());
    assert_eq!(text(&ask(&mut transaction, &["SET", "b", "1"])), "QUEUED");

    // Another server in the old one's place, and a second pool.
    let second = format!(
        "{}other:\n  listen: 127.0.0.1:{other_port}\n  redis: true\n  servers:\n   - 127.0.0.1:{}:1\n",
        yml(port, &servers[1..2], ""),
        servers[2].port()
    );
    reload(&proxy, &second, "reloaded: pool pool has changed; pool other is new");
    until("a plain client speaks to the new server", || {
        ask(&mut plain, &["GET", "a"]) == Reply::Nil
    });
    let mut other = Client::connect(([127, 0, 0, 1], other_port).into()).expect("it listens");
    assert_eq!(ask(&mut other, &["SET", "x", "1"]), okay());
    assert_eq!(keys(&servers[2]), Reply::Integer(1));
    // What began at the old server ends there.
    assert_eq!(text(&ask(&mut transaction, &["SET", "c", "1"])), "QUEUED");
    assert_eq!(ask(&mut transaction, &["EXEC"]), Reply::Array(vec![okay(), okay()]));
    assert_eq!(keys(&servers[0]), Reply::Integer(3));
    assert_eq!(ask(&mut servers[0].client(), &["LPUSH", "queue", "x"]), Reply::Integer(1));
    let Reply::Array(popped) = waiting.reply().expect("a reply") else { panic!("no array") };
    assert_eq!(text(&popped[1]), "x");
    for client in [&mut waiting, &mut transaction] {
        until("the client has gone over", || ask(client, &["GET", "b"]) == Reply::Nil);
        assert_eq!(ask(client, &["SET", "d", "1"]), okay());
    }
    assert_eq!(keys(&servers[1]), Reply::Integer(1));
    // Nothing of the proxy is left at the old server.
    until("connections to the old server are closed", || {
        let clients = text(&ask(&mut servers[0].client(), &["INFO", "clients"]));
        clients.contains("connected_clients:1\r\n")
    });

    // A pool goes, and its clients with it; those of others stay.
    reload(&proxy, &yml(port, &servers[1..2], ""), "reloaded: pool other is gone");
    other.expect_closed().expect("it is closed");
    assert_eq!(ask(&mut plain, &["GET", "d"]).text(), Some(&b"1"[..]));
}

#[test]
fn a_file_that_is_wrong_changes_nothing() {
    let Some(program) = dunlin() else { return };
    let servers = servers(&program);
    let proxy = Proxy::start(&program, &servers[..1], "");
    let mut client = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, &["SET", "a", "1"]), okay());
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = busy.local_addr().expect("an address").port();
    let unknown = yml(proxy.address.port(), &servers[1..2], "  distribution: nonsense\n");
    let files =
        [("pool: [", ""), (&unknown, "'distribution'"), (&yml(taken, &servers, ""), "in use")];
    for (file, why) in files {
        reload(&proxy, file, "is refused, the old one stays in force");
        let log = proxy.log();
        let line = log.lines().rfind(|line| line.contains("is refused")).unwrap_or_default();
        assert!(line.contains(why), "{line}");
        assert_eq!(ask(&mut client, &["GET", "a"]).text(), Some(&b"1"[..]));
        assert_eq!(ask(&mut proxy.client(Protocol::Resp2), &["GET", "a"]).text(), Some(&b"1"[..]));
    }
}

#[test]
fn passwords_and_certificates_change() {
    let Some(program) = dunlin() else { return };
    let authority = Authority::new("proxy-reload");
    let first = authority.sign("proxy");
    let behind = server(&program, &[]);
    let (port, tls) = (free_port().expect("a port"), free_port().expect("a port"));
    let config = |password: &str| {
        format!(
            "[pool.main]\nkind = \"single\"\nlisten = [\"127.0.0.1:{port}\"]\n\
             listen_tls = [\"127.0.0.1:{tls}\"]\nserver = \"127.0.0.1:{}\"\n{password}\
             [pool.main.tls]\ncert_file = {:?}\nkey_file = {:?}\n",
            behind.port(),
            authority.path("proxy.crt"),
            authority.path("proxy.key"),
        )
    };
    let file = behind.directory().join("proxy.toml");
    let proxy = Proxy::run(&program, &file, port, &config(""));
    let mut before = authority.connect(tls);
    assert_eq!(before.certificate(), first);
    let second = authority.sign("proxy");
    reload(&proxy, &config(""), "reloaded: nothing has changed");
    assert_eq!(authority.connect(tls).certificate(), second);
    before.ping();
    reload(&proxy, &config("client_password = \"secret\"\n"), "reloaded: pool main has changed");
    let mut client = Client::connect(proxy.address).expect("it listens");
    until("clients have to authenticate", || {
        client = Client::connect(proxy.address).expect("it listens");
        matches!(ask(&mut client, &["PING"]), Reply::Error(why) if why.starts_with(b"NOAUTH"))
    });
    assert_eq!(ask(&mut client, &["AUTH", "secret"]), okay());
    before.ping();
}
