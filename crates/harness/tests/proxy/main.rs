//! `dunlin proxy` in front of servers, from outside.

mod admin;
mod clusters;
mod endings;
mod large;
mod queues;
mod reloading;
mod resubscribing;
mod sentinels;
mod serving;
mod support;
mod surviving;
mod tls;
