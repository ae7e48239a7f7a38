//! A connection: TCP or a Unix socket, with or without TLS, and the reading of replies.

use crate::reply::Reply;
use bench::TlsSettings;
use resp::ReplyLimits;
use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A host and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Tcp(host, port) => write!(out, "{host}:{port}"),
            Place::Unix(path) => write!(out, "{}", path.display()),
        }
    }
}

/// Which addresses of a host come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// The resolver's order.
    #[default]
    Any,
    /// IPv4 first.
    V4,
    /// IPv6 first.
    V6,
}

/// How to connect.
#[derive(Clone, Debug, Default)]
pub struct Dial {
    /// How long connecting may take; as long as the system waits if nothing is said.
    pub timeout: Option<Duration>,
    /// Which addresses come first.
    pub family: Family,
    /// Encryption.
    pub tls: Option<Arc<TlsSettings>>,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The connection.
pub struct Link {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
    input: Vec<u8>,
    /// The next byte to read.
    at: usize,
    /// Where the reply that is being read begins.
    begin: usize,
}

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// Appends a request.
pub fn encode(out: &mut Vec<u8>, words: &[impl AsRef<[u8]>]) {
    out.extend(format!("*{}\r\n", words.len()).into_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend(format!("${}\r\n", word.len()).into_bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
}

/// An error's text as the C library has it, without the number that Rust appends.
pub fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.strip_prefix("failed to lookup address information: ").unwrap_or(text).to_owned()
}

impl Link {
    /// Connects, with TLS if there are settings.
    pub fn connect(place: &Place, dial: &Dial) -> io::Result<Link> {
        let socket = match place {
            Place::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            Place::Tcp(host, port) => Socket::Tcp(connect_tcp(host, *port, dial)?),
        };
        let tls = match &dial.tls {
            None => None,
            Some(settings) => Some(Box::new(settings.session().map_err(io::Error::other)?)),
        };
        let mut link = Link { socket, tls, input: Vec::new(), at: 0, begin: 0 };
        if let Some(tls) = &mut link.tls {
            while tls.is_handshaking() {
                tls.complete_io(&mut link.socket)?;
            }
        }
        Ok(link)
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => self.socket.write_all(bytes),
            Some(tls) => {
                for part in bytes.chunks(CHUNK / 4) {
                    tls.writer().write_all(part)?;
                    while tls.wants_write() {
                        tls.write_tls(&mut self.socket)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Sends a request.
    pub fn request(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode(&mut bytes, words);
        self.send(&bytes)
    }

    /// Sends a request and returns its reply; pushes are left out.
    pub fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.request(words)?;
        loop {
            let reply = self.receive()?;
            if !matches!(reply, Reply::Push(_)) {
                return Ok(reply);
            }
        }
    }

    /// Whether there is something to read without waiting for the socket.
    pub fn has_input(&mut self) -> bool {
        if self.at == self.input.len()
            && let Some(tls) = &mut self.tls
        {
            let mut more = [0; 1024];
            if let Ok(count) = tls.reader().read(&mut more) {
                self.input.extend(&more[..count]);
            }
        }
        self.at < self.input.len()
    }

    /// Returns the next reply, a push too.
    pub fn receive(&mut self) -> io::Result<Reply> {
        self.begin = self.at;
        self.element(ReplyLimits::PEER.depth)
    }

    /// Returns the next reply if all of it has come. For a socket that does not wait.
    pub fn try_receive(&mut self) -> io::Result<Option<Reply>> {
        match self.receive() {
            Ok(reply) => Ok(Some(reply)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.at = self.begin;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether reads and writes wait.
    pub fn set_waiting(&mut self, waits: bool) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(stream) => stream.set_nonblocking(!waits),
            Socket::Unix(stream) => stream.set_nonblocking(!waits),
        }
    }

    /// Sends what there is room for and removes it from `bytes`. For a socket that does not wait.
    pub fn try_send(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let sent = match &mut self.tls {
            None => self.socket.write(bytes),
            Some(tls) => {
                let taken = tls.writer().write(bytes)?;
                let mut result = Ok(taken);
                while tls.wants_write() {
                    if let Err(error) = tls.write_tls(&mut self.socket) {
                        let waits = error.kind() == ErrorKind::WouldBlock;
                        result = if waits { Ok(taken) } else { Err(error) };
                        break;
                    }
                }
                result
            }
        };
        match sent {
            Ok(sent) => drop(bytes.drain(..sent)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether encryption holds bytes that are still to be sent.
    pub fn holds_output(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Reads a reply with at most so many levels.
    fn element(&mut self, levels: usize) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = (line[0], &line[1..]);
        let invalid = || protocol_error(kind);
        let number = || -> io::Result<i64> {
            std::str::from_utf8(rest).ok().and_then(|text| text.parse().ok()).ok_or_else(invalid)
        };
        Ok(match kind {
            b'+' => Reply::Status(rest.to_vec()),
            b'-' => Reply::Error(rest.to_vec()),
            b':' => Reply::Integer(number()?),
            b',' => Reply::Double(rest.to_vec()),
            b'(' => Reply::Big(rest.to_vec()),
            b'#' => Reply::Bool(rest == b"t"),
            b'_' => Reply::Nil,
            b'$' | b'=' | b'!' => {
                let Ok(length) = usize::try_from(number()?) else { return Ok(Reply::Nil) };
                let bytes = self.bytes(length)?;
                match kind {
                    b'!' => Reply::Error(bytes),
                    b'=' => Reply::Verbatim(bytes.get(4..).unwrap_or_default().to_vec()),
                    _ => Reply::Text(bytes),
                }
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let Ok(count) = usize::try_from(number()?) else { return Ok(Reply::Nil) };
                let pairs = matches!(kind, b'%' | b'|');
                let count = if pairs { 2 * count } else { count };
                let below = levels.checked_sub(1).ok_or_else(too_deep)?;
                let list = (0..count).map(|_| self.element(below)).collect::<io::Result<_>>()?;
                match kind {
                    b'~' => Reply::Set(list),
                    b'>' => Reply::Push(list),
                    b'%' => Reply::Map(list),
                    b'|' => self.element(below)?,
                    _ => Reply::Array(list),
                }
            }
            _ => return Err(invalid()),
        })
    }

    /// Returns the next line by itself; never empty.
    pub fn next_line(&mut self) -> io::Result<Vec<u8>> {
        self.begin = self.at;
        self.line()
    }

    /// Returns the next line, without its end; never empty.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            let rest = &self.input[self.at..];
            if let Some(end) = rest[searched..].iter().position(|byte| *byte == b'\n') {
                let end = searched + end;
                let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
                self.at += end + 1;
                searched = 0;
                // A primary sends empty lines while it prepares a snapshot.
                if line.is_empty() {
                    continue;
                }
                return Ok(line);
            }
            searched = rest.len();
            self.fill()?;
        }
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.input.len() - self.at < length + 2 {
            self.fill()?;
        }
        let bytes = self.input[self.at..self.at + length].to_vec();
        self.at += length + 2;
        Ok(bytes)
    }

    /// Returns some of the bytes that have come, at most so many; waits if there are none.
    pub fn some(&mut self, most: usize) -> io::Result<Vec<u8>> {
        if self.at == self.input.len() {
            self.begin = self.at;
            self.fill()?;
        }
        let count = most.min(self.input.len() - self.at);
        let bytes = self.input[self.at..self.at + count].to_vec();
        self.at += count;
        Ok(bytes)
    }

    fn fill(&mut self) -> io::Result<()> {
        self.input.drain(..self.begin);
        self.at -= self.begin;
        self.begin = 0;
        let start = self.input.len();
        self.input.resize(start + CHUNK, 0);
        let result = self.read(start);
        self.input.truncate(start + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "Server closed the connection")),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn read(&mut self, start: usize) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(&mut self.input[start..]) };
        loop {
            match tls.reader().read(&mut self.input[start..]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

fn connect_tcp(host: &str, port: u16, dial: &Dial) -> io::Result<TcpStream> {
    let mut found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    match dial.family {
        Family::Any => {}
        Family::V4 => found.sort_by_key(|address| !address.is_ipv4()),
        Family::V6 => found.sort_by_key(|address| !address.is_ipv6()),
    }
    let mut failure = io::Error::other("the host has no address");
    for address in found {
        let result = match dial.timeout {
            Some(limit) => TcpStream::connect_timeout(&address, limit),
            None => TcpStream::connect(address),
        };
        match result {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn too_deep() -> io::Error {
    let most = ReplyLimits::PEER.depth;
    io::Error::other(format!("Protocol error, a reply with more than {most} levels"))
}

fn protocol_error(byte: u8) -> io::Error {
    let shown = std::ascii::escape_default(byte);
    io::Error::other(format!("Protocol error, got \"{shown}\" as reply type byte"))
}

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_raw_fd(),
            Socket::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
