//! Jobs that move slots, which tests hold at a phase (DEBUG SLOTMIGRATION).

/// Where a job is when something happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It has just been asked for.
    Begun,
    /// The target has a copy, and gets what changes.
    Copied,
    /// Requests for the slots wait.
    Paused,
    /// The slots have changed hands.
    Given,
}

impl Phase {
    /// All, in their order.
    pub const ALL: [Phase; 4] = [Phase::Begun, Phase::Copied, Phase::Paused, Phase::Given];

    /// The request by which a server holds jobs at this phase, or lets them go on. None: they cannot
    /// be held there.
    pub fn hold(self, holds: bool) -> Option<[&'static str; 4]> {
        let what = match self {
            Phase::Copied => "PREVENT-PAUSE",
            Phase::Paused => "PREVENT-FAILOVER",
            Phase::Begun | Phase::Given => return None,
        };
        Some(["DEBUG", "SLOTMIGRATION", what, if holds { "1" } else { "0" }])
    }

    /// What a job's state is while it is held there.
    pub fn state(self) -> Option<&'static str> {
        match self {
            Phase::Copied => Some("waiting-to-pause"),
            Phase::Paused => Some("failover-granted"),
            Phase::Begun | Phase::Given => None,
        }
    }
}
