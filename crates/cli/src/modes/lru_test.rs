//! `--lru-test`: the hit ratio of a cache when few keys are used often and most keys rarely.

use super::scan::ask_all;
use crate::session::{Session, emit};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Requests that are sent together.
const PIPELINE: usize = 250;

/// Writes and reads until the program is ended; a line for each second.
pub fn run(session: &mut Session, keys: u64) -> ExitCode {
    crate::interrupt::install();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    loop {
        let (begin, mut hits, mut misses) = (Instant::now(), 0_u64, 0_u64);
        while begin.elapsed() < Duration::from_secs(1) {
            let names: Vec<_> = (0..PIPELINE).map(|_| key(&mut random, keys)).collect();
            let sets: Vec<_> = names
                .iter()
                .map(|name| vec![b"SET".to_vec(), name.clone(), b"val:xxxxxxxx".to_vec()])
                .collect();
            ask_all(session, &sets);
            let gets: Vec<_> =
                (0..PIPELINE).map(|_| vec![b"GET".to_vec(), key(&mut random, keys)]).collect();
            for reply in ask_all(session, &gets) {
                match reply.bytes() {
                    Some(_) => hits += 1,
                    None => misses += 1,
                }
            }
        }
        let all = (hits + misses).max(1);
        let share = |part: u64| 100.0 * part as f64 / all as f64;
        let text = format!(
            "{all} Gets/sec | Hits: {hits} ({:.2}%) | Misses: {misses} ({:.2}%)\n",
            share(hits),
            share(misses)
        );
        emit(text.as_bytes());
    }
}

/// A key: with a power law by which a fifth of the keys gets four fifths of the requests.
fn key(random: &mut u64, keys: u64) -> Vec<u8> {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let unit = (*random >> 11) as f64 / (1_u64 << 53) as f64;
    // 0.2 = 0.8 ^ 7.2: of uniform numbers, those below 0.8 become a fifth of the range.
    let place = unit.powf(7.2) * keys.max(1) as f64;
    format!("lru:{}", place as u64).into_bytes()
}
