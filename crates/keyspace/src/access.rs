//! The 24 bits of an entry that remember how it was used, for eviction and OBJECT.
//!
//! Under an LRU policy, or none, they are the time of the last access in seconds, modulo 2^24.
//! Under an LFU policy they are Redis's: 16 bits of minutes since the last decay and an 8-bit
//! logarithmic counter. With a flash tier, the time has 22 bits (48 days), and two bits count uses.
//! The tier's clock hand subtracts a use each time it passes (CLOCK).
//!
//! ```text
//!   23             8 7        0
//!  ┌────────────────┬──────────┐
//!  │ minutes        │ counter  │   LFU
//!  ├──────┬─────────┴──────────┤
//!  │ uses │ seconds            │   CLOCK
//!  └──────┴────────────────────┘
//!   23  22 21                 0
//! ```

/// The counter of a new key. It is above 0, so that a new key is not evicted first.
pub const LFU_INITIAL: u8 = 5;
const CLOCK_MASK: u32 = (1 << 24) - 1;
/// One use, as the CLOCK policy counts them.
const USE: u32 = 1 << 22;
const USES: u32 = 3 * USE;
const SHORT_CLOCK_MASK: u32 = USE - 1;

/// The meaning of the bits, with the parameters of LFU.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// Time of last access.
    Lru,
    /// The same, and up to three uses. Used with a flash tier.
    Clock,
    /// `lfu-log-factor` and `lfu-decay-time` (minutes).
    Lfu {
        /// Higher: more accesses are needed to saturate the counter.
        log_factor: u32,
        /// Minutes after which the counter drops by one; 0 never.
        decay_minutes: u32,
    },
}

fn minutes(now_ms: i64) -> u32 {
    ((now_ms / 60_000) & 0xffff) as u32
}

/// Returns the bits of a new entry.
#[inline]
pub fn fresh(policy: Policy, now_ms: i64) -> u32 {
    match policy {
        Policy::Lru => (now_ms / 1000) as u32 & CLOCK_MASK,
        Policy::Clock => (now_ms / 1000) as u32 & SHORT_CLOCK_MASK,
        Policy::Lfu { .. } => minutes(now_ms) << 8 | u32::from(LFU_INITIAL),
    }
}

/// Returns the bits after the value was replaced. `fresh` are those of a new entry.
#[inline]
pub fn replaced(policy: Policy, bits: u32, fresh: u32) -> u32 {
    match policy {
        Policy::Clock => one_more_use(bits) | fresh & SHORT_CLOCK_MASK,
        _ => fresh,
    }
}

fn one_more_use(bits: u32) -> u32 {
    (bits & USES).saturating_add(USE).min(USES)
}

/// Returns the bits after the hand has passed, or `None` if no use is left.
pub fn one_use_less(bits: u32) -> Option<u32> {
    (bits & USES > 0).then(|| bits - USE)
}

/// Returns the bits without uses.
pub fn without_uses(policy: Policy, bits: u32) -> u32 {
    if matches!(policy, Policy::Clock) { bits & !USES } else { bits }
}

/// Returns whether an entry whose value is not in RAM was used recently.
pub fn is_warm(policy: Policy, bits: u32, now_ms: i64) -> bool {
    match policy {
        Policy::Lru => true,
        Policy::Clock => bits & USES > 0,
        Policy::Lfu { .. } => frequency(policy, bits, now_ms) >= LFU_INITIAL,
    }
}

/// Returns the bits after an access. `random` returns a uniform number.
#[inline]
pub fn touched(policy: Policy, bits: u32, now_ms: i64, random: impl FnOnce() -> u32) -> u32 {
    match policy {
        Policy::Lru => (now_ms / 1000) as u32 & CLOCK_MASK,
        Policy::Clock => one_more_use(bits) | (now_ms / 1000) as u32 & SHORT_CLOCK_MASK,
        Policy::Lfu { log_factor, .. } => {
            let counter = frequency(policy, bits, now_ms);
            let base = u32::from(counter.saturating_sub(LFU_INITIAL));
            let odds = u64::from(base) * u64::from(log_factor) + 1;
            let raise = counter < 255 && u64::from(random()) * odds < 1 << 32;
            minutes(now_ms) << 8 | u32::from(counter + u8::from(raise))
        }
    }
}

/// Returns the decayed counter (OBJECT FREQ).
pub fn frequency(policy: Policy, bits: u32, now_ms: i64) -> u8 {
    let counter = bits as u8;
    match policy {
        Policy::Lfu { decay_minutes, .. } if decay_minutes > 0 => {
            let passed = minutes(now_ms).wrapping_sub(bits >> 8) & 0xffff;
            counter.saturating_sub((passed / decay_minutes).min(255) as u8)
        }
        _ => counter,
    }
}

fn time_mask(policy: Policy) -> u32 {
    if matches!(policy, Policy::Clock) { SHORT_CLOCK_MASK } else { CLOCK_MASK }
}

/// Returns the seconds since the last access (OBJECT IDLETIME).
pub fn idle_seconds(policy: Policy, bits: u32, now_ms: i64) -> u32 {
    ((now_ms / 1000) as u32).wrapping_sub(bits) & time_mask(policy)
}

/// Returns the score for eviction. Entries with a higher score are evicted first.
pub fn eviction_score(policy: Policy, bits: u32, now_ms: i64) -> u64 {
    match policy {
        Policy::Lru | Policy::Clock => u64::from(idle_seconds(policy, bits, now_ms)),
        Policy::Lfu { .. } => 255 - u64::from(frequency(policy, bits, now_ms)),
    }
}

/// Returns bits that mean "idle for `seconds`" (RESTORE … IDLETIME).
pub fn with_idle(policy: Policy, seconds: u32, now_ms: i64) -> u32 {
    ((now_ms / 1000) as u32).wrapping_sub(seconds) & time_mask(policy)
}

/// Returns bits that mean "used this often" (RESTORE … FREQ).
pub fn with_frequency(counter: u8, now_ms: i64) -> u32 {
    minutes(now_ms) << 8 | u32::from(counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lru_counts_seconds_and_wraps() {
        let bits = fresh(Policy::Lru, 1_700_000_000_000);
        assert_eq!(idle_seconds(Policy::Lru, bits, 1_700_000_012_000), 12);
        for policy in [Policy::Lru, Policy::Clock] {
            assert_eq!(idle_seconds(policy, with_idle(policy, 100, 5_000), 5_000), 100);
        }
    }

    #[test]
    fn the_hand_takes_away_what_uses_have_given() {
        let (policy, now) = (Policy::Clock, 1_700_000_000_000);
        let new = fresh(policy, now);
        assert_eq!(one_use_less(new), None);
        let mut bits = (0..5).fold(new, |bits, _| touched(policy, bits, now + 9000, || 0));
        assert_eq!(idle_seconds(policy, bits, now + 10_000), 1);
        for left in [true, true, false] {
            assert!(is_warm(policy, bits, now));
            bits = one_use_less(bits).expect("there were three uses");
            assert_eq!(one_use_less(bits).is_some(), left);
        }
        assert!(!is_warm(policy, bits, now));
        let again = replaced(policy, bits, fresh(policy, now + 20_000));
        assert_eq!(
            (is_warm(policy, again, now), idle_seconds(policy, again, now + 21_000)),
            (true, 1)
        );
        assert_eq!(replaced(Policy::Lru, bits, 7), 7);
    }

    #[test]
    fn lfu_rises_by_luck_and_decays_by_minutes() {
        let policy = Policy::Lfu { log_factor: 10, decay_minutes: 1 };
        let now = 1_700_000_000_000;
        let mut bits = fresh(policy, now);
        bits = touched(policy, bits, now, || 0);
        assert_eq!(frequency(policy, bits, now), LFU_INITIAL + 1);
        bits = touched(policy, bits, now, || u32::MAX);
        assert_eq!(frequency(policy, bits, now), LFU_INITIAL + 1);
        assert_eq!(frequency(policy, bits, now + 3 * 60_000), LFU_INITIAL - 2);
    }
}
