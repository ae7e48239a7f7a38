//! Handing over the role of primary to a replica (FAILOVER), as a state machine: the time, the
//! position and what replicas have acknowledged come in, what is to be done comes out.
//!
//! ```text
//!                  FAILOVER          a replica has everything      the replica answers
//!   Nothing ───────────────▶ Waiting ─────────────────────▶ Handing ──────────────────▶ Nothing
//!      ▲     writes pause       │   this server follows it,           writes go on there
//!      └────────────────────────┘   and sends PSYNC … FAILOVER
//!          too late, or ABORT
//! ```

use journal::JournalPos;
use keyspace::Millis;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stage {
    /// There is no fail-over.
    #[default]
    Nothing,
    /// Writes pause until a replica has everything.
    Waiting,
    /// This server is a replica of its successor already, which is to take over.
    Handing,
}

impl Stage {
    /// Returns the name that INFO shows.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Nothing => "no-failover",
            Stage::Waiting => "waiting-for-sync",
            Stage::Handing => "failover-in-progress",
        }
    }
}

/// A server, by the address that it names itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// What FAILOVER asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The successor; `None`: the first replica that has everything.
    pub target: Option<Address>,
    /// When it is given up.
    pub deadline: Option<Millis>,
    /// At the deadline the successor takes over with what it has.
    pub is_forced: bool,
}

/// A replica that gets the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Where it is.
    pub address: Address,
    /// What it has, by its own account.
    pub acknowledged: JournalPos,
}

/// What is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FailoverStep {
    /// This server becomes a replica of that one, which is to take over.
    HandOver {
        /// See there.
        to: Address,
        /// It may lack something.
        is_forced: bool,
    },
    /// It is given up, for this reason.
    Abort(&'static str),
}

/// The machine; see the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Failover {
    stage: Stage,
    plan: Plan,
    /// The stream's end before and behind the request for acknowledgements. An acknowledgement does
    /// not count the request that it answers.
    request: Option<(JournalPos, JournalPos)>,
}

impl Failover {
    /// Returns the stage of the fail-over.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the successor, if it is known.
    pub fn target(&self) -> Option<&Address> {
        self.plan.target.as_ref()
    }

    /// Writes pause from now on. The request for acknowledgements stands between these positions of
    /// the stream.
    pub fn begin(&mut self, plan: Plan, request: (JournalPos, JournalPos)) {
        *self = Failover { stage: Stage::Waiting, plan, request: Some(request) };
    }

    /// Returns what is due at this moment, if anything.
    pub fn due(
        &self,
        position: JournalPos,
        replicas: &[Candidate],
        now: Millis,
    ) -> Option<FailoverStep> {
        if self.stage != Stage::Waiting {
            return None;
        }
        let target = self.plan.target.as_ref();
        if self.plan.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(match target.filter(|_| self.plan.is_forced) {
                Some(to) => FailoverStep::HandOver { to: to.clone(), is_forced: true },
                None => FailoverStep::Abort("Replica never caught up before timeout"),
            });
        }
        let is_allowed =
            |replica: &&Candidate| target.is_none_or(|target| *target == replica.address);
        let has_everything = |replica: &&Candidate| self.has_everything(replica, position);
        let found = replicas.iter().filter(is_allowed).find(has_everything)?;
        Some(FailoverStep::HandOver { to: found.address.clone(), is_forced: false })
    }

    fn has_everything(&self, replica: &Candidate, position: JournalPos) -> bool {
        let lacks_request_alone = |(before, behind): (JournalPos, JournalPos)| {
            behind == position && replica.acknowledged >= before
        };
        replica.acknowledged >= position || self.request.is_some_and(lacks_request_alone)
    }

    /// Notes that this server follows its successor.
    pub fn hand_over(&mut self, to: Address) {
        self.stage = Stage::Handing;
        self.plan.target = Some(to);
    }

    /// Ends the fail-over. Returns the stage that it had reached.
    pub fn end(&mut self) -> Stage {
        std::mem::take(self).stage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: (JournalPos, JournalPos) = (JournalPos(100), JournalPos(137));

    fn address(port: u16) -> Address {
        Address { host: "host".into(), port }
    }

    fn replica(port: u16, acknowledged: u64) -> Candidate {
        Candidate { address: address(port), acknowledged: JournalPos(acknowledged) }
    }

    fn began(plan: Plan) -> Failover {
        let mut failover = Failover::default();
        failover.begin(plan, REQUEST);
        failover
    }

    fn hands_over_to(step: Option<FailoverStep>) -> Option<u16> {
        match step? {
            FailoverStep::HandOver { to, .. } => Some(to.port),
            FailoverStep::Abort(_) => None,
        }
    }

    #[test]
    fn the_first_replica_that_has_everything_takes_over() {
        let failover = began(Plan::default());
        let due = |position, replicas: &[Candidate]| {
            hands_over_to(failover.due(JournalPos(position), replicas, Millis(0)))
        };
        assert_eq!(due(137, &[]), None);
        assert_eq!(due(137, &[replica(1, 99)]), None);
        assert_eq!(due(137, &[replica(1, 99), replica(2, 100)]), Some(2), "all but the request");
        // Something was added: the request is not the last any more.
        assert_eq!(due(150, &[replica(1, 100), replica(2, 137)]), None);
        assert_eq!(due(150, &[replica(1, 149), replica(2, 150)]), Some(2));
    }

    #[test]
    fn only_the_target_takes_over_and_only_in_time() {
        let plan = Plan { target: Some(address(2)), deadline: Some(Millis(50)), is_forced: false };
        let replicas = [replica(1, 137), replica(2, 7)];
        let failover = began(plan.clone());
        assert_eq!(failover.due(REQUEST.1, &replicas, Millis(49)), None);
        let late = failover.due(REQUEST.1, &replicas, Millis(50));
        assert_eq!(late, Some(FailoverStep::Abort("Replica never caught up before timeout")));
        let mut forced = began(Plan { is_forced: true, ..plan });
        assert_eq!(forced.due(REQUEST.1, &replicas, Millis(49)), None);
        let late = forced.due(REQUEST.1, &replicas, Millis(50));
        assert_eq!(late, Some(FailoverStep::HandOver { to: address(2), is_forced: true }));
        forced.hand_over(address(2));
        assert_eq!(forced.due(REQUEST.1, &replicas, Millis(99)), None);
        assert_eq!((forced.end(), forced.stage()), (Stage::Handing, Stage::Nothing));
    }
}
