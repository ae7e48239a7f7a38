//! What a part of the process that is no part of the server needs of it: the joint of the admin
//! port.
//!
//! Such a part speaks to the server as a client does, by a connection that it opens inside the
//! process. Beyond that it learns only what the server must say when no client can ask: whether it
//! is ready, what protected mode refuses, and which certificates to show.

use config::{Config, TlsAuthClients};
use engine::Engine;
use net::{Kind, Net, Tag};
use process::{priority, signals};
use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What starts beside the server, before it serves clients and loads its data. Its error keeps the
/// server from starting.
pub type Companion = fn(Inside) -> Result<(), String>;

/// In CLIENT LIST, the address of a connection from inside.
pub(crate) const NAME: &str = "admin-port:0";

/// A connection from inside that is a client like any other, which has to authenticate.
pub(crate) const CLIENT: Tag = Tag(1);
/// A connection from inside that may do everything.
pub(crate) const WATCHER: Tag = Tag(2);

/// A connection by `admin-socket`.
pub(crate) const OPERATOR: Tag = Tag(3);
/// What the thread for operators serves, and no other thread.
pub(crate) const RESERVED: &[Tag] = &[CLIENT, WATCHER, OPERATOR];

/// Connections by `admin-socket` at a time.
pub(crate) const MAX_OPERATORS: usize = 16;

/// Bytes that a replica may have received and not yet applied, and still be ready.
const MAX_HELD_BYTES: u64 = 16 << 20;

/// Why the server is not ready to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// The data set is not complete yet.
    Loading,
    /// A shutdown has begun.
    Stopping,
    /// The role is being handed to a replica.
    HandingOver,
    /// A replica has no link to its primary, or is receiving the whole data set.
    NotInSync,
    /// A replica has not heard from its primary lately, or has much to apply.
    Behind,
}

/// The server, from inside its process.
#[derive(Clone)]
pub struct Inside {
    engine: &'static Engine,
    net: Arc<Net>,
}

impl Inside {
    pub(crate) fn new(engine: &'static Engine, net: &Arc<Net>) -> Inside {
        Inside { engine, net: Arc::clone(net) }
    }

    /// The server's configuration.
    pub fn config(&self) -> &Config {
        &self.engine.config
    }

    /// Opens a connection on which a client begins, as one that has just connected from this
    /// machine.
    ///
    /// # Errors
    /// There is no descriptor left, or the server is stopping.
    pub fn connect(&self) -> io::Result<UnixStream> {
        self.open(CLIENT)
    }

    /// Opens a connection of the server itself, which may do everything and needs no password. It
    /// is for requests that are fixed in the code.
    ///
    /// # Errors
    /// As [`Inside::connect`].
    pub fn watch(&self) -> io::Result<UnixStream> {
        self.open(WATCHER)
    }

    fn open(&self, tag: Tag) -> io::Result<UnixStream> {
        if self.net.is_stopping() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        self.net.adopt(theirs.into(), Kind::Unix, tag);
        Ok(ours)
    }

    /// Whether it has its data, stays, and is in sync if it is a replica.
    ///
    /// # Errors
    /// The first reason why not.
    pub fn readiness(&self) -> Result<(), Unready> {
        let engine = self.engine;
        let is_leaving = engine.pause.is_shutdown() || signals::requested().is_some();
        if is_leaving || self.net.is_stopping() {
            return Err(Unready::Stopping);
        }
        if engine.loading.is_on() {
            return Err(Unready::Loading);
        }
        if engine.failover.is_on() {
            return Err(Unready::HandingOver);
        }
        if engine.upstream.is_replica() { self.sync() } else { Ok(()) }
    }

    fn sync(&self) -> Result<(), Unready> {
        let engine = self.engine;
        if !engine.upstream.is_link_up() || engine.upstream.is_incomplete() {
            return Err(Unready::NotInSync);
        }
        let link = engine.upstream.link().clone();
        // Two pings of the primary may be lost before it counts as silent.
        let silence_ms = 3_000 * i64::from(engine.config.repl_ping_replica_period());
        let now = engine.clock.wall();
        let is_silent = link.heard.is_none_or(|heard| now.0 - heard.0 > silence_ms);
        if is_silent || link.held_bytes > MAX_HELD_BYTES {
            return Err(Unready::Behind);
        }
        Ok(())
    }

    /// Whether protected mode refuses clients from this address, who reach the server at `local`.
    pub fn refuses(&self, address: SocketAddr, local: Option<SocketAddr>) -> bool {
        let config = self.config();
        let is_near = address.ip().to_canonical().is_loopback()
            || config.protected_mode_private_networks()
                && net::share_private_range(Some(address), local);
        config.protected_mode() && self.engine.acl.needs_no_password() && !is_near
    }

    /// The rules and certificates of TLS, if the server has a port for it; as they are now. A client
    /// may come without a certificate: see [`demands_certificates`](Inside::demands_certificates).
    pub fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.net.tls(Tag::default()).map(|context| context.lenient_config())
    }

    /// Whether clients of the port with TLS have to show a certificate.
    pub fn demands_certificates(&self) -> bool {
        self.net.tls(Tag::default()).is_some()
            && self.config().tls_auth_clients() == TlsAuthClients::Yes
    }

    /// Has the calling thread step back behind those that serve clients.
    pub fn step_back(&self) {
        priority::step_back("a thread of the admin port");
    }
}
