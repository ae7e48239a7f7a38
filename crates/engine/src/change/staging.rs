//! Entries of the journal that share one reservation: those of requests that came in one go.
//!
//! A request joins its neighbours if it is [local](spec::Resolved::is_local): it has one key and
//! does nothing but look at it or change it. The entries of such requests are staged
//! ([`Journal::stage`]), and the stripes that they changed carry marks, until one of these comes:
//!
//! - the last of them, or a request that does not join;
//! - an entry that has a place of its own, as that of an expired key;
//! - something that another thread is to be told ([`Engine::append_staged`](crate::Engine));
//! - another thread that locks one of the stripes.
//!
//! So what is staged can be seen by no other thread and no client. `docs/internals/journal.md` has
//! the reasons.

use crate::cx::Cx;
use crate::journal::Journal;
use crate::locks::Locked;
use keyspace::DbIndex;

/// Returns whether entries of this session's batch may be staged at all.
#[inline]
pub(crate) fn is_possible(cx: &Cx<'_>) -> bool {
    cx.engine.journal.is_recording() && !cx.session.is_of_server()
}

/// Stages the request as the whole entry of what it did to its one stripe, if it may be staged.
#[inline]
pub(crate) fn stage(cx: &mut Cx<'_>, db: DbIndex, sent: &[u8]) -> bool {
    cx.db.effects.staging.may_stage && stage_now(cx, db, sent)
}

fn stage_now(cx: &mut Cx<'_>, db: DbIndex, sent: &[u8]) -> bool {
    let &Locked::One(stripe) = cx.db.locks.held() else { return false };
    // Watchers, caches and listeners are told at once, and what they are told of is appended.
    // Replies that are held need the position of each write at once.
    if !cx.db.effects.changes.is_empty() || cx.engine.safe.holds_replies() {
        return false;
    }
    let Some(mark) = cx.engine.journal.stage(db, sent) else { return false };
    cx.db.locks.mark(stripe, mark);
    cx.db.effects.staging.is_pending = true;
    cx.db.effects.staging.has_marks = true;
    true
}

/// Notes that an entry of the session was appended, and what was staged before it with it.
#[inline]
pub(crate) fn note_appended(cx: &mut Cx<'_>) {
    if std::mem::take(&mut cx.db.effects.staging.is_pending) {
        cx.engine.note_held_late();
    }
}

/// Prepares for a request of a batch and decides whether it may stage its entry: if the `next` one
/// joins, too.
#[inline]
pub(crate) fn begin_request(cx: &mut Cx<'_>, is_local: bool, is_next_local: bool) {
    if !is_local {
        end_run(cx);
    }
    cx.db.effects.staging.may_stage = is_local && is_next_local;
}

/// Appends what the session's batch has staged.
#[inline]
pub(crate) fn end_run(cx: &mut Cx<'_>) {
    if cx.db.effects.staging.is_pending {
        cx.db.effects.staging.is_pending = false;
        cx.session.written = cx.engine.journal.append_staged();
        cx.engine.note_held_late();
    }
}

/// Ends a batch of requests about these stripes: appends what it has staged and removes its marks.
#[inline]
pub(crate) fn end_batch(cx: &mut Cx<'_>, stripes: impl Iterator<Item = usize>) {
    cx.db.effects.staging.may_stage = false;
    end_run(cx);
    if std::mem::take(&mut cx.db.effects.staging.has_marks) {
        // Their lines are in this core's cache, unless another core has settled them since. What
        // does not carry a mark costs those that lock it next nothing.
        let is_own = Journal::own_marks();
        for stripe in stripes {
            cx.engine.keyspace.stripe(stripe).clear_mark(&is_own);
        }
    }
}

#[cfg(test)]
mod tests;
