//! A limit of failed log-ins for each user at each address.
//!
//! Ten attempts fail at once. After them each further attempt of that user and address waits for
//! its turn. The right password waits, too: an answer at once would tell it from wrong ones. Other
//! users of the address and the user's other addresses do not wait. A browser that has logged in
//! before has a token, and does not wait either.

use crate::rest::ApiError;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use structs::sync::lock;
use tokio::sync::Semaphore;

/// Failures after which attempts wait.
const MAX_FAILURES: u32 = 10;
/// How long after the last failure they do.
const WINDOW: Duration = Duration::from_secs(60);
/// The time between two attempts that wait.
const STEP: Duration = Duration::from_secs(2);
/// How long an attempt waits at most; further ones are refused.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Attempts of all users that wait.
const MAX_WAITING: usize = 32;
/// Users and addresses that are remembered.
const MAX_KEPT: usize = 10_000;

type Key = (IpAddr, [u8; 32]);

struct Failures {
    count: u32,
    last: Instant,
    /// When the last attempt has its turn.
    turn: Instant,
}

/// The failures of the last minute.
pub struct Limiter {
    failures: Mutex<HashMap<Key, Failures>>,
    waiting: Semaphore,
}

impl Default for Limiter {
    fn default() -> Limiter {
        Limiter { failures: Mutex::default(), waiting: Semaphore::new(MAX_WAITING) }
    }
}

fn key(address: IpAddr, user: &str) -> Key {
    (network(address), Sha256::digest(user).into())
}

/// A network that one party is likely to have as a whole.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) & !(u128::MAX >> 64);
            IpAddr::V6(bits.into())
        }
        address => address,
    }
}

impl Limiter {
    /// Waits until an attempt of a user may be made from an address.
    ///
    /// # Errors
    /// Too many others wait.
    pub async fn turn(&self, address: IpAddr, user: &str) -> Result<(), ApiError> {
        let wait = self.wait(address, user, Instant::now()).ok_or_else(ApiError::limited)?;
        if !wait.is_zero() {
            let _waiting = self.waiting.try_acquire().map_err(|_| ApiError::limited())?;
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// Gives an attempt its turn. Returns how long it waits, or `None` if that is too long.
    fn wait(&self, address: IpAddr, user: &str, now: Instant) -> Option<Duration> {
        let mut failures = lock(&self.failures);
        let known = failures
            .get_mut(&key(address, user))
            .filter(|it| it.count >= MAX_FAILURES && now.duration_since(it.last) < WINDOW);
        let Some(known) = known else { return Some(Duration::ZERO) };
        let turn = (known.turn + STEP).max(now);
        let wait = turn - now;
        if wait > MAX_WAIT {
            return None;
        }
        known.turn = turn;
        Some(wait)
    }

    /// Counts a failure.
    pub fn note_failure(&self, address: IpAddr, user: &str) {
        self.note(address, user, Instant::now());
    }

    fn note(&self, address: IpAddr, user: &str, now: Instant) {
        let mut failures = lock(&self.failures);
        if failures.len() >= MAX_KEPT {
            failures.retain(|_, it| now.duration_since(it.last) < WINDOW);
        }
        // With that many attackers a few more attempts make no difference.
        if failures.len() >= MAX_KEPT {
            failures.clear();
        }
        let first = || Failures { count: 0, last: now, turn: now };
        let known = failures.entry(key(address, user)).or_insert_with(first);
        if now.duration_since(known.last) >= WINDOW {
            known.count = 0;
        }
        known.count += 1;
        known.last = now;
        if known.count == MAX_FAILURES {
            known.turn = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_at_an_address_waits_after_too_many_failures() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        let [ours, theirs]: [IpAddr; 2] = ["2001:db8::1".parse().unwrap(), [10, 0, 0, 1].into()];
        for _ in 0..MAX_FAILURES {
            assert_eq!(limiter.wait(ours, "ann", now), Some(Duration::ZERO));
            limiter.note(ours, "ann", now);
        }
        assert_eq!(limiter.wait(theirs, "ann", now), Some(Duration::ZERO));
        assert_eq!(limiter.wait(ours, "bob", now), Some(Duration::ZERO), "another user of it");
        let ours = "2001:db8::2".parse().unwrap();
        for turn in 1..=5 {
            assert_eq!(limiter.wait(ours, "ann", now), Some(STEP * turn), "the same network");
        }
        assert_eq!(limiter.wait(ours, "ann", now), None, "too many wait");
        let later = now + STEP;
        assert_eq!(limiter.wait(ours, "ann", later), Some(STEP * 5));
        limiter.note(ours, "ann", later);
        assert!(limiter.wait(ours, "ann", now + WINDOW).is_some_and(|wait| wait.is_zero()));
        assert_eq!(limiter.wait(ours, "ann", later + WINDOW), Some(Duration::ZERO));
        limiter.note(ours, "ann", later + WINDOW);
        assert_eq!(
            limiter.wait(ours, "ann", later + WINDOW),
            Some(Duration::ZERO),
            "it begins anew"
        );
    }
}
