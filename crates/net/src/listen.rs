//! Listening sockets: what the configuration asks for, and changing it at run time.
//!
//! All reactor threads watch all listeners, and whichever accepts a connection hands it to the
//! thread that has the fewest. [`Listeners::rebind`] keeps what is still wanted open all the while,
//! and leaves things as they were if something cannot be opened.

use super::peer::{Kind, Tag};
use super::sys;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use structs::sync::lock;

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
        /// Its group, by name; the process's own if there is none.
        group: Option<String>,
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
    /// What its connections are for.
    pub tag: Tag,
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
            let address = Address::Tcp { host: host.to_owned(), port };
            Self { kind, address, optional, tag: Tag::default() }
        };
        binds.iter().map(|word| spec(word.as_ref())).collect()
    }

    /// The listener for `unixsocket`, `unixsocketperm` and `unixsocketgroup`.
    pub fn unix(path: impl Into<PathBuf>, mode: u32, group: Option<String>) -> Self {
        let address = Address::Unix { path: path.into(), mode, group };
        Self { kind: Kind::Unix, address, optional: false, tag: Tag::default() }
    }

    /// The same with a tag.
    pub fn tagged(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    /// Both are for the same port, if perhaps of different addresses.
    fn shares_port(&self, other: &Self) -> bool {
        match (&self.address, &other.address) {
            (Address::Tcp { port: ours, .. }, Address::Tcp { port: theirs, .. }) => ours == theirs,
            _ => false,
        }
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
    /// Why a listener that had to be closed for the new ones could not be opened again.
    pub lost: Option<String>,
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

impl BindError {
    /// What the operator can do about it.
    pub fn advice(&self) -> Option<String> {
        let place = &self.place;
        Some(match (self.unix, self.error.kind()) {
            (true, io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                format!("unixsocket {place}: the folder must exist, and the server's user own it.")
            }
            (false, io::ErrorKind::AddrInUse) => format!(
                "Something listens on {place} already: stop it, or choose another port \
                 (--port 7000)."
            ),
            (false, io::ErrorKind::PermissionDenied) => format!(
                "{place} is not for this user: choose a port from 1024 on, or grant \
                 CAP_NET_BIND_SERVICE."
            ),
            (false, io::ErrorKind::AddrNotAvailable) => format!(
                "This machine does not have the address of {place}: change bind, or write a - \
                 before an address that may be missing."
            ),
            (false, _) if self.step == "resolve" => format!(
                "No address is known by the name of {place}: bind takes addresses of this machine."
            ),
            _ => return None,
        })
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
    tag: AtomicU32,
    fd: OwnedFd,
}

impl Listener {
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// What its connections are for.
    pub fn tag(&self) -> Tag {
        Tag(self.tag.load(Ordering::Relaxed))
    }

    /// Whether it is what `spec` asks for; once it is open, `optional` makes no difference, and the
    /// tag can change.
    fn serves(&self, spec: &ListenSpec) -> bool {
        self.spec.kind == spec.kind && self.spec.address == spec.address
    }

    /// Gives the address back: at once, though the reactors let go of the socket in their own time.
    fn close(&self) {
        sys::shutdown(self.raw_fd());
        if let Address::Unix { path, .. } = &self.spec.address {
            // Somebody else may have removed it, which is as good.
            let _ = std::fs::remove_file(path);
        }
    }

    fn open(key: u32, spec: &ListenSpec, backlog: u32) -> Result<Option<Self>, BindError> {
        let listener = |fd, unix_path, local| {
            let tag = AtomicU32::new(spec.tag.0);
            Ok(Some(Self { key, spec: spec.clone(), unix_path, local, tag, fd }))
        };
        match &spec.address {
            Address::Unix { path, mode, group } => {
                let place = path.display().to_string();
                match sys::listen_unix(path, *mode, group.as_deref(), backlog) {
                    Ok(fd) => listener(fd, Some(place.into()), None),
                    Err((step, error)) => {
                        Err(BindError { place, step, unix: true, error, lost: None })
                    }
                }
            }
            Address::Tcp { host, port } => {
                let failed = |(step, error): (&'static str, io::Error)| {
                    let place = format!("{host}:{port}");
                    if spec.optional && is_absent(&error) {
                        return Ok(None);
                    }
                    Err(BindError { place, step, unix: false, error, lost: None })
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
        let open = lock(&self.open);
        (self.version(), open.1.clone())
    }

    /// Closes to new connections. The sockets stay, and so do the files of Unix sockets.
    pub fn refuse(&self) {
        self.snapshot().1.iter().for_each(|listener| sys::shutdown(listener.raw_fd()));
    }

    /// Makes `specs` the listeners: keeps those that are open already, opens the others, closes the
    /// rest. If one cannot be opened, the listeners stay what they were.
    pub fn rebind(&self, specs: &[ListenSpec], backlog: u32) -> Result<(), BindError> {
        let mut open = lock(&self.open);
        let (next_key, current) = &mut *open;
        let is_wanted = |l: &Arc<Listener>| specs.iter().any(|spec| l.serves(spec));
        let (kept, leaving): (Vec<_>, Vec<_>) = current.iter().cloned().partition(is_wanted);
        // `*` holds every address of its port, so these have to go before the new ones can come.
        let is_in_the_way = |l: &Arc<Listener>| specs.iter().any(|spec| l.spec.shares_port(spec));
        let (in_the_way, leaving): (Vec<_>, Vec<_>) = leaving.into_iter().partition(is_in_the_way);
        in_the_way.iter().for_each(|listener| listener.close());

        match open_missing(specs, &kept, next_key, backlog) {
            Ok(wanted) => {
                leaving.iter().for_each(|listener| listener.close());
                *current = wanted;
                self.version.fetch_add(1, Ordering::Release);
                Ok(())
            }
            Err(error) if in_the_way.is_empty() => Err(error),
            Err(mut error) => {
                let closed: Vec<_> = in_the_way.iter().map(|l| l.spec.clone()).collect();
                current.retain(|l| !in_the_way.iter().any(|gone| gone.key == l.key));
                match open_missing(&closed, &[], next_key, backlog) {
                    Ok(again) => current.extend(again),
                    Err(lost) => error.lost = Some(lost.to_string()),
                }
                self.version.fetch_add(1, Ordering::Release);
                Err(error)
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.snapshot().1.is_empty()
    }

    /// Where the listeners really listen (a port of zero in a test becomes a real one).
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.snapshot().1.iter().filter_map(|l| l.local).collect()
    }
}

/// One listener for each of `specs`: the one in `kept` or a new one.
fn open_missing(
    specs: &[ListenSpec],
    kept: &[Arc<Listener>],
    next_key: &mut u32,
    backlog: u32,
) -> Result<Vec<Arc<Listener>>, BindError> {
    let mut listeners = Vec::new();
    for spec in specs {
        if let Some(listener) = kept.iter().find(|listener| listener.serves(spec)) {
            listener.tag.store(spec.tag.0, Ordering::Relaxed);
            listeners.push(Arc::clone(listener));
            continue;
        }
        *next_key += 1;
        listeners.extend(Listener::open(*next_key, spec, backlog)?.map(Arc::new));
    }
    Ok(listeners)
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
        let mut specs =
            vec![ListenSpec { kind: Kind::Tcp, address, optional: false, tag: Tag::default() }];
        listeners.rebind(&specs, 16).unwrap();
        let (version, before) = listeners.snapshot();
        specs.extend(ListenSpec::tcp(Kind::Tcp, &["127.0.0.1"], taken));
        assert!(listeners.rebind(&specs, 16).is_err());
        assert_eq!(listeners.version(), version);
        assert_eq!(listeners.snapshot().1[0].key, before[0].key);
        // The same again keeps the very same socket.
        listeners.rebind(&specs[..1], 16).unwrap();
        assert_eq!(listeners.snapshot().1[0].key, before[0].key);
        // So it does when the address has become, or is no longer, optional.
        specs[0].optional = true;
        listeners.rebind(&specs[..1], 16).unwrap();
        assert_eq!(listeners.snapshot().1[0].key, before[0].key);
        // A closed address is free at once, although another holder has the socket open.
        listeners.rebind(&[], 16).unwrap();
        let _again = std::net::TcpListener::bind(before[0].local.unwrap()).unwrap();
    }

    #[test]
    fn every_address_makes_room_for_one_and_comes_back_if_that_fails() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let listeners = Listeners::default();
        listeners.rebind(&ListenSpec::tcp(Kind::Tcp, &["*"], port), 16).unwrap();
        let refused = ListenSpec::tcp(Kind::Tcp, &["127.0.0.1", "192.0.2.1"], port);
        assert!(listeners.rebind(&refused, 16).is_err());
        assert_eq!(listeners.addresses(), [SocketAddr::from(([0, 0, 0, 0], port))]);
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        listeners.rebind(&ListenSpec::tcp(Kind::Tcp, &["127.0.0.1"], port), 16).unwrap();
        assert_eq!(listeners.addresses(), [SocketAddr::from(([127, 0, 0, 1], port))]);
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    }
}
