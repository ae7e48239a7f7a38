//! The network layer alone: every request gets a fixed reply, none is looked at.
//!
//! ```text
//! ping_server [--port N] [--io-threads N] [--backend uring|epoll]
//! ```
//!
//! What it costs a request, held against a real server's cost in the same run, is what the reactor
//! costs: everything else a server does comes on top. A request whose first word has three letters
//! (GET, SET) is answered as GET would be with a value of 16 bytes, any other with `+PONG`.
//! Arguments it does not know are passed over, so that it can stand in for a server.

use net::{
    Backend, Close, ConnId, ConnIo, Consumed, Cx, Handler, Kind, ListenSpec, Net, NetOptions,
    PeerInfo, Reactor,
};
use std::process::ExitCode;
use std::sync::Arc;

struct Ping;

/// One request: its length, or None if it is not all there.
fn request(input: &[u8]) -> Option<(usize, usize)> {
    if input.first() != Some(&b'*') {
        let line = input.iter().position(|byte| *byte == b'\n')? + 1;
        return Some((line, 0));
    }
    let (count, mut at) = number(input, 1)?;
    let mut first = 0;
    for word in 0..count {
        let (len, next) = number(input, at + 1)?;
        if word == 0 {
            first = len;
        }
        at = next + len + 2;
    }
    (at <= input.len()).then_some((at, first))
}

/// Digits up to a line end: the number, and where the next line begins.
fn number(input: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut value = 0usize;
    loop {
        match *input.get(at)? {
            b'\r' => return Some((value, at + 2)),
            digit => value = value * 10 + usize::from(digit.wrapping_sub(b'0')),
        }
        at += 1;
    }
}

impl Handler for Ping {
    type Conn = ();

    fn opened(&mut self, _peer: &PeerInfo, _io: &mut ConnIo<'_>) -> Option<()> {
        Some(())
    }

    #[inline]
    fn data(&mut self, _conn: &mut (), io: &mut ConnIo<'_>, input: &[u8]) -> Consumed {
        let mut at = 0;
        let out = io.out();
        while let Some((len, first)) = request(&input[at..]) {
            at += len;
            out.extend_from_slice(match first {
                3 => b"$16\r\nxxxxxxxxxxxxxxxx\r\n",
                _ => b"+PONG\r\n",
            });
            if at == input.len() {
                break;
            }
        }
        Consumed::read(at)
    }

    fn closed(&mut self, _id: ConnId, _conn: (), _why: Close, _cx: &mut Cx<'_, ()>) {}
}

fn serve(net: &Arc<Net>, thread: usize) -> std::io::Result<()> {
    Reactor::new(net, thread, Ping)?.run().map(drop)
}

fn main() -> ExitCode {
    let (mut port, mut threads, mut forced) = (6379u16, 1usize, None);
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().unwrap_or_default();
        match name.as_str() {
            "--port" => port = value.parse().unwrap_or(port),
            "--io-threads" => threads = value.parse().unwrap_or(threads),
            "--backend" if value == "epoll" => forced = Some(Backend::Epoll),
            "--backend" if value == "uring" => forced = Some(Backend::Uring),
            _ => {}
        }
    }
    let outcome = (|| {
        let choice = Backend::choose(forced)?;
        println!("{}", choice.reason);
        let options = NetOptions { backend: choice.backend, threads, ..NetOptions::default() };
        let net = Net::new(options).map_err(|e| e.to_string())?;
        let binds = ["*", "-::*"];
        net.rebind(&ListenSpec::tcp(Kind::Tcp, &binds, port)).map_err(|e| e.to_string())?;
        let others: Vec<_> = (1..net.threads())
            .map(|thread| {
                let net = net.clone();
                std::thread::spawn(move || serve(&net, thread))
            })
            .collect();
        serve(&net, 0).map_err(|e| e.to_string())?;
        for other in others {
            if let Ok(result) = other.join() {
                result.map_err(|e| e.to_string())?;
            }
        }
        Ok::<(), String>(())
    })();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
