//! What a running command has: its database, its reply, its client, and the server.
//!
//! A command never sees a socket, a file, a replica, the clock or another stripe's lock. It reads
//! and changes keys through `cx.db`, answers through `cx.reply`, and reports what it changed with
//! `cx.db.changed(key, event)`. When it returns an error, nothing may have been written to the
//! reply yet and nothing changed.

use crate::clients::waiter::{BlockRequest, Run};
use crate::clock::Ticks;
use crate::command::Flags;
use crate::db::{Db, MAX_IN_PLACE};
use crate::engine::Engine;
use crate::outbox::Notification;
use crate::pubsub::Space;
use crate::request_keys::RequestKeys;
use crate::scripts::{Attempt, ScriptRules};
use crate::session::Session;
use crate::slot_usage::NestedSlots;
use crate::table::Resolved;
use crate::thread::ThreadContext;
use keyspace::{Millis, StringRef};
use resp::{Output, Protocol, Reply};

/// The context of one command.
pub struct Cx<'a> {
    /// The selected database.
    pub db: Db<'a>,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// The client.
    pub session: &'a mut Session,
    /// The server.
    pub engine: &'static Engine,
    /// The thread.
    pub thread: &'a ThreadContext,
    /// The row of the command that runs.
    pub resolved: &'a Resolved,
    /// Whether it runs inside EXEC (or, later, a script), where nothing may block.
    pub in_transaction: bool,
    /// The script that calls it, if one does.
    pub script: Option<ScriptRules>,
    /// The flags of the request at the gates, where those of its row do not say it all: a script
    /// says itself whether it writes.
    pub(crate) request_flags: Option<Flags>,
    /// The run of the script.
    pub(crate) attempt: Option<Attempt>,
    /// This script has the [turn](crate::scripts::Scripts).
    pub(crate) holds_turn: bool,
    /// A script keeps the world stopped, and this thread is outside.
    pub(crate) is_outside: bool,
    /// Monitors have been shown the script that the request runs.
    pub(crate) script_was_shown: bool,
    pub(crate) block_request: Option<BlockRequest>,
    /// Which run of the command it is, if it is one that blocks.
    pub run: Run,
    /// The keys of the request that was dispatched, once they are [found](Cx::find_keys).
    pub(crate) keys: RequestKeys,
    /// What a transaction or a script has run, for the usage of slots.
    pub(crate) nested_slots: NestedSlots,
    /// When the previous command ended, or the wait after it.
    pub(crate) last_end: Ticks,
}

impl<'a> Cx<'a> {
    /// The context of a session's next commands, at this time, whose replies are appended to `out`.
    pub(crate) fn new(
        engine: &'static Engine,
        thread: &'a ThreadContext,
        session: &'a mut Session,
        now: Millis,
        out: &'a mut Output,
    ) -> Cx<'a> {
        let mut db = Db::new(engine, now, engine.access_policy(), thread.rng());
        db.index = session.db;
        db.touches = !session.no_touch;
        db.is_for_operator = thread.is_for_operators;
        db.set_import_source(session.is_import_source);
        if session.import().is_some() {
            db.set_import();
        }
        Cx {
            db,
            reply: Reply::new(out, session.protocol),
            session,
            engine,
            thread,
            resolved: &engine.table.all()[0],
            in_transaction: false,
            script: None,
            request_flags: None,
            attempt: None,
            holds_turn: false,
            is_outside: false,
            script_was_shown: false,
            block_request: None,
            run: Run::First,
            keys: RequestKeys::default(),
            nested_slots: NestedSlots::default(),
            last_end: Ticks::default(),
        }
    }
}

impl Cx<'_> {
    /// Calls `look` with a context of the process itself, on a thread that serves no clients: for
    /// reports about the server. The thread is outside the world.
    pub fn of_process(engine: &'static Engine, look: impl FnOnce(&Cx<'_>)) {
        // Nothing is counted, so the counters of another thread do.
        let thread = engine.context(engine.thread_stats.len() - 1);
        let (mut session, mut out) = (engine.own_session(&thread), Output::default());
        look(&Cx::new(engine, &thread, &mut session, engine.clock.wall(), &mut out));
    }

    /// Times the next command from here on: what went before, as waiting for keys and locks, is not
    /// its own.
    #[inline]
    pub(crate) fn start_timing(&mut self) {
        self.last_end = self.thread.clock.now();
    }

    /// Describes the keys of the request that is dispatched, unless that was done before; they are
    /// in `self.keys` then.
    pub(crate) fn find_keys(&mut self, row: &Resolved, args: Args<'_>) {
        let queue = self.session.multi().map(|multi| multi.keys());
        self.keys.find(&self.engine.keyspace, row, args, queue);
    }

    /// From here to [`Cx::end_transaction`] commands do not block, and what they do is one entry of
    /// the journal.
    pub fn begin_transaction(&mut self) {
        self.in_transaction = true;
        self.db.effects.is_transaction = true;
    }

    /// The end of what [`Cx::begin_transaction`] began.
    pub fn end_transaction(&mut self) {
        self.in_transaction = false;
        self.db.effects.is_transaction = false;
    }

    /// Has what `run` replies written to `out`, in this protocol, in place of the client's output.
    /// The limit of a client's output does not apply there.
    pub fn capture<R>(
        &mut self,
        out: &mut Vec<u8>,
        protocol: Protocol,
        run: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let of_client = self.reply.protocol();
        let output_room = std::mem::replace(&mut self.session.output_room, usize::MAX);
        let mut captured = Output::from(std::mem::take(out));
        self.reply.swap_output(&mut captured);
        self.reply.set_protocol(protocol);
        let result = run(self);
        self.reply.set_protocol(of_client);
        self.reply.swap_output(&mut captured);
        *out = captured.into_bytes();
        self.session.output_room = output_room;
        result
    }

    /// Adds the keys that were found, and those that were not, to the thread's statistics; once, at
    /// the end of the context.
    #[inline]
    pub(crate) fn count_lookups(&self) {
        let stats = self.thread.stats();
        stats.hits.add_own(self.db.hits.get());
        stats.misses.add_own(self.db.misses.get());
    }

    /// Publishes a message, in a transaction once that has ended; returns how many clients get it.
    pub fn publish(&self, space: Space, channel: &[u8], payload: &[u8]) -> usize {
        let pubsub = &self.engine.pubsub;
        if !self.db.effects.is_transaction {
            return pubsub.publish(
                &self.engine.mailboxes,
                space,
                channel,
                payload,
                self.db.block_of(payload),
            );
        }
        let count = pubsub.receivers(space, channel);
        let (channel, payload) = (channel.into(), payload.into());
        self.db.outbox.keep(Notification::Message { space, channel, payload });
        count
    }

    /// How many clients listen to a channel here.
    pub fn receivers(&self, space: Space, channel: &[u8]) -> usize {
        self.engine.pubsub.receivers(space, channel)
    }

    /// Sends a client's message to the other nodes of the cluster, if there is one. Returns whether
    /// this node gets it from its primary, and so does not tell its own clients.
    pub fn tell_other_nodes(&self, request: Args<'_>) -> bool {
        self.engine.membership.is_on() && self.tell_nodes(request)
    }

    #[cold]
    fn tell_nodes(&self, request: Args<'_>) -> bool {
        // Not what comes from a stream, nor from a node that tells all others by itself.
        let is_single = self.script.is_none() && !self.in_transaction;
        if self.session.client.fd < 0 || self.session.is_link && is_single {
            return false;
        }
        let request = route::raw::request(request.words()).into_boxed_slice();
        match self.db.effects.is_transaction {
            true => self.db.outbox.keep(Notification::Elsewhere(request)),
            false => self.engine.tell_other_nodes(request),
        }
        self.engine.upstream.is_replica()
    }

    /// Tells the present listeners what a transaction has done so far; to be called before a client
    /// begins or ceases to listen.
    pub fn tell_listeners(&self) {
        self.db.outbox.send();
    }

    /// Waits for the end of the commands that other threads have begun, but for scripts on
    /// background threads; not within a transaction, which holds locks that they may want.
    pub fn wait_for_running_commands(&mut self) {
        if self.db.locks.is_empty() && !self.is_outside {
            let (reader, holds) = (&self.thread.reader, &self.engine.holds);
            // A thread that is about to stop the world waits for this one, and has ended its own
            // command.
            if let Some(stopped) = reader.try_stop(|| holds.has_scripts()) {
                stopped.resume(reader);
            }
        }
    }

    /// The time of this command.
    #[inline]
    pub fn now(&self) -> Millis {
        self.db.now()
    }

    /// Whether so many bytes are to be copied or cleared on a background thread: then the command
    /// returns [`Error::TakesLong`](crate::Error::TakesLong). For commands that are run too often
    /// to be [estimated](crate::effort) before, and have only looked at their one key so far: by
    /// one counted look if they only read, by [`Db::string_for_write`] and its like if they write.
    #[inline]
    pub fn is_for_background(&self, bytes: usize) -> bool {
        bytes > MAX_IN_PLACE && self.may_be_put_off()
    }

    #[cold]
    fn may_be_put_off(&self) -> bool {
        self.db.may_be_put_off() && !self.in_transaction
    }

    /// Whether the client has more output than it may have. What still makes a long reply should
    /// stop: the client is closed without getting it.
    #[inline]
    pub fn is_over_output_limit(&self) -> bool {
        self.reply.charge() > self.session.output_room
    }
}

/// Writes a string as the reply, or as a part of it. A long one is referred to.
#[inline]
pub fn write_string(reply: &mut Reply<'_>, string: Option<StringRef<'_>>) {
    match string {
        Some(StringRef::Bytes(bytes)) => reply.bulk(bytes),
        Some(StringRef::Block(block)) => reply.bulk_of(block, 0..block.len()),
        Some(StringRef::Integer(number)) => reply.bulk_integer(number),
        None => reply.null(),
    }
}

pub use crate::args::Args;
