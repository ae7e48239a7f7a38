//! What the console is given: a server to speak to, and the rules of the port that it serves on.

use rustls::ServerConfig;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

pub use web::Peer;
pub use web::rest::Boxed;

/// A connection to the server, on which RESP is spoken.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// On behalf of what a connection is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Of a user, as which the console authenticates.
    User,
    /// Of the console itself, which samples what the server does. The connection needs no
    /// authentication, and only requests that are fixed in the code are sent on it.
    Watching,
}

/// A thread of the server's process, and the processor time that it has used.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadTime {
    /// Its name.
    pub name: String,
    /// Seconds, of the process and of the kernel on its behalf.
    pub seconds: f64,
}

/// The server that is shown, and the rules of the port.
pub trait Host: Send + Sync + 'static {
    /// Opens a connection to the server.
    fn open(&self, purpose: Purpose) -> Boxed<io::Result<Box<dyn Stream>>>;

    /// Whether the server can do its work: the reason why not, for the log of a probe.
    fn readiness(&self) -> Boxed<Result<(), String>>;

    /// Whether protected mode refuses requests that come by this connection.
    fn refuses(&self, peer: Peer) -> bool;

    /// Names under which a default user without a password is answered, beside those that only this
    /// machine has; with blanks between them.
    fn trusted_names(&self) -> String;

    /// Whether a client has to show a certificate. [`tls`](Host::tls) lets others in as well, since
    /// probes have none.
    fn demands_certificates(&self) -> bool {
        false
    }

    /// The certificates of the port, if it speaks TLS; asked for each connection.
    fn tls(&self) -> Option<Arc<ServerConfig>>;

    /// Returns the user that connections are of already, where the port has rules of its own that
    /// let requests in. No further log-in is needed then.
    fn standing_user(&self) -> Option<String> {
        None
    }

    /// The threads of the server, if it runs in this process.
    fn threads(&self) -> Vec<ThreadTime>;

    /// Where the server is, for people.
    fn name(&self) -> String;

    /// Prepares a thread of the console.
    fn begin_thread(&self) {}

    /// Writes a line into the log.
    fn log(&self, line: &str);
}
