//! The sockets of the replicas that get one snapshot. Each piece is written to all of them, as fast
//! as the slowest takes it. A replica that takes nothing for `repl-timeout` is given up. So is a
//! replica that takes nothing and whose client is gone, because its connection stays open while
//! this module writes to it. And so are the slowest when clients' writes have waited for them for
//! [`MAX_WAIT`]: a snapshot keeps what is overwritten up to a limit, and then writes wait for it.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest wait for a socket at a stretch, in milliseconds.
const POLL_MS: i32 = 100;

/// How long writes of clients wait for the sockets of a snapshot, all waits together.
const MAX_WAIT: Duration = Duration::from_secs(1);

const TOO_SLOW: &str = "writes have waited for it: it takes less than is overwritten meanwhile. \
    A larger snapshot-buffer-limit would let it stay, and it is twice as large the next time";

/// A replica's socket.
pub struct Target {
    /// The client.
    pub client: u64,
    socket: OwnedFd,
    /// Why the socket is no longer written to.
    pub failure: Option<io::Error>,
    /// The reason is that writes have waited for it.
    pub is_too_slow: bool,
}

/// Returns whether bytes have come over a socket that nobody has read yet.
#[allow(unsafe_code)]
pub fn has_unread(socket: &TcpStream) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the pointer is that of a number of the type which the
    // request writes.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    done == 0 && bytes > 0
}

impl Target {
    /// Creates the target of a connected replica.
    pub fn new(client: u64, socket: OwnedFd) -> Target {
        Target { client, socket, failure: None, is_too_slow: false }
    }

    /// Writes as much as the socket takes. Returns the number of bytes.
    #[allow(unsafe_code)]
    fn write_some(&mut self, bytes: &[u8]) -> usize {
        // SAFETY: the pointer and the length are those of `bytes`. The flag keeps this call from
        // blocking although the reactor's socket may be a blocking one.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags)
        };
        if let Ok(sent) = usize::try_from(sent) {
            return sent;
        }
        let error = io::Error::last_os_error();
        if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
            self.failure = Some(error);
        }
        0
    }

    fn give_up_as_too_slow(&mut self) {
        self.failure = Some(io::Error::other(TOO_SLOW));
        self.is_too_slow = true;
    }
}

/// When a socket is given up. What the functions return may change meanwhile.
pub struct Limits {
    /// After it has taken nothing for so long.
    pub timeout: Box<dyn Fn() -> Duration + Send + Sync>,
    /// When it takes nothing and this denies its client.
    pub is_there: Box<dyn Fn(u64) -> bool + Send + Sync>,
    /// Whether writes of clients wait for the snapshot now.
    pub is_waited_for: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The sockets of one snapshot.
pub struct Sockets {
    /// All sockets, including those that failed.
    pub targets: Vec<Target>,
    limits: Limits,
    /// How long writes have waited for sockets.
    waited: Duration,
    /// Counts the bytes written.
    sent_bytes: &'static AtomicU64,
}

impl Sockets {
    /// Creates the set of sockets. The bytes written are added to `sent_bytes`.
    pub fn new(targets: Vec<Target>, limits: Limits, sent_bytes: &'static AtomicU64) -> Sockets {
        Sockets { targets, limits, waited: Duration::ZERO, sent_bytes }
    }

    /// Writes a piece to all sockets.
    ///
    /// # Errors
    /// No replica is left.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_to(bytes, |_| true)
    }

    /// Writes a piece to the sockets of wanted clients.
    ///
    /// # Errors
    /// No replica is left, wanted or not.
    pub fn write_to(&mut self, bytes: &[u8], is_wanted: impl Fn(u64) -> bool) -> io::Result<()> {
        let wanted = (0..self.targets.len()).filter(|at| is_wanted(self.targets[*at].client));
        let mut left: Vec<(usize, usize, Instant)> =
            wanted.map(|at| (at, 0, Instant::now())).collect();
        loop {
            left.retain_mut(|(at, done, moved)| {
                let target = &mut self.targets[*at];
                if target.failure.is_some() {
                    return false;
                }
                let written = target.write_some(&bytes[*done..]);
                *done += written;
                if written > 0 {
                    self.sent_bytes.fetch_add(written as u64, Relaxed);
                    *moved = Instant::now();
                } else if target.failure.is_none() {
                    let is_late = moved.elapsed() > (self.limits.timeout)();
                    let is_gone = !is_late && !(self.limits.is_there)(target.client);
                    target.failure = is_late
                        .then(|| ErrorKind::TimedOut.into())
                        .or_else(|| is_gone.then(|| ErrorKind::ConnectionAborted.into()));
                }
                *done < bytes.len() && target.failure.is_none()
            });
            if left.is_empty() {
                break;
            }
            let began = Instant::now();
            self.wait(left.iter().map(|(at, ..)| *at));
            if (self.limits.is_waited_for)() {
                self.waited += began.elapsed();
            }
            if self.waited > MAX_WAIT {
                self.waited = Duration::ZERO;
                left.iter().for_each(|(at, ..)| self.targets[*at].give_up_as_too_slow());
            }
        }
        if self.targets.iter().any(|target| target.failure.is_none()) {
            Ok(())
        } else {
            Err(io::Error::other("no replica is left"))
        }
    }

    /// Waits until one of the sockets may take more.
    #[allow(unsafe_code)]
    fn wait(&self, targets: impl Iterator<Item = usize>) {
        let poll = |at: usize| libc::pollfd {
            fd: self.targets[at].socket.as_raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        let mut polls: Vec<libc::pollfd> = targets.map(poll).collect();
        // SAFETY: the array has as many elements as it says, and lives longer than the call. If the
        // call fails or is interrupted, the sockets are only tried again.
        unsafe {
            libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, POLL_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_that_nobody_has_read_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let mut theirs = TcpStream::connect(address).expect("it listens");
        let (mut ours, _) = listener.accept().expect("it has connected");
        assert!(!has_unread(&ours));
        theirs.write_all(b"ab").expect("there is room");
        // It arrives when this returns.
        ours.peek(&mut [0]).expect("it comes");
        assert!(has_unread(&ours));
        ours.read_exact(&mut [0; 2]).expect("it is there");
        assert!(!has_unread(&ours));
        drop(theirs);
        assert_eq!(ours.read(&mut [0]).expect("it has ended"), 0);
        assert!(!has_unread(&ours), "an end is no byte");
    }

    static SENT: AtomicU64 = AtomicU64::new(0);

    const HOUR: Duration = Duration::from_secs(3600);

    fn limits(timeout: Duration) -> Limits {
        Limits {
            timeout: Box::new(move || timeout),
            is_there: Box::new(|_| true),
            is_waited_for: Box::new(|| false),
        }
    }

    fn pair(client: u64) -> (Target, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("the system has sockets");
        ours.set_nonblocking(true).expect("it is a socket");
        (Target::new(client, ours.into()), theirs)
    }

    #[test]
    fn a_piece_reaches_all_that_take_it() {
        let ([(first, mut one), (second, mut two), (third, three)], piece) =
            ([1, 2, 3].map(pair), vec![7u8; 3 << 20]);
        let limits = limits(Duration::from_millis(300));
        let mut sockets = Sockets::new(vec![first, second, third], limits, &SENT);
        let read = |stream: &mut UnixStream| {
            let mut got = vec![0; 3 << 20];
            stream.read_exact(&mut got).map(|()| got)
        };
        let (one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(|| read(&mut one));
            let two = scope.spawn(|| read(&mut two));
            sockets.write_all(&piece).expect("two are left");
            (one.join().expect("no panic"), two.join().expect("no panic"))
        });
        assert!(one.expect("all came") == piece && two.expect("all came") == piece);
        let failed: Vec<u64> = sockets
            .targets
            .iter()
            .filter(|target| target.failure.is_some())
            .map(|target| target.client)
            .collect();
        assert_eq!(failed, [3], "it took nothing");
        drop(three);
    }

    #[test]
    fn without_a_replica_it_ends() {
        let (target, theirs) = pair(1);
        drop(theirs);
        let mut sockets = Sockets::new(vec![target], limits(Duration::from_secs(1)), &SENT);
        assert!(sockets.write_all(&[0; 9]).is_err());
    }

    #[test]
    fn without_its_client_it_ends_as_soon_as_nothing_is_taken() {
        let (target, theirs) = pair(1);
        let limits = Limits { is_there: Box::new(|_| false), ..limits(HOUR) };
        let mut sockets = Sockets::new(vec![target], limits, &SENT);
        sockets.write_all(&[0; 9]).expect("it is taken");
        assert!(sockets.write_all(&vec![0; 4 << 20]).is_err());
        drop(theirs);
    }

    #[test]
    fn the_slowest_is_given_up_when_writes_wait_for_it() {
        let ([(first, mut one), (second, two)], piece) = ([1, 2].map(pair), vec![7u8; 3 << 20]);
        let limits = Limits { is_waited_for: Box::new(|| true), ..limits(HOUR) };
        let mut sockets = Sockets::new(vec![first, second], limits, &SENT);
        std::thread::scope(|scope| {
            let one = scope.spawn(|| one.read_exact(&mut vec![0; 3 << 20]));
            sockets.write_all(&piece).expect("one is left");
            one.join().expect("no panic").expect("all came");
        });
        let given_up = sockets.targets.iter().map(|target| target.is_too_slow);
        assert_eq!(given_up.collect::<Vec<_>>(), [false, true]);
        drop(two);
    }
}
