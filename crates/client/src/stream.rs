//! The bytes of a connection: TCP or a Unix socket, with or without TLS, waiting or not.

use net::TlsClient;
use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How often an agreement on TLS that takes long looks whether it is still wanted.
const ROUND: Duration = Duration::from_millis(100);

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// See the head of this file.
pub struct Stream {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Stream {
        Stream { socket: Socket::Tcp(socket), tls: None }
    }
}

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Stream {
        Stream { socket: Socket::Unix(socket), tls: None }
    }
}

impl Stream {
    /// Encrypts from now on. [`Stream::shake_hands`] or [`Stream::agreed`] has to follow.
    ///
    /// # Errors
    /// The rules make no session.
    pub fn encrypt(&mut self, tls: &TlsClient) -> io::Result<()> {
        self.tls = Some(Box::new(tls.session()?));
        Ok(())
    }

    /// Waits until both sides agree on TLS. `goes_on` is asked now and then whether the connection
    /// is still wanted. Afterwards reading waits for ever.
    ///
    /// # Errors
    /// The other side does not agree, the deadline has passed, or `goes_on` says no.
    pub fn shake_hands(
        &mut self,
        deadline: Option<Instant>,
        goes_on: impl Fn() -> bool,
    ) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.is_handshaking() {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) || !goes_on() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left.unwrap_or(ROUND).min(ROUND)))?;
            match tls.complete_io(&mut self.socket) {
                Ok((0, 0)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.socket.set_read_timeout(None)
    }

    /// Goes on with agreeing on TLS, as far as it can without waiting. Returns whether that is done.
    ///
    /// # Errors
    /// The other side does not agree.
    pub fn agreed(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.is_handshaking() {
            match tls.complete_io(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns why connecting failed, if it did. For a socket that has become writable.
    ///
    /// # Errors
    /// Connecting failed.
    pub fn connected(&self) -> io::Result<()> {
        let error = match &self.socket {
            Socket::Tcp(stream) => stream.take_error()?,
            Socket::Unix(stream) => stream.take_error()?,
        };
        error.map_or(Ok(()), Err)
    }

    /// Receives; 0 is the end.
    ///
    /// # Errors
    /// The connection is lost, or nothing has come for as long as the socket waits.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(buffer),
            Some(tls) => receive_encrypted(tls, &mut self.socket, buffer),
        }
    }

    /// Takes what has been decrypted already; 0 if nothing has.
    pub fn take_decrypted(&mut self, buffer: &mut [u8]) -> usize {
        // Without anything to take it says that it would wait.
        self.tls.as_mut().and_then(|tls| tls.reader().read(buffer).ok()).unwrap_or(0)
    }

    /// Returns whether a short read means that there is no more for now: not with TLS, which may
    /// hold some.
    #[inline]
    pub fn short_read_is_all(&self) -> bool {
        self.tls.is_none()
    }

    /// Sends as much as there is room for. Returns how much was taken.
    ///
    /// # Errors
    /// The connection is lost, or nothing was taken for as long as the socket waits.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.socket.write(bytes);
        };
        let taken = tls.writer().write(bytes)?;
        match self.push() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => Ok(taken),
            Err(error) => Err(error),
            Ok(()) => Ok(taken),
        }
    }

    /// Returns whether encryption has left something over to send.
    #[inline]
    pub fn holds_output(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what encryption has left over.
    ///
    /// # Errors
    /// The connection is lost, or nothing was taken for as long as the socket waits.
    pub fn push(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
        }
        Ok(())
    }

    /// Returns the socket, if it is one of TCP.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match &self.socket {
            Socket::Tcp(socket) => Some(socket),
            Socket::Unix(_) => None,
        }
    }

    /// Sets for how long reading waits; for ever if nothing is said.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(limit)
    }

    /// Sets for how long writing waits; for ever if nothing is said.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(stream) => stream.set_write_timeout(limit),
            Socket::Unix(stream) => stream.set_write_timeout(limit),
        }
    }

    /// Sets whether reading and writing wait at all.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn set_waiting(&self, waits: bool) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(stream) => stream.set_nonblocking(!waits),
            Socket::Unix(stream) => stream.set_nonblocking(!waits),
        }
    }
}

fn receive_encrypted(
    tls: &mut ClientConnection,
    socket: &mut Socket,
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        match tls.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result,
        }
        while tls.wants_write() {
            // An answer of the handshake, or a key update.
            tls.write_tls(socket)?;
        }
        if tls.read_tls(socket)? == 0 {
            return Ok(0);
        }
        if let Err(error) = tls.process_new_packets() {
            // What came before the bad record is good. Redis 8 ends the second channel of a
            // synchronisation so: a child sent the snapshot, and the parent's goodbye is numbered
            // as if nothing had been sent.
            return match tls.reader().read(buffer) {
                Ok(count @ 1..) => Ok(count),
                _ => Err(io::Error::new(ErrorKind::InvalidData, error)),
            };
        }
    }
}

/// Returns whether a socket's time is over: nothing has happened yet.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_raw_fd(),
            Socket::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl Socket {
    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(limit),
            Socket::Unix(stream) => stream.set_read_timeout(limit),
        }
    }
}

impl Read for Socket {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write_vectored(parts),
            Socket::Unix(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
