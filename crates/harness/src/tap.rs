//! A port that leads to another one and keeps all bytes that pass, both ways.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// See the head of this file. It listens until it is dropped.
pub struct Tap {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    target: AtomicU16,
    connections: AtomicUsize,
    is_over: AtomicBool,
    /// What has passed, one way of one connection each.
    seen: Mutex<Vec<Arc<Mutex<Vec<u8>>>>>,
}

impl Tap {
    /// Opens the port. Connections are closed until it leads somewhere.
    ///
    /// # Panics
    /// There is no port.
    #[expect(clippy::new_without_default, reason = "it opens a port")]
    pub fn new() -> Tap {
        let (listener, port) = listen();
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if own.is_over.load(SeqCst) {
                    return;
                }
                let target = own.target.load(SeqCst);
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target));
                // Without a target the client's connection ends.
                if let Ok(server) = server {
                    own.connections.fetch_add(1, SeqCst);
                    own.join(client, server);
                }
            }
        });
        Tap { port, shared }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// New connections go to this port of the loopback.
    pub fn lead_to(&self, port: u16) {
        self.shared.target.store(port, SeqCst);
    }

    /// How many connections have been passed on.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// Returns whether these bytes have passed in one direction of a connection.
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        let all = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().any(|one| {
            let seen = one.lock().unwrap_or_else(PoisonError::into_inner);
            seen.windows(bytes.len()).any(|window| window == bytes)
        })
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        // Wakes the thread.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    fn join(&self, client: TcpStream, server: TcpStream) {
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
            let seen = Arc::new(Mutex::new(Vec::new()));
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&seen));
            thread::spawn(move || pass(from, to, &seen));
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>) {
    let mut piece = vec![0; 64 << 10];
    loop {
        let bytes = from.read(&mut piece).unwrap_or(0);
        seen.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&piece[..bytes]);
        if bytes == 0 || to.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    // The other direction ends, too, once its end has passed what it has. Either may be closed.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

fn listen() -> (TcpListener, u16) {
    for _ in 0..10 {
        let port = crate::server::free_port().expect("a port is free");
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return (listener, port);
        }
    }
    panic!("no port is free");
}
