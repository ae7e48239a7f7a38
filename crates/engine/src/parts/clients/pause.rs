//! Requests are held back by CLIENT PAUSE, and writes while the last snapshot before a shutdown is
//! written, or the role of primary is handed over. Each has a pause of its own, which the end of
//! another does not touch; a request waits as long as one of them holds it.

use keyspace::Millis;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::*};
use structs::flags::Flag;

/// When the pause of a shutdown or of a fail-over ends: unknown. Not the largest number, which is
/// that of long commands, whose waiters are not counted as blocked.
const UNKNOWN_END: Millis = Millis(i64::MAX - 1);

/// The pauses of all purposes.
#[derive(Default)]
pub struct Pause {
    /// End of CLIENT PAUSE in milliseconds since the epoch; 0 if there is none.
    until_ms: AtomicI64,
    /// CLIENT PAUSE holds back only writes.
    writes_only: AtomicBool,
    /// A last snapshot is being written.
    by_shutdown: AtomicBool,
    /// The role of primary is handed over.
    by_failover: AtomicBool,
    /// Whether there may be a pause of any purpose.
    is_on: Flag,
}

/// What a pause holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actions {
    /// Whatever may change keys.
    Writes,
    /// All commands.
    All,
}

/// Its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// CLIENT PAUSE.
    Client,
    /// SHUTDOWN or a signal.
    Shutdown,
    /// FAILOVER.
    Failover,
}

/// The strictest of the pauses in force; of two alike, the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Its source.
    pub purpose: Purpose,
    /// What waits.
    pub actions: Actions,
    /// How long.
    pub until: Millis,
}

impl Pause {
    /// Returns a state without a pause. `flag` is its bit among the special states of the server.
    pub(crate) fn new(flag: Flag) -> Pause {
        Pause { is_on: flag, ..Pause::default() }
    }

    /// Makes the flag follow a change.
    fn follow(&self) {
        let may_be_on = || {
            self.until_ms.load(SeqCst) != 0
                || self.by_shutdown.load(SeqCst)
                || self.by_failover.load(SeqCst)
        };
        self.is_on.follow(may_be_on);
    }

    /// Whether there may be a pause; one of CLIENT PAUSE may be over.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.is_set()
    }

    /// CLIENT PAUSE: a pause is only ever made longer or stricter.
    pub fn begin(&self, actions: Actions, until: Millis, now: Millis) {
        let is_strict = self.until_ms.load(Relaxed) > now.0 && !self.writes_only.load(Relaxed);
        self.writes_only.store(actions == Actions::Writes && !is_strict, Relaxed);
        self.until_ms.fetch_max(until.0, SeqCst);
        self.follow();
    }

    /// CLIENT UNPAUSE.
    pub fn end(&self) {
        self.until_ms.store(0, SeqCst);
        self.follow();
    }

    /// Ends CLIENT PAUSE if its time has come. Of several threads that find that, one is told
    /// `true`.
    pub fn end_if_over(&self, now: Millis) -> bool {
        let until = self.until_ms.load(Relaxed);
        // Only a pause that is still the same one ends.
        let is_over = until != 0 && until <= now.0;
        let is_ended = is_over && self.until_ms.compare_exchange(until, 0, SeqCst, Relaxed).is_ok();
        if is_ended {
            self.follow();
        }
        is_ended
    }

    /// From here on writes wait, whatever CLIENT UNPAUSE says.
    pub fn begin_shutdown(&self) {
        self.by_shutdown.store(true, SeqCst);
        self.follow();
    }

    /// The server goes on.
    pub fn end_shutdown(&self) {
        self.by_shutdown.store(false, SeqCst);
        self.follow();
    }

    /// Whether the server is about to go down.
    pub fn is_shutdown(&self) -> bool {
        self.by_shutdown.load(SeqCst)
    }

    /// From here on writes wait until the role is another server's, or stays here.
    pub fn begin_failover(&self) {
        self.by_failover.store(true, SeqCst);
        self.follow();
    }

    /// See [`Pause::begin_failover`].
    pub fn end_failover(&self) {
        self.by_failover.store(false, SeqCst);
        self.follow();
    }

    /// What is held back now.
    pub fn in_force(&self, now: Millis) -> Option<InForce> {
        let until = Millis(self.until_ms.load(Relaxed));
        let is_strict = !self.writes_only.load(Relaxed);
        let actions = if is_strict { Actions::All } else { Actions::Writes };
        let by_client = InForce { purpose: Purpose::Client, actions, until };
        let other = if self.by_shutdown.load(Relaxed) {
            Some(Purpose::Shutdown)
        } else {
            self.by_failover.load(Relaxed).then_some(Purpose::Failover)
        };
        let of = |purpose| InForce { purpose, actions: Actions::Writes, until: UNKNOWN_END };
        let is_on = until > now;
        if is_on && (is_strict || other.is_none()) { Some(by_client) } else { other.map(of) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_force(pause: &Pause, now: i64) -> Option<(Purpose, Actions)> {
        pause.in_force(Millis(now)).map(|it| (it.purpose, it.actions))
    }

    #[test]
    fn a_pause_gets_only_longer_and_stricter() {
        let pause = Pause::default();
        pause.begin(Actions::All, Millis(100), Millis(0));
        pause.begin(Actions::Writes, Millis(50), Millis(0));
        assert_eq!(in_force(&pause, 99), Some((Purpose::Client, Actions::All)));
        assert!(!pause.end_if_over(Millis(99)));
        // The next one is another.
        pause.begin(Actions::Writes, Millis(200), Millis(100));
        assert_eq!(in_force(&pause, 199), Some((Purpose::Client, Actions::Writes)));
        assert!(pause.end_if_over(Millis(200)) && !pause.end_if_over(Millis(200)));
        assert!(!pause.is_on());
    }

    #[test]
    fn a_failover_holds_back_writes() {
        let pause = Pause::default();
        pause.begin_failover();
        pause.end();
        assert_eq!(in_force(&pause, 0), Some((Purpose::Failover, Actions::Writes)));
        pause.begin_shutdown();
        pause.end_failover();
        assert_eq!(in_force(&pause, 0), Some((Purpose::Shutdown, Actions::Writes)));
        pause.end_shutdown();
        assert!(!pause.is_on());
    }

    #[test]
    fn neither_purpose_touches_the_other() {
        let pause = Pause::default();
        let by_shutdown = Some((Purpose::Shutdown, Actions::Writes));
        pause.begin_shutdown();
        pause.end();
        assert_eq!(in_force(&pause, 0), by_shutdown);
        pause.begin(Actions::Writes, Millis(100), Millis(0));
        assert_eq!(in_force(&pause, 0), by_shutdown);
        pause.begin(Actions::All, Millis(100), Millis(0));
        assert_eq!(in_force(&pause, 0), Some((Purpose::Client, Actions::All)));
        assert!(pause.end_if_over(Millis(100)) && pause.is_on());
        assert_eq!(in_force(&pause, 100), by_shutdown);
        pause.begin(Actions::Writes, Millis(200), Millis(100));
        pause.end_shutdown();
        assert_eq!(in_force(&pause, 100), Some((Purpose::Client, Actions::Writes)));
        assert_eq!(in_force(&pause, 200), None);
    }
}
