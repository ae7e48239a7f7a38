//! Connecting out: a forwarder between a client and a server of lines, on both back-ends, with and
//! without TLS; what happens to connections that do not come about; adopted sockets.
#![allow(clippy::unwrap_used)] // A test's helpers are tests.

#[path = "../../examples/forwarder.rs"]
#[allow(dead_code)] // Its `main`.
mod forwarder;

use crate::support::authority::Authority;
use crate::support::{Peer, Server};
use forwarder::Forwarder;
use net::{
    Backend, ClientAuth, Close, ConnId, ConnIo, Consumed, Cx, Handler, Kind, ListenSpec, NameCheck,
    Net, NetOptions, Outgoing, PeerInfo, Reactor, Tag, Target, TlsClient, TlsContext, client_rules,
};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

crate::on_both!(
    requests_and_replies_pass,
    a_side_that_does_not_read_stops_the_other,
    the_end_of_one_side_is_the_end_of_the_other,
    tls_on_both_sides,
    a_server_of_another_authority_is_refused,
    a_server_of_another_name_is_refused,
    a_closed_port_is_told,
    a_handshake_without_answer_ends_in_time,
    the_addresses_of_a_name_are_tried_in_turn,
    a_name_that_is_none_is_told,
    unix_sockets,
    adopted_sockets,
);

/// A forwarder that runs on a thread.
struct Running {
    net: Arc<Net>,
    complaints: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(backend: Backend, server: Outgoing) -> Self {
        Self::with(backend, server, |_| Server::anywhere(Kind::Tcp))
    }

    fn with(backend: Backend, server: Outgoing, listener: impl FnOnce(&Net) -> ListenSpec) -> Self {
        let net = Net::new(NetOptions { backend, ..NetOptions::default() }).unwrap();
        net.rebind(&[listener(&net)]).unwrap();
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let thread = {
            let (net, complaints) = (net.clone(), complaints.clone());
            std::thread::spawn(move || {
                let complain = Box::new(move |why| complaints.lock().unwrap().push(why));
                let forwarder = Forwarder::new(server, complain);
                Reactor::new(&net, 0, forwarder).unwrap().run().unwrap();
            })
        };
        Self { net, complaints, thread: Some(thread) }
    }

    fn addr(&self) -> SocketAddr {
        self.net.addresses()[0]
    }

    fn connect(&self) -> Peer {
        Peer::new(TcpStream::connect(self.addr()).unwrap())
    }

    /// What it said to a client whose server could not be reached.
    fn complaint(&self) -> String {
        assert!(self.connect().ended());
        self.complaints.lock().unwrap().join("; ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.net.stop();
        if let Some(thread) = self.thread.take().filter(|_| !std::thread::panicking()) {
            thread.join().unwrap();
        }
    }
}

fn plain(target: Target) -> Outgoing {
    Outgoing { target, tls: None, tag: Tag(7), timeout: Duration::from_secs(60) }
}

fn requests_and_replies_pass(backend: Backend) {
    let server = Server::start(backend, 1);
    let forwarder = Running::start(backend, plain(Target::Socket(server.addr())));
    // What is said before the server is connected is not lost.
    let mut peers: Vec<Peer> = (0..20).map(|_| forwarder.connect()).collect();
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.say(&format!("echo {number}\nbig 300000\n"));
    }
    for (number, peer) in peers.iter_mut().enumerate() {
        assert_eq!(peer.line(), number.to_string());
        assert_eq!(peer.line().len(), 300_000);
        assert_eq!(peer.ask("echo again"), "again");
    }
    assert_eq!(forwarder.net.connections(0), 20, "only accepted ones are spread");
}

fn a_side_that_does_not_read_stops_the_other(backend: Backend) {
    const BYTES: usize = 40 << 20;
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = plain(Target::Socket(server.local_addr().unwrap()));
    let forwarder = Running::start(backend, target);
    let mut client = TcpStream::connect(forwarder.addr()).unwrap();
    let (mut accepted, _) = server.accept().unwrap();
    let writer = std::thread::spawn(move || {
        let piece: Vec<u8> = (0..=250).collect();
        let mut sent = 0;
        while sent < BYTES {
            let len = piece.len().min(BYTES - sent);
            client.write_all(&piece[..len]).unwrap();
            sent += len;
        }
        // It hangs up while most of this is on its way.
        drop(client);
    });
    // Far more than sockets hold: the writer is stopped until this reads.
    let mut received = 0;
    let mut room = vec![0; 100_000];
    while received < BYTES {
        let len = accepted.read(&mut room).unwrap();
        assert!(len > 0, "the connection ended after {received} bytes");
        for (at, byte) in room[..len].iter().enumerate() {
            assert_eq!(usize::from(*byte), (received + at) % 251);
        }
        received += len;
    }
    assert_eq!(accepted.read(&mut room).unwrap(), 0);
    writer.join().unwrap();
}

fn the_end_of_one_side_is_the_end_of_the_other(backend: Backend) {
    let server = Server::start(backend, 1);
    let forwarder = Running::start(backend, plain(Target::Socket(server.addr())));
    let mut peer = forwarder.connect();
    assert_eq!(peer.ask("quit"), "bye");
    assert!(peer.ended());
    let mut peer = forwarder.connect();
    let id = peer.id();
    drop(peer);
    assert_eq!(server.watch.closed(id), Close::Eof);
}

fn tls_on_both_sides(backend: Backend) {
    let authority = Authority::new();
    // The server wants to know its clients.
    let server = authority.server(backend, ClientAuth::Yes);
    authority.sign("forwarder");
    let mut settings = authority.settings(ClientAuth::No);
    settings.client_cert_file = authority.text("forwarder", "crt");
    settings.client_key_file = authority.text("forwarder", "key");
    let rules = client_rules(&settings, NameCheck::Same).unwrap();
    let tls = Some(TlsClient::new(rules, "localhost").unwrap());
    let outgoing = Outgoing { tls, ..plain(Target::Socket(server.addr())) };
    let forwarder = Running::with(backend, outgoing, |net| {
        let context = TlsContext::load(&authority.settings(ClientAuth::No)).unwrap();
        net.set_tls(Tag(3), Some(context));
        Server::anywhere(Kind::Tls).tagged(Tag(3))
    });
    let rules = authority.client(None, rustls::ALL_VERSIONS);
    let mut peer = crate::support::authority::connect_to(forwarder.addr(), rules);
    peer.say("echo hello\nbig 500000\n");
    assert_eq!(peer.line(), "hello");
    assert_eq!(peer.line().len(), 500_000);
    let name = server.watch.until(|notes| {
        notes.iter().find_map(|note| match note {
            crate::support::Note::Opened { cert_name, .. } => Some(cert_name.clone()),
            _ => None,
        })
    });
    assert_eq!(name.as_deref(), Some("forwarder"));
    assert_eq!(peer.ask("quit"), "bye");
    assert!(peer.ended());
}

fn a_server_of_another_authority_is_refused(backend: Backend) {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.server(backend, ClientAuth::No);
    other.sign("server");
    let rules = client_rules(&other.settings(ClientAuth::No), NameCheck::Same).unwrap();
    let tls = Some(TlsClient::new(rules, "localhost").unwrap());
    let outgoing = Outgoing { tls, ..plain(Target::Socket(server.addr())) };
    let complaint = Running::start(backend, outgoing).complaint();
    assert!(complaint.starts_with("TLS: ") && complaint.contains("certificate"), "{complaint}");
}

fn a_server_of_another_name_is_refused(backend: Backend) {
    let authority = Authority::new();
    let server = authority.server(backend, ClientAuth::No);
    for (names, is_refused) in [(NameCheck::Same, true), (NameCheck::Any, false)] {
        let rules = client_rules(&authority.settings(ClientAuth::No), names).unwrap();
        let tls = Some(TlsClient::new(rules, "example.org").unwrap());
        let outgoing = Outgoing { tls, ..plain(Target::Socket(server.addr())) };
        let forwarder = Running::start(backend, outgoing);
        if is_refused {
            let complaint = forwarder.complaint();
            assert!(complaint.starts_with("TLS: "), "{complaint}");
        } else {
            assert_eq!(forwarder.connect().ask("echo in"), "in");
        }
    }
}

fn a_closed_port_is_told(backend: Backend) {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let forwarder = Running::start(backend, plain(Target::Socket(closed)));
    let complaint = forwarder.complaint();
    assert!(complaint.contains("refused"), "{complaint}");
}

fn a_handshake_without_answer_ends_in_time(backend: Backend) {
    let authority = Authority::new();
    authority.sign("server");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let rules = client_rules(&authority.settings(ClientAuth::No), NameCheck::Any).unwrap();
    let outgoing = Outgoing {
        tls: Some(TlsClient::new(rules, "localhost").unwrap()),
        timeout: Duration::from_millis(200),
        ..plain(Target::Socket(silent.local_addr().unwrap()))
    };
    assert_eq!(Running::start(backend, outgoing).complaint(), "no connection in time");
}

fn the_addresses_of_a_name_are_tried_in_turn(backend: Backend) {
    // It listens at one of the addresses that the name may have.
    let server = Server::start(backend, 1);
    let target = Target::Name("localhost".to_owned(), server.addr().port());
    let forwarder = Running::start(backend, plain(target));
    assert_eq!(forwarder.connect().ask("echo found"), "found");
    let target = Target::Name("127.0.0.1".to_owned(), server.addr().port());
    assert_eq!(Running::start(backend, plain(target)).connect().ask("echo text"), "text");
}

fn a_name_that_is_none_is_told(backend: Backend) {
    let target = Target::Name("no name at all".to_owned(), 1);
    let complaint = Running::start(backend, plain(target)).complaint();
    assert!(complaint.starts_with("cannot look up the name: "), "{complaint}");
}

fn unix_sockets(backend: Backend) {
    let authority = Authority::new();
    let (path, nothing) = (authority.path("s", "sock"), authority.path("none", "sock"));
    let options = NetOptions { backend, ..NetOptions::default() };
    let _server = Server::with(options, |_| vec![ListenSpec::unix(&path, 0, None)]);
    let forwarder = Running::start(backend, plain(Target::Unix(path)));
    assert_eq!(forwarder.connect().ask("echo unix"), "unix");
    let complaint = Running::start(backend, plain(Target::Unix(nothing))).complaint();
    assert!(complaint.contains("No such file"), "{complaint}");
}

/// Says hello to what it is given.
struct Greeter {
    heard: Sender<String>,
    given: Receiver<UnixStream>,
}

impl Handler for Greeter {
    type Conn = Tag;

    fn opened(&mut self, peer: &PeerInfo, io: &mut ConnIo<'_>) -> Option<Tag> {
        assert_eq!((peer.tag, peer.kind, peer.is_outgoing), (io.tag(), Kind::Unix, false));
        io.out().extend_from_slice(b"hello\n");
        Some(peer.tag)
    }

    fn data(&mut self, _conn: &mut Tag, _io: &mut ConnIo<'_>, input: &[u8]) -> Consumed {
        Consumed::read(input.len())
    }

    fn closed(&mut self, _id: ConnId, conn: Tag, _why: Close, _cx: &mut Cx<'_, Tag>) {
        self.heard.send(format!("closed {}", conn.0)).unwrap();
    }

    fn woken(&mut self, cx: &mut Cx<'_, Tag>) {
        for socket in self.given.try_iter() {
            cx.adopt(socket.into(), Kind::Unix, Tag(5));
        }
    }

    fn tick(&mut self, _cx: &mut Cx<'_, Tag>) -> Duration {
        Duration::from_secs(3600)
    }
}

fn adopted_sockets(backend: Backend) {
    let net = Net::new(NetOptions { backend, ..NetOptions::default() }).unwrap();
    let ((heard, hears), (gives, given)) = (channel(), channel());
    let thread = {
        let net = net.clone();
        std::thread::spawn(move || {
            Reactor::new(&net, 0, Greeter { heard, given }).unwrap().run().map(drop).unwrap();
        })
    };
    let hear = || hears.recv_timeout(Duration::from_secs(60)).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    gives.send(theirs).unwrap();
    net.waker(0).wake();
    let mut text = [0; 6];
    (&ours).read_exact(&mut text).unwrap();
    assert_eq!(&text, b"hello\n");
    drop(ours);
    assert_eq!(hear(), "closed 5");

    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    net.adopt(theirs.into(), Kind::Unix, Tag(6));
    (&ours).read_exact(&mut text).unwrap();
    assert_eq!(net.connections(0), 1);
    drop(ours);
    assert_eq!(hear(), "closed 6");
    net.stop();
    thread.join().unwrap();
}
