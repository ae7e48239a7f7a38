//! A copy's lease, and whether the coordinator counts as present.
//!
//! The deadline is counted from the moment at which the renewal was *sent*: the coordinator cannot
//! have begun to count earlier. Any failure of any call makes the coordinator count as away, until
//! a renewal and a read that were both sent later have succeeded. While it is away, renewals that
//! succeed do not move the deadline.

use crate::Moment;
use crate::coordinator::{LeaseCall, LeaseId, LeaseReply};

/// The lease.
#[derive(Clone, Hash, Debug)]
pub(super) struct Lease {
    ttl: Moment,
    id: Option<LeaseId>,
    /// When the newest renewal that succeeded was sent.
    renewed: Option<Moment>,
    /// When the newest read that succeeded was sent.
    read: Option<Moment>,
    /// When the newest failure was seen.
    failed: Option<Moment>,
    /// Until when the lease lasts, whatever happens.
    deadline: Moment,
    in_flight: bool,
    next: Moment,
    retry: Moment,
}

impl Lease {
    pub(super) fn new(ttl: Moment, retry: Moment) -> Lease {
        let zero = Moment::ZERO;
        Lease {
            ttl,
            id: None,
            renewed: None,
            read: None,
            failed: None,
            deadline: zero,
            in_flight: false,
            next: zero,
            retry,
        }
    }

    /// Returns the call that is due.
    pub(super) fn poll(&mut self, now: Moment) -> Option<LeaseCall> {
        if self.in_flight || now < self.next {
            return None;
        }
        self.in_flight = true;
        Some(self.id.map_or(LeaseCall::Grant(self.ttl), LeaseCall::Renew))
    }

    /// Takes the reply to a call that was sent at `sent`. Returns whether the lease was lost.
    pub(super) fn replied(&mut self, now: Moment, sent: Moment, reply: LeaseReply) -> bool {
        self.in_flight = false;
        match reply {
            LeaseReply::Held { id, ttl } => {
                self.id = Some(id);
                self.ttl = ttl.min(self.ttl);
                self.renewed = Some(sent);
                self.next = sent + self.interval();
                self.settle();
                false
            }
            LeaseReply::Gone => {
                self.id = None;
                self.renewed = None;
                self.deadline = Moment::ZERO;
                self.next = now;
                true
            }
        }
    }

    /// Takes a read that succeeded and was sent at `sent`.
    pub(super) fn read(&mut self, sent: Moment) {
        self.read = self.read.max(Some(sent));
        self.settle();
    }

    /// Takes the failure of any call.
    pub(super) fn failed(&mut self, now: Moment) {
        self.failed = Some(now);
        self.next = self.next.min(now + self.retry);
    }

    /// Takes the failure of a lease's call.
    pub(super) fn call_failed(&mut self, now: Moment) {
        self.in_flight = false;
        self.next = now + self.retry;
        self.failed(now);
    }

    /// Returns whether the coordinator is there.
    pub(super) fn is_present(&self) -> bool {
        let since_failure = |success: Option<Moment>| success.is_some() && success > self.failed;
        since_failure(self.renewed) && since_failure(self.read)
    }

    /// Returns the lease's name.
    pub(super) fn id(&self) -> Option<LeaseId> {
        self.id
    }

    /// Until when the lease certainly lasts.
    pub(super) fn until(&self) -> Moment {
        if self.id.is_some() { self.deadline } else { Moment::ZERO }
    }

    /// Returns whether the lease certainly lasts.
    #[cfg(test)]
    fn holds(&self, now: Moment) -> bool {
        now < self.until()
    }

    /// How long after a renewal the next one is sent.
    pub(super) fn interval(&self) -> Moment {
        self.ttl / 4
    }

    fn settle(&mut self) {
        if self.is_present()
            && let Some(renewed) = self.renewed
        {
            self.deadline = self.deadline.max(renewed + self.ttl);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    fn held(id: LeaseId) -> LeaseReply {
        LeaseReply::Held { id, ttl: ms(4000) }
    }

    #[test]
    fn the_deadline_counts_from_when_the_renewal_was_sent() {
        let mut lease = Lease::new(ms(4000), ms(200));
        assert_eq!(lease.poll(ms(100)), Some(LeaseCall::Grant(ms(4000))));
        assert_eq!(lease.poll(ms(100)), None, "one call at a time");
        lease.replied(ms(3000), ms(100), held(7));
        assert!(!lease.holds(ms(3000)), "nothing was read yet");
        lease.read(ms(3000));
        assert!(lease.holds(ms(4099)) && !lease.holds(ms(4100)));
        assert_eq!(lease.poll(ms(3000)), Some(LeaseCall::Renew(7)));
    }

    #[test]
    fn a_failure_counts_as_away_until_a_renewal_and_a_read_succeed() {
        let mut lease = Lease::new(ms(4000), ms(200));
        lease.poll(ms(0));
        lease.replied(ms(10), ms(0), held(7));
        lease.read(ms(10));
        assert!(lease.is_present());
        lease.failed(ms(500));
        assert!(!lease.is_present() && lease.holds(ms(3999)));
        lease.read(ms(499));
        assert_eq!(lease.poll(ms(700)), Some(LeaseCall::Renew(7)));
        lease.replied(ms(710), ms(700), held(7));
        assert!(!lease.is_present() && !lease.holds(ms(4000)), "the read was sent before");
        lease.read(ms(720));
        assert!(lease.is_present() && lease.holds(ms(4699)));
    }

    #[test]
    fn a_lease_that_is_gone_holds_no_longer() {
        let mut lease = Lease::new(ms(4000), ms(200));
        lease.poll(ms(0));
        lease.replied(ms(10), ms(0), held(7));
        lease.read(ms(10));
        assert!(lease.replied(ms(20), ms(15), LeaseReply::Gone));
        assert!(!lease.holds(ms(21)));
        assert_eq!(lease.poll(ms(21)), Some(LeaseCall::Grant(ms(4000))));
    }
}
