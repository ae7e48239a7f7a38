//! The types that Redis has in modules: the one table of them.
//!
//! A type is a structure in a crate of its own, which says what the type is for RDB files and the
//! keyspace (`impl rdb::module::Value`), a row of [`ALL`], and a folder of commands. Nothing else
//! names it. See `docs/internals/types.md`.

mod json;

pub use self::json::Json;
use rdb::module::{Type, Types};
use sketches::types;

/// All types. A cold entry names its type by the place in this table, which no file has.
pub static ALL: Types = &[
    &json::TYPE,
    &types::BLOOM,
    &types::VALKEY_BLOOM,
    &types::CUCKOO,
    &types::CMS,
    &types::TOPK,
    &types::TDIGEST,
    &series::types::SERIES,
    &vectors::TYPE,
];

/// A module of Redis whose types and commands are here.
pub struct Provided {
    /// Its name in MODULE LIST, HELLO and INFO.
    pub name: &'static str,
    /// The version whose behaviour its commands have: of 8.8.0 it is 80800.
    pub version: u32,
    /// The ACL categories of its commands.
    pub categories: &'static [&'static str],
    /// The names of its file without the folder, as configurations load it.
    pub files: &'static [&'static str],
}

/// The modules whose types are here.
pub static MODULES: &[Provided] = &[
    Provided {
        name: "ReJSON",
        version: 81000,
        categories: &["json"],
        files: &["rejson.so", "librejson.so"],
    },
    Provided {
        name: "bf",
        version: 80200,
        categories: &["bloom", "cuckoo", "cms", "topk", "tdigest"],
        files: &["redisbloom.so", "libvalkey_bloom.so"],
    },
    Provided {
        name: "timeseries",
        version: 81000,
        categories: &["timeseries"],
        files: &["redistimeseries.so"],
    },
    Provided { name: "vectorset", version: 1, categories: &["vector"], files: &["vset.so"] },
];

/// Returns the place of a type in [`ALL`].
///
/// # Panics
/// If it is not there: values have no other types.
pub fn place(row: &'static Type) -> usize {
    let place = ALL.iter().position(|&other| std::ptr::eq(other, row));
    place.expect("the table has the types of all values")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::module::Id;

    #[test]
    fn rows_are_sound() {
        // A cold entry has 5 bits for the place.
        assert!(ALL.len() <= 32);
        for (place, row) in ALL.iter().enumerate() {
            assert_eq!(self::place(row), place);
            assert_eq!(Id::new(row.name, row.version).name(), row.name);
            assert!(row.reads.contains(&row.version), "{} reads what it writes", row.name);
            assert_eq!(ALL.iter().filter(|other| other.name == row.name).count(), 1);
        }
    }
}
