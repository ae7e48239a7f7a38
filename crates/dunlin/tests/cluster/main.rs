//! `dunlin cluster`: machines and databases, with real processes and a real etcd.

mod admin_tls;
mod audit;
mod bus;
mod corpus;
mod data;
mod drain;
mod encrypted;
mod full_disk;
mod growing;
mod hashing;
mod lives;
mod locked;
mod nemesis;
mod reshape;
mod rollback;
mod sources;
mod support;
mod surge;
mod unplaced;
mod upgrade;
mod words;
