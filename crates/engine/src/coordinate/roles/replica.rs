//! As a replica: beginning and ceasing to follow, and what clients are told of that.

use crate::clients::{Client, Names, flag};
use crate::command::Flags;
use crate::engine::Engine;
use crate::mailbox::Message;
use crate::session::Fate;
use crate::thread::ThreadContext;
use keyspace::DbIndex;
use std::borrow::Cow;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex};

/// What a client that waits is told when the server becomes a replica.
pub(crate) const ROLE_CHANGED: &str = "UNBLOCKED force unblock from blocking operation, instance state changed \
                            (master -> replica?)";

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
            // A hand-over may still fail, and then this is a primary as before.
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
        // From now on every key is its own.
        self.own_keys.clear();
        self.tell_host_of_role();
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

    /// Ends the waits of blocked clients: what they wait for may never come to a replica. A client that reads
    /// replicas goes on waiting for what it only reads. One that understands redirection goes to the primary for
    /// its keys; the connections of others are closed, so that they look for the primary anew.
    pub(super) fn unblock_all(&self) {
        for client in self.clients.all() {
            let flags = client.flags();
            if flags & flag::READS_REPLICA != 0 && !self.last_writes(&client) {
                continue;
            }
            if self.membership.is_on() && client.waits_for_keys() {
                // It is sent to where its keys are.
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

    /// Whether the command that the client sent last may write.
    pub(crate) fn last_writes(&self, client: &Client) -> bool {
        let command = client.live.last_command.load(Relaxed).checked_sub(1);
        command.is_some_and(|index| self.table.all()[index].command.flags.has(Flags::WRITE))
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
