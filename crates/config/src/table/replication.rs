//! Primaries and replicas.

use crate::choices::{CommitMode, PropagationErrorBehavior, ReplDisklessLoad, ReplicaRdbVersion};
use crate::spec::range::{COUNT, LONG, PORT, POSITIVE, SIZE};
use crate::spec::{Kind, Spec, choice, flag, int, memory, optional, special};

pub(super) const OPTIONS: &[Spec] = &[
    special("replicaof", Kind::ReplicaOf, "", "host and port of the primary")
        .alias(&["slaveof"])
        .immutable(),
    optional("primaryuser", "user a replica logs in as").alias(&["masteruser"]).sensitive(),
    optional("primaryauth", "password a replica logs in with").alias(&["masterauth"]).sensitive(),
    flag("replica-serve-stale-data", "yes", "answer while the primary is away")
        .alias(&["slave-serve-stale-data"]),
    flag("replica-read-only", "yes", "refuse writes on a replica").alias(&["slave-read-only"]),
    flag("replica-ignore-maxmemory", "yes", "let only the primary evict")
        .alias(&["slave-ignore-maxmemory"]),
    flag("replica-lazy-flush", "yes", "free the old data set in the background")
        .alias(&["slave-lazy-flush"]),
    flag("replica-announced", "yes", "be listed by Sentinel"),
    flag("replica-ignore-disk-write-errors", "no", "keep replicating while the disk fails")
        .not_yet(),
    int("replica-priority", COUNT, "100", "rank for promotion by Sentinel; 0 is never promoted")
        .alias(&["slave-priority"]),
    optional("replica-announce-ip", "address told to the primary").alias(&["slave-announce-ip"]),
    int("replica-announce-port", PORT, "0", "port told to the primary")
        .alias(&["slave-announce-port"]),
    memory(
        "replica-full-sync-buffer-limit",
        SIZE,
        "0",
        "most of the stream that a replica keeps while it loads a snapshot that comes over another \
         connection; 0 is the hard client-output-buffer-limit of replicas",
    ),
    flag("repl-diskless-sync", "yes", "send snapshots to replicas without a file"),
    int("repl-diskless-sync-delay", COUNT, "5", "seconds to wait for more replicas"),
    int(
        "repl-diskless-sync-max-replicas",
        COUNT,
        "0",
        "replicas that end the wait; 0 waits in any case",
    ),
    choice(
        "repl-diskless-load",
        ReplDisklessLoad::CHOICES,
        "disabled",
        "how a replica loads without a file",
    )
    .not_while_loading(),
    flag(
        "repl-rdb-channel",
        "no",
        "snapshots of replication go over a second connection, as with Redis 8",
    )
    .hidden(),
    flag(
        "dual-channel-replication-enabled",
        "no",
        "snapshots of replication go over a second connection, as with Valkey 8",
    ),
    int("repl-ping-replica-period", POSITIVE, "10", "seconds between pings to replicas")
        .alias(&["repl-ping-slave-period"]),
    int("repl-timeout", POSITIVE, "60", "seconds after which a link counts as dead"),
    flag("repl-disable-tcp-nodelay", "no", "save packets at the price of delay").not_yet(),
    flag("repl-mptcp", "no", "use multipath TCP to the primary").immutable().not_yet(),
    memory(
        "repl-backlog-size",
        (1, i64::MAX as u64),
        "10mb",
        "history kept for replicas that come back",
    ),
    int("repl-backlog-ttl", LONG, "3600", "seconds the history is kept without replicas"),
    int("min-replicas-to-write", COUNT, "0", "replicas without which writes are refused")
        .alias(&["min-slaves-to-write"]),
    int("min-replicas-max-lag", COUNT, "10", "seconds a replica may lag and still count")
        .alias(&["min-slaves-max-lag"]),
    choice(
        "replica-rdb-version",
        ReplicaRdbVersion::CHOICES,
        "auto",
        "RDB version for replicas that do not name theirs; auto is 10, and what rdb-version says for tools if fields expire",
    ),
    choice(
        "commit-mode",
        CommitMode::CHOICES,
        "memory",
        "copies that a write has before its reply leaves",
    ),
    int("commit-quorum", POSITIVE, "1", "replicas that must have a write, with commit-mode quorum"),
    flag("commit-quorum-fsync", "no", "they must have it on their disks"),
    int(
        "commit-timeout-ms",
        LONG,
        "5000",
        "milliseconds after which a write is answered with an error; 0 is never",
    ),
    choice(
        "propagation-error-behavior",
        PropagationErrorBehavior::CHOICES,
        "ignore",
        "when a command of the primary's stream or of the append-only file fails: log it, or crash; \
         panic-on-replicas crashes for the stream alone",
    ),
];
