//! The reactor, TLS and connections out, over real sockets on both back-ends.

mod connecting;
mod reactor;
mod support;
mod tls;
mod words;
