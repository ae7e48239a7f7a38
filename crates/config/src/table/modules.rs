//! Filters, sketches and time series: what those have that requests create without saying more,
//! under the names that Redis 8 has for it.

use crate::checks;
use crate::choices::{SeriesEncoding, SeriesPolicy};
use crate::spec::range::{LONG, SIZE};
use crate::spec::{Spec, choice, int, memory, text};

/// The most that a filter that no request has reserved has space for.
const ITEMS: i64 = 1 << 20;

pub(super) const OPTIONS: &[Spec] = &[
    memory(
        "bf-max-memory",
        SIZE,
        "512mb",
        "bytes of a filter or sketch that commands create or grow",
    ),
    text("bf-error-rate", "0.01", "error rate of a Bloom filter that is created without one")
        .checked(checks::error_rate),
    int("bf-initial-size", (1, ITEMS), "100", "items of a Bloom filter that is created without"),
    int(
        "bf-expansion-factor",
        (0, 32768),
        "2",
        "growth of a Bloom filter that is created without one; 0 is none",
    ),
    int("cf-initial-size", (2, ITEMS), "1024", "items of a cuckoo filter that is created without"),
    int("cf-bucket-size", (1, 255), "2", "items in a bucket of a cuckoo filter"),
    int("cf-max-iterations", (1, 65535), "20", "moves for one item of a cuckoo filter"),
    int(
        "cf-expansion-factor",
        (0, 32768),
        "1",
        "growth of a cuckoo filter that is created without one; 0 is none",
    ),
    int("cf-max-expansions", (1, 65535), "32", "parts of a cuckoo filter").not_yet(),
    text(
        "ts-compaction-policy",
        "",
        "rules of a time series that TS.ADD, TS.INCRBY or TS.DECRBY creates, as in \
         max:1M:1h;avg:1h:30d",
    )
    .checked(checks::compaction_policy),
    choice(
        "ts-duplicate-policy",
        SeriesPolicy::CHOICES,
        "block",
        "what a time series that is created without a policy does with a second sample of a time",
    ),
    choice(
        "ts-encoding",
        SeriesEncoding::CHOICES,
        "compressed",
        "how series that ts-compaction-policy makes keep samples",
    ),
    int(
        "ts-retention-policy",
        LONG,
        "0",
        "milliseconds that a series keeps samples; 0 is for good",
    ),
    int(
        "ts-chunk-size-bytes",
        (48, 1 << 20),
        "4096",
        "bytes of a chunk of a time series, rounded down to a multiple of 8",
    ),
    int(
        "ts-ignore-max-time-diff",
        LONG,
        "0",
        "milliseconds after the last sample within which a similar one is left out",
    ),
    text(
        "ts-ignore-max-val-diff",
        "0",
        "difference of values up to which a sample is similar to the last one",
    )
    .checked(checks::value_difference),
    int("ts-num-threads", (1, 16), "3", "threads for queries of many series").not_yet(),
];
