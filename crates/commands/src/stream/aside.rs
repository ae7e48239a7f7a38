//! Changing a big stream on a copy.
//!
//! A copy of a stream costs next to nothing, since both share what neither has changed. So what
//! takes long is done to a copy, while others read the stream without waiting; then the copy takes
//! its place, and what is left of the old one is freed in the background.

use engine::{Db, Error, Key};
use keyspace::Entry;
use structs::stream::Stream;

/// Entries above which a change is made on a copy.
pub(super) const MANY: u64 = 20_000;

/// Changes a stream; on a copy if that means so many entries. `None` if there is no such key.
pub(super) fn edit<R>(
    db: &mut Db<'_>,
    key: Key<'_>,
    entries: u64,
    change: impl FnOnce(&mut Stream) -> R,
) -> Result<Option<R>, Error> {
    if entries < MANY {
        return Ok(db.write::<Stream>(key)?.map(change));
    }
    let Some(mut copy) = db.object_for_write::<Stream>(key)?.cloned() else { return Ok(None) };
    let result = change(&mut copy);
    if let Some(stream) = db.write::<Stream>(key)? {
        let old = std::mem::replace(stream, copy);
        db.discard(Entry::new_object(b"", old, None, 0));
    }
    Ok(Some(result))
}
