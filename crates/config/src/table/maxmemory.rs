//! Memory limit, eviction, expiry, freeing and defragmentation.

use crate::choices::MaxmemoryPolicy;
use crate::spec::range::{ANY_SIZE, COUNT};
use crate::spec::{Spec, choice, flag, int, memory};

pub(super) const OPTIONS: &[Spec] = &[
    memory("maxmemory", ANY_SIZE, "0", "memory the data may use; 0 is no limit"),
    flag(
        "maxmemory-from-limit",
        "no",
        "without maxmemory, use three quarters of the container's memory limit",
    )
    .immutable(),
    choice(
        "maxmemory-policy",
        MaxmemoryPolicy::CHOICES,
        "noeviction",
        "what to give up at the limit",
    ),
    int("maxmemory-samples", (1, 64), "5", "keys compared to find one to evict"),
    int("maxmemory-eviction-tenacity", (0, 100), "10", "how long a turn of eviction may take"),
    int("lfu-log-factor", COUNT, "10", "how slowly the LFU counter grows"),
    int("lfu-decay-time", COUNT, "1", "minutes after which the LFU counter halves"),
    int("active-expire-effort", (1, 10), "1", "how hard to look for expired keys"),
    flag("lazyfree-lazy-eviction", "yes", "tell replicas to free evicted values in the background"),
    flag("lazyfree-lazy-expire", "yes", "tell replicas to free expired values in the background"),
    flag(
        "lazyfree-lazy-server-del",
        "yes",
        "tell replicas to free replaced values in the background",
    ),
    flag("lazyfree-lazy-user-del", "yes", "DEL frees in the background, as UNLINK does").not_yet(),
    flag("lazyfree-lazy-user-flush", "yes", "FLUSHALL and FLUSHDB free in the background"),
    flag("activedefrag", "no", "move values to make memory whole again"),
    memory(
        "active-defrag-ignore-bytes",
        (1, i64::MAX as u64),
        "100mb",
        "waste below which nothing is moved",
    ),
    int(
        "active-defrag-threshold-lower",
        (0, 1000),
        "10",
        "percentage of waste from which values are moved",
    ),
    int(
        "active-defrag-threshold-upper",
        (0, 1000),
        "100",
        "percentage of waste at which effort is greatest",
    ),
    int("active-defrag-cycle-min", (1, 99), "1", "least CPU percentage"),
    int("active-defrag-cycle-max", (1, 99), "25", "greatest CPU percentage"),
    int("active-defrag-cycle-us", (0, 100_000), "500", "length of one turn in microseconds"),
    int(
        "active-defrag-max-scan-fields",
        (1, i64::MAX),
        "1000",
        "elements from which a value is moved piecewise",
    ),
    flag("jemalloc-bg-thread", "yes", "return memory to the kernel in the background").not_yet(),
    flag(
        "import-mode",
        "no",
        "while data is imported, delete nothing unasked: keys that expired, or for room",
    ),
];
