//! What the types are for files and the keyspace.

use crate::bloom::{self, Bloom, Family};
use crate::cms::{self, Cms};
use crate::cuckoo::{self, Cuckoo};
use crate::tdigest::{self, TDigest};
use crate::topk::{self, TopK};
use rdb::module::{Type, Value, Writer};

/// Bytes of a value that count as an element, by which commands are found to be long.
const ELEMENT_BYTES: usize = 64;

/// The row of Redis's Bloom filters.
pub static BLOOM: Type = Type {
    name: bloom::file::NAME,
    version: bloom::file::VERSION,
    reads: bloom::file::READ_VERSIONS,
    load: |from, version| Ok(Box::new(bloom::file::load(from, version)?)),
};

/// The row of Valkey's Bloom filters.
pub static VALKEY_BLOOM: Type = Type {
    name: bloom::valkey::NAME,
    version: bloom::valkey::VERSION,
    reads: &[bloom::valkey::VERSION],
    load: |from, version| Ok(Box::new(bloom::valkey::load(from, version)?)),
};

/// The row of cuckoo filters.
pub static CUCKOO: Type = Type {
    name: cuckoo::file::NAME,
    version: cuckoo::file::VERSION,
    reads: cuckoo::file::READ_VERSIONS,
    load: |from, version| Ok(Box::new(cuckoo::file::load(from, version)?)),
};

/// The row of count-min sketches.
pub static CMS: Type = Type {
    name: cms::NAME,
    version: cms::VERSION,
    reads: cms::READ_VERSIONS,
    load: |from, version| Ok(Box::new(Cms::load(from, version)?)),
};

/// The row of top-k sketches.
pub static TOPK: Type = Type {
    name: topk::NAME,
    version: topk::VERSION,
    reads: topk::READ_VERSIONS,
    load: |from, version| Ok(Box::new(TopK::load(from, version)?)),
};

/// The row of t-digests.
pub static TDIGEST: Type = Type {
    name: tdigest::NAME,
    version: tdigest::VERSION,
    reads: tdigest::READ_VERSIONS,
    load: |from, version| Ok(Box::new(TDigest::load(from, version)?)),
};

/// Implements [`Value`] for a type of one row; `$blocks` counts what freeing it takes.
macro_rules! value {
    ($type:ty, $row:expr, $save:expr, $blocks:expr) => {
        impl Value for $type {
            fn row(&self) -> &'static Type {
                $row(self)
            }
            fn save(&self, to: &mut Writer<'_>) {
                $save(self, to);
            }
            fn duplicate(&self) -> Box<dyn Value> {
                Box::new(self.clone())
            }
            fn allocated_bytes(&self) -> usize {
                size_of::<Self>() + <$type>::allocated_bytes(self)
            }
            fn free_effort(&self) -> usize {
                1 + $blocks(self)
            }
            fn elements(&self) -> usize {
                1 + <$type>::allocated_bytes(self) / ELEMENT_BYTES
            }
        }
    };
}

fn bloom_row(bloom: &Bloom) -> &'static Type {
    match bloom.family() {
        Family::Murmur => &BLOOM,
        Family::Sip(_) => &VALKEY_BLOOM,
    }
}

fn save_bloom(bloom: &Bloom, to: &mut Writer<'_>) {
    match bloom.family() {
        Family::Murmur => bloom::file::save(bloom, to),
        Family::Sip(_) => bloom::valkey::save(bloom, to),
    }
}

value!(Bloom, bloom_row, save_bloom, |it: &Bloom| it.layers().len());
value!(Cuckoo, |_: &Cuckoo| &CUCKOO, cuckoo::file::save, |it: &Cuckoo| it.layers());
value!(Cms, |_: &Cms| &CMS, Cms::save, |_: &Cms| 1);
value!(TopK, |_: &TopK| &TOPK, TopK::save, |it: &TopK| it.k());
value!(TDigest, |_: &TDigest| &TDIGEST, TDigest::save, |_: &TDigest| 1);
