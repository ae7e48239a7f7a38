//! A forwarder: accepts, connects out, and copies what comes to the other side.
//!
//! ```text
//! forwarder LISTEN-PORT HOST PORT [--backend uring|epoll]
//! ```
//!
//! It shows what a handler needs to connect out, and nothing else. What comes from a client before
//! its server is connected waits in the server's output; a side that does not read stops the other
//! one.

use net::{
    Backend, Close, ConnId, ConnIo, ConnectError, Consumed, Cx, Handler, Kind, ListenSpec, Net,
    NetOptions, Outgoing, PeerInfo, Problem, Reactor, Tag, Target,
};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// While so many bytes wait for one side, the other is not read.
const MAX_WAITING: usize = 256 << 10;

/// Copies between each client and a connection of its own.
pub struct Forwarder {
    /// What every client is connected with.
    pub server: Outgoing,
    /// Told what went wrong.
    pub complain: Box<dyn FnMut(String)>,
    others: HashMap<ConnId, ConnId>,
}

impl Forwarder {
    /// Nobody is connected yet.
    pub fn new(server: Outgoing, complain: Box<dyn FnMut(String)>) -> Self {
        Self { server, complain, others: HashMap::new() }
    }

    /// One side has gone: the other follows when it has been sent what is left.
    fn end(&mut self, id: ConnId, cx: &mut Cx<'_, ()>) {
        let Some(other) = self.others.remove(&id) else { return };
        self.others.remove(&other);
        if let Some(mut io) = cx.io(other) {
            io.close_after_flush();
        }
    }
}

impl Handler for Forwarder {
    type Conn = ();

    fn opened(&mut self, peer: &PeerInfo, io: &mut ConnIo<'_>) -> Option<()> {
        if !peer.is_outgoing {
            let server = io.connect(self.server.clone());
            self.others.insert(peer.id, server);
            self.others.insert(server, peer.id);
        }
        Some(())
    }

    fn not_opened(&mut self, id: ConnId, _tag: Tag, why: &ConnectError, cx: &mut Cx<'_, ()>) {
        (self.complain)(why.to_string());
        self.end(id, cx);
    }

    fn data(&mut self, _conn: &mut (), io: &mut ConnIo<'_>, input: &[u8]) -> Consumed {
        let other = self.others.get(&io.id()).copied();
        let is_stuck = other.and_then(|other| io.other(other)).is_some_and(|mut other| {
            other.out().extend_from_slice(input);
            // What waits for the flush goes by itself; a backlog waits for the peer.
            other.backlog() > 0 && other.pending_output() > MAX_WAITING
        });
        if is_stuck {
            io.hold_back();
        }
        Consumed::read(input.len())
    }

    fn drained(&mut self, _conn: &mut (), io: &mut ConnIo<'_>) {
        let other = self.others.get(&io.id()).copied();
        if let Some(mut other) = other.and_then(|other| io.other(other)) {
            other.resume();
        }
    }

    fn closed(&mut self, id: ConnId, _conn: (), _why: Close, cx: &mut Cx<'_, ()>) {
        self.end(id, cx);
    }

    fn problem(&mut self, problem: Problem<'_>) {
        (self.complain)(problem.to_string());
    }
}

/// Runs until the process is ended.
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [listen, host, port, rest @ ..] = &args[..] else {
        eprintln!("forwarder LISTEN-PORT HOST PORT [--backend uring|epoll]");
        return ExitCode::FAILURE;
    };
    let forced = match rest {
        [_, backend] if backend == "epoll" => Some(Backend::Epoll),
        [_, backend] if backend == "uring" => Some(Backend::Uring),
        _ => None,
    };
    let outcome = (|| {
        let choice = Backend::choose(forced)?;
        let (listen, port) = (listen.parse::<u16>(), port.parse::<u16>());
        let (listen, port) = listen.and_then(|l| Ok((l, port?))).map_err(|e| e.to_string())?;
        let options = NetOptions { backend: choice.backend, ..NetOptions::default() };
        let net: Arc<Net> = Net::new(options).map_err(|e| e.to_string())?;
        net.rebind(&ListenSpec::tcp(Kind::Tcp, &["*"], listen)).map_err(|e| e.to_string())?;
        let server = Outgoing {
            target: Target::Name(host.clone(), port),
            tls: None,
            tag: Tag(1),
            timeout: Duration::from_secs(5),
        };
        let forwarder = Forwarder::new(server, Box::new(|why| eprintln!("{why}")));
        let reactor = Reactor::new(&net, 0, forwarder).map_err(|e| e.to_string())?;
        reactor.run().map(drop).map_err(|e| e.to_string())
    })();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
