//! WAIT and WAITAOF: clients that wait until what they wrote is safe.
//!
//! Such a client is blocked as one that waits for keys is: the same [`Waiter`], the same deadline,
//! the same ways to end it. Instead of under a key it is found in one list, which is looked through
//! whenever a position of the journal becomes safer: after an fsync, when a replica has
//! acknowledged more, when the append-only file becomes complete or is switched off. Each of them
//! calls [`Engine::serve_acks`].

use crate::append_log::LogState;
use crate::blocking::{BlockRequest, Resumption, TimeoutReply, Until, Waiter};
use crate::clients::acks::Acks;
pub use crate::clients::acks::Wanted;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::error::Error;
use crate::journal::JournalPos;
use crate::mailbox::Message;
use keyspace::Millis;
use resp::{Output, Reply};
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};

const NO_LOG: Error =
    Error::text("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");

impl Acks {
    /// Returns whether the condition is met now.
    ///
    /// # Errors
    /// It can never be met, because there is no append-only file.
    fn is_met(self, engine: &Engine) -> Result<bool, Error> {
        match self.wanted {
            Wanted::Replicas(replicas) => Ok(engine.replicas_at(self.position) >= replicas),
            Wanted::Disks { local: true, .. } if engine.append_log.state() == LogState::Off => {
                Err(NO_LOG)
            }
            Wanted::Disks { local, replicas } => {
                let is_local = !local || engine.is_on_disk(self.position);
                Ok(is_local && engine.replica_disks_at(self.position) >= replicas)
            }
        }
    }

    /// Says how it is.
    pub(crate) fn write(self, engine: &Engine, reply: &mut Reply<'_>) {
        match self.wanted {
            Wanted::Replicas(_) => reply.integer(engine.replicas_at(self.position)),
            Wanted::Disks { .. } => {
                reply.array(2);
                reply.integer(i64::from(engine.is_on_disk(self.position)));
                reply.integer(engine.replica_disks_at(self.position));
            }
        }
    }
}

impl Cx<'_> {
    /// Answers when the client's last write is as safe as it wants, or when the time is up. Inside
    /// a transaction, where nothing may block, it answers at once.
    ///
    /// # Errors
    /// It can never be met, because there is no append-only file.
    pub fn wait_for_acks(&mut self, wanted: Wanted, deadline: Option<Millis>) -> Result<(), Error> {
        // The request is another node's, for a client whose writes came by any of its connections.
        let position = match self.session.is_link {
            true => self.engine.journal.position(),
            false => self.session.written,
        };
        let acks = Acks { position, wanted };
        if acks.is_met(self.engine)? || self.in_transaction {
            acks.write(self.engine, &mut self.reply);
        } else {
            self.engine.ask_for_acks();
            let (until, on_timeout) = (Until::Acks(acks), TimeoutReply::Acks(acks));
            self.block_request =
                Some(BlockRequest { until, deadline, on_timeout, words: None, spent_ns: 0 });
        }
        Ok(())
    }
}

impl Engine {
    /// Returns how many replicas have everything before this.
    fn replicas_at(&self, position: JournalPos) -> i64 {
        self.safe.count_received(position) as i64
    }

    /// Returns how many replicas have everything before this on their disks.
    fn replica_disks_at(&self, position: JournalPos) -> i64 {
        self.safe.count_synced(position) as i64
    }

    /// Returns whether everything before this would be there after a crash of this machine.
    fn is_on_disk(&self, position: JournalPos) -> bool {
        self.safe.disk() >= position && self.append_log.is_complete()
    }

    /// Lets a client wait.
    pub(crate) fn wait_for_acks(&self, waiter: &Arc<Waiter>) {
        self.acks.add(waiter);
        // The position may have been reached before the client was in the list.
        self.serve_acks();
    }

    /// Serves those that wait for a position that has become safer: clients of WAIT, and replies
    /// that wait for a quorum.
    #[inline]
    pub fn serve_acks(&self) {
        self.confirm_writes();
        // Together with the fence of the waiting side: either this thread sees the new waiter, or
        // the waiter sees the new position.
        fence(SeqCst);
        if self.acks.any() {
            self.look_through_acks();
        }
    }

    #[cold]
    fn look_through_acks(&self) {
        self.acks.end_if(|waiter| self.serve(waiter));
    }

    /// Answers a client, if it is time; `true` if it waits no longer.
    fn serve(&self, waiter: &Waiter) -> bool {
        let Until::Acks(acks) = waiter.until else { return true };
        let outcome = acks.is_met(self);
        if outcome == Ok(false) {
            return false;
        }
        if waiter.claim() {
            let mut out = Output::default();
            let mut reply = Reply::new(&mut out, waiter.protocol);
            match outcome {
                Ok(_) => acks.write(self, &mut reply),
                Err(error) => {
                    let line = error.line();
                    reply.error_bytes(&line);
                    self.count_error(&line);
                }
            }
            waiter.finish();
            waiter.uncount(&self.stats);
            let written = JournalPos(0);
            let resumption = Resumption::new(waiter.token(), out, written);
            self.mailboxes[waiter.thread].post(Message::Resume(waiter.client, resumption));
        }
        true
    }
}
