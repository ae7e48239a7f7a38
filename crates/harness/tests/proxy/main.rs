//! `dunlin proxy` in front of servers, from outside.

mod admin;
mod classical;
mod clients;
mod clusters;
mod cut_off;
mod doors;
mod endings;
mod half_moved;
mod large;
mod modules;
mod out_of_memory;
mod queues;
mod reloading;
mod resubscribing;
mod sentinels;
mod sentinels_cut_off;
mod series;
mod serving;
mod sessions;
mod support;
mod surviving;
mod tagging;
mod tls;
