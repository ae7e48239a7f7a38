//! TLS through the reactor, on both back-ends: certificates made for the test, rustls as client.
#![allow(clippy::unwrap_used)] // A test's helpers are tests.

use crate::support::authority::{Authority, Tls, connect};
use crate::support::{Message, Note, Peer, Server, digest};
use net::{Admission, Backend, ClientAuth, Close, Kind, Tag, TlsContext};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

crate::on_both!(
    requests_and_large_replies_pass,
    long_words_and_long_replies_pass,
    both_protocol_versions_work,
    a_record_may_arrive_in_any_pieces,
    a_client_certificate_names_the_peer,
    a_missing_client_certificate_is_refused,
    an_optional_certificate_may_be_missing,
    a_failed_handshake_ends_one_connection_only,
    reloading_affects_new_connections_only,
    ciphers_are_restricted,
    goodbye_is_said,
    what_came_before_a_bad_record_counts,
    a_flood_to_a_paused_connection_is_stopped,
    handshakes_take_turns_and_none_is_lost,
    a_handshake_too_many_is_refused,
);

/// A request that is expected to fail, at whatever point.
fn refused(mut peer: Peer<Tls>) -> bool {
    let stream = peer.stream.get_mut();
    let mut byte = [0];
    stream.write_all(b"echo x\n").is_err()
        || stream.flush().is_err()
        || !matches!(stream.read(&mut byte), Ok(1))
}

fn requests_and_large_replies_pass(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let mut peer = authority.connect(&server, None);
    assert_eq!(peer.ask("echo secret"), "secret");
    for _ in 0..3 {
        assert_eq!(peer.ask("big 3000000").len(), 3_000_000);
    }
    let body = "\u{1}".repeat(1 << 20);
    assert_eq!(peer.ask(&format!("$1048576\n{body}echo next")), (1 << 20).to_string());
    assert_eq!(peer.line(), "next");
    let text: String = (0..5000).map(|n| format!("echo {n}\n")).collect();
    peer.say(&text);
    for n in 0..5000 {
        assert_eq!(peer.line(), n.to_string());
    }
    assert_eq!(peer.ask("later 20"), "after 20");
}

fn long_words_and_long_replies_pass(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let mut peer = authority.connect(&server, None);
    for len in [65_536, 65_537, 400_000, 3_000_000, 70_000] {
        let word: Vec<u8> = (0..len).map(|at| (at % 127) as u8).collect();
        let stream = peer.stream.get_mut();
        stream.write_all(format!("@{len}\n").as_bytes()).unwrap();
        stream.write_all(&word).unwrap();
        peer.say("\necho behind\n");
        assert_eq!(peer.line(), digest(&word).to_string());
        assert_eq!(peer.line(), "behind");
    }
    // More than sockets take, for a peer that has not begun to read, with short replies between.
    let mut witness = authority.connect(&server, None);
    for _ in 0..2 {
        let lens = [9_000_000, 65_536, 65_537, 70_000, 20_000_000];
        for len in lens {
            peer.say(&format!("big {len}\necho {len}\n"));
        }
        assert_eq!(witness.ask("echo sync"), "sync");
        for len in lens {
            assert_eq!(peer.line().len(), len);
            assert_eq!(peer.line(), len.to_string());
        }
    }
    // The last of them is sent before the connection ends.
    peer.say("big 8000000\nquit\n");
    assert_eq!(peer.line().len(), 8_000_000);
    assert_eq!(peer.line(), "bye");
    assert!(peer.ended());
}

fn both_protocol_versions_work(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for _ in 0..2 {
            let mut peer = connect(&server, authority.client(None, &[version]));
            assert_eq!(peer.ask("echo hello"), "hello");
        }
    }
    let mut settings = authority.settings(ClientAuth::No);
    settings.protocols = "TLSv1.3".to_owned();
    server.net.set_tls(Tag::default(), Some(TlsContext::load(&settings).unwrap()));
    assert!(refused(connect(&server, authority.client(None, &[&rustls::version::TLS12]))));
    assert_eq!(authority.connect(&server, None).ask("echo new"), "new");
}

/// Writes byte by byte.
struct Trickle(TcpStream);

impl Read for Trickle {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(room)
    }
}

impl Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn a_record_may_arrive_in_any_pieces(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_nodelay(true).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let config = Arc::new(authority.client(None, rustls::ALL_VERSIONS));
    let session = ClientConnection::new(config, name).unwrap();
    let mut peer = Peer::over(StreamOwned::new(session, Trickle(stream)));
    for n in 0..20 {
        assert_eq!(peer.ask(&format!("echo {n}")), n.to_string());
    }
}

fn a_client_certificate_names_the_peer(backend: Backend) {
    let authority = Authority::new();
    authority.sign("alice");
    let server = authority.server(backend, ClientAuth::Yes);
    let mut peer = authority.connect(&server, Some("alice"));
    let id = peer.id();
    server.watch.until(|notes| {
        let cert_name = Some("alice".to_owned());
        let opened = Note::Opened { id, kind: Kind::Tls, cert_name, local: true };
        notes.contains(&opened).then_some(())
    });
    // Somebody else's certificate is as good as none.
    let other = Authority::new();
    other.sign("mallory");
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).unwrap();
    let chain = vec![CertificateDer::from_pem_file(other.path("mallory", "crt")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(other.path("mallory", "key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    assert!(refused(connect(&server, config)));
}

fn a_missing_client_certificate_is_refused(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::Yes);
    assert!(refused(authority.connect(&server, None)));
    let problem = server.watch.problem();
    assert!(problem.starts_with("Error accepting a client connection: "), "{problem}");
    assert!(problem.contains("127.0.0.1"), "{problem}");
}

fn an_optional_certificate_may_be_missing(backend: Backend) {
    let authority = Authority::new();
    authority.sign("alice");
    let server = authority.server(backend, ClientAuth::Optional);
    assert_eq!(authority.connect(&server, None).ask("echo anonymous"), "anonymous");
    assert_eq!(authority.connect(&server, Some("alice")).ask("echo named"), "named");
}

fn a_failed_handshake_ends_one_connection_only(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let mut good = authority.connect(&server, None);
    assert_eq!(good.ask("echo before"), "before");
    let mut plain = Peer::new(TcpStream::connect(server.addr()).unwrap());
    plain.say("echo in the clear\n");
    let mut alert = Vec::new();
    let _ = plain.stream.read_to_end(&mut alert);
    server.watch.problem();
    // One that says nothing, and one that leaves half-way.
    let silent = TcpStream::connect(server.addr()).unwrap();
    drop(TcpStream::connect(server.addr()).unwrap().write_all(&[22, 3, 1]));
    assert_eq!(good.ask("echo after"), "after");
    drop(silent);
    assert_eq!(good.ask("echo still"), "still");
}

fn reloading_affects_new_connections_only(backend: Backend) {
    let (first, second) = (Authority::new(), Authority::new());
    let server = first.server(backend, ClientAuth::No);
    let mut old = first.connect(&server, None);
    assert_eq!(old.ask("echo old"), "old");
    second.sign("server");
    server
        .net
        .set_tls(Tag::default(), Some(TlsContext::load(&second.settings(ClientAuth::No)).unwrap()));
    assert_eq!(old.ask("echo kept"), "kept");
    assert_eq!(second.connect(&server, None).ask("echo new"), "new");
    assert!(refused(first.connect(&server, None)));
    // Files that do not work change nothing.
    let mut broken = second.settings(ClientAuth::No);
    broken.key_file = first.text("server", "key");
    assert!(TlsContext::load(&broken).is_err());
}

fn ciphers_are_restricted(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let mut settings = authority.settings(ClientAuth::No);
    settings.ciphersuites = "TLS_CHACHA20_POLY1305_SHA256".to_owned();
    settings.ciphers = "ECDHE-ECDSA-CHACHA20-POLY1305".to_owned();
    server.net.set_tls(Tag::default(), Some(TlsContext::load(&settings).unwrap()));
    for version in rustls::ALL_VERSIONS {
        let mut peer = connect(&server, authority.client(None, &[version]));
        assert_eq!(peer.ask("echo x"), "x");
        let suite = peer.stream.get_ref().conn.negotiated_cipher_suite().unwrap();
        assert!(format!("{suite:?}").contains("CHACHA20"), "{suite:?}");
    }
}

fn goodbye_is_said(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let mut peer = authority.connect(&server, None);
    let id = peer.id();
    assert_eq!(peer.ask("quit"), "bye");
    // Without a goodbye this is an unexpected end, and an error.
    let mut rest = Vec::new();
    assert_eq!(peer.stream.read_to_end(&mut rest).unwrap(), 0);
    assert_eq!(server.watch.closed(id), Close::Asked);
    goodbye_is_said_behind_a_full_socket(&authority, &server);
    // And the other way round.
    let mut peer = authority.connect(&server, None);
    let id = peer.id();
    let stream = peer.stream.get_mut();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    assert_eq!(server.watch.closed(id), Close::Eof);
}

/// A socket may take all of long output but a rest that is encrypted already.
fn goodbye_is_said_behind_a_full_socket(authority: &Authority, server: &Server) {
    /// What is not encrypted yet takes more.
    const REST: usize = 96 << 10;
    const STEP: usize = 256 << 10;
    let mut other = authority.connect(server, None);
    // How much the kernel takes differs a little from one connection to the next.
    let (mut fits, mut too_long) = (0, 16 << 20);
    for _ in 0..100 {
        let len = (fits + too_long) / 2;
        let mut peer = authority.connect(server, None);
        let id = peer.id().as_u64();
        peer.say(&format!("big {len}\nquit\n"));
        let mut waiting = || other.ask(&format!("memory {id}")).parse::<usize>().unwrap();
        let (mut bytes, mut equal) = (waiting(), 0);
        while equal < 3 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let now = waiting();
            equal = if now == bytes { equal + 1 } else { 0 };
            bytes = now;
        }
        match bytes {
            0 => fits = len,
            1..REST => {
                let mut rest = Vec::new();
                peer.stream.read_to_end(&mut rest).unwrap();
                assert!(rest.ends_with(b"\nbye\n") && rest.len() > len, "{} bytes", rest.len());
                return;
            }
            _ => too_long = len,
        }
        if too_long < fits + REST / 8 {
            (fits, too_long) = (fits.saturating_sub(STEP), too_long + STEP);
        }
    }
    panic!("no length filled the socket so that a rest was left");
}

/// Writes a record that cannot be decrypted behind what it is given, once it is told to.
struct Spoilt(TcpStream, bool);

impl Read for Spoilt {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(room)
    }
}

impl Write for Spoilt {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let bad = if self.1 { &b"\x17\x03\x03\x00\x20"[..] } else { &[] };
        let tail = if self.1 { &[7; 32][..] } else { &[] };
        self.0.write_all(&[bytes, bad, tail].concat())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn what_came_before_a_bad_record_counts(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let stream = TcpStream::connect(server.addr()).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let config = Arc::new(authority.client(None, rustls::ALL_VERSIONS));
    let session = ClientConnection::new(config, name).unwrap();
    let mut peer = Peer::over(StreamOwned::new(session, Spoilt(stream, false)));
    let id = peer.id();
    peer.stream.get_mut().sock.1 = true;
    peer.say("hold x\n");
    assert_eq!(server.watch.closed(id), Close::Tls);
    assert_eq!(server.watch.written.load(SeqCst), 1, "the request was obeyed");
}

fn a_flood_to_a_paused_connection_is_stopped(backend: Backend) {
    const LINES: usize = 64 << 10;
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let mut peer = authority.connect(&server, None);
    let id = peer.id();
    peer.say("pause\n");
    let text = format!("echo {}\n", "x".repeat(1000)).repeat(1000);
    let tcp = peer.stream.get_ref().sock.try_clone().unwrap();
    let patience = Some(std::time::Duration::from_millis(300));
    tcp.set_write_timeout(patience).unwrap();
    tcp.set_read_timeout(patience).unwrap();
    // The peer reads nothing of what does not fit the kernel's buffers, so this comes to a halt.
    let mut sent = 0;
    while sent < LINES && peer.stream.get_mut().write_all(text.as_bytes()).is_ok() {
        sent += 1000;
    }
    assert!(sent < LINES, "nothing stops the flood");
    server.send(Message::Hang(id));
    assert_eq!(server.watch.closed(id), Close::Asked);
}

/// Has a client send the first message of its handshake, and nothing more.
fn say_hello(peer: &mut Peer<Tls>) {
    let StreamOwned { conn, sock } = peer.stream.get_mut();
    while conn.wants_write() {
        conn.write_tls(sock).unwrap();
    }
}

fn handshakes_take_turns_and_none_is_lost(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let mut old = authority.connect(&server, None);
    assert_eq!(old.ask("echo old"), "old");
    let mut peers: Vec<_> = (0..90).map(|_| authority.connect(&server, None)).collect();
    peers.iter_mut().for_each(say_hello);
    assert_eq!(old.ask("echo still here"), "still here");
    // Some do not wait.
    let mut number = 0;
    peers.retain(|_| {
        number += 1;
        number % 3 > 0
    });
    // The last first: nothing but the server's own list brings a handshake its turn.
    for (number, peer) in peers.iter_mut().enumerate().rev() {
        assert_eq!(peer.ask(&format!("echo {number}")), number.to_string());
    }
    assert_eq!(server.net.waiting_handshakes(), 0);
    assert_eq!(server.net.refused_handshakes(), 0);
}

fn a_handshake_too_many_is_refused(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    let mut old = authority.connect(&server, None);
    assert_eq!(old.ask("echo old"), "old");
    server.net.set_admission(Admission { max_waiting: 0, ..Admission::default() });
    assert!(refused(authority.connect(&server, None)));
    assert_eq!(server.net.refused_handshakes(), 1);
    assert_eq!(old.ask("echo still here"), "still here");
    server.net.set_admission(Admission::default());
    assert_eq!(authority.connect(&server, None).ask("echo new"), "new");
}
