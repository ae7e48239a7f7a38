//! The decisions of a cluster, without any I/O: what etcd holds, which transactions change it, and
//! when a copy leads, follows, refuses and takes over.
//!
//! ```text
//!   driver         a copy and its coordinator on one thread: calls one after the other
//!   copy           one copy's lease and role: events and time in, actions out
//!   promotion      fences, the choice of a successor, the transactions of fail-over
//!   describe       what clients are told: CLUSTER SLOTS, NODES, INFO, MOVED
//!   change         what operators ask for (MEET, ADDSLOTS, REPLICATE, FORGET …), as transactions
//!   view           all keys of one database, read at one revision
//!   known          what a copy knew last, for the day on which the coordinator knows less
//!   notices        what changes for clients between two views
//!   bus            the ports that copies have for each other, and whether they are used
//!   shared         what all copies of a database have alike: users, libraries of functions
//!   topology       shards, slots, copies, epochs, and their JSON
//!   stored         the rule for values that versions share: what is kept, and which may write
//!   coordinator    the six calls that etcd and the simulator answer
//!   hashing        from a key to its slot: the standard rule, or rules of the database's own
//!   id  slots      node ids and incarnations; sets of hash slots
//! ```
//!
//! `docs/internals/cluster.md` has the rules and why they hold. Nothing here reads a clock: a
//! [`Moment`] comes with every call that needs one.

pub mod bus;
pub mod change;
pub mod coordinator;
pub mod copy;
pub mod describe;
pub mod driver;
pub mod hashing;
pub mod id;
pub mod known;
pub mod nodes_conf;
pub mod notices;
pub mod promotion;
pub mod shared;
pub mod slots;
pub mod stored;
pub mod topology;
pub mod view;

/// A moment on a process's monotonic clock, counted from a fixed start.
pub type Moment = std::time::Duration;
