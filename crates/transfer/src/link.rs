//! A connection that waits: requests, replies, and raw bytes of a snapshot or stream.

use crate::place::{Address, Login};
use net::{OutgoingStream, shake_hands};
use resp::bulk::{push_bulk, push_header};
use resp::{ReplyLimits, Scanned, Scanner, Value};
use rustls::ClientConfig;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a read waits before the caller can look at something else.
const ROUND: Duration = Duration::from_millis(100);

/// Bytes that are read at a time.
const READ: usize = 256 << 10;

/// A reply, owned.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// A string of any type.
    Text(Vec<u8>),
    /// An error.
    Error(String),
    /// A number.
    Integer(i64),
    /// Nothing.
    Null,
    /// Several.
    List(Vec<Reply>),
}

impl Reply {
    fn of(value: &Value<'_>) -> Reply {
        let list = |values: &[Value<'_>]| Reply::List(values.iter().map(Reply::of).collect());
        match value {
            Value::Error(text) => Reply::Error(String::from_utf8_lossy(text).into_owned()),
            Value::Integer(number) => Reply::Integer(*number),
            Value::Array(values) | Value::Set(values) | Value::Push(values) => list(values),
            value => value.text().map_or(Reply::Null, |text| Reply::Text(text.to_vec())),
        }
    }

    /// The text of a reply that is one.
    pub fn text(&self) -> Option<String> {
        match self {
            Reply::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    }

    /// The first error in it.
    pub fn error(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => Some(text),
            Reply::List(replies) => replies.iter().find_map(Reply::error),
            _ => None,
        }
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<OutgoingStream>),
}

/// See the head of this file.
pub struct Link {
    stream: Stream,
    arrived: Vec<u8>,
    /// Bytes of `arrived` that have been used.
    used: usize,
    scanner: Scanner,
    out: Vec<u8>,
    limit: Duration,
}

/// Writes a request.
pub fn encode<W: AsRef<[u8]>>(out: &mut Vec<u8>, words: &[W]) {
    push_header(out, b'*', words.len());
    for word in words {
        push_bulk(out, word.as_ref());
    }
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// Whether a socket's time is over, so nothing has come yet.
fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn connect(address: &Address, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host has no address");
    for address in (&*address.0, address.1).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Link {
    /// Connects and logs in. `limit`: how long a reply may take.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the login.
    pub fn open(
        address: &Address,
        login: &Login,
        rules: Option<&Arc<ClientConfig>>,
        limit: Duration,
    ) -> io::Result<Link> {
        let socket = connect(address, limit)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ROUND))?;
        socket.set_write_timeout(Some(limit))?;
        let began = Instant::now();
        let stream = match rules {
            None => Stream::Plain(socket),
            Some(rules) => {
                let in_time = || began.elapsed() < limit;
                let stream = shake_hands(Arc::clone(rules), &address.0, socket, in_time)?;
                Stream::Tls(Box::new(stream))
            }
        };
        let mut link = Link {
            stream,
            arrived: Vec::new(),
            used: 0,
            scanner: Scanner::new(ReplyLimits::PEER),
            out: Vec::new(),
            limit,
        };
        if !login.password.is_empty() {
            let words = ["AUTH", &*login.user, &*login.password];
            let words =
                if login.user.is_empty() { vec![words[0], words[2]] } else { words.to_vec() };
            link.order(&words)?;
        }
        Ok(link)
    }

    /// Adds a request to what the next [`Link::flush`] sends.
    pub fn queue<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        encode(&mut self.out, words);
    }

    /// Adds encoded requests.
    pub fn queue_raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// The bytes that wait to be sent.
    pub fn queued(&self) -> usize {
        self.out.len()
    }

    /// Sends all that was queued.
    ///
    /// # Errors
    /// The connection is lost, or takes nothing for the limit.
    pub fn flush(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        match &mut self.stream {
            Stream::Plain(socket) => socket.write_all(&out)?,
            Stream::Tls(stream) => {
                stream.write_all(&out)?;
                stream.flush()?;
            }
        }
        self.out = out;
        self.out.clear();
        self.out.shrink_to(READ);
        Ok(())
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// The connection is lost, or nothing comes for the limit.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let began = Instant::now();
        loop {
            let input = &self.arrived[self.used..];
            match self.scanner.scan(input).map_err(|why| broken(why.0))? {
                Scanned::Reply { len } => {
                    let value = resp::decode(&input[..len], ReplyLimits::PEER);
                    let reply = Reply::of(&value.map_err(|why| broken(why.0))?);
                    self.used += len;
                    return Ok(reply);
                }
                Scanned::Incomplete { .. } => {
                    if !self.receive()? && began.elapsed() > self.limit {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        }
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// As [`Link::reply`].
    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.queue(words);
        self.flush()?;
        self.reply()
    }

    /// The same, where an error is one.
    ///
    /// # Errors
    /// The server refuses it, with its text.
    pub fn order<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        let reply = self.ask(words)?;
        match reply.error() {
            Some(text) => Err(io::Error::other(text.to_owned())),
            None => Ok(reply),
        }
    }

    /// Waits a moment for bytes. Returns whether there are more.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn receive(&mut self) -> io::Result<bool> {
        if self.used > 0 && (self.used == self.arrived.len() || self.used > READ) {
            self.arrived.drain(..self.used);
            self.used = 0;
        }
        let len = self.arrived.len();
        self.arrived.resize(len + READ, 0);
        let read = match &mut self.stream {
            Stream::Plain(socket) => socket.read(&mut self.arrived[len..]),
            Stream::Tls(stream) => stream.read(&mut self.arrived[len..]),
        };
        self.arrived.truncate(len + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server has closed the connection",
            )),
            Ok(_) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The bytes that have arrived and were not used.
    pub fn bytes(&self) -> &[u8] {
        &self.arrived[self.used..]
    }

    /// So many of them are used.
    pub fn consume(&mut self, count: usize) {
        debug_assert!(self.used + count <= self.arrived.len(), "only what has arrived is used");
        self.used += count;
    }

    /// Takes a line without its end, if it has arrived.
    pub fn line(&mut self) -> Option<String> {
        let end = self.bytes().iter().position(|byte| *byte == b'\n')?;
        let line = String::from_utf8_lossy(&self.bytes()[..end]).trim_end_matches('\r').to_owned();
        self.consume(end + 1);
        Some(line)
    }
}
