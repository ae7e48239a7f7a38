//! The thresholds between compact and general encodings of a value.

use crate::spec::range::{ANY_INT, COUNT, LONG, SIZE};
use crate::spec::{Spec, flag, int, memory};

pub(super) const OPTIONS: &[Spec] = &[
    int("hash-max-listpack-entries", LONG, "512", "fields of a listpack hash")
        .alias(&["hash-max-ziplist-entries"]),
    memory("hash-max-listpack-value", SIZE, "64", "bytes of a field or value of a listpack hash")
        .alias(&["hash-max-ziplist-value"]),
    flag("hash-shared-fields", "yes", "keep the field names that small hashes share once"),
    int(
        "list-max-listpack-size",
        ANY_INT,
        "-2",
        "entries of a list node, or -1 to -5 for 4 to 64 kB",
    )
    .alias(&["list-max-ziplist-size"]),
    int(
        "list-compress-depth",
        COUNT,
        "0",
        "nodes at the ends of a list that stay uncompressed; 0 compresses none",
    )
    .not_yet(),
    int("set-max-intset-entries", LONG, "512", "elements of an integer set"),
    int("set-max-listpack-entries", LONG, "128", "elements of a listpack set"),
    int("set-max-listpack-value", LONG, "64", "bytes of an element of a listpack set"),
    int("zset-max-listpack-entries", LONG, "128", "elements of a listpack sorted set")
        .alias(&["zset-max-ziplist-entries"]),
    memory("zset-max-listpack-value", SIZE, "64", "bytes of an element of a listpack sorted set")
        .alias(&["zset-max-ziplist-value"]),
    memory("hll-sparse-max-bytes", SIZE, "3000", "bytes of a sparse HyperLogLog"),
    memory("stream-node-max-bytes", SIZE, "4096", "bytes of a stream node; 0 is no limit"),
    int("stream-node-max-entries", LONG, "100", "entries of a stream node; 0 is no limit"),
];
