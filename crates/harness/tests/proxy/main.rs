//! `dunlin proxy` in front of servers, from outside.

mod admin;
mod endings;
mod reloading;
mod resubscribing;
mod serving;
mod support;
mod tls;
