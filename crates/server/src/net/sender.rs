//! Sends for threads that are no reactors: of many replies at once, with one system call.
//!
//! With io_uring the sends of a batch are carried out inside the call that submits them, "do not
//! wait" and "report only failure" as those of the reactors' [back-end](super::uring), so when it
//! returns their buffers are free. Besides the cost of the calls this saves changes of thread: what
//! a reply sets off runs when all of them are out.
#![allow(unsafe_code)] // The ring: each block says why what the kernel reads lives long enough.

use super::probe::Backend;
use super::turn::{Flight, MAX_SENT};
use super::uring;
use io_uring::IoUring;
use std::os::fd::RawFd;

/// Sends that are submitted together.
const MAX_FLIGHTS: usize = 64;

/// How one thread sends.
pub struct Sender {
    /// None is one system call for each.
    ring: Option<IoUring>,
}

impl Sender {
    /// For a thread beside reactors that have this back-end.
    pub fn new(backend: Backend) -> Self {
        let build = || IoUring::builder().dontfork().setup_submit_all().build(MAX_FLIGHTS as u32);
        Self { ring: if backend == Backend::Uring { build().ok() } else { None } }
    }

    /// One system call for each.
    pub(super) fn plain() -> Self {
        Self { ring: None }
    }

    /// Sends each of `flights` to the socket beside it, as far as that takes it at once, and notes
    /// what became of it.
    pub(super) fn send(&mut self, flights: &mut [(RawFd, Flight)]) {
        for flights in flights.chunks_mut(MAX_FLIGHTS) {
            for (fd, flight) in self.submit(flights) {
                flight.send_now(*fd, MAX_SENT);
            }
        }
    }

    /// Sends through the ring; returns those that it did not get to.
    fn submit<'a>(&mut self, flights: &'a mut [(RawFd, Flight)]) -> &'a mut [(RawFd, Flight)] {
        // One call is one call, and the plain one costs less.
        // What is handed over is plain, but for what others may hand over some day.
        let is_plain = flights.iter().all(|(_, flight)| flight.buf.is_plain());
        let Some(ring) = self.ring.as_mut().filter(|_| flights.len() > 1 && is_plain) else {
            return flights;
        };
        for (at, (fd, flight)) in flights.iter_mut().enumerate() {
            flight.result = flight.buf.len() as i32;
            let entry = uring::send_entry(*fd, flight.buf.plain()).user_data(at as u64);
            // SAFETY: the buffer outlives the call below, which is over when all that it has taken
            // has been sent; what it has not taken goes with the ring.
            let is_queued = unsafe { ring.submission().push(&entry) };
            is_queued.expect("the ring is empty and has room for MAX_FLIGHTS");
        }
        let mut left = flights.len();
        while left > 0 {
            let outcome = ring.submit();
            left = ring.submission().len();
            match outcome {
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // Short of memory, say.
                Err(_) => break,
            }
        }
        for entry in ring.completion() {
            flights[entry.user_data() as usize].1.result = entry.result();
        }
        if left > 0 {
            // Or they would be sent with the next ones.
            self.ring = None;
        }
        let taken = flights.len() - left;
        &mut flights[taken..]
    }
}

#[cfg(test)]
mod tests {
    use super::super::conn::Token;
    use super::super::sys;
    use super::*;
    use std::os::fd::AsRawFd;

    fn flight(buf: Vec<u8>) -> Flight {
        Flight { buf: buf.into(), token: Token { slot: 0, generation: 0 }, flags: 0, result: 0 }
    }

    #[test]
    fn each_send_says_what_became_of_it() {
        const LARGE: i32 = 16 << 20;
        // More than are submitted together, one socket that is full and one whose peer has gone.
        const COUNT: usize = MAX_FLIGHTS * 2 + 2;
        const FULL: usize = 3;
        const GONE: usize = MAX_FLIGHTS + 7;
        for backend in [Backend::Uring, Backend::Epoll] {
            let mut sender = Sender::new(backend);
            let pairs: Vec<_> = (0..COUNT).map(|_| sys::socket_pair().unwrap()).collect();
            sys::shutdown(pairs[GONE].1.as_raw_fd());
            let len = |at| if at == FULL { LARGE } else { 100 };
            let fds = pairs.iter().map(|(fd, _)| fd.as_raw_fd()).enumerate();
            let mut replies: Vec<_> =
                fds.map(|(at, fd)| (fd, flight(vec![at as u8; len(at) as usize]))).collect();
            for round in 0..2 {
                sender.send(&mut replies);
                for (at, (_, reply)) in replies.iter().enumerate() {
                    match (at, round) {
                        (GONE, _) => assert_eq!(reply.result, -libc::EPIPE),
                        (FULL, 0) => assert!((1..LARGE).contains(&reply.result)),
                        (FULL, _) => assert_eq!(reply.result, -libc::EAGAIN),
                        _ => assert_eq!(reply.result, 100, "{backend:?}"),
                    }
                }
                for (at, (_, peer)) in pairs.iter().enumerate() {
                    let mut room = [0; 200];
                    if ![FULL, GONE].contains(&at) {
                        assert_eq!(sys::recv(peer.as_raw_fd(), &mut room).unwrap(), 100);
                        assert_eq!(room[..100], [at as u8; 100]);
                    }
                }
            }
        }
    }
}
