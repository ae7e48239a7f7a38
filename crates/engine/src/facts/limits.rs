//! The thresholds of the small encodings, as the configuration has them now.

use crate::debug::DebugSettings;
use config::Config;
use structs::hash::HashLimits;
use structs::list::ListLimits;
use structs::set::SetLimits;
use structs::stream::StreamLimits;
use structs::zset::ZsetLimits;

/// Returns `list-max-listpack-size`, and what DEBUG says about large elements.
pub fn list(config: &Config, debug: &DebugSettings) -> ListLimits {
    let size = config.list_max_listpack_size();
    ListLimits::new(i32::try_from(size).unwrap_or(-2))
        .with_packed_threshold(debug.packed_threshold())
}

/// Returns all limits, and the module types, for a value that is read.
pub fn all(config: &Config, debug: &DebugSettings) -> rdb::Limits {
    rdb::Limits {
        list: list(config, debug),
        set: set(config),
        hash: hash(config),
        zset: zset(config),
        types: datatypes::ALL,
    }
}

/// Returns `hash-max-listpack-*`.
pub fn hash(config: &Config) -> HashLimits {
    HashLimits {
        max_listpack_entries: config.hash_max_listpack_entries(),
        max_listpack_value: config.hash_max_listpack_value(),
    }
}

/// Returns `set-max-intset-entries` and `set-max-listpack-*`.
pub fn set(config: &Config) -> SetLimits {
    SetLimits {
        max_intset_entries: config.set_max_intset_entries(),
        max_listpack_entries: config.set_max_listpack_entries(),
        max_listpack_value: config.set_max_listpack_value(),
    }
}

/// Returns `stream-node-max-*`.
pub fn stream(config: &Config) -> StreamLimits {
    StreamLimits {
        max_bytes: config.stream_node_max_bytes(),
        max_entries: config.stream_node_max_entries(),
    }
}

/// Returns `zset-max-listpack-*`.
pub fn zset(config: &Config) -> ZsetLimits {
    ZsetLimits {
        max_listpack_entries: config.zset_max_listpack_entries(),
        max_listpack_value: config.zset_max_listpack_value(),
    }
}
