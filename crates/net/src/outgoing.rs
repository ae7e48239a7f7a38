//! Connections that a handler asks for: from the wish to `opened` or `not_opened`.
//!
//! ```text
//!  connect ── name? ── resolve ──┐
//!     │                          ▼
//!     └───────────────────── socket, connect(2) ── watched until writable ── attached ─┬─ opened
//!                                ▲                      │                      TLS ────┘
//!                                └── next address ──────┴── none left, too late: not_opened
//! ```
//!
//! The call makes the socket and begins to connect; what needs the back-end follows in
//! [`Reactor::advance`], twice a turn. So a connection can be asked for wherever a handler is
//! called.

use super::conn::{ConnId, Link, MAX_SLOTS, Token, flag};
use super::core::Core;
use super::cx::Cx;
use super::peer::{Kind, Tag};
use super::reactor::Reactor;
use super::resolve::Found;
use super::tls::{Session, TlsClient};
use super::{Close, Handler, sys};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// An address of IPv4 or IPv6 and its port.
    Socket(SocketAddr),
    /// The name of a host, or an address as text, and a port. A name is looked up by another
    /// thread.
    Name(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A connection that a handler wants.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Where to.
    pub target: Target,
    /// The rules of TLS and the server's name; none for plain bytes.
    pub tls: Option<TlsClient>,
    /// What it is for.
    pub tag: Tag,
    /// How long it may take until it is open, look-up and handshake included.
    pub timeout: Duration,
}

/// Why a connection has not come about.
#[derive(Debug)]
pub enum ConnectError {
    /// The name cannot be looked up.
    Resolve(io::Error),
    /// The system says so.
    System(io::Error),
    /// The TLS handshake failed, for this reason.
    Tls(String),
    /// It was not open in time.
    Timeout,
    /// The handler has closed it, or the reactor is stopping.
    GivenUp,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(why) => write!(f, "cannot look up the name: {why}"),
            Self::System(why) => write!(f, "{why}"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Timeout => write!(f, "no connection in time"),
            Self::GivenUp => write!(f, "given up"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// What is to be done next for a connection that is on its way.
#[derive(Debug)]
enum OutgoingStep {
    Resolve(String, u16),
    /// The socket has begun to connect.
    Watch,
    /// It was connected at once.
    Finish,
    /// An event, an answer or the deadline will tell.
    Wait,
}

/// A connection on its way.
#[derive(Debug)]
pub(super) struct Connecting {
    token: Token,
    tag: Tag,
    deadline: Instant,
    step: OutgoingStep,
    /// Addresses still to be tried.
    addresses: VecDeque<SocketAddr>,
    tls: Option<TlsClient>,
    pub unix_path: Option<Arc<str>>,
    /// Why it failed, if that is known better than its end says.
    error: Option<ConnectError>,
}

impl Core {
    /// A vacant slot; `None` if there are as many as there may be.
    pub fn take_slot(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.links.len() < MAX_SLOTS).then(|| {
                self.links.push(Link::default());
                (self.links.len() - 1) as u32
            })
        })
    }

    /// See [`Cx::connect`].
    pub fn connect(&mut self, outgoing: Outgoing) -> ConnId {
        let Outgoing { target, tls, tag, timeout } = outgoing;
        let Some(slot) = self.take_slot() else {
            let nothing = Token { slot: MAX_SLOTS as u32 - 1, generation: u32::MAX };
            let id = ConnId::new(self.thread, nothing);
            let why = io::Error::from_raw_os_error(libc::EMFILE);
            self.not_opened.push((id, tag, ConnectError::System(why)));
            return id;
        };
        let link = &mut self.links[slot as usize];
        link.flags = flag::CONNECTING | flag::OUTGOING;
        link.tag = tag;
        self.live += 1;
        let mut connecting = Connecting {
            token: self.token(slot),
            tag,
            deadline: self.now + timeout,
            step: OutgoingStep::Wait,
            addresses: VecDeque::new(),
            tls,
            unix_path: None,
            error: None,
        };
        match target {
            Target::Socket(address) => {
                connecting.addresses.push_back(address);
                self.try_next_address(slot, &mut connecting);
            }
            Target::Name(host, port) => match host.parse() {
                Ok(ip) => {
                    connecting.addresses.push_back(SocketAddr::new(ip, port));
                    self.try_next_address(slot, &mut connecting);
                }
                Err(_) => connecting.step = OutgoingStep::Resolve(host, port),
            },
            Target::Unix(path) => {
                connecting.unix_path = Some(path.to_string_lossy().into());
                let begun = sys::connect_unix(&path).map(|fd| (fd, true));
                self.note_begun(slot, &mut connecting, begun);
            }
        }
        self.connecting.push(connecting);
        self.id(slot)
    }

    /// See [`Cx::adopt`].
    pub fn adopt(&mut self, fd: OwnedFd, kind: Kind, tag: Tag) -> ConnId {
        let Some(slot) = self.take_slot() else {
            let nothing = Token { slot: MAX_SLOTS as u32 - 1, generation: u32::MAX };
            return ConnId::new(self.thread, nothing);
        };
        let link = &mut self.links[slot as usize];
        (link.fd, link.tag) = (Some(fd), tag);
        link.flags = flag::CONNECTING | flag::ADOPTED;
        self.live += 1;
        let token = self.token(slot);
        self.adopted.push((token, kind));
        self.id(slot)
    }

    /// Begins to connect to the next address, or condemns the connection if there is none.
    fn try_next_address(&mut self, slot: u32, connecting: &mut Connecting) {
        let begun = match connecting.addresses.pop_front() {
            Some(address) => sys::begin_to_connect(&address),
            None => Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)),
        };
        self.note_begun(slot, connecting, begun);
    }

    fn note_begun(
        &mut self,
        slot: u32,
        connecting: &mut Connecting,
        begun: io::Result<(OwnedFd, bool)>,
    ) {
        match begun {
            Ok((fd, is_connected)) => {
                self.links[slot as usize].fd = Some(fd);
                connecting.step =
                    if is_connected { OutgoingStep::Finish } else { OutgoingStep::Watch };
            }
            Err(error) => self.attempt_failed(slot, connecting, error),
        }
    }

    /// An address does not work: the next one, or the end.
    fn attempt_failed(&mut self, slot: u32, connecting: &mut Connecting, error: io::Error) {
        if connecting.addresses.is_empty() {
            connecting.step = OutgoingStep::Wait;
            connecting.error = Some(ConnectError::System(error));
            self.kill(slot, Close::Asked);
        } else {
            self.try_next_address(slot, connecting);
        }
    }

    fn connecting_at(&self, token: Token) -> Option<usize> {
        self.connecting.iter().position(|connecting| connecting.token == token)
    }

    /// Takes the connection out of those that are on their way, because it is open.
    pub fn take_connecting(&mut self, slot: u32) -> Option<Connecting> {
        let at = self.connecting_at(self.token(slot))?;
        Some(self.connecting.swap_remove(at))
    }

    /// A connection on its way ends: says why.
    pub fn connecting_ended(&mut self, token: Token, why: Close) {
        let Some(at) = self.connecting_at(token) else { return };
        let connecting = self.connecting.swap_remove(at);
        let error = connecting.error.unwrap_or_else(|| match why {
            Close::Failed(errno) => ConnectError::System(io::Error::from_raw_os_error(errno)),
            Close::Eof => ConnectError::System(io::ErrorKind::UnexpectedEof.into()),
            Close::Tls => ConnectError::Tls("the handshake failed".to_owned()),
            Close::Asked | Close::Stopping => ConnectError::GivenUp,
        });
        self.not_opened.push((ConnId::new(self.thread, token), connecting.tag, error));
    }

    /// Notes why the handshake of a connection on its way failed.
    pub fn handshake_failed(&mut self, slot: u32, why: &str) {
        if let Some(at) = self.connecting_at(self.token(slot)) {
            self.connecting[at].error.get_or_insert_with(|| ConnectError::Tls(why.to_owned()));
        }
    }

    /// Whether something is to be done for connections on their way.
    pub fn has_steps(&self) -> bool {
        !self.not_opened.is_empty()
            || self
                .connecting
                .iter()
                .any(|connecting| !matches!(connecting.step, OutgoingStep::Wait))
    }

    /// By when the first of the connections on their way has to be open.
    pub fn connecting_deadline(&self) -> Option<Instant> {
        self.connecting.iter().map(|connecting| connecting.deadline).min()
    }
}

impl<H: Handler> Reactor<H> {
    /// Does what is due for connections on their way, and adopts sockets.
    #[inline]
    pub(super) fn advance(&mut self) {
        if !self.core.connecting.is_empty() || !self.core.not_opened.is_empty() {
            self.advance_connecting();
        }
        if !self.core.adopted.is_empty() {
            self.adopt();
        }
    }

    fn adopt(&mut self) {
        for (token, kind) in std::mem::take(&mut self.core.adopted) {
            if let Some(slot) = self.core.find(token) {
                self.seat_users();
                self.core.links[slot as usize].flags &= !flag::CONNECTING;
                let unix_path = (kind == Kind::Unix).then(|| Arc::from(""));
                self.set_up(slot, kind, unix_path);
                if !self.core.links[slot as usize].out.is_empty() {
                    self.core.mark_dirty(slot);
                }
            }
        }
    }

    #[cold]
    fn advance_connecting(&mut self) {
        self.seat_users();
        let (thread, now) = (self.core.thread as usize, self.core.now);
        // Once each: what is asked for meanwhile gets its turn.
        let tokens: Vec<Token> = self.core.connecting.iter().map(|c| c.token).collect();
        for token in tokens {
            let (Some(slot), Some(at)) = (self.core.find(token), self.core.connecting_at(token))
            else {
                continue;
            };
            let connecting = &mut self.core.connecting[at];
            if connecting.deadline <= now {
                connecting.error = Some(ConnectError::Timeout);
                self.core.kill(slot, Close::Asked);
                continue;
            }
            match std::mem::replace(&mut connecting.step, OutgoingStep::Wait) {
                OutgoingStep::Wait => {}
                OutgoingStep::Resolve(host, port) => {
                    self.net.resolver().ask(&self.net, token, thread, (host, port));
                }
                OutgoingStep::Watch => self.watch(slot),
                OutgoingStep::Finish => self.connected(slot),
            }
        }
        self.reap();
    }

    fn watch(&mut self, slot: u32) {
        let token = self.core.token(slot);
        let Some(fd) = &self.core.links[slot as usize].fd else { return };
        if let Err(error) = self.driver.watch(token, fd.as_raw_fd()) {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.core.kill(slot, Close::Failed(errno));
        }
    }

    /// A socket that is being connected can be written to, or has failed.
    pub(super) fn on_connectable(&mut self, slot: u32) {
        let Some(at) = self.core.connecting_at(self.core.token(slot)) else { return };
        let Some(fd) = &self.core.links[slot as usize].fd else { return };
        match sys::connect_outcome(fd.as_raw_fd()) {
            Ok(()) => self.connected(slot),
            Err(error) => {
                self.forget_attempt(slot);
                let mut connecting = self.core.connecting.swap_remove(at);
                self.core.attempt_failed(slot, &mut connecting, error);
                self.core.connecting.push(connecting);
            }
        }
    }

    /// Lets go of a socket that could not be connected.
    fn forget_attempt(&mut self, slot: u32) {
        let token = self.core.token(slot);
        let link = &mut self.core.links[slot as usize];
        self.driver.detach(token, 0);
        self.core.leaving.add(link.fd.take(), self.net.admission());
    }

    /// A socket is connected: with TLS the handshake follows.
    fn connected(&mut self, slot: u32) {
        let token = self.core.token(slot);
        let Some(at) = self.core.connecting_at(token) else { return };
        let Some(fd) = self.core.links[slot as usize].fd.as_ref().map(|fd| fd.as_raw_fd()) else {
            return;
        };
        if self.core.connecting[at].unix_path.is_none() {
            let _ = sys::set_nodelay(fd);
            let _ = sys::set_keepalive(fd, self.net.keepalive_seconds());
        }
        if let Err(error) = self.driver.attach(token, fd) {
            self.core.kill(slot, Close::Failed(error.raw_os_error().unwrap_or(libc::EIO)));
            return;
        }
        self.core.links[slot as usize].flags &= !flag::CONNECTING;
        match self.core.connecting[at].tls.as_ref().map(Session::to_server) {
            None => {
                self.introduce(slot, None);
                let link = &self.core.links[slot as usize];
                if !link.out.is_empty() || link.is(flag::CLOSING) {
                    self.core.mark_dirty(slot);
                }
            }
            Some(Ok(session)) => {
                let link = &mut self.core.links[slot as usize];
                link.tls = Some(Box::new(session));
                link.flags |= flag::TLS | flag::HANDSHAKE;
                // The session has the first word.
                self.core.mark_dirty(slot);
            }
            Some(Err(error)) => {
                self.core.handshake_failed(slot, &error.to_string());
                self.core.kill(slot, Close::Tls);
            }
        }
    }

    /// Takes what the resolver has found for this thread.
    pub(super) fn on_found(&mut self) {
        for Found { token, addresses } in self.net.take_found(self.core.thread as usize) {
            let (Some(slot), Some(at)) = (self.core.find(token), self.core.connecting_at(token))
            else {
                continue;
            };
            let mut connecting = self.core.connecting.swap_remove(at);
            match addresses {
                Ok(addresses) => {
                    connecting.addresses = addresses.into();
                    self.core.try_next_address(slot, &mut connecting);
                }
                Err(error) => {
                    connecting.error = Some(ConnectError::Resolve(error));
                    self.core.kill(slot, Close::Asked);
                }
            }
            self.core.connecting.push(connecting);
        }
    }

    /// Tells the handler what has not come about.
    pub(super) fn tell_not_opened(&mut self) {
        for (id, tag, error) in std::mem::take(&mut self.core.not_opened) {
            let mut cx = Cx { core: &mut self.core, users: &mut self.users };
            self.handler.not_opened(id, tag, &error, &mut cx);
        }
    }

    /// Makes room for what the handler keeps for slots that callbacks have taken.
    #[inline]
    pub(super) fn seat_users(&mut self) {
        if self.users.len() < self.core.links.len() {
            self.users.resize_with(self.core.links.len(), || None);
        }
    }
}
