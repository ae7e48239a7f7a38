//! The end of a session's wait: a reply from elsewhere, a deadline, or another client's order.

use super::Worker;
use crate::args::Args;
use crate::blocking::{self, Resumption, Suspension, TimeoutReply, Waiter};
use crate::cx::Cx;
use crate::db::Db;
use crate::dispatch;
use crate::session::{Fate, Session, WriteReply};
use crate::special::Special;
use journal::JournalPos;
use journal::safe::Gate;
use keyspace::Millis;
use resp::{Output, Reply};
use std::borrow::Cow;
use std::sync::Arc;

impl Worker {
    /// Ends a suspension with a reply from elsewhere; `false` if it was not this one.
    pub fn resume(
        &mut self,
        session: &mut Session,
        resumption: Resumption,
        out: &mut Output,
    ) -> bool {
        let is_it = |s: &mut Suspension| resumption.token.is_none_or(|token| token == s.token);
        let Some(suspension) = session.suspension.take_if(is_it) else { return false };
        self.context.forget_deadline(suspension.deadline, session.id(), suspension.token);
        if let Some(waiter) = &suspension.waiter {
            self.count_blocked(session, waiter, resumption.reply.len());
        }
        if let Some(request) = &suspension.audited {
            let reply = resumption.reply.plain();
            dispatch::note_audited_end(self.engine, session, request, reply);
        }
        let before = out.plain().len();
        let unanswered = std::mem::take(&mut session.unanswered);
        session.written = session.written.max(resumption.written);
        session.seen = session.seen.max(resumption.seen);
        session.told = session.told.max(resumption.told);
        if resumption.watching.is_some() {
            session.watching = resumption.watching;
        }
        if let Some(choice) = resumption.choice {
            (session.db, session.reads_replica) = (choice.db, choice.reads_replica);
        }
        if suspension.is_silent {
            // CLIENT REPLY OFF or SKIP was in force when the command came, or the connection brings
            // a copy of slots. That is of no use if a part of it was refused.
            if session.import().is_some() && resumption.reply.plain().first() == Some(&b'-') {
                session.fate = Fate::Close;
            }
        } else if out.is_empty() {
            // A reply of many megabytes is not worth copying.
            *out = resumption.reply;
        } else {
            let mut reply = resumption.reply;
            out.append(&mut reply);
        }
        let (end, position) = (out.plain().len(), resumption.written.max(unanswered));
        if end > before
            && position > JournalPos(0)
            && self.engine.gate_of(session) == Some(Gate::Quorum)
        {
            session.write_replies.push(WriteReply { start: before, end, position });
        }
        session.publish(self.engine.clock.wall().0);
        true
    }

    /// Counts a command that was blocked and is over.
    fn count_blocked(&self, session: &mut Session, waiter: &Waiter, reply_bytes: usize) {
        let Some(nanoseconds) = waiter.spent_ns() else { return };
        let (engine, stats) = (self.engine, self.context.stats());
        let row = &engine.table.all()[session.last_command - 1];
        let words: Vec<&[u8]> = waiter.argv.iter().map(|word| &**word).collect();
        let args = Args::new(&words);
        stats.by_command[row.index].count(nanoseconds, engine.config.latency_tracking());
        if engine.special.any(Special::USAGE) {
            let request = args.bytes();
            engine.rate_limits.charge(session, 1, request + reply_bytes);
            if engine.config.size_tracking() {
                stats.by_command[row.index].count_sizes(request, reply_bytes);
            }
        }
        stats.commands.add_own(1);
        session.commands += 1;
        if engine.config.cluster_slot_stats_enabled() && engine.membership.is_on() {
            dispatch::slot_noting::note_blocked(engine, row, &words, nanoseconds, reply_bytes);
        }
        dispatch::log_command(engine, session, row, args, nanoseconds, reply_bytes);
    }

    /// The next moment at which a suspension ends by itself.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.context.deadlines.borrow().first().map(|(at, ..)| *at)
    }

    /// The clients whose deadlines have come, with the tokens of their suspensions.
    pub fn due(&self, now: Millis) -> Vec<(u64, u64)> {
        let mut deadlines = self.context.deadlines.borrow_mut();
        let mut due = Vec::new();
        while let Some(&(at, client, token)) = deadlines.first().filter(|(at, ..)| *at <= now) {
            deadlines.remove(&(at, client, token));
            due.push((client, token));
        }
        due
    }

    /// A suspension's deadline has come. `true` if it is over; `false` if it was over before, or
    /// if the client is being served just now.
    pub fn time_out(&mut self, session: &mut Session, token: u64, out: &mut Output) -> bool {
        session.suspension.as_ref().is_some_and(|s| s.token == token) && self.end_wait(session, out)
    }

    /// Ends a blocked client's wait from outside (CLIENT UNBLOCK, a change of role), if it is still
    /// that one: with an error, or as if the time were up.
    pub fn unblock(
        &mut self,
        session: &mut Session,
        token: u64,
        error: Option<Cow<'static, str>>,
        out: &mut Output,
    ) -> bool {
        let Some(suspension) = session.suspension.as_mut().filter(|s| s.token == token) else {
            return false;
        };
        suspension.error = error;
        self.end_wait(session, out)
    }

    /// Ends the session's suspension, unless its blocked command is being served.
    fn end_wait(&mut self, session: &mut Session, out: &mut Output) -> bool {
        let client = session.id();
        let Some(suspension) = &mut session.suspension else { return false };
        self.context.forget_deadline(suspension.deadline, client, suspension.token);
        if suspension.on_timeout == TimeoutReply::LastRun
            && suspension.error.is_none()
            && let Some(waiter) = suspension.waiter.clone()
        {
            return self.run_last(session, &waiter, out);
        }
        if let Some(waiter) = &suspension.waiter {
            let running = &self.engine.scripts.running;
            let is_inside = self.context.reader.enter_unless(|| running.is_busy());
            if !is_inside || !waiter.cancel() {
                if is_inside {
                    self.context.reader.leave();
                }
                self.look_again(session);
                return false;
            }
            let engine = self.engine;
            let mut db = Db::new(
                engine,
                self.engine.clock.wall(),
                engine.access_policy(),
                self.context.rng(),
            );
            blocking::end(&mut db, waiter);
            self.context.reader.leave();
            if let Some(error) = &suspension.error {
                engine.count_error(error.as_bytes());
                let row = session.last_command - 1;
                self.context.stats().by_command[row].rejected.add_own(1);
            }
        }
        // CLIENT REPLY OFF or SKIP may have been in force when the command came.
        if !suspension.is_silent {
            let mut reply = Reply::new(out, session.protocol);
            match &suspension.error {
                Some(error) => reply.error(error),
                None => suspension.on_timeout.write(self.engine, &mut reply),
            }
        }
        let ended = session.suspension.take();
        if let Some(waiter) = ended.as_ref().and_then(|ended| ended.waiter.as_ref()) {
            self.count_blocked(session, waiter, 0);
        }
        session.publish(self.engine.clock.wall().0);
        // Not before: until then other threads ask the waiter whether the wait is over.
        drop(ended);
        true
    }

    /// Ends the session's suspension with what its command replies at present.
    fn run_last(&mut self, session: &mut Session, waiter: &Arc<Waiter>, out: &mut Output) -> bool {
        let engine = self.engine;
        let mut ended = None;
        if self.context.reader.enter_unless(|| engine.scripts.running.is_busy()) {
            let (mut own, mut none) = (engine.own_session(&self.context), Output::default());
            let now = engine.clock.wall();
            let mut cx = Cx::new(engine, &self.context, &mut own, now, &mut none);
            ended = dispatch::run_last(&mut cx, waiter);
            drop(cx);
            self.context.reader.leave();
        }
        let Some(resumption) = ended else {
            self.look_again(session);
            return false;
        };
        self.resume(session, resumption, out)
    }

    /// Has a suspension that cannot be ended now looked at again shortly, unless the reply is on
    /// its way.
    fn look_again(&self, session: &mut Session) {
        let client = session.id();
        let Some(suspension) = &mut session.suspension else { return };
        if suspension.waiter.as_ref().is_some_and(|waiter| waiter.is_done()) {
            return;
        }
        let again = Millis(self.engine.clock.wall().0 + 1);
        suspension.deadline = Some(again);
        let entry = (again, client, suspension.token);
        self.context.deadlines.borrow_mut().insert(entry);
    }
}
