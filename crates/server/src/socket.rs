//! A connection that this server makes to another one: plain, or by TLS.

use client::{Dial, Stream, dial};
use net::TlsClient;
use rustls::ClientConfig;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;

/// For how long a new connection waits for bytes, unless it is told otherwise.
pub const ROUND: Duration = Duration::from_millis(100);

/// See the module's documentation. Copies are of the same connection.
pub enum Socket {
    /// Bytes go as they are.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Arc<Mutex<Stream>>),
}

impl Socket {
    /// Connects to the first of the host's addresses that can be reached, with the rules of TLS if
    /// it is to be encrypted. Reading ends with nothing after [`ROUND`], writing after `timeout`.
    /// `goes_on` is asked now and then whether the connection is still wanted. `source`: the local
    /// address.
    ///
    /// # Errors
    /// The last address cannot be reached, or the other side does not agree on TLS.
    pub fn open(
        host: &str,
        port: u16,
        source: Option<IpAddr>,
        timeout: Duration,
        rules: Option<Arc<ClientConfig>>,
        goes_on: impl Fn() -> bool,
    ) -> io::Result<Socket> {
        let deadline = Some(Instant::now() + timeout);
        let socket = dial(host, port, &Dial { deadline, source, ..Dial::default() })?;
        socket.set_write_timeout(Some(timeout))?;
        let Some(rules) = rules else {
            socket.set_read_timeout(Some(ROUND))?;
            return Ok(Socket::Plain(socket));
        };
        let mut stream = Stream::from(socket);
        stream.encrypt(&TlsClient::new(rules, host)?)?;
        stream.shake_hands(deadline, goes_on)?;
        stream.set_read_timeout(Some(ROUND))?;
        Ok(Socket::Tls(Arc::new(Mutex::new(stream))))
    }

    /// Asks, or sets, something of the socket itself.
    pub fn with<R>(&self, run: impl FnOnce(&TcpStream) -> R) -> R {
        match self {
            Socket::Plain(socket) => run(socket),
            Socket::Tls(stream) => run(lock(stream).tcp().expect("it was connected by TCP")),
        }
    }

    /// The other end's address.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.with(TcpStream::peer_addr)
    }

    /// This end's.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.with(TcpStream::local_addr)
    }

    /// The descriptor, for CLIENT LIST.
    pub fn fd(&self) -> RawFd {
        self.with(TcpStream::as_raw_fd)
    }

    /// Another handle of the connection.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Plain(socket) => socket.try_clone().map(Socket::Plain),
            Socket::Tls(stream) => Ok(Socket::Tls(Arc::clone(stream))),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(socket) => socket.read(into),
            Socket::Tls(stream) => lock(stream).read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(socket) => socket.write(bytes),
            Socket::Tls(stream) => {
                let mut stream = lock(stream);
                let written = stream.write(bytes)?;
                stream.flush()?;
                Ok(written)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Plain(socket) => socket.flush(),
            Socket::Tls(stream) => lock(stream).flush(),
        }
    }
}
