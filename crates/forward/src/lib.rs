//! Requests that go to other servers, without their network: what is known of a pool's servers,
//! which server has a key, and one thread's clients and connections.
//!
//! `dunlin proxy` and a node of a cluster are the two users. What they do differently is their
//! [`policy`]. [`settings`] is what they say about a pool, [`placement`] says which server has a
//! key, [`pool`] is what threads share of a pool and each thread's view of it, and [`hub`] is a
//! thread's clients and servers without their sockets, which [`network`] adds. [`failure`] says why
//! a request gets no reply.

pub mod failure;
pub mod hub;
pub mod network;
pub mod placement;
pub mod policy;
pub mod pool;
pub mod settings;
pub mod stats;
pub mod vocabulary;
pub mod wire;
