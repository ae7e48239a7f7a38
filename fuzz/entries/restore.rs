//! RESTORE's payloads: no panic, no memory far beyond the input, and what is accepted is the same
//! after another DUMP and RESTORE.

#[path = "../../crates/rdb/tests/fixture/mod.rs"]
pub mod fixture;
#[path = "memory.rs"]
mod memory;

use rdb::{Compression, Limits, dump, restore};
use structs::crc64::crc64;
use structs::hash::HashLimits;
use structs::list::ListLimits;
use structs::set::SetLimits;
use structs::zset::ZsetLimits;

fn small() -> Limits {
    Limits {
        list: ListLimits::new(3),
        set: SetLimits { max_intset_entries: 2, max_listpack_entries: 2, max_listpack_value: 5 },
        hash: HashLimits { max_listpack_entries: 2, max_listpack_value: 5 },
        zset: ZsetLimits { max_listpack_entries: 2, max_listpack_value: 5 },
        types: &[],
    }
}

/// A payload without its footer, which is made here: it would stop nearly every mutation.
pub fn check(body: &[u8]) {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&11u16.to_le_bytes());
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    for limits in [Limits::default(), small()] {
        let restored = memory::bounded(payload.len(), || restore(&payload, &limits));
        let Ok(object) = restored else { continue };
        let contents = fixture::elements(&object);
        for compression in [Compression::Lzf, Compression::Off] {
            let again = dump(object.as_ref(), compression);
            let Ok(copy) = restore(&again, &limits) else {
                panic!("what is dumped cannot be restored: {}", again.escape_ascii())
            };
            assert_eq!(fixture::elements(&copy), contents);
            assert_eq!(fixture::names(&copy), fixture::names(&object));
        }
    }
}
