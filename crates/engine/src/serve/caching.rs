//! Client-side caching as commands bring it about: which reads are remembered, and what is
//! forgotten. The caches themselves are in [`crate::tracking`].

use crate::args::Args;
use crate::cx::Cx;
use crate::db::Db;
use crate::interest::{self, StripeInterest};
use crate::outbox::Notification;
use crate::table::Resolved;
use std::sync::atomic::Ordering::Relaxed;

/// Has every client told to forget everything, and forgets what they have read (FLUSHALL). The
/// world stands still, so what there was is freed elsewhere: it may be a million keys.
pub fn invalidate_all(db: &mut Db<'_>) {
    let mut tracked = Vec::new();
    db.for_each_stripe_mut(|_, data| {
        if data.has_attachment() {
            interest::change(data, |interest| {
                tracked.push(std::mem::take(&mut interest.trackers));
            });
        }
    });
    db.engine.background.free_tracked(tracked);
    let tracking = &db.engine.tracking;
    tracking.keys.store(0, Relaxed);
    tracking.items.store(0, Relaxed);
    db.outbox.keep(Notification::AllChanged);
}

/// Keeps `tracking-table-max-keys`: forgets keys, as if they had changed. Nothing is locked.
pub fn limit_keys(db: &Db<'_>) {
    let (engine, tracking) = (db.engine, &db.engine.tracking);
    let limit = engine.config.tracking_table_max_keys();
    if limit == 0 || tracking.keys.load(Relaxed) <= limit {
        return;
    }
    let stripes = engine.keyspace.stripes().len();
    let start = db.random() as usize % stripes;
    for index in (start..stripes).chain(0..start) {
        let Some(mut data) = engine.keyspace.stripe(index).try_lock_soon() else { continue };
        if !data.has_attachment() {
            continue;
        }
        interest::change(&mut data, |interest| {
            while tracking.keys.load(Relaxed) > limit
                && let Some(key) = interest.trackers.keys().next().cloned()
            {
                db.outbox.key_changed(interest, &key, 0);
            }
        });
    }
    db.outbox.send();
}

/// Remembers the keys that a client with a cache has just read; their stripes are locked.
#[cold]
pub(crate) fn remember_reads(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) {
    let Some(tracking) = cx.session.tracking() else { return };
    let wanted = match tracking.caching {
        _ if tracking.broadcast.is_some() => false,
        Some(caching) => caching && (tracking.opt_in || tracking.opt_out),
        None => !tracking.opt_in,
    };
    if !wanted {
        return;
    }
    let (engine, client) = (cx.engine, cx.session.id());
    cx.find_keys(row, args);
    for key in cx.keys.iter() {
        let name = key.key(args.words()).bytes;
        let remember = |interest: &mut StripeInterest| {
            engine.tracking.remember(&engine.clients, interest, name, client);
        };
        cx.db.with_stripe_mut(key.stripe(), |data| interest::change(data, remember));
    }
}
