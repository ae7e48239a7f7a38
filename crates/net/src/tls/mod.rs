//! TLS: the certificates and rules of the server ([`TlsContext`]), and one connection's session.
//!
//! A context is immutable. Reloading builds a new one from the files and swaps it in for the
//! connections to come; those that exist keep the one they began with.

mod ciphers;
mod context;
mod name;
mod outgoing;
mod session;

pub use context::{ClientAuth, TlsContext, TlsError, TlsSettings};
pub use outgoing::{NameCheck, TlsClient, Trust, client_rules, client_rules_trusting};
pub(super) use session::{FeedResult, Session};
