//! What users and addresses may ask for in a second (`rate-limits`).
//!
//! Connections that are counted together have a [`Bucket`] in common. It is
//! two times: when the requests that were let in, and when the bytes that were moved, are paid for
//! at the rates that are allowed. While one of them lies ahead no request begins. What was saved up
//! is kept for [`SAVED`], so short bursts pass. A reply is charged when it is known, however long:
//! a client that reads 10 MB at 1 MB a second waits for ten seconds afterwards.

use crate::clock::{Clock, Ticks};
use crate::session::Session;
use config::{Config, RateLimit, RateSubject, parse_rate_limits};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, Weak};
use structs::flags::Flag;
use structs::sync::lock;

/// How much of the past counts, in nanoseconds.
const SAVED: u64 = 1_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// See the module's documentation. Times are nanoseconds since the first limit was set.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Requests a second; 0 is any number.
    requests: u64,
    /// Bytes a second; 0 is any number.
    bytes: u64,
    requests_paid_at: AtomicU64,
    bytes_paid_at: AtomicU64,
}

impl Bucket {
    fn new(limit: &RateLimit) -> Bucket {
        Bucket {
            requests: limit.requests,
            bytes: limit.bytes,
            requests_paid_at: AtomicU64::new(0),
            bytes_paid_at: AtomicU64::new(0),
        }
    }

    fn is_open(&self, now: u64) -> bool {
        self.requests_paid_at.load(Relaxed) <= now && self.bytes_paid_at.load(Relaxed) <= now
    }

    fn charge(&self, now: u64, requests: u64, bytes: u64) {
        for (paid_at, rate, number) in [
            (&self.requests_paid_at, self.requests, requests),
            (&self.bytes_paid_at, self.bytes, bytes),
        ] {
            if rate == 0 || number == 0 {
                continue;
            }
            let cost = number.saturating_mul(SECOND) / rate;
            let next = |at: u64| Some(at.max(now.saturating_sub(SAVED)).saturating_add(cost));
            // The function always returns a value.
            let _ = paid_at.fetch_update(Relaxed, Relaxed, next);
        }
    }
}

/// The buckets of a session, and of which limits they are.
#[derive(Debug, Default)]
pub(crate) struct Limited {
    generation: u64,
    buckets: Vec<Arc<Bucket>>,
}

#[derive(Default)]
struct Rules {
    limits: Vec<RateLimit>,
    /// How often they were set.
    settings: u64,
    /// Of users, by [`RateSubject`]'s name.
    users: HashMap<Box<[u8]>, Arc<Bucket>>,
    /// Of addresses with connections, by the number of the limit.
    addresses: HashMap<(usize, IpAddr), Weak<Bucket>>,
    /// With more addresses than this, those without connections are forgotten.
    most_addresses: usize,
}

impl Rules {
    fn follow(&mut self, limits: Vec<RateLimit>) {
        let users = limits.iter().filter_map(|limit| match &limit.subject {
            RateSubject::User(name) => Some((name.clone(), Arc::new(Bucket::new(limit)))),
            RateSubject::Address(_) => None,
        });
        self.users = users.collect();
        self.addresses.clear();
        self.limits = limits;
    }

    fn buckets_of(&mut self, user: &[u8], address: Option<IpAddr>) -> Vec<Arc<Bucket>> {
        let mut buckets: Vec<_> = self.users.get(user).cloned().into_iter().collect();
        let Some(address) = address else { return buckets };
        for (number, limit) in self.limits.iter().enumerate() {
            match &limit.subject {
                RateSubject::Address(network) if network.contains(&address) => {}
                _ => continue,
            }
            let kept = self.addresses.entry((number, address)).or_default();
            buckets.push(kept.upgrade().unwrap_or_else(|| {
                let bucket = Arc::new(Bucket::new(limit));
                *kept = Arc::downgrade(&bucket);
                bucket
            }));
        }
        if self.addresses.len() > self.most_addresses {
            self.addresses.retain(|_, bucket| bucket.strong_count() > 0);
            self.most_addresses = (2 * self.addresses.len()).max(1024);
        }
        buckets
    }
}

/// What all threads share.
pub struct RateLimits {
    rules: Arc<Mutex<Rules>>,
    /// Counts the settings of the option; 0 while there is no limit.
    generation: Arc<AtomicU64>,
    clock: Clock,
    epoch: Ticks,
}

impl RateLimits {
    /// Follows the option, now and after each change.
    pub(crate) fn new(config: &Config, flag: Flag, clock: Clock) -> RateLimits {
        let (rules, generation) = (Arc::<Mutex<Rules>>::default(), Arc::<AtomicU64>::default());
        let limits = RateLimits {
            rules: Arc::clone(&rules),
            generation: Arc::clone(&generation),
            clock,
            epoch: clock.now(),
        };
        config.watch(Box::new(move |config| {
            // The option's check has read it.
            let wanted = parse_rate_limits(&config.rate_limits()).unwrap_or_default();
            let mut rules = lock(&rules);
            if wanted == rules.limits {
                return;
            }
            rules.settings += 1;
            flag.set(!wanted.is_empty());
            generation.store(if wanted.is_empty() { 0 } else { rules.settings }, Release);
            rules.follow(wanted);
        }));
        limits
    }

    fn now(&self) -> u64 {
        self.clock.nanoseconds(self.epoch, self.clock.now())
    }

    /// Returns whether a session's next request may begin.
    pub fn is_open(&self, session: &mut Session) -> bool {
        let Some(limited) = self.limited(session) else { return true };
        let now = self.now();
        limited.buckets.iter().all(|bucket| bucket.is_open(now))
    }

    /// Charges a session for requests, and for bytes of requests and replies.
    pub fn charge(&self, session: &mut Session, requests: usize, bytes: usize) {
        let Some(limited) = self.limited(session) else { return };
        let (now, requests, bytes) = (self.now(), requests as u64, bytes as u64);
        limited.buckets.iter().for_each(|bucket| bucket.charge(now, requests, bytes));
    }

    /// The session's buckets; `None` if it has no limit.
    fn limited<'s>(&self, session: &'s mut Session) -> Option<&'s Limited> {
        let generation = self.generation.load(Acquire);
        if generation == 0 {
            session.limited = None;
            return None;
        }
        if session.limited.as_ref().is_none_or(|limited| limited.generation != generation) {
            let address = session.client.addr.parse().ok().map(|peer: SocketAddr| peer.ip());
            let address = address.map(|ip| ip.to_canonical());
            let buckets = lock(&self.rules).buckets_of(session.user.name().as_bytes(), address);
            session.limited = Some(Box::new(Limited { generation, buckets }));
        }
        session.limited.as_deref().filter(|limited| !limited.buckets.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &[u8]) -> Rules {
        let mut rules = Rules::default();
        rules.follow(parse_rate_limits(text).expect("they are right"));
        rules
    }

    #[test]
    fn a_bucket_is_open_while_what_it_gave_is_paid_for() {
        let buckets = rules(b"user:a 10 1000").buckets_of(b"a", None);
        let [bucket] = &buckets[..] else { panic!("one") };
        let (start, tenth) = (5 * SECOND, SECOND / 10);
        // A second's worth is saved up.
        let begun = (0..100).take_while(|_| {
            let is_open = bucket.is_open(start);
            bucket.charge(start, 1, 0);
            is_open
        });
        assert_eq!(begun.count(), 11);
        assert!(!bucket.is_open(start + tenth) && bucket.is_open(start + 2 * tenth));
        // Bytes are charged when they are known, however many.
        let later = start + 10 * SECOND;
        bucket.charge(later, 1, 5000);
        assert!(!bucket.is_open(later + 4 * SECOND - 1) && bucket.is_open(later + 4 * SECOND));
        // Numbers beyond all measure wait for very long, and do not wrap around.
        bucket.charge(later, u64::MAX, u64::MAX);
        assert!(!bucket.is_open(later + 1_000_000 * SECOND));
    }

    #[test]
    fn a_user_has_one_bucket_and_each_address_its_own() {
        let mut rules = rules(b"user:a 1 0 address:10.0.0.0/8 1 0 address:10.1.0.0/16 1 0");
        let address = |text: &str| Some(text.parse().expect("an address"));
        let first = rules.buckets_of(b"a", address("10.1.0.1"));
        let again = rules.buckets_of(b"a", address("10.1.0.1"));
        let other = rules.buckets_of(b"b", address("10.2.0.1"));
        assert_eq!((first.len(), other.len()), (3, 1));
        assert!(first.iter().zip(&again).all(|(one, same)| Arc::ptr_eq(one, same)));
        assert!(first.iter().all(|one| !Arc::ptr_eq(one, &other[0])));
        assert!(rules.buckets_of(b"b", address("192.0.2.1")).is_empty());
        assert!(rules.buckets_of(b"b", None).is_empty());
    }

    #[test]
    fn addresses_without_connections_are_forgotten() {
        let mut rules = rules(b"address:0.0.0.0/0 1 0");
        for number in 0..100_000_u32 {
            drop(rules.buckets_of(b"a", Some(std::net::Ipv4Addr::from(number).into())));
        }
        assert!(rules.addresses.len() < 2048, "{}", rules.addresses.len());
    }
}
