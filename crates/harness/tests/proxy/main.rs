//! `dunlin proxy` in front of servers, from outside.

mod endings;
mod reloading;
mod serving;
mod support;
mod tls;
