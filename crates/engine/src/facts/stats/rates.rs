//! Figures about the last moments: how much there is of something in a second, and how many of the
//! keys that have expired are still there. Housekeeping and active expiry feed them ten times a
//! second; INFO reads them.

use crate::stats::Counter;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use structs::sync::lock;

/// Samples that an average is over: a second and a half, as in Redis.
const SAMPLES: usize = 16;

/// What rates are taken of; all of it since the start, or each in a second.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Commands run.
    pub commands: u64,
    /// Bytes received.
    pub net_in: u64,
    /// Bytes sent.
    pub net_out: u64,
    /// Those of the bytes received that came from a primary.
    pub repl_in: u64,
    /// Those of the bytes sent that went to replicas.
    pub repl_out: u64,
    /// Turns of the reactors.
    pub turns: u64,
}

impl Traffic {
    fn with(self, other: Traffic, combine: impl Fn(u64, u64) -> u64) -> Traffic {
        Traffic {
            commands: combine(self.commands, other.commands),
            net_in: combine(self.net_in, other.net_in),
            net_out: combine(self.net_out, other.net_out),
            repl_in: combine(self.repl_in, other.repl_in),
            repl_out: combine(self.repl_out, other.repl_out),
            turns: combine(self.turns, other.turns),
        }
    }
}

/// The last samples.
#[derive(Default)]
struct History {
    /// When the last one was taken, in milliseconds, and what there had been by then.
    last: Option<(i64, Traffic)>,
    /// Rates a second, the oldest of which is overwritten next.
    samples: [Traffic; SAMPLES],
    taken: usize,
}

/// Rates over the last moments.
#[derive(Default)]
pub struct Rates {
    history: Mutex<History>,
    commands_per_second: Counter,
    net_in_per_second: Counter,
    net_out_per_second: Counter,
    repl_in_per_second: Counter,
    repl_out_per_second: Counter,
    turns_per_second: Counter,
}

impl Rates {
    /// Takes a sample: the time, and what there has been so far.
    pub fn sample(&self, now_ms: i64, total: Traffic) {
        let mut history = lock(&self.history);
        let Some((then_ms, before)) = history.last.replace((now_ms, total)) else { return };
        let elapsed_ms = (now_ms - then_ms).max(1) as u64;
        // Counters that were reset meanwhile are smaller than before.
        let fresh = total.with(before, |now, before| now.saturating_sub(before));
        let at = history.taken % SAMPLES;
        history.samples[at] = fresh.with(fresh, |count, _| count.saturating_mul(1000) / elapsed_ms);
        history.taken += 1;
        let count = history.taken.min(SAMPLES);
        let sum = history.samples[..count]
            .iter()
            .fold(Traffic::default(), |sum, sample| sum.with(*sample, u64::saturating_add));
        self.publish(sum.with(sum, |sum, _| sum / count as u64));
    }

    fn publish(&self, rates: Traffic) {
        self.commands_per_second.set(rates.commands);
        self.net_in_per_second.set(rates.net_in);
        self.net_out_per_second.set(rates.net_out);
        self.repl_in_per_second.set(rates.repl_in);
        self.repl_out_per_second.set(rates.repl_out);
        self.turns_per_second.set(rates.turns);
    }

    /// Forgets everything (CONFIG RESETSTAT).
    pub fn reset(&self) {
        let mut history = lock(&self.history);
        *history = History::default();
        self.publish(Traffic::default());
    }

    /// Returns INFO's `instantaneous_ops_per_sec`.
    pub fn commands_per_second(&self) -> u64 {
        self.commands_per_second.get()
    }

    /// Returns the number of bytes received in a second.
    pub fn net_in_per_second(&self) -> u64 {
        self.net_in_per_second.get()
    }

    /// Returns the number of bytes sent in a second.
    pub fn net_out_per_second(&self) -> u64 {
        self.net_out_per_second.get()
    }

    /// Returns the number of bytes received from a primary in a second.
    pub fn repl_in_per_second(&self) -> u64 {
        self.repl_in_per_second.get()
    }

    /// Returns the number of bytes sent to replicas in a second.
    pub fn repl_out_per_second(&self) -> u64 {
        self.repl_out_per_second.get()
    }

    /// Turns of the reactors in a second.
    pub fn turns_per_second(&self) -> u64 {
        self.turns_per_second.get()
    }
}

/// An estimate of the share of volatile keys that have expired and are still in memory, from what
/// active expiry meets.
#[derive(Default)]
pub struct StaleShare {
    seen: AtomicU64,
    expired: AtomicU64,
    /// The bits of a number from 0 to 1.
    share: AtomicU64,
}

impl StaleShare {
    /// Adds keys that were looked at since the last [`StaleShare::settle`], and how many of them
    /// had expired. Called from any thread.
    pub fn note(&self, seen: usize, expired: usize) {
        self.expired.fetch_add(expired as u64, Relaxed);
        self.seen.fetch_add(seen as u64, Relaxed);
    }

    /// Ends a round of active expiry. What was seen in it counts for a twentieth, as in Redis. Only
    /// one thread calls this.
    pub fn settle(&self) {
        let (seen, expired) = (self.seen.swap(0, Relaxed), self.expired.swap(0, Relaxed));
        // What another thread notes just now may be in one of the two only.
        let fresh = if seen == 0 { 0.0 } else { (expired as f64 / seen as f64).min(1.0) };
        let share = f64::from_bits(self.share.load(Relaxed)) * 0.95 + fresh * 0.05;
        self.share.store(share.to_bits(), Relaxed);
    }

    /// Returns the estimate in percent.
    pub fn percent(&self) -> f64 {
        f64::from_bits(self.share.load(Relaxed)) * 100.0
    }

    /// Forgets everything (CONFIG RESETSTAT).
    pub fn reset(&self) {
        for number in [&self.seen, &self.expired, &self.share] {
            number.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(commands: u64, net_in: u64, net_out: u64) -> Traffic {
        let (repl_in, repl_out, turns) = (net_in / 2, net_out / 2, commands);
        Traffic { commands, net_in, net_out, repl_in, repl_out, turns }
    }

    #[test]
    fn rates_are_averages_of_sixteen_samples() {
        let rates = Rates::default();
        rates.sample(1000, traffic(7, 7, 7));
        assert_eq!(rates.commands_per_second(), 0);
        rates.sample(1100, traffic(17, 107, 1007));
        assert_eq!(rates.commands_per_second(), 100);
        assert_eq!((rates.net_in_per_second(), rates.net_out_per_second()), (1000, 10_000));
        assert_eq!((rates.repl_in_per_second(), rates.repl_out_per_second()), (500, 5000));
        assert_eq!(rates.turns_per_second(), 100);
        for sample in 1..8 {
            rates.sample(1100 + 200 * sample, traffic(17, 107, 1007));
        }
        assert_eq!((rates.commands_per_second(), rates.net_in_per_second()), (12, 125));
        for sample in 8..16 {
            rates.sample(1100 + 200 * sample, traffic(17, 107, 1007));
        }
        assert_eq!(rates.net_in_per_second(), 62);
        rates.sample(10_000, traffic(17, 107, 1007));
        assert_eq!((rates.net_in_per_second(), rates.net_out_per_second()), (0, 0));
    }

    #[test]
    fn a_reset_begins_anew() {
        let rates = Rates::default();
        rates.sample(0, traffic(0, 0, 0));
        rates.sample(100, traffic(100, 100, 100));
        rates.sample(200, traffic(0, 0, 0));
        assert_eq!(rates.commands_per_second(), 500, "counters that went back count as nothing");
        rates.reset();
        assert_eq!(rates.commands_per_second(), 0);
        rates.sample(300, traffic(5, 0, 0));
        rates.sample(400, traffic(6, 0, 0));
        assert_eq!(rates.commands_per_second(), 10);
    }

    #[test]
    fn the_stale_share_moves_by_a_twentieth() {
        let stale = StaleShare::default();
        stale.note(20, 20);
        stale.note(60, 20);
        stale.settle();
        assert!((stale.percent() - 2.5).abs() < 1e-9);
        stale.settle();
        assert!((stale.percent() - 2.375).abs() < 1e-9);
        stale.reset();
        assert_eq!(stale.percent(), 0.0);
    }
}
