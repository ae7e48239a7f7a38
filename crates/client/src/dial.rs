//! Connecting to a host by TCP: all of its addresses are tried, within one deadline.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// What the system is told if an attempt may take any time.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

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
#[derive(Clone, Copy, Debug, Default)]
pub struct Dial {
    /// When connecting has failed; as late as the system decides if there is none.
    pub deadline: Option<Instant>,
    /// Which addresses come first.
    pub family: Family,
    /// The local address to connect from. Addresses of the other family are left out.
    pub source: Option<IpAddr>,
    /// Says why an address must not be connected to. What is checked is what is connected to: the
    /// name is looked up once.
    pub check: Option<fn(IpAddr) -> io::Result<()>>,
}

impl Dial {
    /// Returns how long an attempt may take if so many, it included, are left: one that gets no
    /// answer leaves the others their share.
    fn share(&self, attempts: usize) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(attempts).unwrap_or(u32::MAX);
        if share.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(share)) }
    }
}

/// Connects to the first of the host's addresses that can be reached.
///
/// # Errors
/// There is none, or one must not be connected to; why the last one could not be reached.
pub fn dial(host: &str, port: u16, how: &Dial) -> io::Result<TcpStream> {
    let mut found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    match how.family {
        Family::Any => {}
        Family::V4 => found.sort_by_key(|address| !address.is_ipv4()),
        Family::V6 => found.sort_by_key(|address| !address.is_ipv6()),
    }
    if let Some(source) = how.source {
        found.retain(|address| address.is_ipv6() == source.is_ipv6());
    }
    if let Some(check) = how.check {
        found.iter().try_for_each(|address| check(address.ip()))?;
    }
    first_reached(&found, how)
}

fn first_reached(addresses: &[SocketAddr], how: &Dial) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host has no address");
    for (at, address) in addresses.iter().enumerate() {
        let share = how.share(addresses.len() - at)?;
        let attempt = match (how.source, share) {
            (Some(source), share) => net::connect_from(source, address, share.unwrap_or(FOREVER)),
            (None, Some(share)) => TcpStream::connect_timeout(address, share),
            (None, None) => TcpStream::connect(address),
        };
        match attempt {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn an_address_that_is_dead_leaves_time_for_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // A listener whose queue is full answers no further SYN: the first attempt takes its share.
        let full = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = full.local_addr().unwrap();
        let mut held = Vec::new();
        while let Ok(socket) = TcpStream::connect_timeout(&taken, Duration::from_millis(200)) {
            held.push(socket);
        }
        let tried = [taken, listener.local_addr().unwrap()];
        let deadline = Some(Instant::now() + Duration::from_secs(4));
        let reached = first_reached(&tried, &Dial { deadline, ..Dial::default() }).unwrap();
        assert_eq!(reached.peer_addr().unwrap(), tried[1]);
    }

    #[test]
    fn addresses_of_another_family_than_the_source_are_left_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let source = Some("127.0.0.1".parse().unwrap());
        let how = Dial { source, ..Dial::default() };
        assert!(dial("127.0.0.1", port, &how).is_ok());
        let how = Dial { source: Some("::1".parse().unwrap()), ..Dial::default() };
        assert!(dial("127.0.0.1", port, &how).is_err());
    }

    #[test]
    fn an_address_that_is_refused_is_not_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let check: fn(IpAddr) -> io::Result<()> = |address| match address.is_loopback() {
            true => Err(io::Error::other("loops back")),
            false => Ok(()),
        };
        let how = Dial { check: Some(check), ..Dial::default() };
        assert_eq!(dial("localhost", port, &how).unwrap_err().to_string(), "loops back");
    }

    #[test]
    fn a_deadline_that_has_passed_ends_it() {
        let how = Dial { deadline: Some(Instant::now()), ..Dial::default() };
        let error = first_reached(&addresses(&["127.0.0.1:1"]), &how).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(first_reached(&[], &how).is_err());
    }
}
