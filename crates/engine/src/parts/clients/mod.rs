//! The registry of connected clients: what CLIENT LIST shows and CLIENT KILL finds.
//!
//! A client's state lives in its [`crate::Session`], which only its thread touches. What others
//! may see of it is copied here with relaxed stores after each batch of commands.

pub mod acks;
pub mod forwarding;
pub mod interest;
pub mod last_wait;
pub mod late_reply;
pub mod mailbox;
pub mod pause;
pub(crate) mod prefix_list;
pub mod returned;
pub mod session;
pub mod suspension;
pub mod usage;
pub mod waiter;
pub mod watching;

use crate::stats::Stats;
use keyspace::{DbIndex, Millis};
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use structs::sync::lock;
use waiter::Waiter;

/// What all threads may know of a client.
pub struct Client {
    /// Its number, never used twice.
    pub id: u64,
    /// The thread it belongs to.
    pub thread: usize,
    /// `ip:port` of the peer, or the path of the Unix socket.
    pub addr: String,
    /// `ip:port` it connected to.
    pub laddr: String,
    /// The file descriptor, for CLIENT LIST.
    pub fd: i32,
    /// When it connected, milliseconds since the epoch.
    pub created_ms: i64,
    /// Names it gave itself.
    pub names: Mutex<Names>,
    /// Its blocked command, the last one if there is none now.
    pub(crate) wait: Mutex<Weak<Waiter>>,
    /// Its command that waits at another node.
    pub(crate) elsewhere: Mutex<Option<WaitElsewhere>>,
    /// Its commands that a background thread has and that may write.
    pub(crate) unfinished: AtomicUsize,
    /// Its connection is gone, and the registry need not have it any more.
    pub(crate) is_unconnected: AtomicBool,
    /// Figures that its thread keeps up to date.
    pub live: Live,
}

/// Names a client gave itself.
#[derive(Default, Clone, Debug)]
pub struct Names {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: Vec<u8>,
    /// The authenticated user.
    pub user: String,
    /// Of a link: the user for whose client its requests are.
    pub acts_for: Option<String>,
}

/// A command that waits at another node of the cluster.
#[derive(Debug)]
pub struct WaitElsewhere {
    /// Its words.
    pub words: Vec<Box<[u8]>>,
    /// The selected database.
    pub db: DbIndex,
    /// Why the client may not send it any more: the reply when it has been ended there.
    pub error: Option<Vec<u8>>,
}

/// How a client has gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Departure {
    /// It has hung up, or the server ends.
    Left = 1,
    /// It was closed: by CLIENT KILL, or because it exceeded a limit.
    Closed = 2,
}

/// Figures of a client, each written by its own thread only.
#[derive(Default)]
pub struct Live {
    /// Time of the last command, milliseconds since the epoch.
    pub last_seen_ms: AtomicI64,
    /// Selected database.
    pub db: AtomicU32,
    /// Flags of CLIENT LIST, as bits; see [`flag`].
    pub flags: AtomicU64,
    /// Index of the last command in the table, plus one.
    pub last_command: AtomicUsize,
    /// Subscribed channels.
    pub channels: AtomicUsize,
    /// Subscribed patterns.
    pub patterns: AtomicUsize,
    /// Subscribed shard channels.
    pub shard_channels: AtomicUsize,
    /// Queued commands of MULTI plus one; 0 outside.
    pub multi: AtomicUsize,
    /// Watched keys.
    pub watched: AtomicUsize,
    /// Bytes of the query buffer in use.
    pub query_bytes: AtomicUsize,
    /// Bytes of the query buffer that are free.
    pub query_free_bytes: AtomicUsize,
    /// Bytes of parsed words of the unfinished command.
    pub argv_bytes: AtomicUsize,
    /// Bytes of queued commands.
    pub multi_bytes: AtomicUsize,
    /// Size of the buffer that replies are written to; it has one only while it has a reply.
    pub reply_buffer_bytes: AtomicUsize,
    /// The longest reply of the last seconds.
    pub reply_peak: AtomicUsize,
    /// Bytes in that buffer.
    pub buffered_bytes: AtomicUsize,
    /// Buffers that wait because the client does not read.
    pub output_chunks: AtomicUsize,
    /// Bytes of memory they take.
    pub output_bytes: AtomicUsize,
    /// It was chosen to be closed because clients use too much memory.
    pub is_evicted: AtomicBool,
    /// Its [`Departure`]; 0 while it is there.
    departure: AtomicU8,
    /// What it took when it was chosen, until it is closed.
    pub leaving_bytes: AtomicUsize,
    /// All memory it takes, as it was last counted.
    pub memory_bytes: AtomicUsize,
    /// Client that invalidations are redirected to; −1 when tracking is off, 0 to itself.
    pub redirect: AtomicI64,
    /// 2 or 3.
    pub protocol: AtomicU32,
    /// The kind of addresses in maintenance notices; 0: it wants none.
    pub notices: AtomicU8,
    /// It waits at another node of the cluster.
    pub waits_elsewhere: AtomicBool,
    /// Of a link that one client of another node has for itself: the number of that client. 0:
    /// none.
    pub origin: AtomicU64,
    /// Bytes received.
    pub net_in: AtomicU64,
    /// Bytes sent.
    pub net_out: AtomicU64,
    /// Commands run.
    pub commands: AtomicU64,
}

/// Bits of [`Live::flags`].
pub mod flag {
    /// `b`: waits in a blocking command.
    pub const BLOCKED: u64 = 1 << 0;
    /// `x`: inside MULTI.
    pub const MULTI: u64 = 1 << 1;
    /// `O`: MONITOR.
    pub const MONITOR: u64 = 1 << 2;
    /// `P`: subscribed.
    pub const PUBSUB: u64 = 1 << 3;
    /// `U`: by Unix socket.
    pub const UNIX_SOCKET: u64 = 1 << 4;
    /// `d`: a watched key changed.
    pub const WATCH_DIRTY: u64 = 1 << 5;
    /// `t`: tracking.
    pub const TRACKING: u64 = 1 << 6;
    /// `R`: the tracking redirection is gone.
    pub const BROKEN_REDIRECT: u64 = 1 << 7;
    /// `B`: broadcast tracking.
    pub const TRACKING_BCAST: u64 = 1 << 8;
    /// `e`: not evicted for memory.
    pub const NO_EVICT: u64 = 1 << 9;
    /// `T`: does not touch keys' access times.
    pub const NO_TOUCH: u64 = 1 << 10;
    /// `c`: closes after the reply.
    pub const CLOSING: u64 = 1 << 11;
    /// By TLS; not shown.
    pub const TLS: u64 = 1 << 12;
    /// CLIENT CAPA REDIRECT; shown apart.
    pub const CAN_REDIRECT: u64 = 1 << 13;
    /// Waits in a blocking command until some time at most; not shown.
    pub const TIMED_WAIT: u64 = 1 << 14;
    /// `S`: a replica.
    pub const REPLICA: u64 = 1 << 15;
    /// `M`: the primary.
    pub const PRIMARY: u64 = 1 << 16;
    /// `I`: imports data.
    pub const IMPORT_SOURCE: u64 = 1 << 17;
    /// `r`: READONLY.
    pub const READS_REPLICA: u64 = 1 << 18;
    /// By IPv6; not shown.
    pub const IPV6: u64 = 1 << 19;
    /// A link of another node of the cluster (CLIENT CAPA NODE); not shown.
    pub const LINK: u64 = 1 << 20;
}

impl Client {
    /// A client without a connection, for internal commands.
    pub(crate) fn unconnected(id: u64, thread: usize, now: Millis) -> Client {
        Client {
            id,
            thread,
            addr: String::new(),
            laddr: String::new(),
            fd: -1,
            created_ms: now.0,
            names: Mutex::default(),
            wait: Mutex::default(),
            elsewhere: Mutex::default(),
            unfinished: AtomicUsize::new(0),
            is_unconnected: AtomicBool::new(false),
            // Zero would say that it tracks keys.
            live: Live { redirect: AtomicI64::new(-1), ..Live::default() },
        }
    }

    /// Notes that it has gone.
    pub(crate) fn depart(&self, departure: Departure) {
        self.live.departure.fetch_max(departure as u8, AcqRel);
    }

    /// Keeps it from running anything more, whatever it has sent; a batch of commands that its
    /// thread runs just now may end. Its thread is to be told to close it.
    pub fn kill(&self, stats: &Stats) {
        self.depart(Departure::Closed);
        if let Some(waiter) = self.waiter() {
            waiter.call_off();
            waiter.uncount(stats);
        }
    }

    /// Whether it is a link of another node of the cluster.
    pub fn is_link(&self) -> bool {
        self.live.flags.load(Relaxed) & flag::LINK != 0
    }

    /// Whether it has been [killed](Client::kill).
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.has_gone(Departure::Closed)
    }

    /// Whether it is going to be closed, by CLIENT KILL or for the memory it takes, whatever its
    /// thread does now: it must not be found any more.
    #[inline]
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_killed() || self.live.is_evicted.load(Acquire)
    }

    /// Notes that it waits.
    pub(crate) fn begin_wait(&self, waiter: &Arc<Waiter>) {
        *lock(&self.wait) = Arc::downgrade(waiter);
    }

    fn waiter(&self) -> Option<Arc<Waiter>> {
        lock(&self.wait).upgrade()
    }

    /// Whether it waits for keys.
    pub(crate) fn waits_for_keys(&self) -> bool {
        self.waiter().is_some_and(|waiter| !waiter.keys().is_empty())
    }

    /// The first of the keys that it waits for.
    pub(crate) fn waits_for_key(&self) -> Option<Box<[u8]>> {
        self.waiter()?.keys().first().map(|key| Box::from(&**key))
    }

    /// Calls off what it waits for in a blocked command; its thread is to be told to end the wait
    /// with this token. `None` if it does not wait.
    pub fn call_off_wait(&self, stats: &Stats) -> Option<u64> {
        let waiter = self.waiter().filter(|waiter| waiter.call_off_unserved())?;
        waiter.uncount(stats);
        waiter.token()
    }

    /// What it does, as bits of [`flag`]. A wait that is over is none, though the client's thread
    /// may have yet to end it.
    pub fn flags(&self) -> u64 {
        let flags = self.live.flags.load(Relaxed);
        if self.waits_elsewhere() {
            return flags | flag::BLOCKED;
        }
        let may_wait = flags & flag::BLOCKED != 0;
        if may_wait && self.waiter().is_some_and(|waiter| waiter.is_over()) {
            flags & !(flag::BLOCKED | flag::TIMED_WAIT)
        } else {
            flags
        }
    }

    /// Whether another node of the cluster has a blocked command of its.
    pub fn waits_elsewhere(&self) -> bool {
        self.live.waits_elsewhere.load(Acquire)
    }

    /// What it waits for at another node, locked for a moment.
    pub fn waits_for(&self) -> MutexGuard<'_, Option<WaitElsewhere>> {
        lock(&self.elsewhere)
    }

    /// Whether it has gone in this way, or in one that says more.
    pub(crate) fn has_gone(&self, departure: Departure) -> bool {
        self.live.departure.load(Acquire) >= departure as u8
    }

    /// The names, locked for a moment.
    pub fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }
}

/// All clients.
#[derive(Default)]
pub struct Clients {
    next_id: AtomicU64,
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Those of them whose connection is gone: see [`Clients::leave`].
    unconnected: AtomicUsize,
}

impl Clients {
    /// Of a node of a cluster. The numbers of its clients are not those of another node's, because
    /// they begin at a random multiple of 2^32, below 2^53.
    pub fn of_node() -> Clients {
        let first = structs::hashing::os_random() >> 43 << 32;
        Clients { next_id: AtomicU64::new(first), ..Clients::default() }
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        lock(&self.by_id)
    }

    /// Adds a client, unless there are `most` already; `make` gets its number.
    pub fn add(&self, most: usize, make: impl FnOnce(u64) -> Client) -> Option<Arc<Client>> {
        let mut clients = self.map();
        if self.connected(&clients) >= most {
            return None;
        }
        let id = self.next_id.fetch_add(1, Relaxed) + 1;
        let client = Arc::new(make(id));
        clients.insert(id, Arc::clone(&client));
        Some(client)
    }

    /// Removes a client.
    pub fn remove(&self, id: u64) {
        self.forget(&mut self.map(), id);
    }

    fn forget(&self, clients: &mut BTreeMap<u64, Arc<Client>>, id: u64) {
        let client = clients.remove(&id);
        if client.is_some_and(|client| client.is_unconnected.load(SeqCst)) {
            self.unconnected.fetch_sub(1, SeqCst);
        }
    }

    /// Returns how many have a connection.
    fn connected(&self, clients: &BTreeMap<u64, Arc<Client>>) -> usize {
        clients.len() - self.unconnected.load(SeqCst)
    }

    /// Removes a client whose connection is gone. If it has [unfinished](Clients::keep) commands
    /// the end of the last one removes it.
    pub(crate) fn leave(&self, client: &Client) {
        let mut clients = self.map();
        client.is_unconnected.store(true, SeqCst);
        if client.unfinished.load(SeqCst) == 0 {
            clients.remove(&client.id);
        } else if clients.contains_key(&client.id) {
            self.unconnected.fetch_add(1, SeqCst);
        }
    }

    /// Keeps a client in the registry until the returned value is dropped, even if its connection
    /// is gone before. For its commands that a background thread has and that may write: they are
    /// done though it has hung up. A client that is not listed must change nothing any more.
    pub(crate) fn keep(&'static self, client: &Arc<Client>) -> Unfinished {
        client.unfinished.fetch_add(1, SeqCst);
        Unfinished { clients: self, client: Arc::clone(client) }
    }

    /// A client by its number.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.map().get(&id).cloned()
    }

    /// The client with this number, and the link that serves the client of any node with this
    /// number: a node has links to itself, too.
    pub fn with_links_of(&self, id: u64) -> Vec<Arc<Client>> {
        let map = self.map();
        let serves = |client: &&Arc<Client>| id != 0 && client.live.origin.load(Relaxed) == id;
        map.get(&id).into_iter().chain(map.values().filter(serves)).cloned().collect()
    }

    /// All clients, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.map().values().cloned().collect()
    }

    /// How many have a connection.
    pub fn count(&self) -> usize {
        self.connected(&self.map())
    }
}

/// A command of a client that has not ended: see [`Clients::keep`].
pub(crate) struct Unfinished {
    clients: &'static Clients,
    client: Arc<Client>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Either this sees that the connection is gone, or `leave` sees that no command is left.
        let mut clients = self.clients.map();
        let is_last = self.client.unfinished.fetch_sub(1, SeqCst) == 1;
        if is_last && self.client.is_unconnected.load(SeqCst) {
            self.clients.forget(&mut clients, self.client.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_hung_up_is_there_until_its_commands_have_ended() {
        let clients: &'static Clients = Box::leak(Box::default());
        let client = |id| Client::unconnected(id, 0, Millis(0));
        let add = || clients.add(9, client).expect("there are fewer");
        let [hangs_up, stays] = [add(), add()];
        let commands = [(); 2].map(|()| clients.keep(&hangs_up));
        drop(clients.keep(&stays));
        clients.leave(&hangs_up);
        let [first, last] = commands;
        drop(first);
        assert_eq!((clients.count(), clients.all().len()), (1, 2), "one has a connection");
        assert!(clients.add(1, client).is_none() && clients.get(hangs_up.id).is_some());
        drop(last);
        assert!(clients.get(hangs_up.id).is_none());
        assert!(clients.get(stays.id).is_some());
        clients.leave(&stays);
        assert_eq!(clients.count(), 0);
    }

    #[test]
    fn threads_that_add_at_the_same_time_keep_the_limit() {
        const LIMIT: usize = 100;
        let clients = Clients::default();
        let client = |id| Client::unconnected(id, 0, Millis(0));
        let add = || (0..LIMIT).filter(|_| clients.add(LIMIT, client).is_some()).count();
        let added: usize = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(add));
            threads.map(|thread| thread.join().expect("it ends")).iter().sum()
        });
        assert_eq!((added, clients.count()), (LIMIT, LIMIT));
        // A refused connection has had no number.
        clients.remove(1);
        assert_eq!(clients.add(LIMIT, client).map(|client| client.id), Some(LIMIT as u64 + 1));
    }
}
