//! Listening sockets: what the configuration asks for, and changing it at run time.
//!
//! All reactor threads watch all listeners, and whichever accepts a connection hands it to the
//! thread that has the fewest. [`Listeners::rebind`] opens what is new before it closes what is no
//! longer wanted, and touches nothing if something cannot be opened.

use super::peer::Kind;
use super::sys;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP address as `bind` spells it: a literal address, a host name, `*` or `::*`.
    Tcp {
        /// The address, without the optional marker.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// Its path.
        path: PathBuf,
        /// Its permission bits; zero leaves them to the umask.
        mode: u32,
    },
}

/// One listener the configuration asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSpec {
    /// What it speaks.
    pub kind: Kind,
    /// Where it listens.
    pub address: Address,
    /// Skip it silently when this machine does not have the address or the protocol.
    pub optional: bool,
}

impl ListenSpec {
    /// The listeners for the `bind` directive's words and a port; none when the port is zero.
    ///
    /// A word may begin with `-`, which makes it optional. Kind is [`Kind::Tcp`] for `port` and
    /// [`Kind::Tls`] for `tls-port`.
    pub fn tcp(kind: Kind, binds: &[impl AsRef<str>], port: u16) -> Vec<Self> {
        if port == 0 {
            return Vec::new();
        }
        let spec = |word: &str| {
            let (host, optional) = match word.strip_prefix('-') {
                Some(host) => (host, true),
                None => (word, false),
            };
            Self { kind, address: Address::Tcp { host: host.to_owned(), port }, optional }
        };
        binds.iter().map(|word| spec(word.as_ref())).collect()
    }

    /// The listener for `unixsocket` and `unixsocketperm`.
    pub fn unix(path: impl Into<PathBuf>, mode: u32) -> Self {
        let address = Address::Unix { path: path.into(), mode };
        Self { kind: Kind::Unix, address, optional: false }
    }
}

/// A listener could not be opened.
#[derive(Debug)]
pub struct BindError {
    place: String,
    step: &'static str,
    unix: bool,
    /// What the system said.
    pub error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, step, .. } = self;
        // The system's words without Rust's "(os error 98)".
        let why = self.error.to_string();
        let why = why.split(" (os error").next().unwrap_or_default();
        if self.unix {
            write!(f, "Failed opening Unix socket: {step}: {why}")
        } else {
            write!(f, "Could not create server TCP listening socket {place}: {step}: {why}")
        }
    }
}

impl std::error::Error for BindError {}

/// An open listener. It closes when the last reactor has let go of it.
#[derive(Debug)]
pub(super) struct Listener {
    pub key: u32,
    pub spec: ListenSpec,
    /// The path, ready to be shared with connections.
    pub unix_path: Option<Arc<str>>,
    pub local: Option<SocketAddr>,
    fd: OwnedFd,
}

impl Listener {
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn open(key: u32, spec: &ListenSpec, backlog: u32) -> Result<Option<Self>, BindError> {
        let listener =
            |fd, unix_path, local| Ok(Some(Self { key, spec: spec.clone(), unix_path, local, fd }));
        match &spec.address {
            Address::Unix { path, mode } => {
                let place = path.display().to_string();
                match sys::listen_unix(path, *mode, backlog) {
                    Ok(fd) => listener(fd, Some(place.into()), None),
                    Err((step, error)) => Err(BindError { place, step, unix: true, error }),
                }
            }
            Address::Tcp { host, port } => {
                let failed = |(step, error): (&'static str, io::Error)| {
                    let place = format!("{host}:{port}");
                    if spec.optional && is_absent(&error) {
                        return Ok(None);
                    }
                    Err(BindError { place, step, unix: false, error })
                };
                let mut last = ("resolve", io::Error::from(io::ErrorKind::NotFound));
                for address in match resolve(host, *port) {
                    Ok(addresses) => addresses,
                    Err(error) => return failed(("resolve", error)),
                } {
                    match sys::listen_tcp(&address, backlog) {
                        Ok(fd) => {
                            let bound = std::net::TcpListener::from(fd);
                            let local = bound.local_addr().ok();
                            return listener(bound.into(), None, local);
                        }
                        Err(why) => last = why,
                    }
                }
                failed(last)
            }
        }
    }
}

/// The address or its protocol does not exist on this machine.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EADDRNOTAVAIL
                | libc::EAFNOSUPPORT
                | libc::EPFNOSUPPORT
                | libc::EPROTONOSUPPORT
                | libc::ESOCKTNOSUPPORT
                | libc::ENOPROTOOPT
        )
    )
}

fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(match host {
        "*" => vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)],
        "::*" => vec![SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)],
        _ => (host, port).to_socket_addrs()?.collect(),
    })
}

/// The listeners all threads accept from.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// Rises with every change, so that a reactor sees cheaply that there was one.
    version: AtomicU64,
    open: Mutex<(u32, Vec<Arc<Listener>>)>,
}

impl Listeners {
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The open listeners and the version they belong to.
    pub fn snapshot(&self) -> (u64, Vec<Arc<Listener>>) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        (self.version(), open.1.clone())
    }

    /// Makes `specs` the listeners: keeps those that are open already, opens the others, closes the
    /// rest. All or nothing.
    pub fn rebind(&self, specs: &[ListenSpec], backlog: u32) -> Result<(), BindError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (next_key, current) = &mut *open;
        let mut wanted = Vec::new();
        for spec in specs {
            if let Some(kept) = current.iter().find(|l| l.spec == *spec) {
                wanted.push(kept.clone());
                continue;
            }
            *next_key += 1;
            if let Some(listener) = Listener::open(*next_key, spec, backlog)? {
                wanted.push(Arc::new(listener));
            }
        }
        for old in current.iter().filter(|l| !wanted.iter().any(|w| w.key == l.key)) {
            // The reactors let go of it in their own time; the address is free at once.
            sys::shutdown(old.raw_fd());
            if let Address::Unix { path, .. } = &old.spec.address {
                let _ = std::fs::remove_file(path);
            }
        }
        *current = wanted;
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Where the listeners really listen (a port of zero in a test becomes a real one).
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.snapshot().1.iter().filter_map(|l| l.local).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_words_become_specs() {
        let specs = ListenSpec::tcp(Kind::Tcp, &["*", "-::*"], 6379);
        assert_eq!(specs.len(), 2);
        assert!(!specs[0].optional && specs[1].optional);
        assert_eq!(specs[1].address, Address::Tcp { host: "::*".to_owned(), port: 6379 });
        assert!(ListenSpec::tcp(Kind::Tls, &["*"], 0).is_empty());
    }

    #[test]
    fn an_absent_address_is_an_error_unless_optional() {
        // 192.0.2.0/24 is reserved for documentation: no machine has it.
        let listeners = Listeners::default();
        let specs = ListenSpec::tcp(Kind::Tcp, &["192.0.2.1"], 7);
        let error = listeners.rebind(&specs, 16).unwrap_err().to_string();
        assert_eq!(
            error,
            "Could not create server TCP listening socket 192.0.2.1:7: bind: Cannot assign \
             requested address"
        );
        listeners.rebind(&ListenSpec::tcp(Kind::Tcp, &["-192.0.2.1"], 7), 16).unwrap();
        assert!(listeners.snapshot().1.is_empty());
    }

    #[test]
    fn a_failed_change_leaves_everything_as_it_was() {
        let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = busy.local_addr().unwrap().port();
        let listeners = Listeners::default();
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
        let mut specs = vec![ListenSpec { kind: Kind::Tcp, address, optional: false }];
        listeners.rebind(&specs, 16).unwrap();
        let (version, before) = listeners.snapshot();
        specs.extend(ListenSpec::tcp(Kind::Tcp, &["127.0.0.1"], taken));
        assert!(listeners.rebind(&specs, 16).is_err());
        assert_eq!(listeners.version(), version);
        assert_eq!(listeners.snapshot().1[0].key, before[0].key);
        // The same again keeps the very same socket.
        listeners.rebind(&specs[..1], 16).unwrap();
        assert_eq!(listeners.snapshot().1[0].key, before[0].key);
        // And what is closed is free at once, although somebody still holds it.
        listeners.rebind(&[], 16).unwrap();
        let _again = std::net::TcpListener::bind(before[0].local.unwrap()).unwrap();
    }
}
