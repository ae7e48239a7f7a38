//! Commands on very many keys: while one is dealt with, those to come are on their way into the
//! cache. The locks of all their stripes are held meanwhile, so what matters is how long it takes;
//! two or three cache misses a key, one after the other, would be most of it.

use crate::args::Args;
use crate::db::Db;
use crate::request_keys::{prefetch_bucket, prefetch_entry};
use keyspace::Key;
use std::collections::VecDeque;

/// Words from which on it is worth it: the keys of fewer are all in the cache before they are
/// locked.
const FROM: usize = 64;
/// Keys whose buckets are asked for before they are needed; for half of them the entries as well.
const AHEAD: usize = 32;

impl Db<'_> {
    /// Visits every `step`th word from `first` on as a key, with its index.
    #[inline]
    pub fn for_each_key<'k>(
        &mut self,
        args: Args<'k>,
        first: usize,
        step: usize,
        mut visit: impl FnMut(&mut Self, usize, Key<'k>),
    ) {
        let indices = (first..args.len()).step_by(step);
        // A holder of keys is outside the world, where nothing may be prefetched.
        if args.len() < FROM || self.held.is_some() {
            return indices.for_each(|index| visit(self, index, args.key(index)));
        }
        let keyspace = &self.engine.keyspace;
        let mut coming = indices.clone();
        let mut ahead = VecDeque::with_capacity(AHEAD);
        for index in indices {
            while ahead.len() < AHEAD
                && let Some(next) = coming.next()
            {
                let key = args.key(next);
                let stripe = keyspace.stripe_of(key);
                prefetch_bucket(keyspace.stripe(stripe), self.index, key.hash);
                ahead.push_back((key, stripe));
            }
            if let Some(&(key, stripe)) = ahead.get(AHEAD / 2) {
                prefetch_entry(keyspace.stripe(stripe), self.index, key.hash);
            }
            if let Some((key, _)) = ahead.pop_front() {
                visit(self, index, key);
            }
        }
    }
}
