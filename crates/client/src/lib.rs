//! A client of servers that speak RESP, for all of this process that asks one and waits; and one of
//! HTTP beside it.
//!
//! ```text
//!   url ── address ── dial ── stream ── client ── slots
//!                     │        tls, renewed
//!                     └ http
//! ```
//!
//! [`Connector`] opens a [`Client`], which sends requests and takes replies as [`resp::Value`]s.
//! What each caller needs:
//!
//! | caller | asks | waits | TLS | takes beside replies |
//! |---|---|---|---|---|
//! | `node::talk` | a few commands in one pipeline | until one deadline for all | `tls-*`, any name | – |
//! | `proxy::watch` | one command, then messages | a second each | the pool's | messages without end |
//! | `transfer` | pipelines of megabytes | a limit each | `tls-*` | snapshots, streams of PSYNC |
//! | `server` | links of replicas, MIGRATE | its own timeouts | `tls-*` | [`Stream`] alone |
//! | `bench` | beside the load | 10 s each | files and suites | the load has the [`Stream`] alone |
//! | `cli` | what a person types | for ever, or not at all | files and suites | pushes, SYNC, uploads |
//! | `console` | asynchronously, by `tokio` | its own timeouts | files | [`resp::Incoming`], [`Url`] alone |
//! | `etcd` | by [`http`] | until one deadline for each call | `tls-*` | answers without end |
//! | `dunlin cluster`, `bench` | nodes' admin ports by [`http`] | half a minute, a minute | – | – |
//!
//! The design is in `docs/internals/client.md`.

mod address;
mod client;
mod dial;
pub mod http;
mod renewed;
mod slots;
mod stream;
pub mod tls;
mod url;

pub use address::Address;
pub use client::{Client, Connector, Login, Patience};
pub use dial::{Dial, Family, dial};
pub use renewed::Renewed;
pub use slots::{Range, parse_slots};
pub use stream::Stream;
pub use url::{Credentials, Scheme, Url, UrlError, decoded};
