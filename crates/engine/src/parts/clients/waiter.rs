//! A blocked command: what it waits for, and what becomes of it.
//!
//! A waiter's fate (served, timed out, unblocked, gone) is decided once, by an atomic exchange.
//! Another thread that unblocks or closes a client calls its wait off in the same way: whatever is
//! pushed once that client has its reply is not for the one that waited.

use super::acks::Acks;
use super::session::Session;
use crate::acl::SessionUser;
use crate::clients::Client;
use crate::stats::Stats;
use keyspace::{DbIndex, Millis};
use resp::Protocol;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*};
use structs::backoff::Backoff;

const WAITING: u8 = 0;
const SERVING: u8 = 1;
const DONE: u8 = 2;
/// Being served, though its client has gone: the serving thread ends it.
const ABANDONED: u8 = 3;
/// Not to be served any more; its client's thread has yet to end it.
const CALLED_OFF: u8 = 4;

const REJECTED: u64 = u64::MAX;

/// A key that has changed, for the clients that wait for it.
pub(crate) type Ready = (DbIndex, Box<[u8]>);

/// What a client gets when its command times out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeoutReply {
    /// `*-1` or `_`.
    NullArray,
    /// `$-1` or `_`.
    Null,
    /// `:0`.
    Zero,
    /// `+OK`.
    Ok,
    /// How safe the client's writes are by then.
    Acks(Acks),
    /// What the command replies: it runs a last time.
    LastRun,
}

/// Which run of a blocking command it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Run {
    /// The first.
    #[default]
    First,
    /// It has waited, and one of its keys has changed.
    Again,
    /// It has waited, and its time is up. It has to reply.
    Last,
}

/// What a blocked command waits for.
#[derive(Debug)]
pub(crate) enum Until {
    /// One of these keys changes so that it can go on.
    Keys(Vec<Box<[u8]>>),
    /// The same, and its deletion is such a change.
    KeysOrDeletion(Vec<Box<[u8]>>),
    /// What its client has written is safe.
    Acks(Acks),
    /// A background thread has run it: it has found out that it takes long.
    Background,
}

/// A command's wish to wait.
#[derive(Debug)]
pub(crate) struct BlockRequest {
    pub until: Until,
    pub deadline: Option<Millis>,
    pub on_timeout: TimeoutReply,
    /// The words to run again, if not those of the request.
    pub words: Option<Vec<Box<[u8]>>>,
    /// Nanoseconds that it has run until now.
    pub spent_ns: u64,
}

/// A blocked command.
pub struct Waiter {
    /// The client that waits.
    pub client: u64,
    /// Its thread.
    pub thread: usize,
    /// Its database.
    pub db: DbIndex,
    pub(crate) until: Until,
    pub(crate) argv: Vec<Box<[u8]>>,
    pub(crate) protocol: Protocol,
    pub(crate) no_touch: bool,
    is_import_source: bool,
    pub(crate) session_client: Arc<Client>,
    user: SessionUser,
    state: AtomicU8,
    token: AtomicU64,
    /// Nanoseconds for which its command has run, in all attempts; [`REJECTED`] if it was not
    /// allowed to.
    spent_ns: AtomicU64,
    /// Whether it is among the blocked clients that are counted.
    is_counted: AtomicBool,
}

impl Waiter {
    /// The wait of a session's command, which has run for so long.
    pub(crate) fn new(
        session: &Session,
        db: DbIndex,
        argv: Vec<Box<[u8]>>,
        until: Until,
        spent_ns: u64,
    ) -> Waiter {
        Waiter {
            client: session.id(),
            thread: session.client.thread,
            db,
            until,
            argv,
            protocol: session.protocol,
            no_touch: session.no_touch,
            is_import_source: session.is_import_source,
            session_client: Arc::clone(&session.client),
            // Of a link the node checks the client's user, and ends the wait if its rights end. That
            // user may be unknown here.
            user: session.user.clone(),
            state: AtomicU8::new(WAITING),
            token: AtomicU64::new(0),
            spent_ns: AtomicU64::new(spent_ns),
            is_counted: AtomicBool::new(false),
        }
    }

    /// Whether it goes on when one of its keys is deleted, too.
    pub(crate) fn waits_for_deletion(&self) -> bool {
        matches!(self.until, Until::KeysOrDeletion(_))
    }

    /// Notes an attempt to serve it.
    pub(crate) fn note_attempt(&self, nanoseconds: u64) {
        self.spent_ns.fetch_add(nanoseconds, Relaxed);
    }

    /// Notes that its command was refused, so that it does not count as a call.
    pub(crate) fn note_rejection(&self) {
        self.spent_ns.store(REJECTED, Relaxed);
    }

    /// Nanoseconds for which its command has run, unless it was refused.
    pub(crate) fn spent_ns(&self) -> Option<u64> {
        Some(self.spent_ns.load(Relaxed)).filter(|&spent| spent != REJECTED)
    }

    /// The keys it waits for.
    pub fn keys(&self) -> &[Box<[u8]>] {
        match &self.until {
            Until::Keys(keys) | Until::KeysOrDeletion(keys) => keys,
            Until::Acks(_) | Until::Background => &[],
        }
    }

    /// Whether it still waits.
    pub fn is_waiting(&self) -> bool {
        self.state.load(Acquire) == WAITING
    }

    /// Notes the token of the suspension; before the stripes are unlocked.
    pub(crate) fn set_token(&self, token: u64) {
        self.token.store(token, Release);
    }

    /// The token of its suspension.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Acquire))
    }

    /// Whether its fate is decided.
    pub fn is_done(&self) -> bool {
        self.state.load(Acquire) == DONE
    }

    /// Whether it does not count as waiting any more, though its client's thread may have yet to
    /// hear of that.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state.load(Acquire), DONE | ABANDONED | CALLED_OFF)
            || self.session_client.is_killed()
    }

    /// Counts it among the blocked clients.
    pub(crate) fn count(&self, stats: &Stats) {
        self.is_counted.store(true, Release);
        stats.blocked_clients.fetch_add(1, Relaxed);
    }

    /// Its client is blocked no longer; only the first call counts.
    pub(crate) fn uncount(&self, stats: &Stats) {
        if self.is_counted.swap(false, AcqRel) {
            stats.blocked_clients.fetch_sub(1, Relaxed);
        }
    }

    pub(crate) fn claim(&self) -> bool {
        // Killed or evicted while it was served, in vain, it was put back.
        !self.session_client.is_leaving()
            && self.state.compare_exchange(WAITING, SERVING, AcqRel, Acquire).is_ok()
    }

    /// Claims it for its last run, also if it has been called off.
    pub(crate) fn claim_last(&self) -> bool {
        let claim = |state| self.state.compare_exchange(state, SERVING, AcqRel, Acquire).is_ok();
        !self.session_client.is_leaving() && [WAITING, CALLED_OFF].into_iter().any(claim)
    }

    /// It could not be served, and waits on; `false` if its client has gone meanwhile, so that it
    /// is to be forgotten.
    #[must_use]
    pub(crate) fn put_back(&self) -> bool {
        let waits = self.state.compare_exchange(SERVING, WAITING, AcqRel, Acquire).is_ok();
        if !waits {
            self.finish();
        }
        waits
    }

    pub(crate) fn finish(&self) {
        self.state.store(DONE, Release);
    }

    /// Ends the wait without serving it; `false` if it is or was served.
    pub fn cancel(&self) -> bool {
        [WAITING, CALLED_OFF]
            .iter()
            .any(|&state| self.state.compare_exchange(state, DONE, AcqRel, Acquire).is_ok())
    }

    /// Keeps it from being served from now on, for a client whose thread is going to be told to
    /// end the wait; `false` if its fate is decided. If it is being served just now, that may
    /// succeed.
    pub(crate) fn call_off(&self) -> bool {
        let before = self.state.compare_exchange(WAITING, CALLED_OFF, AcqRel, Acquire);
        matches!(before, Ok(_) | Err(SERVING))
    }

    /// The same for a client that stays and may see which of both it was: `true` says that it is
    /// not served.
    pub(crate) fn call_off_unserved(&self) -> bool {
        let mut backoff = Backoff::default();
        loop {
            match self.state.compare_exchange(WAITING, CALLED_OFF, AcqRel, Acquire) {
                Ok(_) => return true,
                // The serving thread has all locks and does not wait.
                Err(SERVING) => backoff.pause(),
                Err(_) => return false,
            }
        }
    }

    /// The same for a client that goes away: if another thread serves it just now, that thread
    /// ends the wait.
    pub(crate) fn abandon(&self) -> bool {
        // Its own thread alone does this, and a wait that was put back is waiting again.
        while self.state.compare_exchange(SERVING, ABANDONED, AcqRel, Acquire).is_err() {
            if self.cancel() {
                return true;
            }
            if self.is_done() {
                return false;
            }
        }
        false
    }

    /// A session to run its command in, away from its own thread.
    pub(crate) fn guest_session(&self) -> Session {
        let mut session = Session::new(Arc::clone(&self.session_client), self.user.clone(), true);
        session.is_guest = true;
        session.db = self.db;
        session.protocol = self.protocol;
        session.no_touch = self.no_touch;
        session.is_import_source = self.is_import_source;
        session
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Acl;
    use crate::clients::Departure;
    use crate::table::CommandTable;

    fn waiter() -> Waiter {
        let table = Box::leak(Box::new(CommandTable::build(&[], &[])));
        let client = Client::unconnected(1, 0, Millis(0));
        Waiter {
            client: 1,
            thread: 0,
            db: DbIndex(0),
            until: Until::Keys(Vec::new()),
            argv: Vec::new(),
            protocol: Protocol::Resp2,
            no_touch: false,
            is_import_source: false,
            session_client: Arc::new(client),
            user: Acl::new(table, &config::Config::new()).default_user(),
            state: AtomicU8::new(WAITING),
            token: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
            is_counted: AtomicBool::new(false),
        }
    }

    #[test]
    fn a_client_that_goes_away_while_it_is_served_waits_no_longer() {
        let waiter = waiter();
        assert!(waiter.claim());
        assert!(!waiter.abandon(), "whoever serves it ends the wait");
        assert!(!waiter.put_back(), "nobody is there to wait on");
        assert!(waiter.is_done() && !waiter.claim());
    }

    #[test]
    fn a_wait_that_is_put_back_can_be_ended() {
        let waiter = waiter();
        assert!(waiter.claim() && waiter.put_back() && waiter.is_waiting());
        assert!(waiter.abandon());
        assert!(!waiter.claim());
    }

    #[test]
    fn a_wait_that_is_called_off_is_only_ended() {
        let waiter = waiter();
        assert!(waiter.call_off());
        assert!(!waiter.claim() && !waiter.is_waiting() && !waiter.is_done());
        assert!(!waiter.call_off(), "it is called off");
        assert!(waiter.cancel() && waiter.is_done());
        assert!(!waiter.call_off(), "it is over");
    }

    #[test]
    fn the_last_run_of_a_wait_is_its_end() {
        let waiter = waiter();
        assert!(waiter.call_off() && waiter.claim_last());
        assert!(!waiter.claim() && !waiter.claim_last() && !waiter.cancel(), "it is served");
        waiter.finish();
        assert!(waiter.is_done() && !waiter.claim_last());
    }

    #[test]
    fn who_is_killed_while_it_is_served_in_vain_is_not_served_again() {
        let waiter = waiter();
        assert!(waiter.claim());
        waiter.session_client.depart(Departure::Closed);
        assert!(waiter.put_back() && !waiter.claim());
        assert!(waiter.abandon(), "its thread ends the wait");
    }

    #[test]
    fn who_is_unblocked_while_it_is_served_is_so_only_if_that_is_in_vain() {
        for is_in_vain in [true, false] {
            let waiter = waiter();
            assert!(waiter.claim());
            let is_called_off = std::thread::scope(|scope| {
                let other = scope.spawn(|| waiter.call_off_unserved());
                if is_in_vain {
                    assert!(waiter.put_back());
                } else {
                    waiter.finish();
                }
                other.join().expect("it ends")
            });
            assert_eq!(is_called_off, is_in_vain);
        }
    }

    #[test]
    fn a_wait_that_is_called_off_while_it_is_served_may_be_served() {
        let waiter = waiter();
        assert!(waiter.claim() && waiter.call_off());
        assert!(waiter.put_back() && waiter.cancel());
    }
}
