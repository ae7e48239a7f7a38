//! The other side of a connection: its address and credentials.

use super::conn::ConnId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
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
    /// The URIs in it.
    pub cert_uris: Vec<String>,
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

    /// True when both ends are in the same private range, as those in a container network are.
    pub fn shares_private_range(&self) -> bool {
        share_private_range(self.addr, self.local)
    }
}

/// The ranges of addresses that are no one's on the internet: RFC 1918, RFC 4193, link-local, and
/// the one of carriers, with the number of bits that they share.
const PRIVATE: [(IpAddr, u32); 7] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
];

/// The private range of an address.
fn private_range(address: IpAddr) -> Option<usize> {
    PRIVATE.iter().position(|&(range, bits)| match (range, address) {
        (IpAddr::V4(range), IpAddr::V4(address)) => {
            (range.to_bits() ^ address.to_bits()) >> (32 - bits) == 0
        }
        (IpAddr::V6(range), IpAddr::V6(address)) => {
            (range.to_bits() ^ address.to_bits()) >> (128 - bits) == 0
        }
        _ => false,
    })
}

/// Returns whether both addresses are in the same private range.
pub fn share_private_range(peer: Option<SocketAddr>, local: Option<SocketAddr>) -> bool {
    let range = |addr: SocketAddr| private_range(addr.ip().to_canonical());
    let peer = peer.and_then(range);
    peer.is_some() && peer == local.and_then(range)
}

/// Both ends' addresses of a connected TCP socket, which is handed back.
pub(super) fn addresses(fd: OwnedFd) -> (OwnedFd, Option<SocketAddr>, Option<SocketAddr>) {
    let stream = TcpStream::from(fd);
    let (addr, local) = (stream.peer_addr().ok(), stream.local_addr().ok());
    (stream.into(), addr, local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(peer: &str, local: &str) -> bool {
        let addr = |ip: &str| Some(SocketAddr::new(ip.parse().unwrap(), 1));
        share_private_range(addr(peer), addr(local))
    }

    #[test]
    fn only_the_private_range_of_the_own_address_is_near() {
        assert!(near("172.17.0.1", "172.31.0.2"));
        assert!(near("10.1.2.3", "10.200.0.1"));
        assert!(near("::ffff:192.168.1.1", "192.168.2.2"));
        assert!(near("fd00::1", "fd12::2"));
        for (peer, local) in [
            ("10.0.0.1", "172.17.0.2"),
            ("8.8.8.8", "172.17.0.2"),
            ("172.32.0.1", "172.17.0.2"),
            ("172.17.0.1", "8.8.8.8"),
            ("2001:db8::1", "fd00::1"),
            ("11.0.0.1", "11.0.0.2"),
        ] {
            assert!(!near(peer, local), "{peer} {local}");
        }
    }
}
