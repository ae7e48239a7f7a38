//! Before a command can run: which stripes it needs, what of them is fetched into the cache, and
//! whether something holds one of its keys.

use super::queued;
use crate::args::Args;
use crate::command::{Command, Group, KeyFlags};
use crate::cx::Cx;
use crate::engine::Engine;
use crate::keys;
use crate::locks::Locked;
use crate::table::Resolved;
use keyspace::snapshot::{Touch, Urgency};
use keyspace::{DbIndex, Key, Stripe};

/// Words of a request above which its keys are fetched into the cache before they are locked, and
/// above which the first would be gone from there before the last has come.
pub(super) const FETCH_FROM: usize = 64;
pub(super) const FETCH_UP_TO: usize = 8192;

/// Fetches the buckets and entries of many keys into the cache, so that their stripes are locked
/// for less time.
#[cold]
#[allow(unsafe_code)]
pub(super) fn fetch(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) {
    /// About what a core can have under way.
    const TOGETHER: usize = 32;
    let (keyspace, db) = (&cx.engine.keyspace, cx.db.index);
    let mut batch = Vec::with_capacity(TOGETHER);
    let fetch_entries = |batch: &mut Vec<(usize, u64)>| {
        for (stripe, hash) in batch.drain(..) {
            // SAFETY: commands run inside the world.
            unsafe { keyspace.stripe(stripe).prefetch_entry(db, hash) }
        }
    };
    // Keys that cannot be found make a syntax error.
    let _ = keys::for_each_key(row.command, args.words(), |index, _| {
        let key = Key::new(args[index]);
        let stripe = keyspace.stripe_of(key);
        // SAFETY: commands run inside the world.
        unsafe { keyspace.stripe(stripe).prefetch_bucket(db, key.hash) }
        batch.push((stripe, key.hash));
        if batch.len() == TOGETHER {
            fetch_entries(&mut batch);
        }
    });
    fetch_entries(&mut batch);
}

/// Whether a key that this command, whose stripes are locked, may change is held by a long command,
/// or a snapshot has no room for what it holds. If so, the thread is told when that ends.
#[cold]
pub(super) fn is_held_back(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    if !finds_hold(cx, row, args) {
        return false;
    }
    // A second look, so that the end of what is in the way cannot be missed: only who waits pays
    // for saying so.
    cx.engine.holds.wait();
    if cx.engine.snapshots.is_running() {
        cx.engine.snapshots.wait();
    }
    finds_hold(cx, row, args)
}

/// Whether something is in the way of this command just now.
fn finds_hold(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    let is_snapshot_running = cx.engine.snapshots.is_running();
    let (engine, db, view) = (cx.engine, cx.db.index, &mut cx.db);
    let mut is_held = false;
    let mut look = |command: &Command, words: &[&[u8]]| {
        let _ = keys::for_each_key(command, words, |index, flags| {
            let key = Key::new(words[index]);
            let stripe = engine.keyspace.stripe_of(key);
            is_held |= view.with_stripe_mut(stripe, |data| {
                data.want(key.hash)
                    || (is_snapshot_running
                        && !flags.has(KeyFlags::RO)
                        && data.is_delayed(db, key.hash, touch(command, flags), Urgency::Waiting))
            });
        });
    };
    if row.command.name == "exec" {
        for queued in cx.session.multi.as_ref().map_or(&[][..], |multi| multi.queue()) {
            let words: Vec<&[u8]> = queued.argv.iter().map(|word| &**word).collect();
            look(engine.table.all()[queued.command].command, &words);
        }
    } else {
        look(row.command, args.words());
    }
    is_held
}

/// What a command does to a key, for a snapshot that streams the key's value.
fn touch(command: &Command, flags: KeyFlags) -> Touch {
    let is_of_elements = matches!(command.group, Group::Hash | Group::Set | Group::SortedSet);
    let replaces = flags.has(KeyFlags::OW) || flags.has(KeyFlags::RM);
    if is_of_elements && !replaces { Touch::Elements } else { Touch::Whole }
}

pub(crate) fn stripes_of(cx: &Cx<'_>, command: &Command, args: Args<'_>) -> Locked {
    let keyspace = &cx.engine.keyspace;
    let mut need = Locked::None;
    if command.name == "exec" {
        for queued in queued(cx) {
            let words: Vec<&[u8]> = queued.argv.iter().map(|word| &**word).collect();
            let command = cx.engine.table.all()[queued.command].command;
            add_keys(cx.engine, command, &words, &mut need);
        }
        for (_, key) in &cx.session.watched {
            need.add(keyspace.stripe_of(Key::new(key)));
        }
    } else if args.len() > FETCH_FROM {
        add_keys(cx.engine, command, args.words(), &mut need);
    } else {
        add_keys_and_prefetch(cx, command, args.words(), &mut need);
    }
    need
}

/// The stripes of a command with several keys; meanwhile their buckets come into the cache, then
/// their entries, all at once instead of one after the other.
fn add_keys_and_prefetch(cx: &Cx<'_>, command: &Command, words: &[&[u8]], need: &mut Locked) {
    let keyspace = &cx.engine.keyspace;
    let mut hashes = cx.thread.key_hashes.take();
    let _ = keys::for_each_key(command, words, |index, _| {
        let key = Key::new(words[index]);
        let stripe = keyspace.stripe_of(key);
        need.add(stripe);
        prefetch_bucket(keyspace.stripe(stripe), cx.db.index, key.hash);
        hashes.push((stripe, key.hash));
    });
    for (stripe, hash) in hashes.drain(..) {
        prefetch_entry(keyspace.stripe(stripe), cx.db.index, hash);
    }
    if hashes.capacity() <= resp::KEPT_WORDS {
        cx.thread.key_hashes.replace(hashes);
    }
}

/// Brings the bucket of a key into the cache. The caller is inside the world.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn prefetch_bucket(stripe: &Stripe, db: DbIndex, hash: u64) {
    // SAFETY: requests are taken apart and run inside the world.
    unsafe { stripe.prefetch_bucket(db, hash) }
}

/// Brings an entry into the cache whose bucket is there. The caller is inside the world.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn prefetch_entry(stripe: &Stripe, db: DbIndex, hash: u64) {
    // SAFETY: requests are taken apart and run inside the world.
    unsafe { stripe.prefetch_entry(db, hash) }
}

fn add_keys(engine: &Engine, command: &Command, words: &[&[u8]], need: &mut Locked) {
    // A request whose keys cannot be found runs with the locks of those that can, and answers
    // with a syntax error of its own.
    let _ = keys::for_each_key(command, words, |index, _| {
        need.add(engine.keyspace.stripe_of(Key::new(words[index])));
    });
}
