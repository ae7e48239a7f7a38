//! Many clients at once: what they see of each other, in which order.

mod broadcasting;
mod consumer_groups;
mod linearizability;
mod pause;
mod pipelines;
mod scripts_crossing;
mod serving;
mod unblocking;
mod unsubscribing;
mod watching;
