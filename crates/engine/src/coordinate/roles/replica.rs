//! The replica's role: beginning and ceasing to follow a primary, and notifying clients of it.

use crate::clients::{Client, Names, flag};
use crate::command::Flags;
use crate::engine::Engine;
use crate::mailbox::Message;
use crate::session::Fate;
use crate::thread::ThreadContext;
use cluster::id::Id;
use keyspace::DbIndex;
use std::borrow::Cow;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex};

/// The error for blocked clients when the server becomes a replica.
pub(crate) const ROLE_CHANGED: &str = "UNBLOCKED force unblock from blocking operation, instance state changed \
                            (master -> replica?)";

impl Engine {
    /// Makes this server a replica of this primary. The world is stopped, or no client is served
    /// yet.
    pub fn follow(&self, host: &str, port: u16) {
        self.follow_copy(None, host, port);
    }

    /// The same with a primary that is a copy of this server's database.
    pub fn follow_copy(&self, copy: Option<Id>, host: &str, port: u16) {
        let was_replica = self.upstream.is_replica();
        if !was_replica {
            // Like this server's own followers, it continues in the database that the journal has
            // selected.
            let db = self.journal.selected_db().unwrap_or_default();
            self.upstream.link().stream_db = db;
            self.journal.set_copy(true);
        }
        self.upstream.begin_term(Some((host.to_owned(), port)), copy, self.clock.wall());
        if !was_replica {
            self.give_up_all_writes();
            // During a handover, wait for its end: it may fail, and then this server remains a
            // primary.
            if !self.failover.is_on() {
                self.unblock_all();
            }
            self.tell_host_of_role();
        }
    }

    fn tell_host_of_role(&self) {
        if let Some(host) = self.host() {
            host.role_changed();
        }
    }

    /// Makes this server a primary. Its history branches off here. Its replicas have to reconnect
    /// and can continue from their positions. The world is stopped.
    pub fn stop_following(&self) {
        if !self.upstream.is_replica() {
            return;
        }
        let journal = &self.journal;
        journal.set_history(journal.history().branch(journal.position()));
        journal.set_copy(false);
        // The new history begins without a selected database, because followers are not told which
        // one it was.
        journal.forget_db();
        self.upstream.link().is_incomplete = false;
        self.upstream.begin_term(None, None, self.clock.wall());
        // From now on, all keys are this server's own.
        self.own_keys.clear();
        self.tell_host_of_role();
        self.disconnect_replicas();
    }

    /// Closes the connections of all replicas, so that they ask again. The history has another id.
    pub fn disconnect_replicas(&self) {
        for client in self.clients.all() {
            if client.flags() & flag::REPLICA != 0 {
                self.mailboxes[client.thread].post(Message::Kill(client.id));
            }
        }
    }

    /// Ends the waits of blocked clients, because what they wait for may never happen on a replica.
    /// A client that reads from replicas keeps waiting if its command only reads. A client that
    /// understands redirection is redirected to the primary if it waits for keys. The connections
    /// of others are closed, so that they look for the primary again.
    pub(super) fn unblock_all(&self) {
        for client in self.clients.all() {
            let flags = client.flags();
            if flags & flag::READS_REPLICA != 0 && !self.last_writes(&client) {
                continue;
            }
            if self.membership.is_on() && client.waits_for_keys() {
                // It is redirected to the node with its keys.
                continue;
            }
            let can_redirect = flags & flag::CAN_REDIRECT != 0 && client.waits_for_keys();
            let primary = can_redirect.then(|| self.upstream.primary()).flatten();
            let (error, fate) = match primary {
                Some((host, port)) => (Cow::Owned(format!("REDIRECT {host}:{port}")), Fate::Open),
                None => (Cow::Borrowed(ROLE_CHANGED), Fate::CloseAfterReplies),
            };
            if let Some(token) = client.call_off_wait(&self.stats) {
                let (id, error) = (client.id, Some(error));
                let message = Message::Unblock { client: id, token, error, fate };
                self.mailboxes[client.thread].post(message);
            }
        }
    }

    /// Returns whether the client's last command may write.
    pub(crate) fn last_writes(&self, client: &Client) -> bool {
        let command = client.live.last_command.load(Relaxed).checked_sub(1);
        command.is_some_and(|index| self.table.all()[index].command.flags.has(Flags::WRITE))
    }

    /// Adds the link to the primary to the client list. It belongs to no reactor: the thread that
    /// follows the primary checks whether it was killed.
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

    /// Returns the database in which the journal continues without a SELECT, or `None` if a SELECT
    /// comes first. Exact while the world is stopped.
    pub fn stream_db(&self) -> Option<DbIndex> {
        if self.journal.is_copy() {
            return Some(self.upstream.link().stream_db);
        }
        self.journal.selected_db()
    }

    /// Returns a context for the calling thread, which follows the primary. Called once.
    pub fn follower_context(&'static self) -> ThreadContext {
        self.context(self.thread_stats.len() - 1)
    }
}
