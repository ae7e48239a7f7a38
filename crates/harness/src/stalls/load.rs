//! A closed-loop load: each connection sends one request, waits for its answer and sends the next.
//!
//! One thread serves all connections with `poll`, so that the generator costs one core at the most
//! and a slow connection delays no other.
#![allow(unsafe_code)]

use super::data::{Sizes, key};
use super::histogram::Histogram;
use crate::client::encode;
use crate::rng::Rng;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Makes a request of the load: one whose answer is a bulk string, null, a number or a status.
pub type Request = fn(&mut Rng, &Sizes) -> Vec<u8>;

/// GET of any of the keys.
pub fn get(rng: &mut Rng, sizes: &Sizes) -> Vec<u8> {
    encode(&["GET", &key(rng.below(sizes.keys))])
}

/// SET and GET of any of the keys, in equal parts.
pub fn get_and_set(rng: &mut Rng, sizes: &Sizes) -> Vec<u8> {
    if rng.chance(50) {
        return get(rng, sizes);
    }
    encode(&["SET", &key(rng.below(sizes.keys)), "value:9876543210"])
}

struct Client {
    stream: TcpStream,
    sent: Instant,
    reply: Vec<u8>,
}

/// What the load has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The latencies.
    pub latencies: Histogram,
    /// Latencies in microseconds above [`SLOW_US`], and when the answer came.
    pub slow: Vec<(Instant, u64)>,
}

/// Latencies above this are noted one by one: what issue 3 allows while a snapshot is written.
pub const SLOW_US: u64 = 20_000;

impl Seen {
    /// Adds what was seen at another time.
    pub fn merge(&mut self, other: &Seen) {
        self.latencies.merge(&other.latencies);
        self.slow.extend_from_slice(&other.slow);
    }
}

/// The running clients.
pub struct Load {
    stop: Arc<AtomicBool>,
    recent: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Load {
    /// Starts `clients` connections that send such requests.
    pub fn start(
        address: SocketAddr,
        clients: usize,
        sizes: Sizes,
        request: Request,
    ) -> io::Result<Load> {
        let clients = (0..clients)
            .map(|_| {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Client { stream, sent: Instant::now(), reply: Vec::new() })
            })
            .collect::<io::Result<Vec<_>>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let recent = Arc::new(Mutex::new(Seen::default()));
        let thread = {
            let (stop, recent) = (Arc::clone(&stop), Arc::clone(&recent));
            std::thread::spawn(move || run(clients, sizes, request, &stop, &recent))
        };
        Ok(Load { stop, recent, thread: Some(thread) })
    }

    /// What was seen since the last call.
    pub fn take(&self) -> Seen {
        std::mem::take(&mut *self.recent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the load and says whether all went well.
    pub fn stop(mut self) -> io::Result<()> {
        self.stop.store(true, Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(io::Error::other("the load generator panicked")),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

fn run(
    mut clients: Vec<Client>,
    sizes: Sizes,
    request: Request,
    stop: &AtomicBool,
    recent: &Mutex<Seen>,
) -> io::Result<()> {
    let mut rng = Rng::new(42);
    for client in &mut clients {
        client.send(&request(&mut rng, &sizes))?;
    }
    let mut polled: Vec<libc::pollfd> = clients
        .iter()
        .map(|client| libc::pollfd {
            fd: client.stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    while !stop.load(Relaxed) {
        // SAFETY: `polled` is an array of as many initialised `pollfd` as its length says.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 100) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
        for (client, polled) in clients.iter_mut().zip(&polled) {
            if polled.revents == 0 {
                continue;
            }
            if let Some(us) = client.receive()? {
                recent.latencies.record(us);
                if us > SLOW_US {
                    recent.slow.push((Instant::now(), us));
                }
                client.send(&request(&mut rng, &sizes))?;
            }
        }
    }
    Ok(())
}

impl Client {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.sent = Instant::now();
        // One small request is under way at most: the socket always takes it whole.
        self.stream.write_all(request)
    }

    /// Reads what is there; the latency if the answer is complete.
    fn receive(&mut self) -> io::Result<Option<u64>> {
        let mut chunk = [0; 4096];
        let read = match self.stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        self.reply.extend_from_slice(&chunk[..read]);
        if !is_complete(&self.reply)? {
            return Ok(None);
        }
        self.reply.clear();
        Ok(Some(self.sent.elapsed().as_micros() as u64))
    }
}

/// Whether the whole answer is there: a bulk string, null, a number or a status.
fn is_complete(reply: &[u8]) -> io::Result<bool> {
    let Some(end) = reply.windows(2).position(|pair| pair == b"\r\n") else { return Ok(false) };
    let head = String::from_utf8_lossy(&reply[..end]);
    if head == "$-1" || head == "_" || head.starts_with([':', '+']) {
        return Ok(true);
    }
    match head.strip_prefix('$').and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => Ok(reply.len() >= end + 2 + length + 2),
        None => Err(io::Error::other(format!("the load was answered {head}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_with_its_last_byte() {
        for whole in ["$3\r\nabc\r\n", "$0\r\n\r\n", "$-1\r\n", "_\r\n", ":1\r\n", "+OK\r\n"] {
            for cut in 0..whole.len() {
                assert!(
                    !is_complete(&whole.as_bytes()[..cut]).expect("no error"),
                    "{whole:?} {cut}"
                );
            }
            assert!(is_complete(whole.as_bytes()).expect("no error"));
        }
        assert!(is_complete(b"-ERR no\r\n").is_err());
    }
}
