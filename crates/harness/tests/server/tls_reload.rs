//! A server that gets new certificates while it runs: CONFIG SET serves them to new connections,
//! leaves old connections alone, and refuses files that do not work without forgetting the old
//! ones.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::Client;
use harness::reply::Reply;
use harness::server::{Options, Program, Server, free_port};
use harness::tls::Authority;
use harness::wait::eventually;
use rustls::pki_types::CertificateDer;
use std::net::{Ipv4Addr, TcpStream};

#[track_caller]
fn set(client: &mut Client, options: &[&str]) -> Reply {
    client.command(&[&["CONFIG", "SET"], options].concat()).unwrap()
}

fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

fn value(client: &mut Client, option: &str) -> String {
    let reply = client.command(&["CONFIG", "GET", option]).unwrap();
    String::from_utf8(reply.elements().unwrap()[1].text().unwrap().to_vec()).unwrap()
}

/// A plain connection, and the TLS port, of a server that shows the certificate `first`.
fn start(name: &str, check: impl Fn(&Server, &Authority, u16, CertificateDer<'static>)) {
    let program = Program::under_test();
    for backend in program.backends() {
        let authority = Authority::new(name);
        let first = authority.sign("first");
        let port = free_port().unwrap();
        let mut options = Options::arguments(&authority.options(port, "first"));
        options.backend = backend;
        let server = Server::start(&program, options).unwrap();
        check(&server, &authority, port, first);
        assert!(server.stop().unwrap().success());
    }
}

#[test]
fn a_new_certificate_is_for_new_connections() {
    start("new", |server, authority, port, first| {
        let mut client = server.client();
        let mut old = authority.connect(port);
        assert_eq!(old.certificate(), first);
        let second = authority.sign("second");
        let files = [
            "tls-cert-file",
            &authority.path("second.crt"),
            "tls-key-file",
            &authority.path("second.key"),
        ];
        assert_eq!(set(&mut client, &files), ok());
        assert_eq!(authority.connect(port).certificate(), second);
        old.ping();
        // A file renewed under its own name is read again when it is set again, as Certbot's hooks
        // do.
        let third = authority.sign("second");
        assert_eq!(authority.connect(port).certificate(), second, "nobody asked yet");
        assert_eq!(set(&mut client, &files), ok());
        assert_eq!(authority.connect(port).certificate(), third);
        old.ping();
    });
}

#[test]
fn a_bad_file_is_refused_and_the_old_one_stays() {
    start("bad", |server, authority, port, first| {
        let mut client = server.client();
        let mut old = authority.connect(port);
        authority.sign("other");
        authority.write("garbage.crt", "no certificate at all\n");
        authority.write("empty.crt", "");
        let refused = |option: &str| {
            let text = format!(
                "ERR CONFIG SET failed (possibly related to argument '{option}') - Unable to \
                 update TLS configuration. Check server logs."
            );
            Reply::Error(text.into_bytes())
        };
        for (option, file) in [
            ("tls-cert-file", "missing.crt"),
            ("tls-cert-file", "garbage.crt"),
            ("tls-cert-file", "empty.crt"),
            // A certificate whose key is another one.
            ("tls-cert-file", "other.crt"),
            ("tls-key-file", "other.key"),
            ("tls-key-file", "missing.key"),
            ("tls-ca-cert-file", "missing.crt"),
            ("tls-ca-cert-file", "garbage.crt"),
        ] {
            let before = value(&mut client, option);
            let path = authority.path(file);
            assert_eq!(set(&mut client, &[option, &path]), refused(option), "{file}");
            assert_eq!(value(&mut client, option), before, "{file}");
            assert_eq!(authority.connect(port).certificate(), first, "{file}");
            // The log is where it says why, so it has to name the file.
            if file != "other.crt" && file != "other.key" {
                server.logs(file);
            }
        }
        // One bad option takes the good one of the same request with it.
        let pair =
            ["maxclients", "77", "tls-cert-file", &authority.path("missing.crt"), "timeout", "9"];
        assert_eq!(set(&mut client, &pair), refused("tls-cert-file"));
        assert_ne!(value(&mut client, "maxclients"), "77");
        assert_eq!(value(&mut client, "timeout"), "0");
        // The port itself can go, and come back with another certificate.
        assert_eq!(set(&mut client, &["tls-port", "0"]), ok());
        old.ping();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        let files = [
            "tls-cert-file",
            &authority.path("other.crt"),
            "tls-key-file",
            &authority.path("other.key"),
            "tls-port",
            &port.to_string(),
        ];
        assert_eq!(set(&mut client, &files), ok());
        assert_ne!(authority.connect(port).certificate(), first);
        old.ping();
    });
}

#[test]
fn a_certificate_names_its_user() {
    start("user", |server, authority, port, _| {
        let mut client = server.client();
        ["alice", "mallory"].iter().for_each(|name| drop(authority.sign(name)));
        let options = ["tls-auth-clients", "optional", "tls-auth-clients-user", "CN"];
        assert_eq!(set(&mut client, &options), ok());
        for user in ["alice", "urn:mallory"] {
            let rules = ["ACL", "SETUSER", user, "on", "nopass", "+acl|whoami", "+ping"];
            assert_eq!(client.command(&rules).unwrap(), ok());
        }
        let is = |name: &str, user: &str| {
            let mut connection = authority.connect_as(port, name);
            connection.send(&["ACL", "WHOAMI"]);
            connection.receives(format!("${}\r\n{user}\r\n", user.len()).as_bytes());
        };
        is("alice", "alice");
        is("mallory", "default");
        assert_eq!(set(&mut client, &["tls-auth-clients-user", "URI"]), ok());
        is("alice", "default");
        is("mallory", "urn:mallory");
        // A user that is off is not taken.
        assert_eq!(client.command(&["ACL", "SETUSER", "urn:mallory", "off"]).unwrap(), ok());
        is("mallory", "default");
        assert_eq!(set(&mut client, &["tls-auth-clients-user", "off"]), ok());
        is("alice", "default");
    });
}

#[test]
fn a_renewed_file_is_read_by_itself() {
    start("renewed", |server, authority, port, first| {
        let mut client = server.client();
        let mut old = authority.connect(port);
        assert_eq!(set(&mut client, &["tls-auto-reload-interval", "1"]), ok());
        // Half of a renewal: a key that is of no certificate. The old pair stays.
        let key = std::fs::read(authority.path("first.key")).unwrap();
        authority.sign("other");
        std::fs::copy(authority.path("other.key"), authority.path("first.key")).unwrap();
        eventually("the server says that it keeps the old one", || {
            server.log().contains("Certificates have changed, and the old ones stay")
        });
        assert_eq!(authority.connect(port).certificate(), first);
        std::fs::write(authority.path("first.key"), key).unwrap();
        let second = authority.sign("first");
        eventually("a new connection has the new certificate", || {
            authority.connect(port).certificate() == second
        });
        old.ping();
    });
}
