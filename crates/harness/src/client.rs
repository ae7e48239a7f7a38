//! A small blocking client: one connection, requests as lists of words, replies through the strict
//! decoder of [`crate::reply`].

use crate::environment::variable;
use crate::reply::{Protocol, Reply, decode};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a reply may take before the test fails, unless `DUNLIN_TEST_TIMEOUT` (seconds) says
/// otherwise, as a run under a sanitizer needs.
pub fn patience() -> Duration {
    Duration::from_secs(variable("DUNLIN_TEST_TIMEOUT").unwrap_or(10))
}

/// Encodes a request as an array of bulk strings.
pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A connection to a server in the same process, for [`Client::local`].
pub trait LocalStream: Send {
    /// Sends bytes; the server has run them when this returns. Where it has closed they are lost.
    fn send(&mut self, bytes: &[u8]);
    /// Takes what has arrived, or arrives in so much of the server's time; empty if nothing does.
    fn receive(&mut self, patience: Duration) -> Vec<u8>;
    /// Whether anything has arrived.
    fn has_data(&mut self) -> bool;
    /// Whether the server has closed it.
    fn is_closed(&self) -> bool;
}

/// A Unix socket.
struct UnixConnection {
    stream: UnixStream,
    /// What has arrived and was not taken yet.
    arrived: Vec<u8>,
    is_closed: bool,
}

impl UnixConnection {
    /// Reads what arrives in so much time.
    fn read(&mut self, patience: Duration) {
        let mut bytes = [0; 16 << 10];
        let patience = patience.max(Duration::from_millis(1));
        let read = self
            .stream
            .set_read_timeout(Some(patience))
            .and_then(|()| self.stream.read(&mut bytes));
        match read {
            Ok(0) => self.is_closed = true,
            Ok(len) => self.arrived.extend_from_slice(&bytes[..len]),
            Err(error) => self.is_closed |= is_gone(&error),
        }
    }
}

impl LocalStream for UnixConnection {
    fn send(&mut self, bytes: &[u8]) {
        self.is_closed |= self.stream.write_all(bytes).is_err();
    }

    fn receive(&mut self, patience: Duration) -> Vec<u8> {
        if self.arrived.is_empty() && !self.is_closed {
            self.read(patience);
        }
        std::mem::take(&mut self.arrived)
    }

    fn has_data(&mut self) -> bool {
        if self.arrived.is_empty() && !self.is_closed {
            self.read(Duration::ZERO);
        }
        !self.arrived.is_empty()
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

enum Wire {
    Socket(TcpStream),
    Local(Box<dyn LocalStream>),
}

/// One connection. Push messages that arrive before the reply that is waited for are kept aside
/// and come out of [`Client::push`]; under RESP2 nothing distinguishes them from replies.
pub struct Client {
    wire: Wire,
    received: Vec<u8>,
    consumed: usize,
    pushes: VecDeque<Reply>,
    protocol: Protocol,
    /// How long a reply may take.
    patience: Duration,
}

impl Client {
    /// Connects; the connection speaks RESP2 until [`Client::set_protocol`] or a `HELLO`.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        Client::connect_within(address, patience())
    }

    /// The same, with a limit of its own for the connection to be made.
    pub fn connect_within(address: SocketAddr, patience: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        let client = Client::over(Wire::Socket(stream));
        // Long commands have a low priority: on a busy machine they get a small part of a core.
        Ok(Client { patience: 3 * patience, ..client })
    }

    /// Connects to a Unix socket.
    pub fn unix(path: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        let unix = UnixConnection { stream, arrived: Vec::new(), is_closed: false };
        Ok(Client::local(Box::new(unix)))
    }

    /// A client of a server in this process.
    pub fn local(stream: Box<dyn LocalStream>) -> Client {
        Client::over(Wire::Local(stream))
    }

    fn over(wire: Wire) -> Client {
        Client {
            wire,
            received: Vec::new(),
            consumed: 0,
            pushes: VecDeque::new(),
            protocol: Protocol::Resp2,
            patience: 3 * patience(),
        }
    }

    /// Waits so long for each reply.
    pub fn with_patience(self, patience: Duration) -> Client {
        Client { patience, ..self }
    }

    /// Connects and switches to `protocol` by `HELLO`.
    pub fn connect_with(address: SocketAddr, protocol: Protocol) -> io::Result<Client> {
        let mut client = Client::connect(address)?;
        if protocol == Protocol::Resp3 {
            client.protocol = Protocol::Resp3;
            let reply = client.command(&["HELLO", "3"])?;
            if !matches!(reply, Reply::Map(_)) {
                return Err(io::Error::other(format!("HELLO 3 was answered by {reply:?}")));
            }
        }
        Ok(client)
    }

    /// The protocol replies are decoded by.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Decodes what follows by `protocol`; sends nothing.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Sends a request and waits for its reply; pushes in between are kept aside.
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.send(words)?;
        self.reply()
    }

    /// Sends a request.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        self.send_raw(&encode(words))
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.wire {
            Wire::Socket(stream) => stream.write_all(bytes),
            Wire::Local(stream) => {
                stream.send(bytes);
                Ok(())
            }
        }
    }

    /// The next reply that is not a push; pushes before it are kept aside.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.wire(deadline)? {
                push @ Reply::Push(_) => self.pushes.push_back(push),
                reply => return Ok(reply),
            }
        }
    }

    /// The next message of any kind: first the pushes kept aside, then what arrives.
    pub fn message(&mut self) -> io::Result<Reply> {
        self.message_within(patience())
    }

    /// As [`Client::message`], with a patience of the caller's: `ErrorKind::TimedOut` after it.
    pub fn message_within(&mut self, patience: Duration) -> io::Result<Reply> {
        match self.pushes.pop_front() {
            Some(push) => Ok(push),
            None => self.wire(Instant::now() + patience),
        }
    }

    /// The next push message kept aside, if there is one; reads nothing.
    pub fn push(&mut self) -> Option<Reply> {
        self.pushes.pop_front()
    }

    /// Whether anything, a whole reply or a part of one or the end of the stream, has arrived and
    /// was not read yet. Does not wait.
    pub fn has_data(&mut self) -> io::Result<bool> {
        if !self.pushes.is_empty() || self.consumed < self.received.len() {
            return Ok(true);
        }
        let stream = match &mut self.wire {
            Wire::Socket(stream) => stream,
            Wire::Local(stream) => return Ok(stream.has_data() || stream.is_closed()),
        };
        stream.set_nonblocking(true)?;
        let seen = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        match seen {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if is_gone(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Waits until the server has closed the connection; an error if it sends anything instead.
    pub fn expect_closed(&mut self) -> io::Result<()> {
        match self.wire(Instant::now() + patience()) {
            Ok(reply) => Err(io::Error::other(format!("not closed, but answered by {reply:?}"))),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof || is_gone(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The socket, for tests that need to shut one direction or set its buffers.
    ///
    /// # Panics
    /// When the server is in this process.
    pub fn stream(&self) -> &TcpStream {
        match &self.wire {
            Wire::Socket(stream) => stream,
            Wire::Local(_) => panic!("the connection is no TCP socket"),
        }
    }

    fn wire(&mut self, deadline: Instant) -> io::Result<Reply> {
        loop {
            if self.consumed < self.received.len() {
                let decoded = decode(&self.received[self.consumed..], self.protocol);
                match decoded.map_err(|why| io::Error::new(ErrorKind::InvalidData, why))? {
                    Some((reply, used)) => {
                        self.consumed += used;
                        if self.consumed == self.received.len() {
                            self.received.clear();
                            self.consumed = 0;
                        }
                        return Ok(reply);
                    }
                    None if self.consumed > 0 => {
                        self.received.drain(..self.consumed);
                        self.consumed = 0;
                    }
                    None => {}
                }
            }
            self.receive(deadline)?;
        }
    }

    fn receive(&mut self, deadline: Instant) -> io::Result<()> {
        let stream = match &mut self.wire {
            Wire::Socket(stream) => stream,
            Wire::Local(stream) => {
                let bytes = stream.receive(deadline.saturating_duration_since(Instant::now()));
                if bytes.is_empty() {
                    let (kind, why) = if stream.is_closed() {
                        (ErrorKind::UnexpectedEof, "the server closed")
                    } else {
                        (ErrorKind::TimedOut, "there is no reply")
                    };
                    return Err(io::Error::new(kind, why));
                }
                self.received.extend_from_slice(&bytes);
                return Ok(());
            }
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "no reply in time"));
        }
        stream.set_read_timeout(Some(left))?;
        // Grows with what is pending, so that a huge reply is not decoded again every few bytes.
        let room = self.received.len().clamp(16 << 10, 64 << 20);
        let start = self.received.len();
        self.received.resize(start + room, 0);
        let read = stream.read(&mut self.received[start..]);
        self.received.truncate(start + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed")),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(io::Error::new(ErrorKind::TimedOut, "no reply in time"))
            }
            Err(error) => Err(error),
        }
    }
}

/// A request as tests write it: words, or a line of words with spaces between them.
pub trait Request: std::fmt::Debug {
    /// Its words.
    fn words(&self) -> Vec<&str>;
}

impl Request for [&str] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl<const N: usize> Request for [&str; N] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl Request for str {
    fn words(&self) -> Vec<&str> {
        self.split(' ').collect()
    }
}

impl Request for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

/// The reply to a request, in tests to which a lost connection is a failure.
#[track_caller]
pub fn ask<R: Request + ?Sized>(client: &mut Client, request: &R) -> Reply {
    client.command(&request.words()).unwrap_or_else(|why| panic!("{request:?}: {why}"))
}

/// As [`ask`], of a request that must not be refused.
#[track_caller]
pub fn ok<R: Request + ?Sized>(client: &mut Client, request: &R) -> Reply {
    let reply = ask(client, request);
    assert!(!reply.is_error(), "{request:?}: {reply:?}");
    reply
}

/// Whether an error says that the other side is gone.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}
