//! Filters and sketches: values that answer questions about what was added to them, within a known
//! error, in a fraction of the memory that the items would take.
//!
//! | module | names in files | what it answers |
//! |---|---|---|
//! | [`bloom`] | `MBbloom--`, `bloomfltr` | whether an item was added; never wrongly no |
//! | [`cuckoo`] | `MBbloomCF` | the same, for items that can be removed |
//! | [`cms`] | `CMSk-TYPE` | how often an item was counted; never too low |
//! | [`tdigest`] | `TDIS-TYPE` | quantiles and ranks of numbers |
//! | [`topk`] | `TopK-TYPE` | the most frequent items |
//!
//! Layouts of dumps and files are those of Redis, so that values can be exchanged with it. They are
//! taken from descriptions and programs under permissive licences (each module names its sources)
//! and from the public tests of Redis, not from its code.
//!
//! Files and dumped chunks are hostile by assumption: everything is checked before it is used,
//! nothing panics, and nothing is allocated beyond the limit that the caller gives.

pub mod bloom;
pub mod cms;
pub mod cuckoo;
pub mod tdigest;
pub mod topk;
pub mod types;
