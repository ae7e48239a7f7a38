//! What drives an engine: the loop of a thread, repeated history, and what runs beside clients.

pub mod ahead;
pub mod batch;
pub mod defrag;
mod enclosing;
pub mod expire;
pub mod follow;
pub mod replay;
pub mod worker;

use crate::engine::Engine;
use keyspace::StripeData;
use keyspace::world::Reader;

/// Lets a thread beside those of clients act on a stripe: it is in the world, and has the lock.
fn under_lock<R>(
    engine: &Engine,
    reader: &Reader<'static>,
    stripe: usize,
    act: impl FnOnce(&mut StripeData) -> R,
) -> R {
    reader.enter();
    let result = act(&mut engine.keyspace.stripe(stripe).lock());
    reader.leave();
    result
}
