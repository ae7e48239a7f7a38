//! A byte stream to a server: TCP or a Unix socket, with or without TLS, waiting or not.

use crate::generator::os;
use crate::options::{Address, Target};
use rustls::ClientConnection;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The stream.
pub struct Transport {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
}

impl Transport {
    /// Connects and waits for it; reads and writes wait too, at most `timeout`.
    pub fn connect(target: &Target, timeout: Duration) -> io::Result<Transport> {
        let socket = match &target.address {
            Address::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            tcp => {
                let stream = TcpStream::connect_timeout(&tcp.resolve()?, timeout)?;
                stream.set_nodelay(true)?;
                Socket::Tcp(stream)
            }
        };
        let limit = Some(timeout);
        match &socket {
            Socket::Tcp(stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)?;
            }
            Socket::Unix(stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)?;
            }
        }
        Ok(Transport { socket, tls: session(target)? })
    }

    /// Starts to connect. Nothing waits from here on: [`ErrorKind::WouldBlock`] says that it would.
    pub fn start(target: &Target) -> io::Result<Transport> {
        let socket = match &target.address {
            Address::Unix(path) => {
                // A full backlog is reported at once; there is no way to wait for room.
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Socket::Unix(stream)
            }
            tcp => {
                let stream = os::start_connecting(tcp.resolve()?)?;
                stream.set_nodelay(true)?;
                Socket::Tcp(stream)
            }
        };
        Ok(Transport { socket, tls: session(target)? })
    }

    /// Why connecting failed, if it did. For a socket that has become writable.
    pub fn connected(&self) -> io::Result<()> {
        let error = match &self.socket {
            Socket::Tcp(stream) => stream.take_error()?,
            Socket::Unix(stream) => stream.take_error()?,
        };
        error.map_or(Ok(()), Err)
    }

    /// Goes on with agreeing on encryption, as far as it can without waiting: whether that is done.
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

    /// Receives; 0 is the end.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.socket.read(buffer);
        };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            while tls.wants_write() {
                // An answer of the handshake, or a key update.
                tls.write_tls(&mut self.socket)?;
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Whether a short read means that there is no more for now: not with TLS, which may hold some.
    #[inline]
    pub fn short_read_is_all(&self) -> bool {
        self.tls.is_none()
    }

    /// Sends as much as there is room for: how much was taken.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.socket.write(bytes);
        };
        let taken = tls.writer().write(bytes)?;
        match self.push() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(taken),
            Err(error) => Err(error),
            Ok(()) => Ok(taken),
        }
    }

    /// Whether encryption has left something over to send.
    #[inline]
    pub fn holds_output(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what encryption has left over.
    pub fn push(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
        }
        Ok(())
    }
}

fn session(target: &Target) -> io::Result<Option<Box<ClientConnection>>> {
    match &target.tls {
        None => Ok(None),
        Some(settings) => Ok(Some(Box::new(settings.session().map_err(io::Error::other)?))),
    }
}

impl AsRawFd for Transport {
    fn as_raw_fd(&self) -> RawFd {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_raw_fd(),
            Socket::Unix(stream) => stream.as_raw_fd(),
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

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write_vectored(parts),
            Socket::Unix(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
