//! A long request that is sent on as it comes. [`uploading`](super::uploading) works on it.

use crate::pool::Shared;
use crate::wire::Id;
use resp::Passage;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

/// A long request of which not all has come.
#[derive(Debug)]
pub struct Upload {
    /// The connection that it goes out on; none if the rest goes nowhere.
    pub to: Option<Id>,
    /// The client is not read until the server has taken more.
    pub is_held: bool,
    pub(super) passage: Passage,
    pub(super) progress_at: Instant,
    /// One of the connections that long requests may have.
    pub(super) _share: Share,
}

/// One of a pool's connections that requests may have of which not all has come. The rest of
/// `max_exclusive` is for others.
#[derive(Debug)]
pub(super) struct Share(Arc<Shared>);

impl Share {
    /// Takes one; nothing if all are taken.
    pub(super) fn of(shared: &Arc<Shared>) -> Option<Share> {
        let most = shared.config.limits.exclusive / 2;
        let is_free = shared.uploads.fetch_add(1, SeqCst) < most;
        // It is given back when it is dropped.
        let share = Share(shared.clone());
        let has_room = shared.exclusive.load(SeqCst) < shared.config.limits.exclusive;
        (is_free && has_room).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, SeqCst);
    }
}
