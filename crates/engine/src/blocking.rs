//! Commands that wait: BLPOP and its kin, and work that a background thread does for a client.
//!
//! A blocked command is kept as a [`Waiter`] in the registry of each of its keys, oldest first.
//! A thread that changes such a key serves the waiters when its own command is committed, and before
//! it releases its locks: it runs the waiter's command again, on the waiter's behalf, with what further
//! locks the command needs, and posts the reply to the client's thread. So the waiter that waits
//! longest is served first, and all others see the key as the waiter left it.
//!
//! WAIT and WAITAOF block in the same way, but wait for what [`crate::acks`] knows of, not for keys.
//!
//! A waiter's fate (served, timed out, unblocked, gone) is decided once, by an atomic exchange. Another
//! thread that unblocks or closes a client calls its wait off in the same way: whatever is pushed once
//! that client has its reply is not for the one that waited.

use crate::acks::Acks;
use crate::acl::SessionUser;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::error::Error;
use crate::interest::{self, KeyInterest};
use crate::journal::JournalPos;
use crate::session::Session;
use crate::watching::Watching;
use keyspace::{DbIndex, Key, Millis};
use resp::{Output, Protocol};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*};
use structs::numbers::{LongDouble, parse_f64, parse_i64};

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
}

impl TimeoutReply {
    /// Writes it.
    pub fn write(self, engine: &Engine, reply: &mut resp::Reply<'_>) {
        match self {
            TimeoutReply::NullArray => reply.null_array(),
            TimeoutReply::Null => reply.null(),
            TimeoutReply::Zero => reply.integer(0),
            TimeoutReply::Ok => reply.ok(),
            TimeoutReply::Acks(acks) => acks.write(engine, reply),
        }
    }
}

/// What a blocked command waits for.
#[derive(Debug)]
pub(crate) enum Until {
    /// One of these keys changes so that it can go on.
    Keys(Vec<Box<[u8]>>),
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
    pub(crate) session_client: Arc<crate::clients::Client>,
    user: SessionUser,
    state: AtomicU8,
    token: AtomicU64,
    /// Nanoseconds for which its command has run, in all attempts; [`REJECTED`] if it was not allowed to.
    spent_ns: AtomicU64,
    /// Whether it is among the blocked clients that are counted.
    is_counted: AtomicBool,
}

impl Waiter {
    pub(crate) fn new(cx: &Cx<'_>, argv: Vec<Box<[u8]>>, until: Until, spent_ns: u64) -> Waiter {
        Waiter {
            client: cx.session.id(),
            thread: cx.session.client.thread,
            db: cx.db.index,
            until,
            argv,
            protocol: cx.reply.protocol(),
            no_touch: cx.session.no_touch,
            is_import_source: cx.session.is_import_source,
            session_client: Arc::clone(&cx.session.client),
            user: cx.session.user.clone(),
            state: AtomicU8::new(WAITING),
            token: AtomicU64::new(0),
            spent_ns: AtomicU64::new(spent_ns),
            is_counted: AtomicBool::new(false),
        }
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
            Until::Keys(keys) => keys,
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
    pub(crate) fn count(&self, engine: &Engine) {
        self.is_counted.store(true, Release);
        engine.stats.blocked_clients.fetch_add(1, Relaxed);
    }

    /// Its client is blocked no longer; only the first call counts.
    pub(crate) fn uncount(&self, engine: &Engine) {
        if self.is_counted.swap(false, AcqRel) {
            engine.stats.blocked_clients.fetch_sub(1, Relaxed);
        }
    }

    pub(crate) fn claim(&self) -> bool {
        // Killed or evicted while it was served, in vain, it was put back.
        !self.session_client.is_leaving()
            && self.state.compare_exchange(WAITING, SERVING, AcqRel, Acquire).is_ok()
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

    /// The same for a client that stays and may see which of both it was: `true` says that it is not
    /// served.
    pub(crate) fn call_off_unserved(&self) -> bool {
        loop {
            match self.state.compare_exchange(WAITING, CALLED_OFF, AcqRel, Acquire) {
                Ok(_) => return true,
                // The serving thread has all locks and does not wait.
                Err(SERVING) => std::thread::yield_now(),
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

/// Why a session does not read further requests.
pub struct Suspension {
    /// Distinguishes this suspension from earlier ones of the same client.
    pub token: u64,
    /// When it ends by itself, and with what.
    pub deadline: Option<Millis>,
    pub(crate) on_timeout: TimeoutReply,
    /// The blocked command, if it is one.
    pub waiter: Option<Arc<Waiter>>,
    /// Whether CLIENT REPLY keeps its reply from the client.
    pub(crate) is_silent: bool,
    /// The error in place of the reply, if it was ended from outside with one.
    pub(crate) error: Option<&'static str>,
    /// Whether the client may cache what the reply says: what it has to forget comes after that.
    pub(crate) is_cached: bool,
}

impl Suspension {
    /// One that a background job ends.
    pub fn background(on_timeout: TimeoutReply) -> Suspension {
        Suspension {
            token: 0,
            deadline: None,
            on_timeout,
            waiter: None,
            is_silent: false,
            error: None,
            is_cached: false,
        }
    }
}

/// The end of a suspension, from another thread.
pub struct Resumption {
    /// The suspension's.
    pub token: Option<u64>,
    /// The encoded reply.
    pub reply: Output,
    /// The position behind what was written for it; 0 if nothing was.
    pub written: JournalPos,
    /// The position behind what it may tell of.
    pub seen: JournalPos,
    /// What the client watches, if the command has changed that.
    pub(crate) watching: Option<Box<Watching>>,
}

impl Resumption {
    /// The end of a suspension by a reply alone.
    pub(crate) fn new(token: Option<u64>, reply: Output, written: JournalPos) -> Resumption {
        Resumption { token, reply, written, seen: JournalPos(0), watching: None }
    }
}

impl Cx<'_> {
    /// Suspends the client until one of `keys` (words of the request) changes so that the
    /// command can go on, or until the deadline. Inside a transaction, where nothing may block,
    /// it answers as if the time were up.
    ///
    /// The command runs again from its start when a key has changed; it must not have written a
    /// reply or changed anything when it calls this.
    pub fn block(
        &mut self,
        keys: &[&[u8]],
        deadline: Option<Millis>,
        on_timeout: TimeoutReply,
    ) -> Result<(), Error> {
        if self.in_transaction {
            on_timeout.write(self.engine, &mut self.reply);
        } else {
            let until = Until::Keys(keys.iter().map(|&key| Box::from(key)).collect());
            self.block_request =
                Some(BlockRequest { until, deadline, on_timeout, words: None, spent_ns: 0 });
        }
        Ok(())
    }

    /// The same with other words for when the command runs again: what the request says by the
    /// moment at which it came (XREAD's `$`) must not change its meaning.
    pub fn block_as(
        &mut self,
        keys: &[&[u8]],
        deadline: Option<Millis>,
        on_timeout: TimeoutReply,
        words: Vec<Box<[u8]>>,
    ) -> Result<(), Error> {
        self.block(keys, deadline, on_timeout)?;
        if let Some(request) = &mut self.block_request {
            request.words = Some(words);
        }
        Ok(())
    }
}

/// Reads a timeout argument in whole milliseconds; 0 is for ever.
pub fn parse_timeout_ms(text: &[u8], now: Millis) -> Result<Option<Millis>, Error> {
    let ms = parse_i64(text).ok_or(Error::text("ERR timeout is not an integer or out of range"))?;
    if ms < 0 {
        return Err(Error::text("ERR timeout is negative"));
    }
    let at = now.0.checked_add(ms).ok_or(Error::text("ERR timeout is out of range"))?;
    Ok((ms > 0).then_some(Millis(at)))
}

/// Reads a timeout argument in seconds, fractions allowed; 0 is for ever.
pub fn parse_timeout(text: &[u8], now: Millis) -> Result<Option<Millis>, Error> {
    let seconds = parse_f64(text)
        .or_else(|| LongDouble::parse(text).map(LongDouble::to_f64))
        .ok_or(Error::text("ERR timeout is not a float or out of range"))?;
    let ms = (seconds * 1000.0).ceil();
    if ms > (i64::MAX - now.0) as f64 {
        return Err(Error::text("ERR timeout is out of range"));
    }
    if ms < 0.0 {
        return Err(Error::text("ERR timeout is negative"));
    }
    Ok((ms > 0.0).then_some(Millis(now.0.saturating_add(ms as i64))))
}

/// Ends a wait that is not served any longer.
pub(crate) fn end(db: &mut crate::db::Db<'_>, waiter: &Arc<Waiter>) {
    forget(db, waiter);
    waiter.uncount(db.engine);
}

/// Takes a waiter out of the registries of its keys, or wherever it is to be found.
pub(crate) fn forget(db: &mut crate::db::Db<'_>, waiter: &Arc<Waiter>) {
    let engine = db.engine;
    if let Until::Acks(_) = waiter.until {
        return engine.acks.remove(waiter);
    }
    for key in waiter.keys() {
        let stripe = engine.keyspace.stripe_of(Key::new(key));
        let forget =
            |of_key: &mut KeyInterest| of_key.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        db.with_stripe_mut(stripe, |data| {
            interest::change(data, |interest| interest.retain(waiter.db, key, forget));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Acl;
    use crate::clients::{Client, Departure};
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

    #[test]
    fn timeouts_that_are_none() {
        let now = Millis(1_700_000_000_000);
        for text in ["nan", "inf", "-inf", "1e400", "1e308", "9223372036854775", "-0.001", "x", ""]
        {
            assert!(parse_timeout(text.as_bytes(), now).is_err(), "{text}");
        }
        assert_eq!(parse_timeout(b"0", now).ok(), Some(None));
        assert_eq!(parse_timeout(b"-0", now).ok(), Some(None));
        let soon = Millis(now.0 + 1);
        assert_eq!(parse_timeout(b"0.0001", now).ok(), Some(Some(soon)));
        let far = parse_timeout(b"9000000000000000", now).ok().flatten();
        assert_eq!(far, Some(Millis(now.0 + 9_000_000_000_000_000_000)));
    }
}
