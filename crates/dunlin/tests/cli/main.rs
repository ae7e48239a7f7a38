//! `dunlin cli` beside redis-cli and valkey-cli: the same words, the same output, on one server.

#![allow(clippy::unwrap_used)]

mod beside;
mod modes;
mod support;
mod terminal;
