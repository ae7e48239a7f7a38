//! The primary of this server, as commands, gates and INFO know it: whether there is one, and how
//! the link to it is. The link itself is the server's ([`replication::replica`] decides, its
//! `replication` module does the I/O).
//!
//! A change of role happens in the stopped world and begins a new *term*. Whatever acts on behalf
//! of a primary does so inside the world and asks for the term first, so that a promotion stands at
//! a whole prefix of the stream, and nothing of the stream is applied after it.

use cluster::id::Id;
use keyspace::{DbIndex, Millis};
use replication::replica::Stage;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;
use structs::flags::Flag;
use structs::sync::{lock, wait_timeout};

/// The primary; see the module's documentation.
#[derive(Default)]
pub struct Upstream {
    is_replica: Flag,
    is_link_up: AtomicBool,
    term: AtomicU64,
    link: Mutex<Link>,
    /// Another handle of the link's socket.
    socket: Mutex<Option<TcpStream>>,
    changed: Condvar,
    /// Commands of the stream that failed here, as they did not on the primary.
    pub failures: AtomicU64,
}

/// What INFO and ROLE say of the link.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Host and port of the primary.
    pub primary: Option<(String, u16)>,
    /// Which copy of the database it is, in a cluster.
    pub copy: Option<Id>,
    /// How far the link is.
    pub stage: Stage,
    /// When something last came over it.
    pub heard: Option<Millis>,
    /// Since when it is down.
    pub down_since: Option<Millis>,
    /// The snapshot that is being received.
    pub transfer: Option<Transfer>,
    /// Bytes of the stream that have come and wait for the end of CLIENT PAUSE.
    pub held_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// The database that the stream goes on in, at the journal's position.
    pub stream_db: DbIndex,
    /// Bytes of the stream that came beside a snapshot and are not applied yet, and the most there
    /// were.
    pub kept_bytes: u64,
    /// See there.
    pub kept_peak: u64,
    /// The data set is not a state of the history: a snapshot was loaded in part.
    pub is_incomplete: bool,
}

/// How far a snapshot has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Its bytes, if that is known.
    pub total_bytes: Option<u64>,
    /// Those that have come.
    pub read_bytes: u64,
    /// When the last came.
    pub at: Millis,
}

impl Upstream {
    /// Returns the state of a primary. `flag` is the bit of a replica among the special states of
    /// the server.
    pub(crate) fn new(flag: Flag) -> Upstream {
        Upstream { is_replica: flag, ..Upstream::default() }
    }

    /// Whether this server is a replica.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.is_replica.is_set()
    }

    /// Whether the stream of the primary comes.
    #[inline]
    pub fn is_link_up(&self) -> bool {
        self.is_link_up.load(Relaxed)
    }

    /// Whether a snapshot of the primary is being received or loaded.
    pub fn is_loading(&self) -> bool {
        self.is_replica() && self.link().stage == Stage::Receiving
    }

    /// Host and port of the primary.
    pub(crate) fn primary(&self) -> Option<(String, u16)> {
        self.link().primary.clone()
    }

    /// Whether the data set is no state of any server: a snapshot was loaded in part. No file is to
    /// be replaced by it unless somebody asks for that.
    pub fn is_incomplete(&self) -> bool {
        self.link().is_incomplete
    }

    /// The number of the term.
    pub fn term(&self) -> u64 {
        self.term.load(SeqCst)
    }

    /// The link, locked for a moment.
    pub fn link(&self) -> MutexGuard<'_, Link> {
        lock(&self.link)
    }

    /// Notes how far the link is, unless another term has begun.
    pub fn note_stage(&self, term: u64, stage: Stage, heard: Millis, now: Millis) {
        let mut link = self.link();
        if self.term() != term {
            return;
        }
        let is_up = stage == Stage::Following;
        if link.stage == Stage::Following && !is_up {
            link.down_since = Some(now);
        }
        if is_up {
            link.down_since = None;
        }
        if stage == Stage::Following || stage == Stage::Receiving {
            link.heard = Some(heard);
        }
        link.stage = stage;
        self.is_link_up.store(is_up, SeqCst);
    }

    /// Bytes of the stream are kept until a snapshot is loaded.
    pub fn note_kept(&self, bytes: u64) {
        let mut link = self.link();
        link.kept_bytes = bytes;
        link.kept_peak = link.kept_peak.max(bytes);
    }

    /// Waits for another term, but not for longer than this.
    pub fn wait_for_change(&self, term: u64, timeout: Duration) {
        let link = self.link();
        drop(wait_timeout(&self.changed, link, timeout, |_| self.term() == term));
    }

    /// The link of this term has a socket, which the beginning of another term closes: the primary
    /// is to see at once that this server is not its replica any more.
    pub fn note_socket(&self, term: u64, socket: Option<TcpStream>) {
        let mut own = lock(&self.socket);
        *own = socket.filter(|_| self.term() == term);
    }

    /// Lets this look at the link's socket, if it has one.
    pub fn with_socket<R>(&self, look: impl FnOnce(&TcpStream) -> R) -> Option<R> {
        lock(&self.socket).as_ref().map(look)
    }

    /// Another term begins, with this primary or with none.
    pub(crate) fn begin_term(&self, primary: Option<(String, u16)>, copy: Option<Id>, now: Millis) {
        // Held until the term has changed: from then on the thread of the link may note a new
        // socket.
        let mut socket = lock(&self.socket);
        if let Some(socket) = socket.take() {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        let mut link = self.link();
        let is_replica = primary.is_some();
        // What it has, and in which database it goes on, does not change with the primary.
        *link = Link {
            primary,
            copy,
            down_since: is_replica.then_some(now),
            received_bytes: link.received_bytes,
            stream_db: link.stream_db,
            is_incomplete: link.is_incomplete,
            ..Link::default()
        };
        self.is_replica.set(is_replica);
        self.is_link_up.store(false, SeqCst);
        self.term.fetch_add(1, SeqCst);
        self.changed.notify_all();
        drop(link);
    }
}
