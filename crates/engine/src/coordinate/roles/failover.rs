//! Hands over the role of primary.
//!
//! Every change of the stage happens in the stopped world, as changes of the role do.

use crate::engine::Engine;
use crate::failover::{Address, Plan, Stage};
use crate::mailbox::recheck_all;
use journal::JournalPos;
use keyspace::Millis;
use replication::failover::{Candidate, FailoverStep};
use replication::primary::Stage as Link;
use replication::vote::Voter;
use replication::wire;
use std::sync::atomic::Ordering::*;

impl Engine {
    /// Begins to hand over the role. The world is stopped, so no write is in progress when writes
    /// pause.
    pub fn begin_failover(&self, plan: Plan) {
        let before = self.journal.position();
        self.append_to_stream(wire::GETACK);
        self.failover.machine().begin(plan, (before, self.journal.position()));
        self.failover.is_on.store(true, SeqCst);
        self.pause.begin_failover();
    }

    /// Does the due step after time has passed or a replica has acknowledged. Returns lines for the
    /// log. The thread is outside the world.
    pub fn tick_failover(&self, now: Millis) -> Vec<String> {
        if self.due_step(now).is_none() {
            return Vec::new();
        }
        // Do not wait for a script, which may run for long.
        let stopped = self.keyspace.world().try_stop(|| self.holds.is_in_background());
        let Some(stopped) = stopped else { return Vec::new() };
        // Writes that began before the pause may have ended only now, so check again.
        let step = self.due_step(now);
        let lines = match step {
            None => Vec::new(),
            Some(FailoverStep::Abort(why)) => self.abort_failover(why),
            Some(FailoverStep::HandOver { to, is_forced }) => vec![self.hand_over(to, is_forced)],
        };
        drop(stopped);
        lines
    }

    fn due_step(&self, now: Millis) -> Option<FailoverStep> {
        let machine = self.failover.machine();
        if machine.stage() != Stage::Waiting {
            return None;
        }
        machine.due(self.journal.position(), &self.candidates(), now)
    }

    /// Pauses writes, because the cluster's coordinator is to name another primary, and asks
    /// replicas for their positions. Returns the stream's end before and after that question. The
    /// world is stopped.
    pub fn begin_switch(&self) -> (JournalPos, JournalPos) {
        let before = self.journal.position();
        self.append_to_stream(wire::GETACK);
        self.pause.begin_failover();
        (before, self.journal.position())
    }

    /// Ends the pause of [`Engine::begin_switch`]. Waiting requests are tried again.
    pub fn end_switch(&self) {
        self.pause.end_failover();
        recheck_all(&self.mailboxes);
    }

    /// Returns the copies that have everything in the present epoch. `request` is the result of
    /// [`Engine::begin_switch`].
    pub fn level_voters(&self, request: (JournalPos, JournalPos)) -> Vec<Voter> {
        let (before, behind) = request;
        // An acknowledgement does not count the question that it answers.
        let wanted = match self.journal.position() {
            position if position == behind => before,
            position => position,
        };
        self.voters_at(wanted)
    }

    /// Returns the replicas that get the stream and have acknowledged everything before `position`.
    pub fn addresses_at(&self, position: JournalPos) -> Vec<Address> {
        let candidates = self.candidates().into_iter();
        candidates.filter(|it| it.acknowledged >= position).map(|it| it.address).collect()
    }

    fn candidates(&self) -> Vec<Candidate> {
        let primary = self.replicas.primary();
        let online = primary.replicas().filter(|link| link.stage == Link::Online && !link.is_old);
        online
            .map(|link| Candidate {
                address: Address { host: link.shown_ip().to_owned(), port: link.facts.port },
                acknowledged: link.acknowledged(),
            })
            .collect()
    }

    fn hand_over(&self, to: Address, is_forced: bool) -> String {
        let Address { host, port } = &to;
        let line = if is_forced {
            format!("FAILOVER to {host}:{port} time out exceeded, failing over.")
        } else {
            format!("Failover target {host}:{port} is synced, failing over.")
        };
        self.failover.machine().hand_over(to.clone());
        self.config.record_primary(Some((host, *port))).expect("a replica's address is one");
        self.follow(host, *port);
        line
    }

    /// Ends a successful handover, and notifies blocked clients that this server is a replica.
    pub fn end_failover(&self) {
        self.unblock_all();
        self.forget_failover();
    }

    fn forget_failover(&self) {
        self.failover.machine().end();
        self.failover.is_on.store(false, SeqCst);
        self.pause.end_failover();
        recheck_all(&self.mailboxes);
    }

    /// Gives up the handover. This server is a primary as before. Returns lines for the log. The
    /// world is stopped.
    pub fn abort_failover(&self, why: &str) -> Vec<String> {
        let (stage, target) = {
            let machine = self.failover.machine();
            (machine.stage(), machine.target().cloned())
        };
        if stage == Stage::Nothing {
            return Vec::new();
        }
        let to = target.map_or_else(String::new, |to| format!(" to {}:{}", to.host, to.port));
        let line = format!("Aborting failover{to} while {}. {why}", stage.name());
        if stage == Stage::Handing {
            self.config.record_primary(None).expect("there need not be a primary");
            self.stop_following();
        }
        self.forget_failover();
        vec![line]
    }
}
