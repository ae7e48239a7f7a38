//! How long a request will take, estimated before it runs.
//!
//! The unit is about fifty nanoseconds: what it takes to write one small element into a reply. An
//! estimate may be wrong by a factor of a few; it only decides where the command runs.

use crate::args::Args;
use crate::command::{Effort, Flags};
use crate::cx::Cx;
use crate::db::Db;
use crate::request_keys::KeyUse;
use crate::table::Resolved;
use keyspace::Key;

/// Requests of more effort than this run on a background thread; it is about a millisecond.
pub const IN_PLACE: usize = 20_000;

/// Units for each key of a transaction: its command takes half a microsecond or more.
const UNITS_PER_QUEUED_KEY: usize = 10;

/// Bytes of a string that count as one element.
const BYTES_PER_UNIT: usize = 256;

/// Returns whether a request, whose stripes are locked, is for a background thread.
#[inline]
pub(crate) fn is_long(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    match row.command.effort {
        Effort::Small => false,
        Effort::Words(each) => args.len().saturating_mul(each) > IN_PLACE,
        _ => is_long_by_data(cx, row, args),
    }
}

/// Returns whether a request of several keys names so many that not even their locks are to be
/// taken here: for a background thread, too. EXEC of many commands is one if all of them only name
/// keys of the selected database.
pub(crate) fn has_very_many_keys(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    if row.command.flags.has(Flags::RUNS_QUEUE) {
        return cx.session.multi().is_some_and(|multi| {
            multi.may_be_put_off()
                && multi.keys().len().saturating_mul(UNITS_PER_QUEUED_KEY) > IN_PLACE
                && cx.session.watching.is_none()
                && cx.session.tracking().is_none()
                && keyspace::cold::entries() == 0
        });
    }
    matches!(row.command.effort, Effort::Words(each) if args.len().saturating_mul(each) > IN_PLACE)
}

#[inline(never)]
fn is_long_by_data(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    let effort = match row.command.effort {
        Effort::Small | Effort::Words(_) => 0,
        Effort::Elements(each) => {
            let mut elements = 0usize;
            sizes(cx, row, args, |size| elements = elements.saturating_add(size));
            elements.saturating_mul(each)
        }
        Effort::Intersection(each) => {
            let (mut smallest, mut count) = (usize::MAX, 0usize);
            sizes(cx, row, args, |size| {
                smallest = smallest.min(size);
                count += 1;
            });
            if count == 0 { 0 } else { smallest.saturating_mul(count).saturating_mul(each) }
        }
        Effort::Part(each, part) => {
            let whole = cx.db.size(args.key(row.single_key)).saturating_mul(each);
            if whole > IN_PLACE { part(&cx.db, args).saturating_mul(each) } else { whole }
        }
        Effort::Estimate(estimate) => estimate(&cx.db, args),
    };
    effort > IN_PLACE
}

/// Collects the sizes of the values that a request reads.
fn sizes(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>, mut found: impl FnMut(usize)) {
    if row.single_key > 0 {
        return found(cx.db.size(args.key(row.single_key)));
    }
    cx.find_keys(row, args);
    for key in cx.keys.iter().filter(|key| key.usage() != KeyUse::Overwrite) {
        found(cx.db.size(key.key(args.words())));
    }
}

impl Db<'_> {
    /// Returns the number of elements of a key's value, whatever its type; a string counts by its
    /// length. It is for estimates: no statistics are counted, and the key does not become more
    /// recent.
    pub fn size(&self, key: Key<'_>) -> usize {
        self.lookup_no_effects(key).map_or(0, |entry| {
            let is_string = entry.kind().is_string();
            if is_string { entry.value_bytes() / BYTES_PER_UNIT } else { entry.elements() }
        })
    }
}
