//! Commands that wait: BLPOP and its kin, and work that a background thread does for a client.
//!
//! A blocked command is kept as a [`Waiter`] in the registry of each of its keys, oldest first. A
//! thread that changes such a key serves the waiters when its own command is committed, and before
//! it releases its locks: it runs the waiter's command again, on the waiter's behalf, with what
//! further locks the command needs, and posts the reply to the client's thread. So the waiter that
//! waits longest is served first, and all others see the key as the waiter left it.
//!
//! WAIT and WAITAOF block in the same way, but wait for what [`crate::acks`] knows of, not for
//! keys.

pub(crate) use crate::clients::suspension::Choice;
pub use crate::clients::suspension::{Resumption, Suspension};
pub(crate) use crate::clients::waiter::{BlockRequest, Ready, Until};
pub use crate::clients::waiter::{Run, TimeoutReply, Waiter};
use crate::cx::Cx;
use crate::db::Db;
use crate::engine::Engine;
use crate::error::Error;
use crate::interest::{self, KeyInterest};
use keyspace::{Key, Millis, StripeData};
use std::sync::Arc;
use structs::numbers::{LongDouble, parse_f64, parse_i64};

impl TimeoutReply {
    /// Writes it.
    pub fn write(self, engine: &Engine, reply: &mut resp::Reply<'_>) {
        match self {
            TimeoutReply::NullArray => reply.null_array(),
            TimeoutReply::Null => reply.null(),
            TimeoutReply::Zero => reply.integer(0),
            TimeoutReply::Ok => reply.ok(),
            TimeoutReply::Acks(acks) => acks.write(engine, reply),
            TimeoutReply::LastRun => unreachable!("its command writes the reply"),
        }
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

    /// Blocks as [`Cx::block`] does, for a command that also goes on, with an error, when one of
    /// the keys is deleted.
    pub fn block_or_fail(
        &mut self,
        keys: &[&[u8]],
        deadline: Option<Millis>,
        on_timeout: TimeoutReply,
    ) -> Result<(), Error> {
        self.block(keys, deadline, on_timeout)?;
        if let Some(request) = &mut self.block_request
            && let Until::Keys(keys) = &mut request.until
        {
            request.until = Until::KeysOrDeletion(std::mem::take(keys));
        }
        Ok(())
    }

    /// Blocks as [`Cx::block`] does, with other words for the second run. What a request means by
    /// the moment of its arrival (XREAD's `$`) must not change.
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

    /// Blocks as [`Cx::block_as`] does, for a command that writes the reply itself when the time is
    /// up or the key is deleted: then it runs again, and `self.run` says why. It may not be called
    /// in the last run, nor inside a transaction.
    pub fn block_until_read(
        &mut self,
        key: Key<'_>,
        deadline: Option<Millis>,
        words: Vec<Box<[u8]>>,
    ) {
        debug_assert!(!self.in_transaction && self.run != Run::Last, "it has to reply");
        self.block_request = Some(BlockRequest {
            until: Until::KeysOrDeletion(vec![key.bytes.into()]),
            deadline,
            on_timeout: TimeoutReply::LastRun,
            words: Some(words),
            spent_ns: 0,
        });
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
pub(crate) fn end(db: &mut Db<'_>, waiter: &Arc<Waiter>) {
    forget(db, waiter);
    waiter.uncount(&db.engine.stats);
}

/// Takes a waiter out of the registries of its keys, or wherever it is to be found.
pub(crate) fn forget(db: &mut Db<'_>, waiter: &Arc<Waiter>) {
    let engine = db.engine;
    if let Until::Acks(_) = waiter.until {
        return engine.acks.remove(waiter);
    }
    for key in waiter.keys() {
        let stripe = engine.keyspace.stripe_of(Key::new(key));
        if db.try_visit_mut(stripe, |data| forget_key(data, waiter, key)).is_none() {
            // A script may hold the stripe for long.
            let (keyspace, waiter, key) = (&engine.keyspace, Arc::clone(waiter), key.clone());
            engine.background.add_chore(Box::new(move || {
                let stripe = keyspace.stripe(stripe).try_lock_soon();
                stripe.map(|mut data| forget_key(&mut data, &waiter, &key)).is_some()
            }));
        }
    }
}

/// Takes a waiter out of the registry of a key, whose stripe is locked.
fn forget_key(data: &mut StripeData, waiter: &Arc<Waiter>, key: &[u8]) {
    let forget = |of_key: &mut KeyInterest| of_key.forget_waiter(waiter);
    interest::change(data, |interest| interest.retain(waiter.db, key, forget));
}

#[cfg(test)]
mod tests {
    use super::*;

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
