//! The other side of a connection: its address and credentials.

use super::conn::ConnId;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

/// What a listener, and every connection accepted from it, speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Plain TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// A Unix socket.
    Unix,
}

/// What a connection is for: a number that means something to the owner of the listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Tag(pub u32);

/// What is known about a new connection.
#[derive(Debug, Clone)]
pub struct PeerInfo {
    /// Its name, for messages from other threads.
    pub id: ConnId,
    /// Its descriptor, to be shown; the reactor owns it.
    pub fd: RawFd,
    /// What it speaks.
    pub kind: Kind,
    /// What it is for: the tag of its listener, or the one that it was asked for with.
    pub tag: Tag,
    /// Whether this side has asked for it.
    pub is_outgoing: bool,
    /// The peer's address; none on a Unix socket.
    pub addr: Option<SocketAddr>,
    /// Our end's address; none on a Unix socket.
    pub local: Option<SocketAddr>,
    /// The path of the Unix socket.
    pub unix_path: Option<Arc<str>>,
    /// The common name in the peer's verified TLS certificate.
    pub cert_name: Option<String>,
}

impl PeerInfo {
    /// The peer as text: `ip:port`, `[ip]:port`, or `path:0`.
    pub fn addr_text(&self) -> String {
        self.text(self.addr)
    }

    /// Our end as text.
    pub fn local_text(&self) -> String {
        self.text(self.local)
    }

    fn text(&self, addr: Option<SocketAddr>) -> String {
        match (addr, &self.unix_path) {
            (Some(addr), _) => addr.to_string(),
            (None, Some(path)) => format!("{path}:0"),
            (None, None) => "?:0".to_owned(),
        }
    }

    /// True when the peer is on this machine (protected mode lets only those in).
    pub fn is_local(&self) -> bool {
        self.addr.is_none_or(|addr| addr.ip().to_canonical().is_loopback())
    }
}

/// Both ends' addresses of a connected TCP socket, which is handed back.
pub(super) fn addresses(fd: OwnedFd) -> (OwnedFd, Option<SocketAddr>, Option<SocketAddr>) {
    let stream = TcpStream::from(fd);
    let (addr, local) = (stream.peer_addr().ok(), stream.local_addr().ok());
    (stream.into(), addr, local)
}
