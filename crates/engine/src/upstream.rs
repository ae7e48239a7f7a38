//! The primary of this server, as commands, gates and INFO know it: whether there is one, and how the
//! link to it is. The link itself is the server's ([`replication::replica`] decides, its `replication`
//! module does the I/O).
//!
//! A change of role happens in the stopped world and begins a new *term*. Whatever acts on behalf of a
//! primary does so inside the world and asks for the term first, so that a promotion stands at a whole
//! prefix of the stream, and nothing of the stream is applied after it.

use crate::clients::{Client, Names, flag};
use crate::engine::Engine;
use crate::mailbox::Message;
use crate::thread::ThreadContext;
use keyspace::{DbIndex, Millis};
use replication::replica::Stage;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use structs::sync::{lock, wait_timeout};

/// What a client that waits is told when the server becomes a replica.
const ROLE_CHANGED: &str = "UNBLOCKED force unblock from blocking operation, instance state changed \
                            (master -> replica?)";

/// The primary; see the module's documentation.
#[derive(Default)]
pub struct Upstream {
    is_replica: AtomicBool,
    is_link_up: AtomicBool,
    term: AtomicU64,
    link: Mutex<Link>,
    changed: Condvar,
    /// Commands of the stream that failed here, as they did not on the primary.
    pub failures: AtomicU64,
}

/// What INFO and ROLE say of the link.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Host and port of the primary.
    pub primary: Option<(String, u16)>,
    /// How far the link is.
    pub stage: Stage,
    /// When something last came over it.
    pub heard: Option<Millis>,
    /// Since when it is down.
    pub down_since: Option<Millis>,
    /// The snapshot that is being received.
    pub transfer: Option<Transfer>,
    /// Bytes that came, and that were sent.
    pub received_bytes: u64,
    /// See there.
    pub sent_bytes: u64,
    /// The database that the stream goes on in, at the journal's position.
    pub stream_db: DbIndex,
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
    /// Whether this server is a replica.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Relaxed)
    }

    /// Whether the stream of the primary comes.
    #[inline]
    pub fn is_link_up(&self) -> bool {
        self.is_link_up.load(Relaxed)
    }

    /// Whether the data set is no state of any server: a snapshot was loaded in part. No file is to be
    /// replaced by it unless somebody asks for that.
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

    /// Waits for another term, but not for longer than this.
    pub fn wait_for_change(&self, term: u64, patience: Duration) {
        let link = self.link();
        drop(wait_timeout(&self.changed, link, patience, |_| self.term() == term));
    }

    fn begin_term(&self, primary: Option<(String, u16)>, now: Millis) {
        let mut link = self.link();
        let is_replica = primary.is_some();
        // What it has, and in which database it goes on, does not change with the primary.
        *link = Link {
            primary,
            down_since: is_replica.then_some(now),
            received_bytes: link.received_bytes,
            sent_bytes: link.sent_bytes,
            stream_db: link.stream_db,
            is_incomplete: link.is_incomplete,
            ..Link::default()
        };
        self.is_replica.store(is_replica, SeqCst);
        self.is_link_up.store(false, SeqCst);
        self.term.fetch_add(1, SeqCst);
        self.changed.notify_all();
    }
}

impl Engine {
    /// This server is a replica from now on, of this primary. The world is stopped, or no client is
    /// served yet.
    pub fn follow(&self, host: &str, port: u16) {
        let was_replica = self.upstream.is_replica();
        if !was_replica {
            // As its own followers would, it goes on in the database that its journal is in.
            let db = self.journal.selected_db().unwrap_or_default();
            self.upstream.link().stream_db = db;
            self.journal.set_copy(true);
        }
        self.upstream.begin_term(Some((host.to_owned(), port)), self.clock.wall());
        if !was_replica {
            self.give_up_all_writes();
            self.unblock_all();
        }
    }

    /// This server is a primary from now on; its history branches off here. Its replicas have to ask
    /// anew, and can go on from where they are. The world is stopped.
    pub fn stop_following(&self) {
        if !self.upstream.is_replica() {
            return;
        }
        let journal = &self.journal;
        journal.set_history(journal.history().branch(journal.position()));
        journal.set_copy(false);
        // Nothing says to a follower in which database the new history begins.
        journal.forget_db();
        self.upstream.link().is_incomplete = false;
        self.upstream.begin_term(None, self.clock.wall());
        self.disconnect_replicas();
    }

    /// Closes the connections of all replicas: they are to ask again, because the history has another
    /// id.
    pub fn disconnect_replicas(&self) {
        for client in self.clients.all() {
            if client.flags() & flag::REPLICA != 0 {
                self.mailboxes[client.thread].post(Message::Kill(client.id));
            }
        }
    }

    /// Ends the waits of all blocked clients: what they wait for may never come to a replica.
    fn unblock_all(&self) {
        for client in self.clients.all() {
            if let Some(token) = client.call_off_wait(&self.stats) {
                let (client, thread) = (client.id, client.thread);
                let error = Some(ROLE_CHANGED);
                self.mailboxes[thread].post(Message::Unblock { client, token, error });
            }
        }
    }

    /// Lists the link to the primary among the clients. It belongs to no reactor: the thread that follows
    /// asks whether it was killed.
    pub fn list_primary(&self, addr: String, laddr: String, fd: i32) -> Option<Arc<Client>> {
        let client = self.clients.add(usize::MAX, |id| Client {
            addr,
            laddr,
            fd,
            names: Mutex::new(Names { user: "(superuser)".into(), ..Names::default() }),
            ..Client::unconnected(id, 0, self.clock.wall())
        })?;
        client.live.flags.store(flag::PRIMARY, Relaxed);
        client.live.redirect.store(-1, Relaxed);
        client.live.protocol.store(2, Relaxed);
        client.live.last_seen_ms.store(self.clock.wall().0, Relaxed);
        Some(client)
    }

    /// The database in which the journal goes on without a SELECT; `None`: it goes on with one. Exact
    /// while the world is stopped.
    pub fn stream_db(&self) -> Option<DbIndex> {
        if self.journal.is_copy() {
            return Some(self.upstream.link().stream_db);
        }
        self.journal.selected_db()
    }

    /// The context of the calling thread, which follows the primary; once.
    pub fn follower_context(&'static self) -> ThreadContext {
        self.context(self.thread_stats.len() - 1)
    }
}
