//! A limit of failed log-ins for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use structs::sync::lock;

/// Failures that an address may have within [`WINDOW`].
const MAX_FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered.
const MAX_ADDRESSES: usize = 10_000;

/// The failures of the last minute.
#[derive(Default)]
pub struct Limiter(Mutex<HashMap<IpAddr, (u32, Instant)>>);

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
    /// Whether another attempt is allowed.
    pub fn allows(&self, address: IpAddr, now: Instant) -> bool {
        let failures = lock(&self.0);
        failures.get(&network(address)).is_none_or(|&(count, since)| {
            count < MAX_FAILURES || now.duration_since(since) >= WINDOW
        })
    }

    /// Counts a failure.
    pub fn note_failure(&self, address: IpAddr, now: Instant) {
        let mut failures = lock(&self.0);
        if failures.len() >= MAX_ADDRESSES {
            failures.retain(|_, (_, since)| now.duration_since(*since) < WINDOW);
        }
        // With that many attackers a few more attempts make no difference.
        if failures.len() >= MAX_ADDRESSES {
            failures.clear();
        }
        let (count, since) = failures.entry(network(address)).or_insert((0, now));
        if now.duration_since(*since) >= WINDOW {
            (*count, *since) = (0, now);
        }
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_waits_after_too_many_failures() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        let [ours, theirs]: [IpAddr; 2] = ["2001:db8::1".parse().unwrap(), [10, 0, 0, 1].into()];
        for _ in 0..MAX_FAILURES {
            assert!(limiter.allows(ours, now));
            limiter.note_failure(ours, now);
        }
        assert!(!limiter.allows(ours, now) && limiter.allows(theirs, now));
        assert!(!limiter.allows("2001:db8::2".parse().unwrap(), now), "the same network");
        assert!(limiter.allows(ours, now + WINDOW));
        limiter.note_failure(ours, now + WINDOW);
        assert!(limiter.allows(ours, now + WINDOW), "it begins anew");
    }
}
