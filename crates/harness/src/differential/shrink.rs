//! Cuts a failing sequence of requests down to a short one that fails too.

use std::time::{Duration, Instant};

/// Removes what can be removed from `items` as long as `fails` holds of the rest: halves, then
/// quarters, down to single items, again while something goes. Ends early after `limit`.
pub fn shrink<T: Clone>(
    items: &[T],
    limit: Duration,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let deadline = Instant::now() + limit;
    let mut kept = items.to_vec();
    let mut chunk = kept.len().div_ceil(2).max(1);
    loop {
        let mut removed = false;
        // From the end: later requests matter least for the state that makes the failure.
        let mut end = kept.len();
        while end > 0 {
            if Instant::now() > deadline {
                return kept;
            }
            let start = end.saturating_sub(chunk);
            let rest = [&kept[..start], &kept[end..]].concat();
            if fails(&rest) {
                kept = rest;
                removed = true;
            }
            end = start.min(kept.len());
        }
        match chunk {
            1 if !removed => return kept,
            1 => {}
            _ => chunk = chunk.div_ceil(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_is_kept() {
        let items: Vec<u32> = (0..1000).collect();
        let kept = shrink(&items, Duration::from_secs(10), |items| {
            [3, 500, 501, 998].iter().all(|item| items.contains(item))
        });
        assert_eq!(kept, [3, 500, 501, 998]);
    }
}
