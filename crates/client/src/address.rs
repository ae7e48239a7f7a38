//! Where a server listens.

use std::fmt;
use std::path::PathBuf;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host and a port.
    Tcp {
        /// Name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Returns the address of a host and a port.
    pub fn tcp(host: impl Into<String>, port: u16) -> Address {
        Address::Tcp { host: host.into(), port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(out, "{host}:{port}"),
            Address::Unix(path) => write!(out, "{}", path.display()),
        }
    }
}
