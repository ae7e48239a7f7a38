//! Finding series by their labels, in all stripes.

use engine::{Cx, Error, dispatch};
use std::sync::Arc;
use structs::labels::{Filter, Labels};

/// A series that was found.
pub(super) struct Found {
    pub key: Box<[u8]>,
    pub labels: Arc<Labels>,
}

const NO_MATCHER: Error = Error::text("ERR TSDB: please provide at least one matcher");
const NO_PERMISSION: Error = Error::text(
    "NOPERM TSDB: current user doesn't have read permission to one or more keys that match the \
     specified filter",
);

/// Returns whether one of the filters says which values are meant.
pub(super) fn check(filters: &[Filter]) -> Result<(), Error> {
    if filters.iter().any(Filter::is_selective) { Ok(()) } else { Err(NO_MATCHER) }
}

/// Returns the series whose labels pass the filters, by the order of their keys.
///
/// # Errors
/// The user may not read one of them, or a stripe cannot be had now.
pub(super) fn find(cx: &mut Cx<'_>, filters: &[Filter]) -> Result<Vec<Found>, Error> {
    let (db, horizon) = (cx.db.index, cx.db.horizon());
    let mut all: Vec<Found> = Vec::new();
    cx.db.for_each_stripe(|_, stripe| {
        for tables in stripe.tables(db) {
            let Some(index) = tables.labels() else { continue };
            index.find(filters, |key, labels| {
                let key = engine::Key::new(key);
                let is_there = tables.entries().get(key.hash, key.bytes);
                if is_there.is_some_and(|entry| !entry.is_expired(horizon)) {
                    all.push(Found { key: key.bytes.into(), labels: labels.clone() });
                }
            });
        }
    });
    if !all.iter().all(|found| dispatch::may_read(cx, &found.key)) {
        return Err(NO_PERMISSION);
    }
    all.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(all)
}
