//! Handing over the role of primary: what FAILOVER, INFO and the thread that looks after it share.
//! [`replication::failover`] decides; `docs/internals/replication.md` has the design.
//!
//! Everything here that changes the stage happens in the stopped world, as changes of the role do.

use replication::failover::Failover;
pub use replication::failover::{Address, Plan, Stage};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use structs::sync::lock;

/// The hand-over that is under way, if one is.
#[derive(Default)]
pub struct Handover {
    machine: Mutex<Failover>,
    pub(crate) is_on: AtomicBool,
}

impl Handover {
    /// The machine that decides.
    pub(crate) fn machine(&self) -> MutexGuard<'_, Failover> {
        lock(&self.machine)
    }

    /// Whether there is one.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        self.machine().stage()
    }
}
