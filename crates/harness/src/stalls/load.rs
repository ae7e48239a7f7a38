//! Closed-loop readers: each connection sends one GET, waits for its answer and sends the next.
//!
//! One thread serves all connections with `poll`, so that the generator costs one core at the most
//! and a slow connection delays no other.
#![allow(unsafe_code)]

use super::histogram::Histogram;
use crate::rng::Rng;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// The name of a key that the readers ask for.
pub fn key(number: usize) -> String {
    format!("key:{number:012}")
}

struct Reader {
    stream: TcpStream,
    sent: Instant,
    reply: Vec<u8>,
}

/// The running readers.
pub struct Load {
    stop: Arc<AtomicBool>,
    recent: Arc<Mutex<Histogram>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Load {
    /// Starts `clients` connections that read random keys of `key(0)` to `key(keys - 1)`.
    pub fn start(address: SocketAddr, clients: usize, keys: usize) -> io::Result<Load> {
        let readers = (0..clients)
            .map(|_| {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Reader { stream, sent: Instant::now(), reply: Vec::new() })
            })
            .collect::<io::Result<Vec<_>>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let recent = Arc::new(Mutex::new(Histogram::default()));
        let thread = {
            let (stop, recent) = (Arc::clone(&stop), Arc::clone(&recent));
            std::thread::spawn(move || run(readers, keys, &stop, &recent))
        };
        Ok(Load { stop, recent, thread: Some(thread) })
    }

    /// The latencies since the last call.
    pub fn take(&self) -> Histogram {
        std::mem::take(&mut *self.recent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the readers and says whether all went well.
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
    mut readers: Vec<Reader>,
    keys: usize,
    stop: &AtomicBool,
    recent: &Mutex<Histogram>,
) -> io::Result<()> {
    let mut rng = Rng::new(42);
    for reader in &mut readers {
        reader.send(&key(rng.below(keys)))?;
    }
    let mut polled: Vec<libc::pollfd> = readers
        .iter()
        .map(|reader| libc::pollfd {
            fd: reader.stream.as_raw_fd(),
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
        for (reader, polled) in readers.iter_mut().zip(&polled) {
            if polled.revents == 0 {
                continue;
            }
            if let Some(us) = reader.receive()? {
                recent.record(us);
                reader.send(&key(rng.below(keys)))?;
            }
        }
    }
    Ok(())
}

impl Reader {
    fn send(&mut self, key: &str) -> io::Result<()> {
        let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
        self.sent = Instant::now();
        // One small request is under way at most: the socket always takes it whole.
        self.stream.write_all(request.as_bytes())
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

/// Whether GET's whole answer is there: a bulk string or null.
fn is_complete(reply: &[u8]) -> io::Result<bool> {
    let Some(end) = reply.windows(2).position(|pair| pair == b"\r\n") else { return Ok(false) };
    let head = String::from_utf8_lossy(&reply[..end]);
    if head == "$-1" || head == "_" {
        return Ok(true);
    }
    match head.strip_prefix('$').and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => Ok(reply.len() >= end + 2 + length + 2),
        None => Err(io::Error::other(format!("GET answered {head}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_with_its_last_byte() {
        for whole in ["$3\r\nabc\r\n", "$0\r\n\r\n", "$-1\r\n", "_\r\n"] {
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
