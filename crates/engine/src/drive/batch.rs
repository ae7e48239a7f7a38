//! The requests that a client sent in one go, and their keys on the way into the cache.
//!
//! Finding an entry takes three loads, each of which needs the one before: the stripe's head, the
//! bucket, the entry. So requests are taken apart before they are run, and each step is taken for
//! all of them before the next is taken for any: the loads of different keys overlap.

use crate::args::Args;
use crate::engine::Engine;
use crate::request_keys::prefetch_keys;
use crate::table::{Recent, Resolved};
use keyspace::{DbIndex, Key};
use std::ops::Range;

/// Requests that are taken apart together; about what a core can have under way.
pub(crate) const MAX_REQUESTS: usize = 32;

/// A request of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// Its words in the batch's argv.
    words: (usize, usize),
    /// Where it begins in the input.
    begin: usize,
    /// Where it ends.
    pub end: usize,
    /// Its row, if the name and the number of words are right.
    pub resolved: Option<&'static Resolved>,
    /// Whether it is [plain](resp::plain).
    is_plain: bool,
    /// The word that is its only key, 0 if it has none or several.
    hashed: u32,
    /// The key's hash.
    hash: u64,
    /// The key's stripe.
    stripe: usize,
}

impl Request {
    /// Its words and what is known of them; `argv` and `input` are those that it was found in.
    #[inline(always)]
    pub fn args<'a>(&self, argv: &'a [&'a [u8]], input: &'a [u8]) -> Args<'a> {
        let sent = if self.is_plain { &input[self.begin..self.end] } else { &[] };
        Args::new(&argv[self.words.0..self.words.1])
            .with_hash(self.hashed as usize, self.hash)
            .with_sent(sent)
    }

    /// Whether it does nothing but look at its one key or change it.
    #[inline(always)]
    pub fn is_local(&self) -> bool {
        self.resolved.is_some_and(|row| row.is_local)
    }

    /// Bytes of it, as it was sent.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.end - self.begin
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Batch {
    requests: Vec<Request>,
    /// The command that was asked for last.
    recent: Recent,
}

impl Batch {
    /// In the order of the input.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    pub fn clear(&mut self) {
        self.requests.clear();
    }

    /// Adds the request whose words are in `argv` from `start` on and which is `sent` of the input.
    #[inline(always)]
    pub fn add(
        &mut self,
        engine: &'static Engine,
        argv: &[&[u8]],
        start: usize,
        sent: Range<usize>,
        is_plain: bool,
    ) {
        let words = &argv[start..];
        let resolved = engine.table.resolve_after(words, &mut self.recent).ok();
        let key = resolved.and_then(|row| Some((row, fetch_stripe(engine, row, words)?)));
        let (hashed, (stripe, hash)) =
            key.map_or((0, (0, 0)), |(row, key)| (row.single_key as u32, key));
        let words = (start, argv.len());
        let (begin, end) = (sent.start, sent.end);
        let request = Request { words, begin, end, resolved, is_plain, hashed, hash, stripe };
        self.requests.push(request);
    }

    /// Asks for the buckets and the entries. For a single request it is too late for that.
    #[inline(always)]
    pub fn fetch(&self, engine: &Engine, db: DbIndex) {
        if self.requests.len() > 1 {
            prefetch_keys(&engine.keyspace, db, self.keys());
        }
    }

    /// Stripes of the requests that have one key.
    pub fn stripes(&self) -> impl Iterator<Item = usize> {
        self.requests.iter().filter(|request| request.hashed > 0).map(|request| request.stripe)
    }

    /// Stripes and hashes of the keys, but not of the same key twice in a row.
    #[inline(always)]
    fn keys(&self) -> impl Iterator<Item = (usize, u64)> + Clone {
        let mut last = None;
        let keys = self.requests.iter().filter(|request| request.hashed > 0);
        keys.filter(move |request| last.replace(request.hash) != Some(request.hash))
            .map(|request| (request.stripe, request.hash))
    }
}

/// Stripe and hash of the only key of `words`, if there is just one; the stripe's head is asked
/// for.
#[inline(always)]
pub(crate) fn fetch_stripe(
    engine: &Engine,
    row: &Resolved,
    words: &[&[u8]],
) -> Option<(usize, u64)> {
    if row.single_key == 0 {
        return None;
    }
    let key = Key::new(words[row.single_key]);
    let stripe = engine.keyspace.stripe_of(key);
    engine.keyspace.stripe(stripe).prefetch();
    Some((stripe, key.hash))
}
